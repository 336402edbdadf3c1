use proptest::{collection::vec, prelude::*};

use super::*;
use crate::algorithm::{Algorithm, Rate, TokenBucket};

const BEGIN: u64 = 1_796_040_000_000_000;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn bucket(units: u64, per: u64, burst: u64) -> TokenBucket {
    let per = Duration::from_micros(per);
    TokenBucket::new(Rate { units, per }, burst).unwrap()
}

fn warming(units: u64, per: u64, burst: u64, (time, at_once): (u64, u64)) -> Algorithm {
    let time = Duration::from_micros(time);
    bucket(units, per, burst).with_warm_up(time, at_once).unwrap().into()
}

/// A thousand a second, of which two hundred at once, after ten seconds.
fn thousand() -> Algorithm {
    warming(1_000, 1_000_000, 200, (10_000_000, 1))
}

/// What passes of a request each `gap` µs, in each of `seconds`.
fn admitted(algorithm: &Algorithm, gap: u64, seconds: u64) -> Vec<u64> {
    let (mut counter, mut now) = (None, BEGIN);
    let second = |_| {
        let end = now + 1_000_000;
        let mut passed = 0;
        while now < end {
            let mut loaded = algorithm.load(counter.take(), at(now));
            let units = algorithm.free(&loaded).min(1);
            algorithm.save(&mut loaded, units, at(now));
            (counter, passed, now) = (Some(loaded), passed + units, now + gap);
        }
        passed
    };
    (0..seconds).map(second).collect()
}

#[test]
fn the_rate_climbs_in_ten_equal_steps() {
    // The first, which a cold bucket holds, and 5, 6, 7 ... 15 fifteenths of a thousand.
    let expected = [334, 400, 467, 533, 600, 667, 733, 800, 867, 933, 1_000, 1_000];
    let found = admitted(&thousand(), 500, 12);
    let near = |(found, expected): (&u64, &u64)| found.abs_diff(*expected) <= 1;
    assert!(found.iter().zip(&expected).all(near), "{found:?}");
}

#[test]
fn cold_it_gives_no_burst_and_warm_it_does() {
    let algorithm = thousand();
    let mut counter = algorithm.load(None, at(BEGIN));
    assert_eq!((algorithm.free(&counter), algorithm.remaining(&counter)), (1, 1));
    algorithm.save(&mut counter, 1, at(BEGIN));
    // The third of a thousand a second is a token in 3 ms.
    assert_eq!(
        algorithm.wait(&counter, 1, at(BEGIN)),
        Wait::For(Duration::from_millis(3))
    );
    // Ten seconds later less a microsecond it is warm, and full.
    let counter = algorithm.load(Some(counter), at(BEGIN + 9_999_999));
    assert_eq!(algorithm.free(&counter), 200);
    // For nobody was charged.
    let counter = algorithm.load(Some(counter), at(BEGIN + 10_000_000));
    assert_eq!(algorithm.free(&counter), 1);
}

#[test]
fn who_is_refused_keeps_nothing_warm() {
    // A token a minute, and two seconds to warm.
    let algorithm = warming(1, 60_000_000, 5, (2_000_000, 1));
    let mut counter = algorithm.load(None, at(BEGIN));
    algorithm.save(&mut counter, 1, at(BEGIN));
    let Wait::For(wait) = algorithm.wait(&counter, 1, at(BEGIN)) else {
        panic!()
    };
    let mut now = BEGIN;
    while at(now) < at(BEGIN).plus(wait) {
        counter = algorithm.load(Some(counter), at(now));
        assert_eq!(algorithm.free(&counter), 0, "{now}");
        now += 100_000;
    }
    let counter = algorithm.load(Some(counter), at(now));
    assert_eq!(algorithm.free(&counter), 1);
    assert!(algorithm.expires_at(&counter) <= at(now), "it is cold");
}

#[test]
fn a_cold_bucket_holds_what_a_request_costs() {
    let algorithm = warming(10, 1_000_000, 20, (1_000_000, 5));
    let counter = algorithm.load(None, at(BEGIN));
    assert_eq!(algorithm.free(&counter), 5);
    assert_eq!(algorithm.wait(&counter, 5, at(BEGIN)), Wait::For(Duration::ZERO));
    assert_eq!(
        algorithm.wait(&counter, 6, at(BEGIN)),
        Wait::Never,
        "it is cold until somebody passes"
    );
}

#[test]
fn a_cold_bucket_is_given_nothing_back_to() {
    let algorithm = thousand();
    let mut counter = algorithm.load(None, at(BEGIN));
    let (units, back) = (9, at(BEGIN));
    algorithm.settle(&mut counter, Change::GiveBack { units, at: back }, at(BEGIN));
    assert_eq!(counter, algorithm.load(None, at(BEGIN)));
    algorithm.settle(&mut counter, Change::Debit(0), at(BEGIN));
    assert!(algorithm.expires_at(&counter) <= at(BEGIN), "nothing was taken");
}

#[test]
fn a_reload_keeps_what_was_used() {
    let (plain, slow) = (
        Algorithm::from(bucket(10, 1_000_000, 20)),
        warming(10, 1_000_000, 20, (5_000_000, 1)),
    );
    // One that warms up from now on is warm, if it is in use.
    let mut counter = plain.load(None, at(BEGIN));
    plain.save(&mut counter, 15, at(BEGIN));
    let counter = slow.load(Some(counter), at(BEGIN + 100_000));
    assert_eq!(slow.free(&counter), 6);
    assert_eq!(slow.free(&slow.load(Some(counter.clone()), at(BEGIN + 300_000))), 8);
    // One that need not any more has what it had, and refills at its full rate.
    let back = plain.load(Some(counter), at(BEGIN + 300_000));
    assert_eq!(plain.free(&back), 8);
    let mut counter = slow.load(None, at(BEGIN));
    slow.save(&mut counter, 1, at(BEGIN));
    let counter = plain.load(Some(counter), at(BEGIN));
    assert_eq!(
        (plain.free(&counter), plain.wait(&counter, 2, at(BEGIN))),
        (0, Wait::For(Duration::from_millis(200)))
    );
    // In another time, it goes on at the step that it was at.
    let mut counter = slow.load(None, at(BEGIN));
    slow.save(&mut counter, 1, at(BEGIN));
    let slower = warming(10, 1_000_000, 20, (50_000_000, 1));
    let Counter::Warming(state) = slower.load(Some(counter), at(BEGIN + 1_200_000)) else {
        panic!()
    };
    assert_eq!((state.warmed, state.time), (10_000_000, 50_000_000));
}

#[test]
fn a_clock_that_stepped_back_changes_nothing() {
    let algorithm = thousand();
    let mut counter = algorithm.load(None, at(BEGIN));
    algorithm.save(&mut counter, 1, at(BEGIN));
    let Counter::Warming(before) = algorithm.load(Some(counter), at(BEGIN + 3_000)) else {
        panic!()
    };
    let Counter::Warming(after) = algorithm.load(Some(Counter::Warming(before.clone())), at(1_000)) else {
        panic!()
    };
    assert_eq!((after.at, after.used), (1_000, before.used));
    assert_eq!((after.warmed, after.idle), (before.warmed, before.idle));
}

#[test]
fn what_cannot_be_exact_is_refused_with_its_bound() {
    let day = 86_400_000_000;
    let new = |units, per, burst, time| bucket(units, per, burst).with_warm_up(time, 1).err();
    let (parameter, second) = ("warm_up", Duration::from_secs(1));
    assert_eq!(new(1, day, 1, Duration::ZERO), Some(AlgorithmError::Zero { parameter }));
    let max = SPAN_MAX;
    assert_eq!(
        new(1, day, 1, SPAN_MAX * 2),
        Some(AlgorithmError::TooLong { parameter, max })
    );
    let (parameter, max) = ("burst", 6_949);
    assert_eq!(
        new(1, day, 6_950, second),
        Some(AlgorithmError::TooLarge { parameter, max })
    );
    assert_eq!(new(1, day, 6_949, second), None);
    let (parameter, max) = ("rate", Duration::from_secs(200 * 86_400));
    assert_eq!(
        new(1, 201 * day, 1, second),
        Some(AlgorithmError::TooLong { parameter, max })
    );
    assert_eq!(new(1, 200 * day, 1, SPAN_MAX), None);
    let waited = bucket(1, day, 1).with_max_wait(second).unwrap();
    assert!(waited.with_warm_up(second, 1).is_err());
    let warming = bucket(1, day, 1).with_warm_up(second, 1).unwrap();
    assert!(warming.clone().with_max_wait(second).is_err());
    assert_eq!(warming.with_max_wait(Duration::ZERO).unwrap().warm_up(), second);
}

/// The definition, a microsecond after the other.
struct Plain {
    units: u128,
    unit: u128,
    capacity: u128,
    cold: u128,
    time: u128,
    used: u128,
    warmed: u128,
    idle: u128,
}

impl Plain {
    fn new(units: u64, per: u64, burst: u64, (time, at_once): (u64, u64)) -> Self {
        let unit = u128::from(per) * 15;
        let cold = u128::from(burst - at_once) * unit;
        let time = u128::from(time);
        Self {
            units: units.into(),
            unit,
            capacity: u128::from(burst) * unit,
            cold,
            time,
            used: cold,
            warmed: 0,
            idle: time,
        }
    }

    fn tick(&mut self) {
        let fifteenths = 5 + self.warmed * 10 / self.time;
        self.used = self.used.saturating_sub(self.units * fifteenths);
        self.warmed = (self.warmed + 1).min(self.time);
        self.idle = (self.idle + 1).min(self.time);
        if self.idle == self.time && self.used <= self.cold {
            (self.used, self.warmed) = (self.cold, 0);
        }
    }

    fn free(&self) -> u64 {
        u64::try_from(self.capacity.saturating_sub(self.used) / self.unit).unwrap()
    }

    fn take(&mut self, units: u64) {
        self.used += u128::from(units) * self.unit;
        self.idle = 0;
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// Settled now and then or each microsecond, it is the same bucket; and a wait is true, to the microsecond.
    #[test]
    fn it_is_what_its_definition_says(
        units in 1_u64..30,
        per in prop_oneof![Just(1_u64), Just(7), 1_u64..200],
        (burst, share) in (1_u64..12, any::<prop::sample::Index>()),
        tenths in 1_u64..40,
        arrivals in vec((0_u64..120, 0_u64..5, any::<bool>()), 1..40),
    ) {
        let warm_up = (tenths * 10, 1 + share.index(burst as usize) as u64);
        let algorithm = warming(units, per, burst, warm_up);
        let mut plain = Plain::new(units, per, burst, warm_up);
        let (mut counter, mut now) = (None, BEGIN);
        // What passed since it was cold, and what may have.
        let (mut passed, mut allowed) = (0, 0);
        for (gap, cost, is_kept) in arrivals {
            for _ in 0..gap {
                if plain.idle < plain.time || plain.used > plain.cold {
                    allowed += plain.units * (5 + plain.warmed * 10 / plain.time);
                }
                now += 1;
                plain.tick();
            }
            if plain.idle == plain.time && plain.used == plain.cold {
                (passed, allowed) = (0, u128::from(warm_up.1) * plain.unit);
            }
            let mut loaded = algorithm.load(counter.clone(), at(now));
            let free = algorithm.free(&loaded);
            prop_assert_eq!(free, plain.free());
            if cost > 0 && cost <= free {
                algorithm.save(&mut loaded, cost, at(now));
                plain.take(cost);
                passed += u128::from(cost) * plain.unit;
                prop_assert!(passed <= allowed, "more than it may: {} of {}", passed, allowed);
                counter = Some(loaded);
            } else {
                // Whether it is settled by a request that takes nothing is all the same.
                if is_kept && counter.is_some() {
                    counter = Some(loaded.clone());
                }
                let fits = |later| algorithm.free(&algorithm.load(Some(loaded.clone()), at(later))) >= cost;
                match algorithm.wait(&loaded, cost, at(now)) {
                    Wait::For(wait) => {
                        let wait = micros(wait);
                        prop_assert!(fits(now + wait));
                        prop_assert!(wait == 0 || !fits(now + wait - 1), "fits earlier than {}", wait);
                    }
                    Wait::Never => {
                        prop_assert!(cost > warm_up.1);
                        prop_assert!(cost > burst || (0..2_000).all(|later| !fits(now + later)));
                    }
                }
            }
        }
    }

    /// A counter that expired is as good as none, not a microsecond earlier, and lives in Redis for as long.
    #[test]
    fn from_its_expiry_on_it_is_cold(
        units in 1_u64..3_000,
        per in prop_oneof![Just(1_000_000_u64), Just(60_000_000), 1_u64..10_000_000_000],
        (burst, share) in (1_u64..300, any::<prop::sample::Index>()),
        time in 1_u64..10_000_000_000,
        arrivals in vec((0_u64..2_000, 0_u64..=10), 1..20),
    ) {
        let at_once = 1 + share.index(burst as usize) as u64;
        let algorithm = warming(units, per, burst, (time, at_once));
        let mut now = BEGIN;
        let mut counter = algorithm.load(None, at(now));
        for (gap, share) in arrivals {
            now += gap * time.max(per / units) / 1_000;
            counter = algorithm.load(Some(counter), at(now));
            let units = (algorithm.free(&counter) * share).div_ceil(10);
            algorithm.save(&mut counter, units, at(now));
        }
        let charged = algorithm.free(&counter);
        algorithm.save(&mut counter, charged, at(now));
        let expiry = algorithm.expires_at(&counter).as_micros();
        let fresh = |later| algorithm.load(None, at(later));
        prop_assert_eq!(algorithm.load(Some(counter.clone()), at(expiry)), fresh(expiry));
        prop_assert!(expiry == now || algorithm.load(Some(counter), at(expiry - 1)) != fresh(expiry - 1));
        #[cfg(feature = "redis")]
        prop_assert!(expiry - now <= algorithm.lifetime_micros(at(now)));
    }
}
