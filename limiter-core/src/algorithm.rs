//! The five algorithms, as pure arithmetic on whole numbers: the reference for the scripts in `lua/`.

use std::time::Duration;

mod fixed_window;
mod leaky_bucket;
mod sliding_window_counter;
mod sliding_window_log;
mod token_bucket;

pub use fixed_window::{Align, FixedWindow};
pub use leaky_bucket::LeakyBucket;
pub use sliding_window_counter::SlidingWindowCounter;
pub use sliding_window_log::SlidingWindowLog;
pub use token_bucket::TokenBucket;

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
}

impl Algorithm {
    /// Two letters that begin the names of its counters.
    #[must_use]
    pub fn tag(&self) -> &'static str {
        match self {
            Self::TokenBucket(_) => "tb",
            Self::LeakyBucket(_) => "lb",
            Self::FixedWindow(_) => "fw",
            Self::SlidingWindowLog(_) => "sl",
            Self::SlidingWindowCounter(_) => "sc",
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
        }
    }

    /// The time in which `limit` comes back: the window, or the time in which an empty bucket fills, in whole seconds
    /// rounded up.
    #[must_use]
    pub fn window(&self) -> Duration {
        match self {
            Self::TokenBucket(a) => a.fill_time(),
            Self::LeakyBucket(a) => a.drain_time(),
            Self::FixedWindow(a) => a.window(),
            Self::SlidingWindowLog(a) => a.window(),
            Self::SlidingWindowCounter(a) => a.window(),
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
    SlidingWindowCounter
);

/// `units` per `per`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Whole units.
    pub units: u64,
    /// In this time.
    pub per: Duration,
}

/// Parameters that an algorithm cannot work with, exactly.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AlgorithmError {
    /// A parameter is zero.
    #[error("{parameter} must be more than 0")]
    Zero {
        /// Its name in a configuration.
        parameter: &'static str,
    },
    /// A parameter is outside what can be computed exactly.
    #[error("{parameter} must be at most {max}")]
    TooLarge {
        /// Its name in a configuration.
        parameter: &'static str,
        /// The largest value, given the other parameters.
        max: u64,
    },
    /// A duration is below what can be measured.
    #[error("{parameter} must be at least {min:?}")]
    TooShort {
        /// Its name in a configuration.
        parameter: &'static str,
        /// The shortest.
        min: Duration,
    },
    /// A duration is above what can be computed exactly.
    #[error("{parameter} must be at most {max:?}")]
    TooLong {
        /// Its name in a configuration.
        parameter: &'static str,
        /// The longest, given the other parameters.
        max: Duration,
    },
}
