//! What holds of settlements, for every algorithm.

use proptest::prelude::*;

use super::{algorithms, at, counter, history};
use crate::{
    algorithm::{Algorithm, micros},
    decision::Wait,
    settlement::Change,
};

fn give_back(units: u64, time: u64) -> Change {
    Change::GiveBack { units, at: at(time) }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// A debit takes what it says, whether it is free or not.
    #[test]
    fn a_debit_takes_without_asking(algorithm in algorithms(), history in history(), units in 0_u64..900) {
        let (mut counter, now) = counter(&algorithm, &history);
        let free = algorithm.free(&counter);
        algorithm.settle(&mut counter, Change::Debit(units), at(now));
        prop_assert_eq!(algorithm.free(&counter), free.saturating_sub(units));
    }

    /// What is beyond the limit comes back as all else: a wait is true, and at last all is free.
    #[test]
    fn a_wait_is_true_beyond_the_limit(
        algorithm in algorithms(),
        history in history(),
        units in 0_u64..900,
        share in 1_u64..=100,
    ) {
        let (mut counter, now) = counter(&algorithm, &history);
        algorithm.settle(&mut counter, Change::Debit(units), at(now));
        let cost = (algorithm.limit() * share).div_ceil(100);
        let Wait::For(wait) = algorithm.wait(&counter, cost, at(now)) else {
            return Err(TestCaseError::fail("the cost is within the limit"));
        };
        let wait = micros(wait);
        let free_at = |now| algorithm.free(&algorithm.load(Some(counter.clone()), at(now)));
        prop_assert!(free_at(now + wait) >= cost);
        prop_assert!(wait == 0 || free_at(now + wait - 1) < cost, "fits earlier than {} µs", wait);
        let expiry = algorithm.expires_at(&counter).as_micros();
        prop_assert_eq!(free_at(expiry), algorithm.limit());
    }

    /// What was taken and is given back at once has not been taken.
    #[test]
    fn what_is_given_back_was_not_taken(algorithm in algorithms(), history in history(), share in 0_u64..=100) {
        let (before, now) = counter(&algorithm, &history);
        let units = algorithm.free(&before) * share / 100;
        let mut after = before.clone();
        algorithm.save(&mut after, units, at(now));
        algorithm.settle(&mut after, give_back(units, now), at(now));
        prop_assert_eq!(after, before);
    }

    /// Nor later, while nothing of it has left: whoever comes after finds what would be free without it.
    #[test]
    fn what_is_given_back_later_leaves_what_others_took(
        algorithm in algorithms(),
        history in history(),
        shares in prop::array::uniform2(1_u64..=50),
    ) {
        let (mut with, now) = counter(&algorithm, &history);
        let mut without = with.clone();
        let units = shares.map(|share| algorithm.free(&with) * share / 100);
        algorithm.save(&mut with, units[0], at(now));
        let later = at(now + 1);
        let mut with = algorithm.load(Some(with), later);
        algorithm.save(&mut with, units[1], later);
        algorithm.settle(&mut with, give_back(units[0], now), later);
        without = algorithm.load(Some(without), later);
        algorithm.save(&mut without, units[1], later);
        // Here a new window may have begun, or a bucket been empty: then what was taken is partly forgotten already.
        match algorithm {
            Algorithm::SlidingWindowLog(_) => prop_assert_eq!(with, without),
            _ => prop_assert!(algorithm.free(&with).abs_diff(algorithm.free(&without)) <= units[0]),
        }
    }

    /// Nothing becomes fuller than full, nor frees more units than are given back.
    #[test]
    fn a_gift_is_no_gift(
        algorithm in algorithms(),
        history in history(),
        units in 0_u64..900,
        ago in 0_u64..3_000,
    ) {
        let (mut counter, now) = counter(&algorithm, &history);
        let (free, before) = (algorithm.free(&counter), counter.clone());
        let taken = now - ago * micros(algorithm.window()) / 1_000;
        algorithm.settle(&mut counter, give_back(units, taken), at(now));
        prop_assert!(algorithm.free(&counter) <= algorithm.limit().min(free + units));
        prop_assert!(algorithm.expires_at(&counter) <= algorithm.expires_at(&before).max(at(now)));
        let keeps_times = !matches!(algorithm, Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_));
        if ago >= 2_000 && keeps_times {
            prop_assert_eq!(counter, before, "what has left cannot come back");
        }
    }

    /// Nor in a moment that has not come: the clock of another server was ahead.
    #[test]
    fn what_was_taken_in_the_future_stays_taken(algorithm in algorithms(), history in history(), units in 1_u64..900) {
        let (mut counter, now) = counter(&algorithm, &history);
        let before = counter.clone();
        algorithm.settle(&mut counter, give_back(units, now + 3 * micros(algorithm.window())), at(now));
        if !matches!(algorithm, Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_)) {
            prop_assert_eq!(counter, before);
        }
    }
}

/// However often and however much: numbers stay exact, and a log does not grow without a bound.
#[test]
fn debits_are_bounded_by_what_a_state_can_hold() {
    use std::time::Duration;

    use crate::algorithm::{
        Align, Concurrency, Counter, EXACT_MAX, FixedWindow, Rate, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
    };

    let minute = Duration::from_secs(60);
    let rate = Rate { units: 7, per: minute };
    let all: [Algorithm; 6] = [
        TokenBucket::new(rate, 10).unwrap().into(),
        TokenBucket::new(rate, 10)
            .and_then(|bucket| bucket.with_warm_up(minute, 1))
            .unwrap()
            .into(),
        FixedWindow::new(10, minute, Align::Clock).unwrap().into(),
        SlidingWindowCounter::new(10, minute, 6).unwrap().into(),
        SlidingWindowLog::new(10, minute).unwrap().into(),
        Concurrency::new(10, minute).unwrap().into(),
    ];
    for algorithm in all {
        let now = at(super::BEGIN);
        let mut counter = algorithm.load(None, now);
        for _ in 0..3 {
            algorithm.settle(&mut counter, Change::Debit(u64::MAX), now);
        }
        let held = match &counter {
            Counter::Bucket(c) => c.used,
            Counter::Window(c) => c.count,
            Counter::SubWindows(c) => c.counts.iter().sum(),
            Counter::Log(c) => c.live(),
            Counter::Slots(c) => c.held,
            Counter::Warming(c) => c.used,
        };
        let bound = if matches!(algorithm, Algorithm::SlidingWindowLog(_)) {
            20
        } else {
            EXACT_MAX
        };
        assert!(held <= bound, "{held} of {algorithm:?}");
        assert_eq!(algorithm.free(&counter), 0);
    }
}
