//! Group commit: while calls are on their way, requests wait together and leave in the next one.
//!
//! With `i` calls on their way the next one leaves when `2^i` requests wait: a lone request leaves at once, and under
//! load calls grow instead of becoming many. No tuning for the distance to the server is needed, and nobody starves:
//! once the last call has returned, one request is enough, and a call returns with the deadline of the last one in it,
//! which is before that of anyone who waits. "Leaves at once" means: with whoever else is ready in the same moment. A
//! worker reads many requests at a time, and the first of them should not leave without the others.
//!
//! Nothing here waits or sends, so that the rule can be tested on its own.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;
use tokio::{runtime::Handle, sync::oneshot};

use super::{
    node::Decided,
    script::{KEYS_MAX, REQUESTS_MAX},
};
use crate::{clock::Timestamp, decision::INLINE_LAYERS, settlement::Settlement, store::OwnedAsks};

/// Calls on their way at once, at most.
const MAX_CALLS: u32 = 8;
/// Requests that wait, at most. More would not be served within a deadline.
const MAX_WAITING: usize = 8192;
/// Settlements that wait, at most: as many as a ledger of the fallback holds, since all its debts may come at once.
const MAX_SETTLEMENTS: usize = 131_072;
/// Settlements a call, at most: requests have a deadline, and settlements have none.
const SETTLEMENTS_A_CALL: usize = KEYS_MAX / 4;
/// Counters of which a call that is alone says how many slots are held, at most.
pub(super) const HOLDS_A_CALL: usize = KEYS_MAX / 2;

/// A request that waits for its decision.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: OwnedAsks,
    /// A hash of each counter that it names. (If two meet, a call is split that need not be, or the batch splits it.)
    pub(super) counters: SmallVec<[u64; INLINE_LAYERS]>,
    /// The slot of a cluster that all of them lie in; 0 elsewhere.
    pub(super) slot: u16,
    /// Whether any of its layers takes slots that are held.
    pub(super) holds: bool,
    /// In our time: from here on nobody waits for the answer.
    pub(super) deadline: Timestamp,
    /// `None` once answered.
    pub(super) answer: Option<oneshot::Sender<Decided>>,
    /// The runtime in which it waits, where it is one.
    pub(super) home: Option<Handle>,
}

impl Waiter {
    /// Answers. An answer that nobody waits for any more is dropped.
    pub(super) fn answer(&mut self, result: Decided) {
        if let Some(answer) = self.answer.take() {
            drop(answer.send(result));
        }
    }

    /// Whether nobody waits for the answer.
    pub(super) fn is_gone(&self) -> bool {
        self.answer.as_ref().is_none_or(oneshot::Sender::is_closed)
    }
}

/// As many wait as can be served within a deadline.
#[derive(Debug)]
pub(super) struct Full;

/// What leaves together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) waiters: Vec<Waiter>,
    pub(super) settlements: Vec<(u16, Settlement)>,
    /// No other call is on its way.
    pub(super) is_alone: bool,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.waiters.is_empty() && self.settlements.is_empty()
    }

    /// Divided into as many as there are requests and settlements.
    pub(super) fn one_by_one(self) -> impl Iterator<Item = Self> {
        let requests = self.waiters.into_iter().map(|waiter| Self {
            waiters: vec![waiter],
            ..Self::default()
        });
        let settlements = self.settlements.into_iter().map(|settlement| Self {
            settlements: vec![settlement],
            ..Self::default()
        });
        requests.chain(settlements)
    }

    /// Divided by the slots of a cluster, in order of their first request.
    pub(super) fn by_slot(self) -> Vec<Self> {
        let slots = || {
            let settled = self.settlements.iter().map(|(slot, _)| *slot);
            self.waiters.iter().map(|waiter| waiter.slot).chain(settled)
        };
        let Some(first) = slots().next() else {
            return Vec::new();
        };
        if slots().all(|slot| slot == first) {
            return vec![self];
        }
        let mut parts = Parts::default();
        for waiter in self.waiters {
            parts.of(waiter.slot).waiters.push(waiter);
        }
        for settlement in self.settlements {
            parts.of(settlement.0).settlements.push(settlement);
        }
        parts.list
    }
}

/// Parts of a batch, each of one slot.
#[derive(Default)]
struct Parts {
    list: Vec<Batch>,
    index: HashMap<u16, usize>,
}

impl Parts {
    fn of(&mut self, slot: u16) -> &mut Batch {
        let at = *self.index.entry(slot).or_insert_with(|| {
            self.list.push(Batch::default());
            self.list.len() - 1
        });
        &mut self.list[at]
    }
}

/// What waits.
#[derive(Debug, Default)]
pub(super) struct Group(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In order of arrival, and so of their deadlines.
    waiting: VecDeque<Waiter>,
    /// In order of arrival, each with the slot of its counter.
    settlements: VecDeque<(u16, Settlement)>,
    /// Calls on their way.
    calls: u32,
    /// A call is about to leave, with whoever comes in the same moment.
    gathering: bool,
    alone: Alone,
}

/// Whether a call is alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Alone {
    /// None is, nor has to be.
    #[default]
    No,
    /// The next one is to be.
    Wanted,
    /// The one that is on its way is.
    OnItsWay,
}

impl Group {
    /// Adds a request. Whether a call may leave with it: then [`Group::gathered`] is owed, after whoever is ready at the
    /// same moment was added too.
    ///
    /// # Errors
    /// [`Full`], where too many wait.
    pub(super) fn push(&self, waiter: Waiter) -> Result<bool, Full> {
        let mut state = self.lock();
        if state.waiting.len() >= MAX_WAITING {
            return Err(Full);
        }
        state.waiting.push_back(waiter);
        let begins = !state.gathering && state.may_leave();
        state.gathering |= begins;
        Ok(begins)
    }

    /// Those who came together are all there. Gives the calls that leave now: for each, [`Group::returned`] is owed.
    pub(super) fn gathered(&self) -> SmallVec<[Batch; 1]> {
        let mut state = self.lock();
        state.gathering = false;
        state.next_calls()
    }

    /// Adds settlements, which leave with the next calls. Says how many had no place.
    pub(super) fn settle(&self, settlements: impl IntoIterator<Item = (u16, Settlement)>) -> usize {
        let queue = &mut self.lock().settlements;
        let mut dropped = 0;
        for settlement in settlements {
            if queue.len() < MAX_SETTLEMENTS {
                queue.push_back(settlement);
            } else {
                dropped += 1;
            }
        }
        dropped
    }

    /// The next call is to be alone, or need not be any more: it leaves once no other is on its way, and none leaves before
    /// it has returned. It may be empty.
    pub(super) fn want_alone(&self, is_wanted: bool) {
        let mut state = self.lock();
        state.alone = match (state.alone, is_wanted) {
            (Alone::OnItsWay, _) => Alone::OnItsWay,
            (_, true) => Alone::Wanted,
            (_, false) => Alone::No,
        };
    }

    /// The call that leaves now, if one does: [`Group::returned`] is owed for it.
    pub(super) fn next(&self) -> Option<Batch> {
        self.lock().next_call()
    }

    /// A call has ended. Gives the calls that leave now; for each of them this is owed again.
    pub(super) fn returned(&self) -> SmallVec<[Batch; 1]> {
        let mut state = self.lock();
        state.calls = state.calls.saturating_sub(1);
        if state.alone == Alone::OnItsWay {
            state.alone = Alone::No;
        }
        state.next_calls()
    }

    /// Takes out all requests that wait.
    pub(super) fn drain(&self) -> VecDeque<Waiter> {
        std::mem::take(&mut self.lock().waiting)
    }

    /// Takes out all settlements that wait.
    pub(super) fn take_settlements(&self) -> VecDeque<(u16, Settlement)> {
        std::mem::take(&mut self.lock().settlements)
    }

    /// Settlements that wait, and whether calls are on their way.
    pub(super) fn unsettled(&self) -> (usize, bool) {
        let state = self.lock();
        (state.settlements.len(), state.calls > 0)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is complete before anything could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn may_leave(&self) -> bool {
        match self.alone {
            Alone::No => self.calls < MAX_CALLS && self.waiting.len() + self.settlements.len() >= 1 << self.calls,
            Alone::Wanted => self.calls == 0,
            Alone::OnItsWay => false,
        }
    }

    fn next_calls(&mut self) -> SmallVec<[Batch; 1]> {
        std::iter::from_fn(|| self.next_call()).collect()
    }

    fn next_call(&mut self) -> Option<Batch> {
        if !self.may_leave() {
            return None;
        }
        if self.alone == Alone::Wanted {
            (self.alone, self.calls) = (Alone::OnItsWay, 1);
            let batch = self.take(HOLDS_A_CALL);
            let is_alone = true;
            return Some(Batch { is_alone, ..batch });
        }
        let batch = self.take(0);
        if batch.is_empty() {
            return None;
        }
        self.calls += 1;
        Some(batch)
    }

    /// From the front, as much as a call may carry that names `others` besides.
    fn take(&mut self, others: usize) -> Batch {
        let count = self.settlements.len().min(SETTLEMENTS_A_CALL);
        // More of the last one's are one with it. Else requests would overtake the slots that they need.
        let queue = self.settlements.iter().skip(count.saturating_sub(1));
        let more = queue
            .clone()
            .zip(queue.skip(1))
            .take_while(|((_, last), (_, next))| next.is_one_with(last));
        let more = if count > 0 { more.count() } else { 0 };
        let settlements: Vec<_> = self.settlements.drain(..count + more).collect();
        // Their counters are not compared with those of the requests: each takes a place of its own.
        let waiters = self.take_waiters(KEYS_MAX - count - others);
        Batch {
            waiters,
            settlements,
            is_alone: false,
        }
    }

    /// Requests that name at most `keys_max` counters. Those that nobody waits for are dropped.
    fn take_waiters(&mut self, keys_max: usize) -> Vec<Waiter> {
        let mut batch = Vec::with_capacity(self.waiting.len().min(REQUESTS_MAX));
        let mut named = 0;
        // Filled only where it matters: most calls name fewer keys than are allowed, even counted twice.
        let mut distinct: Option<HashSet<u64>> = None;
        while batch.len() < REQUESTS_MAX
            && let Some(waiter) = self.waiting.pop_front()
        {
            if waiter.is_gone() {
                continue;
            }
            named += waiter.counters.len();
            if named > keys_max {
                let seen = distinct.get_or_insert_with(|| {
                    batch
                        .iter()
                        .flat_map(|waiter: &Waiter| &waiter.counters)
                        .copied()
                        .collect()
                });
                let more = waiter.counters.iter().filter(|hash| !seen.contains(hash)).count();
                if seen.len() + more > keys_max && !batch.is_empty() {
                    self.waiting.push_front(waiter);
                    break;
                }
                seen.extend(&waiter.counters);
            }
            batch.push(waiter);
        }
        batch
    }
}

#[cfg(test)]
mod tests;
