//! Requests that wait for their turn.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use super::{
    cells::{Histogram, Sharded, Summed},
    handles::{DURATION_US, US, micros},
};

/// Requests that wait for their turn in the queue of a limit.
#[derive(Debug, Default)]
pub struct Waits {
    /// One for all threads, since it bounds them together; who waits can afford it.
    waiting: AtomicU64,
    shards: Sharded<WaitCells>,
}

#[derive(Debug, Default)]
struct WaitCells {
    duration: Histogram<{ DURATION_US.len() + 1 }>,
}

impl Waits {
    /// A request waits, until [`Waits::ended`], unless `max` do already. Whether it does.
    #[must_use]
    pub fn begin(&self, max: u64) -> bool {
        let more = |waiting| (waiting < max).then_some(waiting + 1);
        self.waiting.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// See [`Waits::begin`].
    pub fn ended(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    /// Counts a wait at the end of which the request went on.
    pub fn record(&self, waited: Duration) {
        self.shards.own().duration.observe(&DURATION_US, micros(waited));
    }

    /// Requests that wait now.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Relaxed)
    }

    pub(super) fn durations(&self) -> Summed {
        Summed::read(&self.shards, &DURATION_US, US, |cells| &cells.duration)
    }
}
