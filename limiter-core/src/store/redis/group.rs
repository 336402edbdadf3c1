//! Group commit: while calls are on their way, requests wait together and leave in the next one.
//!
//! With `i` calls on their way the next one leaves when `2^i` requests wait: a lone request leaves at once, and under
//! load calls grow instead of becoming many. No tuning for the distance to the server is needed, and nobody starves:
//! once the last call has returned, one request is enough, and a call returns with the deadline of the last one in it,
//! which is before that of anyone who waits.
//!
//! Nothing here waits or sends, so that the rule can be tested on its own.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::script::{KEYS_MAX, REQUESTS_MAX};
use crate::{
    clock::Timestamp,
    decision::{Decision, INLINE_LAYERS},
    store::{OwnedAsks, StoreError},
};

/// Calls on their way at once, at most.
const MAX_CALLS: u32 = 8;
/// Requests that wait, at most. More would not be served within a deadline.
const MAX_WAITING: usize = 8192;

/// A request that waits for its decision.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) request: OwnedAsks,
    /// A hash of each counter that it names. (If two meet, a call is split that need not be, or the batch splits it.)
    pub(super) counters: SmallVec<[u64; INLINE_LAYERS]>,
    /// In our time: from here on nobody waits for the answer.
    pub(super) deadline: Timestamp,
    /// `None` once answered.
    pub(super) answer: Option<oneshot::Sender<Result<Decision, StoreError>>>,
}

impl Waiter {
    /// Answers. An answer that nobody waits for any more is dropped.
    pub(super) fn answer(&mut self, result: Result<Decision, StoreError>) {
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

/// What leaves in one call.
pub(super) type Batch = Vec<Waiter>;

/// The requests that wait.
#[derive(Debug, Default)]
pub(super) struct Group(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// In order of arrival, and so of their deadlines.
    waiting: VecDeque<Waiter>,
    /// Calls on their way.
    calls: u32,
}

impl Group {
    /// Adds a request. Gives the call that leaves now, if one does: [`Group::returned`] is owed for it.
    ///
    /// # Errors
    /// [`Full`], where too many wait.
    pub(super) fn push(&self, waiter: Waiter) -> Result<Option<Batch>, Full> {
        let mut state = self.lock();
        if state.waiting.len() >= MAX_WAITING {
            return Err(Full);
        }
        state.waiting.push_back(waiter);
        Ok(state.next_call())
    }

    /// A call has ended. Gives the calls that leave now; for each of them this is owed again.
    pub(super) fn returned(&self) -> SmallVec<[Batch; 1]> {
        let mut state = self.lock();
        state.calls = state.calls.saturating_sub(1);
        std::iter::from_fn(|| state.next_call()).collect()
    }

    /// Takes out all that wait.
    pub(super) fn drain(&self) -> VecDeque<Waiter> {
        std::mem::take(&mut self.lock().waiting)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is complete before anything could panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn next_call(&mut self) -> Option<Batch> {
        if self.calls >= MAX_CALLS || self.waiting.len() < 1 << self.calls {
            return None;
        }
        let batch = self.take();
        if batch.is_empty() {
            return None;
        }
        self.calls += 1;
        Some(batch)
    }

    /// From the front, as much as a call may carry. Those that nobody waits for are dropped.
    fn take(&mut self) -> Batch {
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
            if named > KEYS_MAX {
                let seen = distinct.get_or_insert_with(|| {
                    batch
                        .iter()
                        .flat_map(|waiter: &Waiter| &waiter.counters)
                        .copied()
                        .collect()
                });
                let more = waiter.counters.iter().filter(|hash| !seen.contains(hash)).count();
                if seen.len() + more > KEYS_MAX && !batch.is_empty() {
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
