//! What token bucket and leaky bucket share: a meter of what is used, which drains at a rate.
//!
//! The meter counts in fractions of a unit so fine that a microsecond drains a whole number of them. With the rate
//! `N / P` in lowest terms (`N` units in `P` µs), one unit is `P` fractions, and in `t` µs exactly `t × N` fractions
//! drain: no division, no rounding and no drift, however often the meter is read. A single time stamp (GCRA) cannot
//! promise that once `P / N` is not whole.
//!
//! The state says what is *used*, not what is left, so a changed capacity needs no arithmetic: what was used stays
//! used.

use std::time::Duration;

use super::{AlgorithmError, EXACT_MAX, Rate, SPAN_MAX, micros};
use crate::{clock::Timestamp, decision::Wait, settlement::Change};

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

/// The parameters: a rate in lowest terms, and sizes in its fractions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meter {
    units: u64,
    period: u64,
    /// What is spoken of: what remains, remains of this.
    capacity: u64,
    /// What decisions go by: the capacity, or more where requests wait for what is beyond it.
    room: u64,
    /// Who is charged while more than this is used waits until what was used before is down to it.
    at_once: AtOnce,
}

/// What passes without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AtOnce {
    /// All that passes.
    All,
    /// What finds nothing in use: the others leave one after the other, as the meter drains.
    IfEmpty,
    /// What is within the capacity: the others wait until they are.
    WithinCapacity,
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
            room: capacity,
            at_once: AtOnce::All,
        })
    }

    /// The same meter, whose units leave one after the other.
    pub(super) fn queued(self) -> Self {
        let at_once = AtOnce::IfEmpty;
        Self { at_once, ..self }
    }

    /// The same meter, which lets pass what finds room within `wait`, a parameter of that name.
    pub(super) fn waited(self, wait: Duration, parameter: &'static str) -> Result<Self, AlgorithmError> {
        let (capacity, at_once) = (self.capacity, AtOnce::WithinCapacity);
        // Rounded down: nobody waits longer.
        let micros = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        let room = micros
            .checked_mul(self.units)
            .and_then(|more| more.checked_add(capacity));
        match room.filter(|room| *room <= EXACT_MAX) {
            Some(room) => Ok(Self { room, at_once, ..self }),
            None => {
                let max = Duration::from_micros((EXACT_MAX - capacity) / self.units);
                Err(AlgorithmError::TooLong { parameter, max })
            }
        }
    }

    /// The rate in lowest terms: fractions that drain in a microsecond, and fractions of one unit.
    pub(super) fn rate(&self) -> (u64, u64) {
        (self.units, self.period)
    }

    /// Whole units that drain in this time.
    pub(super) fn units_in(&self, time: Duration) -> u64 {
        let fractions = time.as_micros().saturating_mul(u128::from(self.units));
        u64::try_from(fractions / u128::from(self.period)).unwrap_or(u64::MAX)
    }

    /// What the script in Redis is told: units, period, room.
    #[cfg(feature = "redis")]
    pub(super) fn parameters(&self) -> [u64; 3] {
        [self.units, self.period, self.room]
    }

    /// Time in which the capacity drains, in µs, rounded up.
    pub(super) fn drain_micros(&self) -> u64 {
        self.capacity.div_ceil(self.units)
    }

    /// Time from full to empty, in µs, rounded up.
    #[cfg(feature = "redis")]
    pub(super) fn lifetime_micros(&self) -> u64 {
        self.room.div_ceil(self.units)
    }

    /// Drains at the stored rate up to `now`, then goes on at this one.
    pub(super) fn load(&self, stored: Option<Bucket>, now: u64) -> Bucket {
        let used = stored.map_or(0, |stored| {
            // A time ahead of now (the clock stepped back) drains nothing.
            let drained = now.saturating_sub(stored.at).saturating_mul(stored.units);
            convert(stored.used.saturating_sub(drained), stored.period, self.period)
        });
        Bucket {
            used,
            at: now,
            units: self.units,
            period: self.period,
        }
    }

    /// Whole units free, those that have to be waited for among them.
    pub(super) fn free(&self, bucket: &Bucket) -> u64 {
        self.room.saturating_sub(bucket.used) / self.period
    }

    /// Whole units left of the capacity.
    pub(super) fn remaining(&self, bucket: &Bucket) -> u64 {
        self.capacity.saturating_sub(bucket.used) / self.period
    }

    /// How long the request has to wait, in µs, rounded up, that was the last to be charged: `units`, at least one.
    pub(super) fn delay_micros(&self, bucket: &Bucket, units: u64) -> u64 {
        let above = match self.at_once {
            AtOnce::All => return 0,
            AtOnce::IfEmpty => bucket.used.saturating_sub(units.saturating_mul(self.period)),
            AtOnce::WithinCapacity => bucket.used.saturating_sub(self.capacity),
        };
        above.div_ceil(self.units)
    }

    /// Takes `used` units.
    pub(super) fn save(&self, bucket: &mut Bucket, used: u64) {
        bucket.used = used
            .saturating_mul(self.period)
            .saturating_add(bucket.used)
            .min(EXACT_MAX);
    }

    /// Takes units without asking, or puts them back.
    pub(super) fn settle(&self, bucket: &mut Bucket, change: Change) {
        match change {
            Change::Debit(units) => self.save(bucket, units),
            Change::GiveBack { units, .. } => {
                bucket.used = bucket.used.saturating_sub(units.saturating_mul(self.period));
            }
            Change::LeaveQueue { units, empty_at } => {
                if bucket.empty_at() == empty_at {
                    bucket.used = bucket.used.saturating_sub(units.saturating_mul(self.period));
                }
            }
            Change::Hold(_) => {}
        }
    }

    /// How long until `cost` fits: until `used + cost × P` is down to the room.
    pub(super) fn wait(&self, bucket: &Bucket, cost: u64) -> Wait {
        self.wait_until(bucket, cost, self.room)
    }

    /// How long until `units` of the capacity are left.
    pub(super) fn wait_remaining(&self, bucket: &Bucket, units: u64) -> Wait {
        self.wait_until(bucket, units, self.capacity)
    }

    /// Whole units left of the capacity, and how long until it is one more: no time where all of it is left.
    pub(super) fn left(&self, bucket: &Bucket) -> (u64, Wait) {
        let remaining = self.remaining(bucket);
        let wait = match bucket.used {
            0 => Wait::For(Duration::ZERO),
            _ => self.wait_remaining(bucket, remaining + 1),
        };
        (remaining, wait)
    }

    fn wait_until(&self, bucket: &Bucket, units: u64, size: u64) -> Wait {
        match units.checked_mul(self.period) {
            Some(units) if units <= self.capacity => {
                let excess = (bucket.used + units).saturating_sub(size);
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

/// Fractions of which `theirs` are a unit, as fractions of which `ours` are, rounded up: against the client, so that
/// nothing is minted.
pub(super) fn convert(used: u64, theirs: u64, ours: u64) -> u64 {
    if theirs == ours {
        return used;
    }
    let used = (u128::from(used) * u128::from(ours)).div_ceil(u128::from(theirs.max(1)));
    u64::try_from(used).unwrap_or(u64::MAX).min(EXACT_MAX)
}

/// Greatest common divisor (Euclid).
fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn meter(units: u64, per: Duration, capacity: u64) -> Meter {
        Meter::new(Rate { units, per }, capacity, "burst").unwrap()
    }

    #[test]
    fn what_cannot_be_exact_is_refused_with_its_bound() {
        let new = |units, per, capacity| Meter::new(Rate { units, per }, capacity, "burst");
        let (day, zero) = (Duration::from_secs(86_400), |parameter| AlgorithmError::Zero {
            parameter,
        });
        assert_eq!(new(0, day, 1), Err(zero("rate")));
        assert_eq!(new(1, Duration::ZERO, 1), Err(zero("rate")));
        assert_eq!(new(1, day, 0), Err(zero("burst")));
        // A token a day is 8.64e10 fractions: 104,249 tokens fill 2^53.
        let (parameter, max) = ("burst", 104_249);
        assert_eq!(new(1, day, 104_250), Err(AlgorithmError::TooLarge { parameter, max }));
        assert!(new(1, day, 104_249).is_ok());
        // In lowest terms, a million a day is 86,400 fractions.
        assert!(new(1_000_000, day, 1_000_000).is_ok());
        let (parameter, max) = ("rate", EXACT_MAX);
        assert_eq!(new(1 << 53, day, 1), Err(AlgorithmError::TooLarge { parameter, max }));
        let max = SPAN_MAX;
        assert_eq!(new(1, SPAN_MAX * 2, 1), Err(AlgorithmError::TooLong { parameter, max }));
    }

    #[test]
    fn a_lower_capacity_keeps_what_was_used_and_a_faster_rate_mints_nothing() {
        let minute = Duration::from_secs(60);
        let (old, new) = (meter(60, minute, 100), meter(6_000, minute, 40));
        let mut bucket = old.load(None, 0);
        old.save(&mut bucket, 100);
        // Ten seconds at a unit a second; from then on, at a hundred.
        let bucket = new.load(Some(bucket), 10_000_000);
        assert_eq!((bucket.used, new.free(&bucket)), (90 * new.period, 0));
        assert_eq!(new.wait(&bucket, 1), Wait::For(Duration::from_millis(510)));
        let bucket = new.load(Some(bucket), 10_510_000);
        assert_eq!(new.free(&bucket), 1);
    }

    #[test]
    fn a_clock_that_stepped_back_refills_nothing_and_freezes_nothing() {
        let meter = meter(1, Duration::from_secs(1), 5);
        let mut bucket = meter.load(None, 9_000_000_000);
        meter.save(&mut bucket, 5);
        let bucket = meter.load(Some(bucket), 1_000_000_000);
        assert_eq!(meter.free(&bucket), 0);
        assert_eq!(meter.free(&meter.load(Some(bucket), 1_003_000_000)), 3);
    }

    proptest! {
        /// Whoever takes all that is free, however often, gets exactly `capacity + ⌊t × rate⌋`: nothing is lost to
        /// rounding, and nothing gained, while the bucket never fills up again.
        #[test]
        fn polling_loses_nothing(
            units in 1_u64..5_000,
            per in prop_oneof![Just(1_000_000_u64), Just(60_000_000), Just(999_983), 1_u64..90_000_000_000],
            capacity in 1_u64..50_000,
            polls in prop::collection::vec(0_u64..1_000_000, 1..60),
        ) {
            let meter = meter(units, Duration::from_micros(per), capacity);
            let fill = meter.drain_micros();
            let (mut now, mut taken) = (0, 0);
            let mut bucket = meter.load(None, 0);
            for poll in polls {
                let free = meter.free(&bucket);
                meter.save(&mut bucket, free);
                taken += u128::from(free);
                let due = u128::from(now) * u128::from(units) / u128::from(per);
                prop_assert_eq!(taken, u128::from(capacity) + due);
                // Less than it takes to fill even an empty bucket of one unit less.
                let step = poll.min(fill.saturating_sub(meter.period.div_ceil(meter.units)));
                now += step;
                bucket = meter.load(Some(bucket), now);
            }
        }

        /// Of a unit of which some is used, none is left.
        #[test]
        fn what_is_left_grows_by_the_wait_that_is_told(
            rate in (1_u64..1_000_000, 1_u64..200_000_000_000), capacity in 1_u64..1_000, used in 0_u64..1_000_000_000_000,
        ) {
            let Ok(meter) = Meter::new(Rate { units: rate.0, per: Duration::from_micros(rate.1) }, capacity, "burst") else {
                return Ok(());
            };
            let mut bucket = meter.load(None, 0);
            bucket.used = used;
            let (remaining, wait) = meter.left(&bucket);
            prop_assert_eq!(remaining, meter.remaining(&bucket));
            prop_assert_eq!(wait == Wait::For(Duration::ZERO), remaining == capacity);
            let Wait::For(wait) = wait else { panic!("there is always one more") };
            let wait = u64::try_from(wait.as_micros()).unwrap();
            if wait > 0 {
                prop_assert!(meter.remaining(&meter.load(Some(bucket.clone()), wait)) > remaining);
                prop_assert_eq!(meter.remaining(&meter.load(Some(bucket), wait - 1)), remaining);
            }
        }

        /// However two rates alternate, what is used, in units, is never less after a conversion.
        #[test]
        fn conversion_mints_nothing(
            rates in prop::array::uniform2((1_u64..1_000_000, 1_u64..200_000_000_000)),
            used in 0_u64..=EXACT_MAX,
        ) {
            let [a, b] = rates.map(|(units, per)| meter(units, Duration::from_micros(per), 1));
            let mut bucket = a.load(None, 7);
            bucket.used = used;
            let there = b.load(Some(bucket), 7);
            let back = a.load(Some(there.clone()), 7);
            if there.used < EXACT_MAX && back.used < EXACT_MAX {
                prop_assert!(u128::from(there.used) * u128::from(a.period) >= u128::from(used) * u128::from(b.period));
                prop_assert!(back.used >= used);
                // Less than a fraction of either more.
                prop_assert!(back.used - used <= 1 + a.period.div_ceil(b.period));
            }
        }
    }
}
