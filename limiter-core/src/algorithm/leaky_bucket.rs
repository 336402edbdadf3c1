//! Leaky bucket, as a meter (ITU-T I.371, "continuous-state leaky bucket"; the queue is another thing of that name).
//!
//! A request of cost `c` passes if the level stays within the capacity, and raises it by `c`:
//! `level(t) = max(0, level(t₀) − (t − t₀) × rate)`. Admits exactly what a token bucket of the same rate and size does.

use std::time::Duration;

use super::{AlgorithmError, Rate, bucket::Meter, ceil_to_secs};

/// A meter that starts empty, drains continuously at `rate` and holds `capacity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    rate: Rate,
    capacity: u64,
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
        Ok(Self { rate, capacity, meter })
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
