//! SlidingWindowCounter.
use super::AlgorithmError;
use std::time::Duration;
/// `limit` units in any `window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowCounter {
    limit: u64,
    window: Duration,
    buckets: u32,
}
impl SlidingWindowCounter {
    /// `limit` units in any `window`.
    pub fn new(limit: u64, window: Duration, buckets: u32) -> Result<Self, AlgorithmError> {
        Ok(Self { limit, window, buckets })
    }
    /// Units a window.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }
    /// Its length.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }
}
