//! Why parameters are refused.

use std::time::Duration;

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
    /// Two parameters that exclude each other.
    #[error("{parameter} and {other} exclude each other")]
    Exclusive {
        /// The name of one in a configuration.
        parameter: &'static str,
        /// The name of the other.
        other: &'static str,
    },
}
