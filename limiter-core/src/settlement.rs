//! What a counter owes, or is owed: units that were taken elsewhere, or taken and not needed.

use std::{fmt, sync::Arc};

use crate::{clock::Timestamp, policy::Policy};

/// A change to one counter that asks for nothing: it is applied whatever is free.
#[derive(Clone, Debug)]
pub struct Settlement {
    pub(crate) policy: Arc<Policy>,
    /// The counter of that policy, as in [`Ask::key`](crate::Ask).
    pub(crate) key: Box<str>,
    pub(crate) change: Change,
    /// Is told when this is dropped: once it was made, or will not be.
    #[cfg_attr(
        not(feature = "redis"),
        expect(dead_code, reason = "only a shared store makes settlements later")
    )]
    pub(crate) told: Option<Arc<dyn Told>>,
}

/// Waits for a settlement to be dropped, by being so with it.
pub(crate) trait Told: fmt::Debug + Send + Sync {}

impl Settlement {
    /// A change to the counter `key` of `policy`.
    pub(crate) fn new(policy: Arc<Policy>, key: impl Into<Box<str>>, change: Change) -> Self {
        Self {
            policy,
            key: key.into(),
            change,
            told: None,
        }
    }

    /// Whether it gives slots back to the same counter as the one before: both are one settlement then.
    #[cfg(feature = "redis")]
    pub(crate) fn is_one_with(&self, last: &Self) -> bool {
        let gives_back = |one: &Self| matches!(one.change, Change::GiveBack { .. });
        self.heals()
            && gives_back(self)
            && gives_back(last)
            && Arc::ptr_eq(&self.policy, &last.policy)
            && self.key == last.key
    }

    /// Whether it need not be kept, nor told of, where it was not made: what is held is told anew.
    #[cfg(feature = "redis")]
    pub(crate) fn heals(&self) -> bool {
        self.policy.algorithm().holds()
    }
}

/// What a settlement does to a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// So many units were taken without asking. More than the limit may be in use afterwards: they count as taken now,
    /// and free up as any other.
    ///
    /// Bounded by what a state can hold: of a log, twice its limit is in use at most; of the others, a number near 2^53.
    Debit(u64),
    /// So many units were taken at a moment and not needed.
    ///
    /// They go back only to where they were taken from (the window or sub-window that `at` lies in, a log's units of
    /// exactly that time), and never make more than full. A bucket does not know when its units were taken: one that was
    /// empty in between has forgotten them, and then lets up to so many pass that others have taken since. Who gives
    /// back soon gives little away.
    GiveBack {
        /// How many.
        units: u64,
        /// When they were taken, by the clock that the counter goes by. Nothing was taken at time 0.
        at: Timestamp,
    },
    /// So many units of a bucket were taken by who waits for a turn, and leaves before it has come.
    ///
    /// They go back only where nobody was charged since: else there is somebody behind, whose turn is known already and
    /// stays as it is, and what was left would go to one who comes later.
    LeaveQueue {
        /// How many.
        units: u64,
        /// When the bucket is empty if that is so, by the clock that it goes by: later, once anybody was charged.
        empty_at: Timestamp,
    },
    /// So many slots of a limit of concurrency are what this process holds, whatever was said before, for the length of a
    /// lease from now. To any other algorithm it says nothing.
    #[cfg_attr(not(feature = "redis"), expect(dead_code, reason = "only a shared store is told"))]
    Hold(u64),
}
