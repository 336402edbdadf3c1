//! The only file that reads the time.
//!
//! Everything else is given a [`Timestamp`], so that tests can move it and so that the pure arithmetic stays pure.

use std::{
    fmt,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// A moment: whole microseconds since the Unix epoch, below 2^53, so that Lua holds it exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The latest moment that can be held: 2^53 − 1 µs, in the year 2255.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// The moment `micros` microseconds after the Unix epoch; later than [`Timestamp::MAX`] is that.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        if micros > Self::MAX.0 { Self::MAX } else { Self(micros) }
    }

    /// Microseconds since the Unix epoch.
    #[must_use]
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole seconds since the Unix epoch, rounded down.
    #[must_use]
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000
    }

    /// Time from `earlier` to this moment; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }

    /// This moment moved on by `by`, at most to [`Timestamp::MAX`].
    #[must_use]
    pub fn plus(self, by: Duration) -> Self {
        let by = u64::try_from(by.as_micros()).unwrap_or(u64::MAX);
        Self::from_micros(self.0.saturating_add(by))
    }
}

/// Says what time it is.
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The current moment. Never before an earlier answer of the same clock.
    fn now(&self) -> Timestamp;
}

/// The process's monotonic clock, set once by the wall clock when it is made.
///
/// It shows UTC (fixed windows need that) but never steps: a wall clock that is set afterwards has no effect on it.
#[derive(Clone, Copy, Debug)]
pub struct MonotonicClock {
    started: Instant,
    started_at: Timestamp,
}

impl MonotonicClock {
    /// A clock that shows the wall clock's time now, and runs monotonically from here on.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the file that reads the time")]
    pub fn new() -> Self {
        Self {
            started: Instant::now(),
            started_at: wall_clock(),
        }
    }
}

impl Default for MonotonicClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for MonotonicClock {
    fn now(&self) -> Timestamp {
        self.started_at.plus(self.started.elapsed())
    }
}

/// The wall clock's time, for people to read: it may step, and go back.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the file that reads the time")]
pub fn wall_clock() -> Timestamp {
    Timestamp::from_micros(0).plus(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}
