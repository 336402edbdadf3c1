//! The share that each of several processes has of a quota, while they cannot count together.

use std::time::Duration;

use super::{
    Algorithm, AlgorithmError, Concurrency, EXACT_MAX, LeakyBucket, Rate, SPAN_MAX, SlidingWindowCounter,
    SlidingWindowLog, TokenBucket, micros,
};

impl Algorithm {
    /// The same algorithm with one of `by` equal shares of the quota (0 counts as 1).
    ///
    /// The limit, burst or capacity is rounded down, but is at least 1. A rate is divided exactly; where that passes a
    /// bound of the arithmetic, it becomes the nearest slower one that does not, but at least a unit in 3,000 days.
    #[must_use]
    pub fn divided(&self, by: u32) -> Self {
        self.divided_to_hold(by, 1)
    }

    /// As [`Algorithm::divided`], but its share holds `cost` units at least, where the whole quota does: a request that
    /// costs more than a share would else never pass.
    pub(crate) fn divided_to_hold(&self, by: u32, cost: u64) -> Self {
        if by <= 1 {
            return self.clone();
        }
        let limit = (self.limit() / u64::from(by)).max(cost.clamp(1, self.limit()));
        let divided = match self {
            Self::TokenBucket(a) => {
                let (warm_up, at_once) = (a.warm_up(), a.at_once());
                let new = |rate, burst| {
                    let bucket = TokenBucket::new(rate, burst)?.with_max_wait(a.max_wait())?;
                    // A cold share holds a request's worth, as the whole does.
                    match warm_up {
                        Duration::ZERO => Ok(bucket),
                        warm_up => bucket.with_warm_up(warm_up, at_once),
                    }
                };
                bucket(a.rate(), by, limit, fineness(a), new).map(Self::from)
            }
            // The whole bounds the wait already, and a share of it at its share of the rate takes no longer.
            Self::LeakyBucket(a) if a.is_queue() => {
                let new = |rate, capacity| LeakyBucket::queue(rate, capacity, Duration::MAX);
                bucket(a.rate(), by, limit, 1, new).map(Self::from)
            }
            Self::LeakyBucket(a) => bucket(a.rate(), by, limit, 1, LeakyBucket::new).map(Self::from),
            Self::FixedWindow(a) => Ok(a.with_limit(limit).into()),
            Self::SlidingWindowLog(a) => SlidingWindowLog::new(limit, a.window()).map(Self::from),
            Self::SlidingWindowCounter(a) => {
                let buckets = u32::try_from(a.grid().buckets).unwrap_or(u32::MAX);
                SlidingWindowCounter::new(limit, a.window(), buckets).map(Self::from)
            }
            Self::Concurrency(a) => Concurrency::new(limit, a.lease()).map(Self::from),
        };
        debug_assert!(divided.is_ok(), "a smaller limit is as good: {self:?} by {by}");
        divided.unwrap_or_else(|_| self.clone())
    }
}

/// How much finer its fractions have to be than those of a bucket that does not warm up.
fn fineness(bucket: &TokenBucket) -> u64 {
    match bucket.warm_up() {
        Duration::ZERO => 1,
        _ => 15,
    }
}

/// A bucket of `limit` units, in fractions that are `finer`, at a share of `rate`.
fn bucket<T>(
    rate: Rate,
    by: u32,
    limit: u64,
    finer: u64,
    new: impl Fn(Rate, u64) -> Result<T, AlgorithmError>,
) -> Result<T, AlgorithmError> {
    let period = u128::from(micros(rate.per)) * u128::from(by);
    let exact = u64::try_from(period).ok().and_then(|period| {
        let per = Duration::from_micros(period);
        new(Rate { per, ..rate }, limit).ok()
    });
    if let Some(exact) = exact {
        return Ok(exact);
    }
    // The longest period that can be counted exactly, and as many whole units in it as are not too fast.
    let longest = (micros(SPAN_MAX) / finer).min(EXACT_MAX / limit / finer);
    let units = u128::from(rate.units) * u128::from(longest) / period.max(1);
    let rate = Rate {
        units: u64::try_from(units).unwrap_or(u64::MAX).clamp(1, EXACT_MAX),
        per: Duration::from_micros(longest),
    };
    new(rate, limit)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::{Align, FixedWindow};

    const DAY: Duration = Duration::from_secs(86_400);

    fn token_bucket(units: u64, per: Duration, burst: u64) -> Algorithm {
        TokenBucket::new(Rate { units, per }, burst).unwrap().into()
    }

    fn rate(algorithm: &Algorithm) -> Rate {
        match algorithm {
            Algorithm::TokenBucket(a) => a.rate(),
            Algorithm::LeakyBucket(a) => a.rate(),
            other => panic!("{other:?} has no rate"),
        }
    }

    #[test]
    fn a_share_is_rounded_down_and_never_nothing() {
        let second = Duration::from_secs(1);
        let whole: [Algorithm; 3] = [
            FixedWindow::new(10, second, Align::FirstRequest).unwrap().into(),
            SlidingWindowLog::new(10, second).unwrap().into(),
            SlidingWindowCounter::new(10, second, 7).unwrap().into(),
        ];
        for whole in whole {
            let limits = [0, 1, 2, 3, 10, 11, u32::MAX].map(|by| whole.divided(by).limit());
            assert_eq!(limits, [10, 10, 5, 3, 1, 1, 1]);
            assert_eq!(whole.divided(2).window(), second);
            assert_eq!(whole.divided(1), whole);
        }
        let window = FixedWindow::new(10, second, Align::FirstRequest).unwrap();
        let share = FixedWindow::new(5, second, Align::FirstRequest).unwrap();
        assert_eq!(Algorithm::from(window).divided(2), share.into());
        let counter = SlidingWindowCounter::new(10, second, 7).unwrap();
        let share = SlidingWindowCounter::new(5, second, 7).unwrap();
        assert_eq!(Algorithm::from(counter).divided(2), share.into());
    }

    #[test]
    fn a_rate_is_divided_exactly() {
        let share = token_bucket(10, DAY, 7).divided(3);
        assert_eq!(
            (rate(&share), share.limit()),
            (
                Rate {
                    units: 10,
                    per: 3 * DAY
                },
                2
            )
        );
        let leaky: Algorithm = LeakyBucket::new(Rate { units: 10, per: DAY }, 7).unwrap().into();
        assert_eq!(
            rate(&leaky.divided(3)),
            Rate {
                units: 10,
                per: 3 * DAY
            }
        );
    }

    #[test]
    fn what_cannot_be_divided_exactly_is_slower() {
        // A quarter of it would be over 4,000 days.
        let share = token_bucket(1_000, 1_000 * DAY, 4).divided(4);
        assert_eq!(
            rate(&share),
            Rate {
                units: 750,
                per: 3_000 * DAY
            }
        );
        // A unit in 6,000 days cannot be counted.
        let share = token_bucket(1, 1_500 * DAY, 4).divided(4);
        assert_eq!(
            rate(&share),
            Rate {
                units: 1,
                per: 3_000 * DAY
            }
        );
    }

    #[test]
    fn a_share_holds_the_cost_that_the_whole_does() {
        let whole = token_bucket(1, DAY, 100_000);
        assert_eq!(whole.divided_to_hold(4, 25_000).limit(), 25_000);
        assert_eq!(whole.divided_to_hold(4, 99_999).limit(), 99_999);
        assert_eq!(whole.divided_to_hold(4, 100_001).limit(), 100_000);
    }

    proptest! {
        #[test]
        fn every_share_can_be_counted_and_is_no_faster_than_its_part(
            units in 1_u64..1_000_000,
            per in 1_u64..200_000_000_000,
            burst in 1_u64..100_000,
            by in 1_u32..10_000,
            cost in 1_u64..200_000,
            warms_up in any::<bool>(),
        ) {
            let rate_of_all = Rate { units, per: Duration::from_micros(per) };
            let whole = TokenBucket::new(rate_of_all, burst).and_then(|whole| match warms_up {
                true => whole.with_warm_up(DAY, cost),
                false => Ok(whole),
            });
            let Ok(whole) = whole else { return Ok(()) };
            let whole = Algorithm::from(whole);
            let share = whole.divided_to_hold(by, cost);
            prop_assert_eq!(share.limit(), (burst / u64::from(by)).max(cost.min(burst)));
            if let Algorithm::TokenBucket(share) = &share && warms_up {
                prop_assert_eq!((share.warm_up(), share.at_once()), if by == 1 { (DAY, cost.min(burst)) } else { (DAY, cost.min(share.burst())) });
            }
            let rate = rate(&share);
            let part = u128::from(units) * u128::from(micros(rate.per));
            let whole_of_shares = u128::from(rate.units) * u128::from(per) * u128::from(by);
            prop_assert!(whole_of_shares <= part || rate.units == 1);
            // Less than a unit in the longest period slower.
            prop_assert!(part - whole_of_shares.min(part) < u128::from(per) * u128::from(by));
        }
    }
}
