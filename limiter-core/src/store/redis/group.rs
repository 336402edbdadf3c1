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
mod tests {
    use super::*;

    type Answered = oneshot::Receiver<Result<Decision, StoreError>>;

    /// A request for these counters, and what keeps it wanted.
    fn waiter(counters: impl IntoIterator<Item = u64>) -> (Waiter, Answered) {
        let (answer, answered) = oneshot::channel();
        let waiter = Waiter {
            request: OwnedAsks::default(),
            counters: counters.into_iter().collect(),
            deadline: Timestamp::MAX,
            answer: Some(answer),
        };
        (waiter, answered)
    }

    /// Adds `count` requests, each with a key of its own; gives the sizes of the calls that left, each with the number
    /// of requests added before.
    fn push(group: &Group, wanted: &mut Vec<Answered>, count: u64) -> Vec<(u64, usize)> {
        let mut left = Vec::new();
        for i in 1..=count {
            let (waiter, answered) = waiter([i]);
            wanted.push(answered);
            if let Some(batch) = group.push(waiter).unwrap() {
                left.push((i, batch.len()));
            }
        }
        left
    }

    #[test]
    fn the_next_call_leaves_when_enough_wait_for_those_on_their_way() {
        let (group, mut wanted) = (Group::default(), Vec::new());
        let left = push(&group, &mut wanted, 300);
        assert_eq!(
            left,
            [
                (1, 1),
                (3, 2),
                (7, 4),
                (15, 8),
                (31, 16),
                (63, 32),
                (127, 64),
                (255, 128)
            ]
        );
        let next = group.returned();
        assert!(next.is_empty(), "45 wait, 7 calls are on their way, 128 are needed");
        push(&group, &mut wanted, 82);
        let (waiter, answered) = waiter([7]);
        assert_eq!(group.push(waiter).unwrap().unwrap().len(), 128);
        drop(answered);
    }

    #[test]
    fn the_last_call_that_returns_takes_whoever_waits() {
        let (group, mut wanted) = (Group::default(), Vec::new());
        assert_eq!(push(&group, &mut wanted, 2), [(1, 1)]);
        let next = group.returned();
        assert_eq!(next.len(), 1);
        assert_eq!(next[0].len(), 1);
        assert!(group.returned().is_empty());
        assert_eq!(push(&group, &mut wanted, 1), [(1, 1)]);
    }

    #[test]
    fn who_has_left_is_not_sent_and_does_not_count() {
        let (group, mut wanted) = (Group::default(), Vec::new());
        push(&group, &mut wanted, 1);
        let mut gone = Vec::new();
        push(&group, &mut gone, 1);
        gone.clear();
        assert!(group.returned().is_empty(), "the only one that waited has left");
        assert_eq!(push(&group, &mut wanted, 1), [(1, 1)], "no call was counted for it");
    }

    #[test]
    fn a_call_names_a_bounded_number_of_distinct_keys() {
        let (group, mut wanted) = (Group::default(), Vec::new());
        let mut first = None;
        for i in 0..100 {
            // A shared key, three that are new.
            let (waiter, answered) = waiter([0, 3 * i + 1, 3 * i + 2, 3 * i + 3]);
            wanted.push(answered);
            if i == 0 {
                first = group.push(waiter).unwrap();
            } else {
                group.lock().waiting.push_back(waiter);
            }
        }
        assert_eq!(first.unwrap().len(), 1);
        let next = group.returned();
        let keys = |batch: &Batch| {
            batch
                .iter()
                .flat_map(|waiter| &waiter.counters)
                .collect::<HashSet<_>>()
                .len()
        };
        assert_eq!(next[0].len(), 85);
        assert_eq!(keys(&next[0]), 256);
        assert_eq!(group.lock().waiting.len(), 14 - next.get(1).map_or(0, Vec::len));
    }

    #[test]
    fn a_request_with_more_keys_than_a_call_may_name_goes_alone() {
        let group = Group::default();
        let (one, _wanted) = waiter(0..300);
        assert_eq!(group.push(one).unwrap().unwrap().len(), 1);
    }

    #[test]
    fn a_bounded_number_waits() {
        let (group, mut wanted) = (Group::default(), Vec::new());
        group.lock().calls = MAX_CALLS;
        assert!(push(&group, &mut wanted, MAX_WAITING as u64).is_empty());
        let (waiter, _answered) = waiter([1]);
        assert!(group.push(waiter).is_err());
        assert_eq!(group.drain().len(), MAX_WAITING);
    }
}
