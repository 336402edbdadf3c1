//! Fixed window: a counter a window.
//!
//! Cheapest and coarsest: `limit` may pass just before a window's edge and `limit` again just after it.

use std::time::Duration;

use super::{AlgorithmError, Calendar, EXACT_MAX, check_window, micros};
use crate::{clock::Timestamp, decision::Wait, settlement::Change};

/// Where windows begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Align {
    /// At multiples of the window since the Unix epoch (UTC), or where a [`Calendar`] says.
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
    begins: Begins,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Begins {
    Multiples,
    FirstRequest,
    Calendar(Calendar),
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
        let begins = match align {
            Align::Clock => Begins::Multiples,
            Align::FirstRequest => Begins::FirstRequest,
        };
        Ok(Self { limit, window, begins })
    }

    /// `limit` units in each window of a calendar.
    ///
    /// # Errors
    /// Zero; a limit above 2^53 − 1.
    pub fn of_calendar(limit: u64, calendar: Calendar) -> Result<Self, AlgorithmError> {
        super::check_limit(limit, EXACT_MAX)?;
        Ok(Self {
            limit,
            window: calendar.nominal(),
            begins: Begins::Calendar(calendar),
        })
    }

    /// The same windows with another limit, which is at most [`EXACT_MAX`] and at least 1.
    #[cfg(feature = "redis")]
    pub(super) fn with_limit(&self, limit: u64) -> Self {
        Self { limit, ..self.clone() }
    }

    /// Units a window.
    #[must_use]
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Its length; of a calendar's, the [nominal](Calendar::nominal) one.
    #[must_use]
    pub fn window(&self) -> Duration {
        self.window
    }

    /// Where it begins.
    #[must_use]
    pub fn align(&self) -> Align {
        match self.begins {
            Begins::Multiples | Begins::Calendar(_) => Align::Clock,
            Begins::FirstRequest => Align::FirstRequest,
        }
    }

    /// Whose windows they are, where they are a calendar's.
    #[must_use]
    pub fn calendar(&self) -> Option<&Calendar> {
        match &self.begins {
            Begins::Calendar(calendar) => Some(calendar),
            Begins::Multiples | Begins::FirstRequest => None,
        }
    }

    /// For the script: a length and where windows begin, or three edges of a calendar.
    #[cfg(feature = "redis")]
    pub(super) fn parameters(&self, about: u64) -> smallvec::SmallVec<[u64; 4]> {
        match &self.begins {
            Begins::Multiples => smallvec::smallvec![self.limit, micros(self.window), 1],
            Begins::FirstRequest => smallvec::smallvec![self.limit, micros(self.window), 0],
            Begins::Calendar(calendar) => {
                let [begin, edge, end] = calendar.edges(about);
                smallvec::smallvec![self.limit, begin, edge, end]
            }
        }
    }

    /// The length, in µs, of the longest window that is in [`FixedWindow::parameters`].
    #[cfg(feature = "redis")]
    pub(super) fn longest(&self, about: u64) -> u64 {
        match &self.begins {
            Begins::Multiples | Begins::FirstRequest => micros(self.window),
            Begins::Calendar(calendar) => {
                let [begin, edge, end] = calendar.edges(about);
                (edge - begin).max(end - edge)
            }
        }
    }

    /// The count of a window that still runs (or, after the clock stepped back, has not begun) goes into ours.
    pub(super) fn load(&self, stored: Option<Window>, now: u64) -> Window {
        let length = micros(self.window);
        // A window in which nothing was taken has not begun: a request that was refused elsewhere begins none.
        let running = stored.filter(|stored| stored.count > 0 && now < stored.end());
        let count = running.as_ref().map_or(0, |stored| stored.count);
        let start = match (&self.begins, running) {
            (Begins::Multiples, _) => now - now % length,
            (Begins::FirstRequest, Some(stored)) if stored.start <= now && now < stored.start + length => stored.start,
            (Begins::FirstRequest, _) => now,
            (Begins::Calendar(calendar), _) => {
                let window = calendar.window(now);
                let (start, length) = (window.start, window.end - window.start);
                return Window { count, start, length };
            }
        };
        Window { count, start, length }
    }

    pub(super) fn free(&self, window: &Window) -> u64 {
        self.limit.saturating_sub(window.count)
    }

    /// Takes units without asking, or puts them back if the window that they were taken in is this one.
    pub(super) fn settle(&self, window: &mut Window, change: Change, now: u64) {
        match change {
            Change::Debit(units) => window.count = window.count.saturating_add(units).min(EXACT_MAX),
            Change::LeaveQueue { .. } | Change::Hold(_) => {}
            Change::GiveBack { units, at } => {
                if (window.start..window.end()).contains(&at.as_micros()) {
                    window.count = window.count.saturating_sub(units);
                }
            }
        }
        if window.count == 0 && self.begins == Begins::FirstRequest {
            // As in `load`: it has not begun.
            window.start = now;
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    fn ten_seconds(align: Align) -> FixedWindow {
        FixedWindow::new(3, Duration::from_secs(10), align).unwrap()
    }

    #[test]
    fn windows_of_the_clock_begin_at_multiples() {
        let policy = ten_seconds(Align::Clock);
        let mut window = policy.load(None, 109 * SECOND);
        window.count += 3;
        assert_eq!(policy.free(&window), 0);
        assert_eq!(policy.wait(&window, 1, 109 * SECOND), Wait::For(Duration::from_secs(1)));
        assert_eq!(policy.free(&policy.load(Some(window.clone()), 110 * SECOND - 1)), 0);
        assert_eq!(policy.free(&policy.load(Some(window), 110 * SECOND)), 3);
    }

    #[test]
    fn windows_of_requests_begin_with_the_first_after_the_last_window() {
        let policy = ten_seconds(Align::FirstRequest);
        let mut window = policy.load(None, 107 * SECOND);
        window.count += 3;
        assert_eq!(
            policy.wait(&window, 1, 107 * SECOND),
            Wait::For(Duration::from_secs(10))
        );
        let window = policy.load(Some(window), 117 * SECOND - 1);
        assert_eq!((policy.free(&window), window.start), (0, 107 * SECOND));
        let window = policy.load(Some(window), 117 * SECOND + 5);
        assert_eq!((policy.free(&window), window.start), (3, 117 * SECOND + 5));
    }

    #[test]
    fn a_running_count_goes_into_a_window_of_another_length() {
        let (hour, policy) = (3_600 * SECOND, ten_seconds(Align::Clock));
        let stored = Window {
            count: 2,
            start: 0,
            length: hour,
        };
        assert_eq!(policy.free(&policy.load(Some(stored.clone()), 109 * SECOND)), 1);
        assert_eq!(policy.free(&policy.load(Some(stored.clone()), hour)), 3);
        let policy = ten_seconds(Align::FirstRequest);
        let window = policy.load(Some(stored), 109 * SECOND);
        assert_eq!((window.count, window.start), (2, 109 * SECOND));
    }

    #[test]
    fn a_clock_that_stepped_back_keeps_the_count_for_one_window() {
        for align in [Align::Clock, Align::FirstRequest] {
            let policy = ten_seconds(align);
            let mut window = policy.load(None, 5_000 * SECOND);
            window.count += 3;
            let window = policy.load(Some(window), 101 * SECOND);
            assert_eq!(policy.free(&window), 0);
            assert_eq!(policy.free(&policy.load(Some(window), 111 * SECOND)), 3);
        }
    }

    #[test]
    fn a_cost_above_the_limit_never_fits() {
        let policy = ten_seconds(Align::Clock);
        assert_eq!(policy.wait(&policy.load(None, 0), 4, 0), Wait::Never);
    }

    #[test]
    fn what_cannot_be_exact_is_refused_with_its_bound() {
        let new = |limit, window| FixedWindow::new(limit, window, Align::Clock);
        let (second, parameter) = (Duration::from_secs(1), "limit");
        assert_eq!(new(0, second), Err(AlgorithmError::Zero { parameter }));
        let max = EXACT_MAX;
        assert_eq!(new(max + 1, second), Err(AlgorithmError::TooLarge { parameter, max }));
        let parameter = "window";
        assert_eq!(new(1, Duration::ZERO), Err(AlgorithmError::Zero { parameter }));
        let min = Duration::from_millis(1);
        assert_eq!(new(1, min / 2), Err(AlgorithmError::TooShort { parameter, min }));
        let max = super::super::SPAN_MAX;
        assert_eq!(new(1, max + second), Err(AlgorithmError::TooLong { parameter, max }));
        assert!(new(EXACT_MAX, max).is_ok());
    }
}
