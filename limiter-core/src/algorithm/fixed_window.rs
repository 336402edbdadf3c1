//! Fixed window: a counter a window.
//!
//! Cheapest and coarsest: `limit` may pass just before a window's edge and `limit` again just after it.

use std::time::Duration;

use super::{AlgorithmError, EXACT_MAX, check_window, micros};
use crate::{clock::Timestamp, decision::Wait};

/// Where windows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// At multiples of the window since the Unix epoch (UTC).
    #[default]
    Clock,
    /// With the first request after the last window's end.
    FirstRequest,
}

/// `limit` units in each `window`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    limit: u64,
    window: Duration,
    align: Align,
}

/// The state of one counter: the units taken in a window.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window {
    pub(crate) count: u64,
    /// Begin of the window, in µs.
    pub(crate) start: u64,
    /// Its length, in µs.
    pub(crate) length: u64,
}

impl Window {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.length)
    }

    /// The moment from which nothing is counted any more.
    pub(super) fn over_at(&self) -> Timestamp {
        Timestamp::from_micros(if self.count == 0 { self.start } else { self.end() })
    }
}

impl FixedWindow {
    /// `limit` units in each `window`.
    ///
    /// # Errors
    /// Zero; a limit above 2^53 − 1; a window below 1 ms or above 3,000 days.
    pub fn new(limit: u64, window: Duration, align: Align) -> Result<Self, AlgorithmError> {
        super::check_limit(limit, EXACT_MAX)?;
        let window = check_window(window, super::SPAN_MAX)?;
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

    /// The count of a window that still runs (or, after the clock stepped back, has not begun) goes into ours.
    pub(super) fn load(&self, stored: Option<Window>, now: u64) -> Window {
        let length = micros(self.window);
        let running = stored.filter(|stored| now < stored.end());
        let count = running.as_ref().map_or(0, |stored| stored.count);
        let start = match (self.align, running) {
            (Align::Clock, _) => now - now % length,
            (Align::FirstRequest, Some(stored)) if stored.start <= now && now < stored.start + length => stored.start,
            (Align::FirstRequest, _) => now,
        };
        Window { count, start, length }
    }

    pub(super) fn free(&self, window: &Window) -> u64 {
        self.limit.saturating_sub(window.count)
    }

    pub(super) fn wait(&self, window: &Window, cost: u64, now: u64) -> Wait {
        if cost > self.limit {
            Wait::Never
        } else if cost <= self.free(window) {
            Wait::For(Duration::ZERO)
        } else {
            Wait::For(Duration::from_micros(window.end().saturating_sub(now)))
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a share, for comparing")]
    pub(super) fn used_share(&self, window: &Window) -> f32 {
        window.count as f32 / self.limit as f32
    }
}
