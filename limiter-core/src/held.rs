//! The slots that an admitted request holds, until it lets go of them.

use std::sync::Arc;

use smallvec::SmallVec;

#[cfg(feature = "redis")]
use crate::holdings::Holdings;
use crate::{
    clock::Timestamp,
    decision::{Decision, Verdict},
    policy::Policy,
    settlement::{Change, Settlement},
    store::{Ask, Store},
};

/// What an admitted request holds of [limits of concurrency](crate::algorithm::Concurrency): all of it is given back when
/// this, and every clone of it, is dropped. Keep it for as long as the request runs.
#[derive(Clone, Debug)]
pub struct Held {
    slots: SmallVec<[Arc<Slot>; 1]>,
}

/// Where slots go back to.
#[derive(Clone, Debug)]
pub(crate) enum Keeper {
    /// The store that decided.
    Store(Arc<dyn Store>),
    /// What this process holds, wherever it was decided.
    #[cfg(feature = "redis")]
    Process(Arc<Holdings>),
}

/// Slots of one counter.
#[derive(Debug)]
struct Slot {
    policy: Arc<Policy>,
    key: Box<str>,
    units: u64,
    keeper: Keeper,
}

/// Who is told is no part of a decision.
impl PartialEq for Held {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Held {}

impl Held {
    /// Hands what a decision over `asks` took to the request. A request that is refused holds nothing: what it took all
    /// the same, of a candidate, is given back. Does nothing the second time.
    pub(crate) fn claim(decision: &mut Decision, asks: &[Ask<'_>], keeper: impl Fn() -> Keeper) {
        if decision.held.is_some() {
            return;
        }
        let is_refused = decision.verdict != Verdict::Allowed;
        let mut slots = SmallVec::new();
        for (ask, reading) in asks.iter().zip(&mut decision.readings) {
            if reading.taken == 0 || !ask.policy.algorithm().holds() {
                continue;
            }
            slots.push(Arc::new(Slot {
                policy: Arc::clone(ask.policy),
                key: ask.key.into(),
                units: reading.taken,
                keeper: keeper(),
            }));
            if is_refused {
                reading.remaining += std::mem::take(&mut reading.taken);
            }
        }
        decision.held = (!slots.is_empty() && !is_refused).then(|| Box::new(Self { slots }));
    }

    /// Both: those of a request that several stores decided.
    pub(crate) fn join(held: &mut Option<Box<Self>>, other: Option<Box<Self>>) {
        match (held, other) {
            (Some(held), Some(other)) => held.slots.extend(other.slots),
            (held @ None, other) => *held = other,
            (Some(_), None) => {}
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        match &self.keeper {
            Keeper::Store(store) => store.settle(vec![give_back(&self.policy, &self.key, self.units)]),
            #[cfg(feature = "redis")]
            Keeper::Process(holdings) => holdings.release(&self.policy, &self.key, self.units),
        }
    }
}

/// Slots are given back whenever they were taken.
pub(crate) fn give_back(policy: &Arc<Policy>, key: &str, units: u64) -> Settlement {
    let at = Timestamp::from_micros(1);
    Settlement::new(Arc::clone(policy), key, Change::GiveBack { units, at })
}
