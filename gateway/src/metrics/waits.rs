//! Requests that wait for their turn.

use std::time::Duration;

use super::{
    cells::{Histogram, Level, Sharded, Summed},
    handles::{DURATION_US, US, micros},
};

/// Requests that wait for their turn in the queue of a limit.
#[derive(Debug, Default)]
pub struct Waits {
    waiting: Level,
    shards: Sharded<WaitCells>,
}

#[derive(Debug, Default)]
struct WaitCells {
    duration: Histogram<{ DURATION_US.len() + 1 }>,
}

impl Waits {
    /// A request waits, until [`Waits::ended`].
    pub fn began(&self) {
        self.waiting.add(1);
    }

    /// See [`Waits::began`].
    pub fn ended(&self) {
        self.waiting.add(-1);
    }

    /// Counts a wait at the end of which the request went on.
    pub fn record(&self, waited: Duration) {
        self.shards.own().duration.observe(&DURATION_US, micros(waited));
    }

    /// Requests that wait now.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.get().unsigned_abs()
    }

    pub(super) fn durations(&self) -> Summed {
        Summed::read(&self.shards, &DURATION_US, US, |cells| &cells.duration)
    }
}
