//! Leaky bucket, as a meter.
use super::{AlgorithmError, Rate};
use std::time::Duration;
/// A meter that drains at `rate` and holds `capacity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    rate: Rate,
    capacity: u64,
}
impl LeakyBucket {
    /// A bucket that holds `capacity` and drains at `rate`.
    pub fn new(rate: Rate, capacity: u64) -> Result<Self, AlgorithmError> {
        Ok(Self { rate, capacity })
    }
    /// Its size.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.capacity
    }
    /// Its rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }
    /// Time from full to empty.
    #[must_use]
    pub fn drain_time(&self) -> Duration {
        unimplemented!()
    }
}
