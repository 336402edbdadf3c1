//! A token bucket that has to warm up, for what stands behind it does: caches fill, connections are made.
//!
//! Cold, it holds no burst, only what one request takes, and it refills at a third of its rate. With the first request
//! it begins to warm: the rate climbs in ten equal steps, one after each tenth of the time that it takes, from 5 to 15
//! fifteenths of itself. From then on it is a token bucket. It is cold again when nobody was charged for as long as it
//! takes to warm, and one request's worth is there.
//!
//! One fraction of a unit is 15 times as fine as without: so every step, too, drains a whole number in a microsecond.
//! After `e` µs of warming, steps of `s` µs each, `m = min(⌊e / s⌋, 10)` of them begun, what has drained is, in
//! fifteenths of what drains at the full rate in one: `F(e) = (5 + m) × e − s × m (m + 1) / 2`. What drains between two
//! moments is the difference, so settling early changes no later answer.

use std::time::Duration;

use super::{
    AlgorithmError, Bucket, Counter, EXACT_MAX, SPAN_MAX,
    bucket::{Meter, convert},
    micros,
};
use crate::{clock::Timestamp, decision::Wait, settlement::Change};

/// The rate climbs so often.
const STEPS: u64 = 10;

/// Fifteenths of the rate that a cold bucket refills at: a third.
const COLD: u64 = 5;

/// Fifteenths of the rate that a warm one refills at: all.
const WARM: u64 = COLD + STEPS;

/// The state of such a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Warming {
    /// Fractions missing from full: `period` of them are one unit.
    pub(crate) used: u64,
    /// The moment at which all this was so, in µs.
    pub(crate) at: u64,
    /// Fractions that drain in a microsecond at a fifteenth of the rate.
    pub(crate) part: u64,
    /// Fractions of one unit.
    pub(crate) period: u64,
    /// For how long it had warmed, in µs, at most `time`.
    pub(crate) warmed: u64,
    /// For how long nobody had been charged, in µs, at most `time`.
    pub(crate) idle: u64,
    /// How long it takes to warm, in µs: a multiple of ten.
    pub(crate) time: u64,
}

/// The parameters: those of the rate and the sizes in fractions of a unit, and how long it takes to warm, in µs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WarmUp {
    part: u64,
    period: u64,
    capacity: u64,
    /// What is missing of a cold bucket.
    cold: u64,
    time: u64,
}

impl WarmUp {
    /// Of a bucket of `burst` tokens that is refilled as `meter` drains, and holds `at_once` when it is cold.
    pub(super) fn new(meter: &Meter, burst: u64, time: Duration, at_once: u64) -> Result<Self, AlgorithmError> {
        let (part, period) = meter.rate();
        if time.is_zero() {
            return Err(AlgorithmError::Zero { parameter: "warm_up" });
        }
        if time > SPAN_MAX {
            let (parameter, max) = ("warm_up", SPAN_MAX);
            return Err(AlgorithmError::TooLong { parameter, max });
        }
        // The script multiplies exactly by what is below 2^48.
        let max = SPAN_MAX / 15;
        if period > micros(max) {
            let parameter = "rate";
            return Err(AlgorithmError::TooLong { parameter, max });
        }
        let period = period * WARM;
        let max = EXACT_MAX / period;
        if burst > max {
            let parameter = "burst";
            return Err(AlgorithmError::TooLarge { parameter, max });
        }
        let capacity = burst * period;
        Ok(Self {
            part,
            period,
            capacity,
            cold: capacity - at_once.clamp(1, burst) * period,
            time: micros(time).next_multiple_of(STEPS),
        })
    }

    /// How long it takes to warm.
    pub(super) fn time(&self) -> Duration {
        Duration::from_micros(self.time)
    }

    /// Tokens of a cold bucket.
    pub(super) fn at_once(&self) -> u64 {
        (self.capacity - self.cold) / self.period
    }

    /// What the script in Redis is told: a fifteenth of the rate, period, size, what is missing when cold, time.
    #[cfg(feature = "redis")]
    pub(super) fn parameters(&self) -> [u64; 5] {
        [self.part, self.period, self.capacity, self.cold, self.time]
    }

    /// Time until a bucket that is charged to its last token is cold, in µs, at most.
    #[cfg(feature = "redis")]
    pub(super) fn lifetime_micros(&self) -> u64 {
        self.time.max(self.capacity.div_ceil(self.part * COLD))
    }

    /// Settles what was stored to `now`, in its own way, then goes on in this one. A bucket that has not warmed up until
    /// now is warm; one that did, in another time, is at the step that it had reached.
    pub(super) fn load(&self, stored: Option<Counter>, now: u64) -> Box<Warming> {
        let (used, period, warmed, idle, room) = match stored {
            Some(Counter::Warming(mut stored)) => {
                stored.settle_to(now);
                let warmed = if stored.time == self.time {
                    stored.warmed
                } else {
                    stored.warmed / (stored.time / STEPS) * (self.time / STEPS)
                };
                (stored.used, stored.period, warmed, stored.idle, Some(stored))
            }
            Some(Counter::Bucket(stored)) => {
                let passed = now.saturating_sub(stored.at);
                let used = stored.used.saturating_sub(passed.saturating_mul(stored.units));
                (used, stored.period, self.time, passed, None)
            }
            _ => (self.cold, self.period, 0, self.time, None),
        };
        let mut loaded = room.unwrap_or_default();
        *loaded = Warming {
            used: convert(used, period, self.period),
            at: now,
            part: self.part,
            period: self.period,
            warmed,
            idle: idle.min(self.time),
            time: self.time,
        };
        self.cool(&mut loaded);
        loaded
    }

    /// A cold bucket is as one that nobody has ever charged.
    fn cool(&self, bucket: &mut Warming) {
        if self.is_cold(bucket) {
            (bucket.used, bucket.warmed) = (self.cold, 0);
        }
    }

    /// Whether a fresh one gives the same answers.
    pub(super) fn is_cold(&self, bucket: &Warming) -> bool {
        bucket.idle >= self.time && bucket.used <= self.cold
    }

    /// Whole units free.
    pub(super) fn free(&self, bucket: &Warming) -> u64 {
        self.capacity.saturating_sub(bucket.used) / self.period
    }

    /// Takes `used` units.
    pub(super) fn save(&self, bucket: &mut Warming, used: u64) {
        if used > 0 {
            bucket.idle = 0;
        }
        bucket.used = used
            .saturating_mul(self.period)
            .saturating_add(bucket.used)
            .min(EXACT_MAX);
    }

    /// Takes units without asking, or puts them back: a cold bucket is not fuller than cold.
    pub(super) fn settle(&self, bucket: &mut Warming, change: Change) {
        match change {
            Change::Debit(units) => self.save(bucket, units),
            Change::GiveBack { units, .. } => {
                bucket.used = bucket.used.saturating_sub(units.saturating_mul(self.period));
                self.cool(bucket);
            }
            // Nobody waits for tokens here, or holds them.
            Change::LeaveQueue { .. } | Change::Hold(_) => {}
        }
    }

    /// How long until `cost` fits, if nobody is charged meanwhile: what is more than a cold bucket holds never does,
    /// once it has become cold.
    pub(super) fn wait(&self, bucket: &Warming, cost: u64) -> Wait {
        let wait = self.wait_remaining(bucket, cost);
        let holds = cost <= self.at_once();
        let cold_in = Duration::from_micros(self.time.saturating_sub(bucket.idle));
        match wait {
            Wait::For(time) if !holds && time >= cold_in => Wait::Never,
            wait => wait,
        }
    }

    /// How long until `units` of the burst are left, if the bucket does not become cold.
    pub(super) fn wait_remaining(&self, bucket: &Warming, units: u64) -> Wait {
        match units.checked_mul(self.period) {
            Some(units) if units <= self.capacity => {
                let excess = (bucket.used + units).saturating_sub(self.capacity);
                Wait::For(Duration::from_micros(bucket.time_for(excess)))
            }
            _ => Wait::Never,
        }
    }

    /// The moment at which the bucket is cold.
    pub(super) fn expires_at(&self, bucket: &Warming) -> Timestamp {
        let drain = bucket.time_for(bucket.used.saturating_sub(self.cold));
        let wait = drain.max(self.time.saturating_sub(bucket.idle));
        Timestamp::from_micros(bucket.at.saturating_add(wait))
    }

    /// The share of the burst that is used; a little where there is only warmth to lose.
    #[expect(clippy::cast_precision_loss, reason = "a share, for comparing")]
    pub(super) fn used_share(&self, bucket: &Warming) -> f32 {
        (bucket.used as f32 / self.capacity as f32).max(f32::EPSILON)
    }
}

impl Default for Warming {
    /// Something to write over.
    fn default() -> Self {
        let (used, at, warmed, idle) = (0, 0, 0, 0);
        let (part, period, time) = (1, 1, STEPS);
        Self {
            used,
            at,
            part,
            period,
            warmed,
            idle,
            time,
        }
    }
}

impl Warming {
    /// Drains, warms and idles up to `now`; a time ahead of now (the clock stepped back) does nothing of it.
    fn settle_to(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at);
        let fifteenths = drained(self.warmed, passed, self.time);
        self.used = self.used.saturating_sub(self.part.saturating_mul(fifteenths));
        self.warmed = self.warmed.saturating_add(passed).min(self.time);
        self.idle = self.idle.saturating_add(passed).min(self.time);
        self.at = now;
    }

    /// What is used at `now`, for a bucket that does not warm up.
    pub(super) fn into_bucket(mut self, now: u64) -> Bucket {
        self.settle_to(now);
        Bucket {
            used: self.used,
            at: now,
            units: self.part,
            period: self.period,
        }
    }

    /// The shortest time, in µs, in which so many fractions drain.
    fn time_for(&self, fractions: u64) -> u64 {
        let mut fifteenths = fractions.div_ceil(self.part);
        let (step, mut time) = (self.time / STEPS, 0);
        for steps in self.warmed / step..STEPS {
            let rest_of_step = (steps + 1) * step - (self.warmed + time);
            let drains = (COLD + steps) * rest_of_step;
            if fifteenths <= drains {
                return time + fifteenths.div_ceil(COLD + steps);
            }
            fifteenths -= drains;
            time += rest_of_step;
        }
        time + fifteenths.div_ceil(WARM)
    }
}

/// What drains in `passed` µs, in fifteenths of what does at the full rate in one, after `warmed` µs of `time`.
fn drained(warmed: u64, passed: u64, time: u64) -> u64 {
    let to = warmed.saturating_add(passed);
    let warm = to.saturating_sub(time);
    let since_cold = |warmed: u64| {
        let step = time / STEPS;
        let steps = (warmed / step).min(STEPS);
        (COLD + steps) * warmed - step * (steps * (steps + 1) / 2)
    };
    (since_cold(to - warm) - since_cold(warmed)).saturating_add(warm.saturating_mul(WARM))
}

#[cfg(test)]
mod tests;
