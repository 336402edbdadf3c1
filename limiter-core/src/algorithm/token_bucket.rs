//! Token bucket: starts full, refills continuously.
//!
//! A request of cost `c` passes if `c` tokens are there, and takes them (Turner 1986; RFC 2697 meters in the same way).
//! In any time `t`, at most `burst + rate × t` tokens are taken. What is stored is the tokens *missing* from full:
//! `missing(t) = max(0, missing(t₀) − (t − t₀) × rate)`.
//!
//! Where requests may wait for their tokens, more may be missing than `burst`: by what refills in the longest wait. Who
//! takes such tokens waits until no more than `burst` is missing, with its own: for `(missing − burst) / rate`.

use std::time::Duration;

use super::{AlgorithmError, Rate, bucket::Meter, ceil_to_secs, warm_up::WarmUp};

/// Starts full, refills continuously at `rate`, never above `burst`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    rate: Rate,
    burst: u64,
    max_wait: Duration,
    pub(super) meter: Meter,
    /// What decisions go by in place of the meter.
    pub(super) warm_up: Option<Box<WarmUp>>,
}

const EXCLUSIVE: AlgorithmError = AlgorithmError::Exclusive {
    parameter: "max_wait",
    other: "warm_up",
};

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
            warm_up: None,
        })
    }

    /// The same bucket, in which a request may wait for its tokens: so long, in whole microseconds.
    ///
    /// # Errors
    /// A wait so long that what refills in it cannot be counted exactly, or any where the bucket warms up.
    pub fn with_max_wait(self, max_wait: Duration) -> Result<Self, AlgorithmError> {
        if self.warm_up.is_some() && !max_wait.is_zero() {
            return Err(EXCLUSIVE);
        }
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

    /// The same bucket, which has to warm up in this time; a part of ten microseconds counts as a whole one.
    ///
    /// Untouched for so long it is cold. It holds `at_once` tokens then (at least 1, at most the burst) and refills at a
    /// third of its rate; charged, it begins to warm, and its rate climbs in ten equal steps. `at_once` is what a
    /// request costs at most: one that costs more would be refused by a cold bucket for ever.
    ///
    /// # Errors
    /// A time of zero, or of more than 3,000 days. A bucket in which requests wait. A rate or burst that cannot be
    /// counted exactly: with the rate in lowest terms as `N` tokens in `P` µs, `P` must be at most 200 days, and
    /// `burst × 15 × P` below 2^53.
    pub fn with_warm_up(self, time: Duration, at_once: u64) -> Result<Self, AlgorithmError> {
        if !self.max_wait.is_zero() {
            return Err(EXCLUSIVE);
        }
        let warm_up = WarmUp::new(&self.meter, self.burst, time, at_once)?;
        Ok(Self {
            warm_up: Some(Box::new(warm_up)),
            ..self
        })
    }

    /// How long it takes to warm; zero: it is warm always.
    #[must_use]
    pub fn warm_up(&self) -> Duration {
        self.warm_up.as_ref().map(|warm_up| warm_up.time()).unwrap_or_default()
    }

    /// The tokens that it holds when it is cold: its burst where it is warm always.
    #[must_use]
    pub fn at_once(&self) -> u64 {
        self.warm_up.as_ref().map_or(self.burst, |warm_up| warm_up.at_once())
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
