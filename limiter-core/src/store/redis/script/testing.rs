//! What the comparison of script and reference needs to see. Not part of the library.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;

use super::{Added, Replay, Reply, Script, ScriptClock};
use crate::{
    algorithm::{Algorithm, Counter, Lease, Log, Warming},
    clock::Timestamp,
    decide::{Layer, decide},
    decision::Decision,
    policy::Policy,
    settlement::{Change, Settlement},
    store::{Ask, StoreError},
};

/// The text of the script; with `given_clock`, the one whose time is its last argument.
#[must_use]
pub fn script_text(given_clock: bool) -> String {
    let clock = if given_clock {
        ScriptClock::Given
    } else {
        ScriptClock::Server
    };
    Script::new(clock).text().to_owned()
}

/// Requests for one call.
#[derive(Debug, Default)]
pub struct Batch(super::Batch);

/// What a call answered.
#[derive(Debug)]
pub enum Answered {
    /// Too late: nothing was done.
    Late(Timestamp),
    /// The time, the decisions, and on how many of them script and replay disagree.
    Decided(Timestamp, Vec<Decision>, usize),
}

/// A change that asks for nothing.
#[derive(Clone, Copy, Debug)]
pub enum Settle {
    /// So many units are taken.
    Debit(u64),
    /// So many, which were taken at a time, are given back.
    GiveBack(u64, Timestamp),
    /// So many, of one who leaves a queue that is empty at a time if nobody stands behind.
    LeaveQueue(u64, Timestamp),
    /// So many are what is held.
    Hold(u64),
}

impl From<Settle> for Change {
    fn from(settle: Settle) -> Self {
        match settle {
            Settle::Debit(units) => Self::Debit(units),
            Settle::GiveBack(units, at) => Self::GiveBack { units, at },
            Settle::LeaveQueue(units, empty_at) => Self::LeaveQueue { units, empty_at },
            Settle::Hold(units) => Self::Hold(units),
        }
    }
}

impl Batch {
    /// A batch of the gateway that holds by this number, below 2^53.
    #[must_use]
    pub fn of(holder: u64) -> Self {
        Self(super::Batch::new(holder))
    }

    /// Adds a request; `false` if it has no place.
    pub fn add(&mut self, asks: &[Ask<'_>]) -> bool {
        self.0.add(asks) == Added::Yes
    }

    /// Adds a settlement; `false` if it has no place.
    pub fn settle(&mut self, policy: &Arc<Policy>, key: &str, settle: Settle) -> bool {
        let settlement = Settlement::new(Arc::clone(policy), key, settle.into());
        self.0.settle(&settlement) == Added::Yes
    }

    /// `KEYS` and `ARGV`, without windows of a calendar.
    #[must_use]
    pub fn arguments(&self, prefix: &str, not_after: Option<Timestamp>) -> (Vec<Bytes>, Vec<Bytes>) {
        self.arguments_about(prefix, not_after, Timestamp::from_micros(0))
    }

    /// `KEYS` and `ARGV`, at about that time of the server.
    #[must_use]
    pub fn arguments_about(
        &self,
        prefix: &str,
        not_after: Option<Timestamp>,
        about: Timestamp,
    ) -> (Vec<Bytes>, Vec<Bytes>) {
        let arguments = self.0.arguments(prefix, not_after, about);
        (arguments.keys, arguments.args)
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// Where it is none to this batch.
    pub fn replay(&self, reply: &[u8]) -> Result<Answered, StoreError> {
        Ok(match self.0.replay(reply)? {
            Reply::Late(now) => Answered::Late(now),
            Reply::Decided(replay) => Answered::Decided(replay.now, replay.decisions, replay.drift),
        })
    }

    /// After a call that was answered: of each counter, the name without the store's prefix, and the whole units that are
    /// free.
    ///
    /// # Errors
    /// Where this is no answer, or came too late.
    pub fn free_after(&self, reply: &[u8]) -> Result<Vec<(String, u64)>, StoreError> {
        let replay = self.decided(reply)?;
        let free = |((policy, key), counter): ((&Arc<Policy>, &str), &Counter)| {
            let name = [policy.key_prefix(), key].concat();
            (name, policy.algorithm().free(counter))
        };
        Ok(self.0.keys().zip(&replay.counters).map(free).collect())
    }

    /// How many foreign values the call wrote over.
    ///
    /// # Errors
    /// Where this is no answer, or came too late.
    pub fn replaced(&self, reply: &[u8]) -> Result<usize, StoreError> {
        Ok(self.decided(reply)?.replaced)
    }

    fn decided(&self, reply: &[u8]) -> Result<Replay, StoreError> {
        match self.0.replay(reply)? {
            Reply::Decided(replay) => Ok(replay),
            Reply::Late(_) => Err(StoreError::Protocol("too late")),
        }
    }
}

/// The reference: counters, and the arithmetic in Rust, one request after the other.
#[derive(Debug, Default)]
pub struct Model {
    counters: HashMap<String, Counter>,
    /// Who asks and settles: the holder of what is taken where units are held.
    holder: u64,
}

/// What Redis would hold under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// No such key.
    Nothing,
    /// Doubles, in one string.
    Numbers(Vec<u64>),
    /// Doubles, a list of them.
    Times(Vec<u64>),
}

impl Model {
    /// From now on this gateway asks and settles.
    pub fn set_holder(&mut self, holder: u64) {
        self.holder = holder;
    }

    /// What is stored under a name, as the holder sees it.
    fn find(&self, name: &str, now: Timestamp) -> Option<Counter> {
        self.counters.get(name).map(|counter| match counter {
            Counter::Slots(slots) => Counter::Slots(slots.clone().take_out(self.holder, now.as_micros())),
            other => other.clone(),
        })
    }

    /// What the holder stores under a name.
    fn put(&mut self, name: String, algorithm: &Algorithm, counter: Counter, now: Timestamp) {
        let counter = match (algorithm, counter) {
            (Algorithm::Concurrency(a), Counter::Slots(slots)) => {
                Counter::Slots(slots.put_back(self.holder, now.as_micros(), a.lease()))
            }
            (_, counter) => counter,
        };
        if algorithm.expires_at(&counter) > now {
            self.counters.insert(name, counter);
        } else {
            self.counters.remove(&name);
        }
    }

    /// Decides one request.
    pub fn decide(&mut self, asks: &[Ask<'_>], now: Timestamp) -> Decision {
        let names: Vec<String> = asks.iter().map(|ask| name(ask)).collect();
        let layers: Vec<Layer<'_>> = (asks.iter())
            .map(|ask| Layer {
                algorithm: ask.policy.algorithm(),
                role: ask.policy.role(),
                cost: ask.cost,
                gives_back: ask.policy.gives_back(),
            })
            .collect();
        let stored: Vec<Option<Counter>> = names.iter().map(|name| self.counters.get(name).cloned()).collect();
        let mut counters: Vec<Counter> = (layers.iter().zip(&names))
            .map(|(layer, name)| layer.algorithm.load(self.find(name, now), now))
            .collect();
        let outdated: Vec<bool> = (layers.iter().zip(&stored).zip(&counters))
            .map(|((layer, stored), loaded)| {
                stored
                    .as_ref()
                    .is_some_and(|stored| outdated(layer, stored, loaded, now))
            })
            .collect();
        let decision = decide(&layers, &mut counters, now);
        for (index, (name, counter)) in names.into_iter().zip(counters).enumerate() {
            if outdated[index] || decision.readings[index].taken > 0 {
                self.put(name, layers[index].algorithm, counter, now);
            }
        }
        decision
    }

    /// Applies a settlement to the counter that `ask` names.
    pub fn settle(&mut self, ask: &Ask<'_>, settle: Settle, now: Timestamp) {
        let (algorithm, name) = (ask.policy.algorithm(), name(ask));
        let mut counter = algorithm.load(self.find(&name, now), now);
        algorithm.settle(&mut counter, settle.into(), now);
        self.put(name, algorithm, counter, now);
    }

    /// Whole units free of the counter that `ask` names.
    #[must_use]
    pub fn free(&self, ask: &Ask<'_>, now: Timestamp) -> u64 {
        let algorithm = ask.policy.algorithm();
        algorithm.free(&algorithm.load(self.counters.get(&name(ask)).cloned(), now))
    }

    /// What is stored for the counter that `ask` names.
    #[must_use]
    pub fn stored(&self, ask: &Ask<'_>) -> Stored {
        match self.counters.get(&name(ask)) {
            None => Stored::Nothing,
            Some(Counter::Bucket(c)) => Stored::Numbers(vec![c.used, c.at, c.units, c.period]),
            Some(Counter::Warming(c)) => {
                Stored::Numbers(vec![c.used, c.at, c.part, c.period, c.warmed, c.idle, c.time])
            }
            Some(Counter::Window(c)) => Stored::Numbers(vec![c.count, c.start, c.length]),
            Some(Counter::SubWindows(c)) => {
                let head = [c.head, c.grid.window, c.grid.buckets];
                Stored::Numbers(head.into_iter().chain(c.counts.iter().copied()).collect())
            }
            Some(Counter::Log(log)) => match &**log {
                Log::Times(times) => Stored::Times(times.iter().copied().collect()),
                Log::Summary(_) => Stored::Nothing,
            },
            Some(Counter::Slots(c)) => {
                let lease = |lease: &Lease| [lease.holder, lease.slots, lease.since, lease.span];
                Stored::Numbers(c.leases.iter().flat_map(lease).collect())
            }
        }
    }
}

fn name(ask: &Ask<'_>) -> String {
    [ask.policy.key_prefix(), ask.key].concat()
}

/// Whether a counter is written even if the request is refused: its parameters changed, or the clock stepped back.
fn outdated(layer: &Layer<'_>, stored: &Counter, loaded: &Counter, now: Timestamp) -> bool {
    let now = now.as_micros();
    match (layer.algorithm, stored, loaded) {
        (_, Counter::Bucket(stored), Counter::Bucket(loaded)) => {
            let other_rate = (stored.units, stored.period) != (loaded.units, loaded.period);
            loaded.used > 0 && (other_rate || stored.at > now)
        }
        (_, Counter::Warming(stored), Counter::Warming(own)) => {
            let rate = |state: &Warming| (state.part, state.period, state.time);
            let is_cold = layer.algorithm.expires_at(loaded).as_micros() <= now;
            !is_cold && (rate(stored) != rate(own) || stored.at > now)
        }
        (_, Counter::Bucket(_), Counter::Warming(_)) => layer.algorithm.expires_at(loaded).as_micros() > now,
        (_, Counter::Warming(_), Counter::Bucket(loaded)) => loaded.used > 0,
        (_, Counter::Window(stored), Counter::Window(loaded)) => {
            let runs = now < stored.start + stored.length;
            runs && (stored.start, stored.length) != (loaded.start, loaded.length)
        }
        (_, Counter::SubWindows(stored), Counter::SubWindows(loaded)) => {
            if stored.grid == loaded.grid {
                stored.head > loaded.head
            } else {
                loaded.counts.iter().any(|count| *count > 0)
            }
        }
        (Algorithm::SlidingWindowLog(_), Counter::Log(stored), _) => match &**stored {
            Log::Times(times) => times.back().is_some_and(|newest| *newest > now),
            Log::Summary(_) => false,
        },
        (_, Counter::Slots(stored), _) => stored.leases.iter().any(|lease| lease.since > now),
        _ => true,
    }
}
