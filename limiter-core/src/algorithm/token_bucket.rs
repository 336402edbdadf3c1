//! Token bucket.
use super::{AlgorithmError, Rate};
use std::time::Duration;
/// Starts full, refills continuously, never above `burst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    burst: u64,
}
impl TokenBucket {
    /// A bucket of `burst` tokens refilled at `rate`.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, AlgorithmError> {
        Ok(Self { rate, burst })
    }
    /// Its size.
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }
    /// Its rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }
    /// Time from empty to full.
    #[must_use]
    pub fn fill_time(&self) -> Duration {
        unimplemented!()
    }
}
