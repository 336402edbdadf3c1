//! Token bucket: starts full, refills continuously.
//!
//! A request of cost `c` passes if `c` tokens are there, and takes them (Turner 1986; RFC 2697 meters in the same way).
//! In any time `t`, at most `burst + rate × t` tokens are taken. What is stored is the tokens *missing* from full:
//! `missing(t) = max(0, missing(t₀) − (t − t₀) × rate)`.
//!
//! Where requests may wait for their tokens, more may be missing than `burst`: by what refills in the longest wait. Who
//! takes such tokens waits until no more than `burst` is missing, with its own: for `(missing − burst) / rate`.

use std::time::Duration;

use super::{AlgorithmError, Rate, bucket::Meter, ceil_to_secs};

/// Starts full, refills continuously at `rate`, never above `burst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    burst: u64,
    max_wait: Duration,
    pub(super) meter: Meter,
}

impl TokenBucket {
    /// A bucket of `burst` tokens, refilled at `rate`. A part of a microsecond in the rate's time counts as a whole
    /// one.
    ///
    /// # Errors
    /// A rate or burst of zero. A rate of more than 2^53 − 1 units or over more than 3,000 days. A burst that cannot be
    /// counted exactly: with the rate in lowest terms as `N` tokens in `P` µs, `burst × P` must be below 2^53.
    pub fn new(rate: Rate, burst: u64) -> Result<Self, AlgorithmError> {
        let meter = Meter::new(rate, burst, "burst")?;
        let max_wait = Duration::ZERO;
        Ok(Self {
            rate,
            burst,
            max_wait,
            meter,
        })
    }

    /// The same bucket, in which a request may wait for its tokens: so long, in whole microseconds.
    ///
    /// # Errors
    /// A wait so long that what refills in it cannot be counted exactly.
    pub fn with_max_wait(self, max_wait: Duration) -> Result<Self, AlgorithmError> {
        let meter = Meter::new(self.rate, self.burst, "burst")?;
        let meter = match max_wait {
            Duration::ZERO => meter,
            max_wait => meter.waited(max_wait, "max_wait")?,
        };
        Ok(Self {
            max_wait,
            meter,
            ..self
        })
    }

    /// The longest that a request may wait for its tokens; zero: it does not wait.
    #[must_use]
    pub fn max_wait(&self) -> Duration {
        self.max_wait
    }

    /// Its size: the most that passes at one moment.
    #[must_use]
    pub fn burst(&self) -> u64 {
        self.burst
    }

    /// Its rate.
    #[must_use]
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Time from empty to full, in whole seconds rounded up.
    #[must_use]
    pub fn fill_time(&self) -> Duration {
        ceil_to_secs(self.meter.drain_micros())
    }
}
