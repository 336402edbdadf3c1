//! Leaky bucket, as a meter (ITU-T I.371, "continuous-state leaky bucket") and as a queue (Turner 1986).
//!
//! A request of cost `c` passes if the level stays within the capacity, and raises it by `c`:
//! `level(t) = max(0, level(t₀) − (t − t₀) × rate)`. Admits exactly what a token bucket of the same rate and size does.
//!
//! As a queue it admits the same, but each request waits until what was there before it has drained: for `level / rate`.
//! The moment of its turn is `t + level(t) / rate`. The next request's is that and `c / rate`, whenever it comes, or its
//! own arrival if that is later: turns are `1 / rate` a unit apart, and no state is needed but the level.

use std::time::Duration;

use super::{AlgorithmError, Rate, bucket::Meter, ceil_to_secs};

/// A meter that starts empty, drains continuously at `rate` and holds `capacity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    rate: Rate,
    capacity: u64,
    is_queue: bool,
    pub(super) meter: Meter,
}

impl LeakyBucket {
    /// A bucket that holds `capacity` and drains at `rate`. A part of a microsecond in the rate's time counts as a
    /// whole one.
    ///
    /// # Errors
    /// A rate or capacity of zero. A rate of more than 2^53 − 1 units or over more than 3,000 days. A capacity that
    /// cannot be counted exactly: with the rate in lowest terms as `N` units in `P` µs, `capacity × P` must be below
    /// 2^53.
    pub fn new(rate: Rate, capacity: u64) -> Result<Self, AlgorithmError> {
        let meter = Meter::new(rate, capacity, "capacity")?;
        let is_queue = false;
        Ok(Self {
            rate,
            capacity,
            is_queue,
            meter,
        })
    }

    /// A bucket whose requests leave one after the other, at `rate`: each has to wait for its turn.
    ///
    /// A turn later than `max_delay` is refused. So its capacity is at most what drains in that time and one unit, which
    /// leaves at once; a request of several units has its turn with the first, and fits if the last would.
    ///
    /// # Errors
    /// As [`LeakyBucket::new`].
    pub fn queue(rate: Rate, capacity: u64, max_delay: Duration) -> Result<Self, AlgorithmError> {
        let bounded = Self::new(rate, 1)?.meter.units_in(max_delay).saturating_add(1);
        let meter = Self::new(rate, capacity.min(bounded))?;
        Ok(Self {
            is_queue: true,
            meter: meter.meter.queued(),
            ..meter
        })
    }

    /// Whether its requests wait for their turn.
    #[must_use]
    pub fn is_queue(&self) -> bool {
        self.is_queue
    }

    /// Its size: the most that passes at one moment.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Its rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Time from full to empty, in whole seconds rounded up.
    #[must_use]
    pub fn drain_time(&self) -> Duration {
        ceil_to_secs(self.meter.drain_micros())
    }
}
