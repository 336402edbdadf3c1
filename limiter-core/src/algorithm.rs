//! The algorithms, as pure arithmetic on whole numbers: the reference for the scripts in `lua/`.

use std::time::Duration;

#[cfg(feature = "redis")]
use crate::clock::Timestamp;

mod bucket;
mod calendar;
mod concurrency;
mod counter;
#[cfg(feature = "redis")]
mod divided;
mod error;
mod fixed_window;
mod leaky_bucket;
mod sliding_window_counter;
mod sliding_window_log;
#[cfg(test)]
mod tests;
mod token_bucket;
mod warm_up;

pub(crate) use bucket::Bucket;
pub use calendar::{Calendar, Zone};
#[cfg(feature = "redis")]
pub(crate) use concurrency::Lease;
pub(crate) use concurrency::Slots;
pub use concurrency::{Concurrency, LEASE_DEFAULT, LEASE_MAX, LEASE_MIN};
pub(crate) use counter::Counter;
pub use error::AlgorithmError;
pub(crate) use fixed_window::Window;
pub use fixed_window::{Align, FixedWindow};
pub use leaky_bucket::LeakyBucket;
#[cfg(feature = "redis")]
pub(crate) use sliding_window_counter::Grid;
pub(crate) use sliding_window_counter::SubWindows;
pub use sliding_window_counter::{BUCKETS_MAX, COUNTER_LIMIT_MAX, SlidingWindowCounter};
pub(crate) use sliding_window_log::Log;
#[cfg(feature = "redis")]
pub(crate) use sliding_window_log::Summary;
pub use sliding_window_log::{LOG_LIMIT_MAX, SlidingWindowLog};
pub use token_bucket::TokenBucket;
pub(crate) use warm_up::Warming;

/// The largest whole number that Lua, whose numbers are doubles, counts to exactly: 2^53 − 1.
pub const EXACT_MAX: u64 = (1 << 53) - 1;

/// The longest window or rate period: 3,000 days. In µs it is below 2^48, which the exact multiplication in Lua needs.
pub const SPAN_MAX: Duration = Duration::from_secs(3_000 * 86_400);

/// The shortest window.
pub const WINDOW_MIN: Duration = Duration::from_millis(1);

/// How a policy counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Starts full, refills continuously.
    TokenBucket(TokenBucket),
    /// A meter that drains continuously.
    LeakyBucket(LeakyBucket),
    /// A counter a window.
    FixedWindow(FixedWindow),
    /// Every admitted request of the last window.
    SlidingWindowLog(SlidingWindowLog),
    /// Counters of sub-windows, the oldest weighed.
    SlidingWindowCounter(SlidingWindowCounter),
    /// Units in flight at once: what is taken is held until it is given back.
    Concurrency(Concurrency),
}

impl Algorithm {
    /// Whether what is taken is held until it is given back, and comes back by no passing of time.
    #[must_use]
    pub fn holds(&self) -> bool {
        matches!(self, Self::Concurrency(_))
    }

    /// Whether units may be taken [in lots](crate::LotTerms): where they are used a moment after they were charged, not more
    /// than what is in hand is let pass beyond the limit. Not of queues, whose turns are given one by one; nor where every
    /// moment counts: of a log, and of what is held.
    #[must_use]
    pub fn knows_lots(&self) -> bool {
        let is_exact = matches!(self, Self::SlidingWindowLog(_) | Self::Concurrency(_));
        !is_exact && !self.has_turns()
    }

    /// For how long at most a lot may be used that was taken `at` that moment, by the clock that the counter goes by: to
    /// the end of the window, or sub-window, that it was charged to. `more` is the wait until more is free. A bucket has no
    /// windows.
    #[cfg(feature = "redis")]
    pub(crate) fn lot_life(&self, at: Timestamp, more: Duration) -> Duration {
        match self {
            Self::FixedWindow(_) => more,
            Self::SlidingWindowCounter(a) => a.rest_of_sub_window(at),
            _ => Duration::MAX,
        }
    }

    /// Two letters that begin the names of its counters.
    #[must_use]
    pub fn tag(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "tb",
            Self::LeakyBucket(_) => "lb",
            Self::FixedWindow(_) => "fw",
            Self::SlidingWindowLog(_) => "sl",
            Self::SlidingWindowCounter(_) => "sc",
            Self::Concurrency(_) => "co",
        }
    }

    /// Its name in a configuration.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "token_bucket",
            Self::LeakyBucket(_) => "leaky_bucket",
            Self::FixedWindow(_) => "fixed_window",
            Self::SlidingWindowLog(_) => "sliding_window_log",
            Self::SlidingWindowCounter(_) => "sliding_window_counter",
            Self::Concurrency(_) => "concurrency",
        }
    }

    /// The most that passes at one moment: burst, capacity or limit.
    #[must_use]
    pub fn limit(&self) -> u64 {
        match self {
            Self::TokenBucket(a) => a.burst(),
            Self::LeakyBucket(a) => a.capacity(),
            Self::FixedWindow(a) => a.limit(),
            Self::SlidingWindowLog(a) => a.limit(),
            Self::SlidingWindowCounter(a) => a.limit(),
            Self::Concurrency(a) => a.limit(),
        }
    }

    /// The time in which `limit` comes back: the window ([nominal](Calendar::nominal), if a calendar's), or the time in which an empty bucket fills, in whole seconds
    /// rounded up. Zero where that is not a matter of time.
    #[must_use]
    pub fn window(&self) -> Duration {
        match self {
            Self::TokenBucket(a) => a.fill_time(),
            Self::LeakyBucket(a) => a.drain_time(),
            Self::FixedWindow(a) => a.window(),
            Self::SlidingWindowLog(a) => a.window(),
            Self::SlidingWindowCounter(a) => a.window(),
            Self::Concurrency(_) => Duration::ZERO,
        }
    }
}

/// Whole microseconds, rounded up.
fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000)).unwrap_or(u64::MAX)
}

/// Whole seconds, rounded up.
fn ceil_to_secs(micros: u64) -> Duration {
    Duration::from_secs(micros.div_ceil(1_000_000))
}

fn check_limit(limit: u64, max: u64) -> Result<(), AlgorithmError> {
    let parameter = "limit";
    match limit {
        0 => Err(AlgorithmError::Zero { parameter }),
        _ if limit > max => Err(AlgorithmError::TooLarge { parameter, max }),
        _ => Ok(()),
    }
}

fn check_window(window: Duration, max: Duration) -> Result<Duration, AlgorithmError> {
    let parameter = "window";
    if window.is_zero() {
        Err(AlgorithmError::Zero { parameter })
    } else if window < WINDOW_MIN {
        let min = WINDOW_MIN;
        Err(AlgorithmError::TooShort { parameter, min })
    } else if window > max {
        Err(AlgorithmError::TooLong { parameter, max })
    } else {
        // What can be counted is whole microseconds.
        Ok(Duration::from_micros(micros(window)))
    }
}

#[cfg(feature = "redis")]
impl Algorithm {
    /// What the script in Redis is told of it, in a call at `about` that time of the server: whole numbers below 2^53.
    pub(crate) fn parameters(&self, about: Timestamp) -> smallvec::SmallVec<[u64; 4]> {
        match self {
            Self::TokenBucket(a) => match &a.warm_up {
                Some(warm_up) => smallvec::SmallVec::from_slice(&warm_up.parameters()),
                None => smallvec::SmallVec::from_slice(&a.meter.parameters()),
            },
            Self::LeakyBucket(a) => smallvec::SmallVec::from_slice(&a.meter.parameters()),
            Self::FixedWindow(a) => a.parameters(about.as_micros()),
            Self::SlidingWindowCounter(a) => smallvec::smallvec![a.limit(), a.grid().window, a.grid().buckets],
            Self::SlidingWindowLog(a) => smallvec::smallvec![a.limit(), micros(a.window())],
            Self::Concurrency(a) => smallvec::smallvec![a.limit(), micros(a.lease())],
        }
    }

    /// For how many µs a counter matters after it was charged, at the longest, in a call at `about` that time of the
    /// server.
    pub(crate) fn lifetime_micros(&self, about: Timestamp) -> u64 {
        match self {
            Self::TokenBucket(a) => match &a.warm_up {
                Some(warm_up) => warm_up.lifetime_micros(),
                None => a.meter.lifetime_micros(),
            },
            Self::LeakyBucket(a) => a.meter.lifetime_micros(),
            Self::FixedWindow(a) => a.longest(about.as_micros()),
            // The newest sub-window has to leave the window as a whole.
            Self::SlidingWindowCounter(a) => a.grid().window + a.grid().window.div_ceil(a.grid().buckets),
            Self::SlidingWindowLog(a) => micros(a.window()),
            Self::Concurrency(a) => micros(a.lease()),
        }
    }
}

macro_rules! from {
    ($($variant:ident),*) => {
        $(impl From<$variant> for Algorithm {
            fn from(algorithm: $variant) -> Self {
                Self::$variant(algorithm)
            }
        })*
    };
}
from!(
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindowLog,
    SlidingWindowCounter,
    Concurrency
);

/// `units` per `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Whole units.
    pub units: u64,
    /// In this time.
    pub per: Duration,
}
