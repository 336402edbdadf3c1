//! SlidingWindowLog.
use super::AlgorithmError;
use std::time::Duration;
/// `limit` units in any `window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowLog {
    limit: u64,
    window: Duration,
}
impl SlidingWindowLog {
    /// `limit` units in any `window`.
    pub fn new(limit: u64, window: Duration) -> Result<Self, AlgorithmError> {
        Ok(Self { limit, window })
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
