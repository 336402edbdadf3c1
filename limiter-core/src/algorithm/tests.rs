//! What holds for every algorithm.

use proptest::prelude::*;

use super::*;
use crate::{clock::Timestamp, decision::Wait};

mod queue;
mod settling;

const BEGIN: u64 = 1_796_040_000_000_000;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn windows() -> impl Strategy<Value = Duration> {
    prop_oneof![
        Just(1_000_u64),
        Just(1_000_000),
        Just(60_000_000),
        1_000_u64..100_000_000_000
    ]
    .prop_map(Duration::from_micros)
}

/// Algorithms with limits below 300.
fn algorithms() -> impl Strategy<Value = Algorithm> {
    let limit = 1_u64..300;
    prop_oneof![
        (1_u64..3_000, windows(), limit.clone()).prop_map(|(units, per, burst)| TokenBucket::new(
            Rate { units, per },
            burst
        )
        .unwrap()
        .into()),
        (1_u64..3_000, windows(), limit.clone()).prop_map(|(units, per, size)| LeakyBucket::new(
            Rate { units, per },
            size
        )
        .unwrap()
        .into()),
        (limit.clone(), windows(), any::<bool>()).prop_map(|(limit, window, clock)| {
            let align = if clock { Align::Clock } else { Align::FirstRequest };
            FixedWindow::new(limit, window, align).unwrap().into()
        }),
        (limit.clone(), 0_usize..3).prop_map(|(limit, length)| {
            // In 2026-12, so not far from a change of clocks in the south.
            let zone = Zone::named("America/Santiago").unwrap();
            let calendar = match length {
                0 => Calendar::month(zone),
                1 => Calendar::days(zone, 1).unwrap(),
                _ => Calendar::days(zone, 7).unwrap(),
            };
            FixedWindow::of_calendar(limit, calendar).unwrap().into()
        }),
        (limit.clone(), windows(), 1_u32..=60).prop_map(|(limit, window, buckets)| SlidingWindowCounter::new(
            limit, window, buckets
        )
        .unwrap()
        .into()),
        (limit, windows()).prop_map(|(limit, window)| SlidingWindowLog::new(limit, window).unwrap().into()),
    ]
}

/// Gaps, in thousandths of the window, and the share of what is free that is taken then, in tenths.
fn history() -> impl Strategy<Value = Vec<(u64, u64)>> {
    prop::collection::vec((0_u64..600, 0_u64..=10), 1..20)
}

/// The counter after a history, and the time then.
fn counter(algorithm: &Algorithm, history: &[(u64, u64)]) -> (Counter, u64) {
    let window = micros(algorithm.window());
    let (mut now, mut counter) = (BEGIN, algorithm.load(None, at(BEGIN)));
    for (gap, share) in history {
        now += gap * window / 1_000;
        counter = algorithm.load(Some(counter), at(now));
        let used = (algorithm.free(&counter) * share).div_ceil(10);
        algorithm.save(&mut counter, used, at(now));
    }
    (counter, now)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A wait is true: after it the cost fits, and a microsecond earlier it does not.
    #[test]
    fn a_wait_is_the_shortest(algorithm in algorithms(), history in history(), share in 1_u64..=100) {
        let (counter, now) = counter(&algorithm, &history);
        let cost = (algorithm.limit() * share).div_ceil(100);
        let Wait::For(wait) = algorithm.wait(&counter, cost, at(now)) else {
            return Err(TestCaseError::fail("the cost is within the limit"));
        };
        let wait = micros(wait);
        let fits = |now| algorithm.free(&algorithm.load(Some(counter.clone()), at(now))) >= cost;
        prop_assert!(fits(now + wait));
        prop_assert!(wait == 0 || !fits(now + wait - 1), "fits earlier than {} µs", wait);
        prop_assert_eq!(algorithm.wait(&counter, algorithm.limit() + 1, at(now)), Wait::Never);
    }

    /// An expired counter is as good as none, and one that is not is not; the time to live in Redis covers that.
    #[test]
    fn from_its_expiry_on_a_counter_says_nothing(algorithm in algorithms(), history in history()) {
        let (mut counter, now) = counter(&algorithm, &history);
        let free = algorithm.free(&counter);
        algorithm.save(&mut counter, free, at(now));
        let expiry = algorithm.expires_at(&counter).as_micros();
        let free_at = |now| algorithm.free(&algorithm.load(Some(counter.clone()), at(now)));
        prop_assert_eq!(free_at(expiry), algorithm.limit());
        // What is left of a sliding counter's last sub-window may round to nothing before it is out.
        let rounds = matches!(algorithm, Algorithm::SlidingWindowCounter(_));
        prop_assert!(rounds || free_at(expiry - 1) < algorithm.limit());
        #[cfg(feature = "redis")]
        prop_assert!(expiry - now <= algorithm.lifetime_micros(at(now)));
        let fresh = algorithm.load(None, at(expiry));
        prop_assert_eq!(algorithm.expires_at(&fresh).as_micros().saturating_sub(expiry), 0);
    }

    /// Settling in between changes nothing: what is settled early, or often, is not rounded.
    #[test]
    fn settling_is_exact(
        algorithm in algorithms(),
        history in history(),
        gaps in prop::collection::vec(0_u64..900, 2),
    ) {
        let (counter, now) = counter(&algorithm, &history);
        let window = micros(algorithm.window());
        let (first, second) = (now + gaps[0] * window / 1_000, now + (gaps[0] + gaps[1]) * window / 1_000);
        let once = algorithm.load(Some(counter.clone()), at(second));
        let twice = algorithm.load(Some(algorithm.load(Some(counter), at(first))), at(second));
        prop_assert_eq!(once, twice);
    }

    /// With nothing taken, what is free never gets less, and is all at last.
    #[test]
    fn time_only_frees(
        algorithm in algorithms(),
        history in history(),
        gaps in prop::collection::vec(0_u64..400, 1..12),
    ) {
        let (mut counter, mut now) = counter(&algorithm, &history);
        let mut free = algorithm.free(&counter);
        for gap in gaps {
            now += gap * micros(algorithm.window()) / 1_000;
            counter = algorithm.load(Some(counter), at(now));
            prop_assert!(algorithm.free(&counter) >= free);
            free = algorithm.free(&counter);
        }
        counter = algorithm.load(Some(counter), at(now + 3 * micros(algorithm.window())));
        prop_assert_eq!(algorithm.free(&counter), algorithm.limit());
        prop_assert!(algorithm.used_share(&counter).abs() < f32::EPSILON);
    }

    /// A clock that steps back frees nothing, and from there on everything comes back within the usual time.
    #[test]
    fn a_step_back_frees_nothing_and_freezes_nothing(
        algorithm in algorithms(),
        history in history(),
        back in 1_u64..900_000_000,
    ) {
        let (mut counter, now) = counter(&algorithm, &history);
        let free = algorithm.free(&counter);
        algorithm.save(&mut counter, free, at(now));
        let counter = algorithm.load(Some(counter), at(now - back));
        // A sliding counter weighs its oldest part anew: the share that it had lost may differ.
        if !matches!(algorithm, Algorithm::SlidingWindowCounter(_)) {
            prop_assert_eq!(algorithm.free(&counter), 0);
        }
        let later = now - back + 2 * micros(algorithm.window());
        prop_assert_eq!(algorithm.free(&algorithm.load(Some(counter), at(later))), algorithm.limit());
    }

    /// Two configurations that alternate on a counter, as in a rollout, free nothing by that.
    #[test]
    fn going_to_other_parameters_and_back_frees_nothing(
        history in history(),
        units in prop::array::uniform2(1_u64..300),
        per in prop::array::uniform2(windows()),
        buckets in prop::array::uniform2(1_u32..=60),
        kind in 0..4,
    ) {
        let make = |index: usize| -> Algorithm {
            let rate = Rate { units: units[index], per: per[index] };
            match kind {
                0 => TokenBucket::new(rate, 100).unwrap().into(),
                1 => FixedWindow::new(100, per[0], [Align::Clock, Align::FirstRequest][index]).unwrap().into(),
                2 => SlidingWindowCounter::new(100, per[0], buckets[index]).unwrap().into(),
                _ => SlidingWindowLog::new(100, per[0]).unwrap().into(),
            }
        };
        let (ours, theirs) = (make(0), make(1));
        let (counter, now) = counter(&ours, &history);
        let back = ours.load(Some(theirs.load(Some(counter.clone()), at(now))), at(now));
        prop_assert!(ours.free(&back) <= ours.free(&counter));
        prop_assert!(ours.expires_at(&back) >= ours.expires_at(&counter) || ours.free(&counter) == 100);
    }

    /// The same algorithm with a lower or higher limit: what was used stays used.
    #[test]
    fn a_changed_limit_keeps_what_was_used(
        history in history(),
        limits in prop::array::uniform2(1_u64..300),
        kind in 0..5,
    ) {
        let minute = Duration::from_secs(60);
        let make = |limit: u64| -> Algorithm {
            match kind {
                0 => TokenBucket::new(Rate { units: 7, per: minute }, limit).unwrap().into(),
                1 => LeakyBucket::new(Rate { units: 7, per: minute }, limit).unwrap().into(),
                2 => FixedWindow::new(limit, minute, Align::Clock).unwrap().into(),
                3 => SlidingWindowCounter::new(limit, minute, 6).unwrap().into(),
                _ => SlidingWindowLog::new(limit, minute).unwrap().into(),
            }
        };
        let [old, new] = limits.map(make);
        let (counter, now) = counter(&old, &history);
        let used = old.limit() - old.free(&counter);
        let counter = new.load(Some(counter), at(now));
        prop_assert_eq!(new.free(&counter), new.limit().saturating_sub(used));
    }
}
