//! What token bucket and leaky bucket share: a meter of what is used, which drains at a rate.
//!
//! The meter counts in fractions of a unit so fine that a microsecond drains a whole number of them. With the rate
//! `N / P` in lowest terms (`N` units in `P` µs), one unit is `P` fractions, and in `t` µs exactly `t × N` fractions
//! drain: no division, no rounding and no drift, however often the meter is read. A single time stamp (GCRA) cannot
//! promise that once `P / N` is not whole.
//!
//! The state says what is *used*, not what is left, so a changed capacity needs no arithmetic: what was used stays used.

use std::time::Duration;

use super::{AlgorithmError, EXACT_MAX, Rate, SPAN_MAX, micros};
use crate::{clock::Timestamp, decision::Wait};

/// The state of one bucket: what was used at a moment, and the rate that it drains at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bucket {
    /// Fractions used: `period` of them are one unit. May be above the capacity, after a reload.
    pub(crate) used: u64,
    /// The moment at which this was so, in µs.
    pub(crate) at: u64,
    /// Fractions that drain in a microsecond.
    pub(crate) units: u64,
    /// Fractions of one unit.
    pub(crate) period: u64,
}

/// The parameters: a rate in lowest terms, and a capacity in its fractions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meter {
    units: u64,
    period: u64,
    capacity: u64,
}

impl Meter {
    /// A meter that drains at `rate` and holds `capacity` units; `parameter` is the name of the capacity.
    pub(super) fn new(rate: Rate, capacity: u64, parameter: &'static str) -> Result<Self, AlgorithmError> {
        let period = micros(rate.per);
        if rate.units == 0 || period == 0 {
            return Err(AlgorithmError::Zero { parameter: "rate" });
        }
        if rate.units > EXACT_MAX {
            let (parameter, max) = ("rate", EXACT_MAX);
            return Err(AlgorithmError::TooLarge { parameter, max });
        }
        if rate.per > SPAN_MAX {
            let (parameter, max) = ("rate", SPAN_MAX);
            return Err(AlgorithmError::TooLong { parameter, max });
        }
        if capacity == 0 {
            return Err(AlgorithmError::Zero { parameter });
        }
        let divisor = gcd(rate.units, period);
        let (units, period) = (rate.units / divisor, period / divisor);
        let max = EXACT_MAX / period;
        if capacity > max {
            return Err(AlgorithmError::TooLarge { parameter, max });
        }
        let capacity = capacity * period;
        Ok(Self {
            units,
            period,
            capacity,
        })
    }

    /// What the script in Redis is told: units, period, capacity.
    #[cfg(feature = "redis")]
    pub(super) fn parameters(&self) -> [u64; 3] {
        [self.units, self.period, self.capacity]
    }

    /// Time from full to empty, in µs, rounded up.
    pub(super) fn drain_micros(&self) -> u64 {
        self.capacity.div_ceil(self.units)
    }

    /// Drains at the stored rate up to `now`, then goes on at this one.
    pub(super) fn load(&self, stored: Option<Bucket>, now: u64) -> Bucket {
        let used = stored.map_or(0, |stored| {
            // A time ahead of now (the clock stepped back) drains nothing.
            let drained = now.saturating_sub(stored.at).saturating_mul(stored.units);
            self.convert(stored.used.saturating_sub(drained), stored.period)
        });
        Bucket {
            used,
            at: now,
            units: self.units,
            period: self.period,
        }
    }

    /// Fractions of `period` as fractions of ours, rounded up: against the client, so that nothing is minted.
    fn convert(&self, used: u64, period: u64) -> u64 {
        if period == self.period {
            return used;
        }
        let used = (u128::from(used) * u128::from(self.period)).div_ceil(u128::from(period.max(1)));
        u64::try_from(used).unwrap_or(u64::MAX).min(EXACT_MAX)
    }

    /// Whole units free.
    pub(super) fn free(&self, bucket: &Bucket) -> u64 {
        self.capacity.saturating_sub(bucket.used) / self.period
    }

    /// Takes `used` units.
    pub(super) fn save(&self, bucket: &mut Bucket, used: u64) {
        bucket.used = used
            .saturating_mul(self.period)
            .saturating_add(bucket.used)
            .min(EXACT_MAX);
    }

    /// How long until `cost` fits: until `used + cost × P` is down to the capacity.
    pub(super) fn wait(&self, bucket: &Bucket, cost: u64) -> Wait {
        match cost.checked_mul(self.period) {
            Some(cost) if cost <= self.capacity => {
                let excess = (bucket.used + cost).saturating_sub(self.capacity);
                Wait::For(Duration::from_micros(excess.div_ceil(self.units)))
            }
            _ => Wait::Never,
        }
    }

    /// The share of the capacity that is used.
    #[expect(clippy::cast_precision_loss, reason = "a share, for comparing")]
    pub(super) fn used_share(&self, bucket: &Bucket) -> f32 {
        bucket.used as f32 / self.capacity as f32
    }
}

impl Bucket {
    /// The moment at which nothing is used any more.
    pub(super) fn empty_at(&self) -> Timestamp {
        let drain = self.used.div_ceil(self.units.max(1));
        Timestamp::from_micros(self.at.saturating_add(drain))
    }
}

/// Greatest common divisor (Euclid).
fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}
