//! Fixed window.
use super::AlgorithmError;
use std::time::Duration;
/// Where windows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// At multiples of the window since the Unix epoch (UTC).
    #[default]
    Clock,
    /// With the first request.
    FirstRequest,
}
/// A counter a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window: Duration,
    align: Align,
}
impl FixedWindow {
    /// `limit` units in each `window`.
    pub fn new(limit: u64, window: Duration, align: Align) -> Result<Self, AlgorithmError> {
        Ok(Self { limit, window, align })
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
    /// Where it begins.
    #[must_use]
    pub fn align(&self) -> Align {
        self.align
    }
}
