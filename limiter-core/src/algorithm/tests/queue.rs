//! What holds of turns: of a leaky bucket that is a queue, and of a token bucket that is waited for.

use proptest::prelude::*;

use super::{BEGIN, at};
use crate::{
    algorithm::{Algorithm, LeakyBucket, Rate, TokenBucket, micros},
    clock::Timestamp,
    decide::{Layer, decide},
    decision::{Decision, Verdict, Wait},
    policy::Role,
    settlement::Change,
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

fn per_second(units: u64) -> Rate {
    Rate { units, per: SECOND }
}

/// A bucket, and requests to it.
struct Line {
    algorithm: Algorithm,
    counter: crate::algorithm::Counter,
    role: Role,
}

impl Line {
    fn of(algorithm: impl Into<Algorithm>) -> Self {
        let algorithm = algorithm.into();
        let counter = algorithm.load(None, at(BEGIN));
        let role = Role::Enforced;
        Self {
            algorithm,
            counter,
            role,
        }
    }

    fn ask(&mut self, cost: u64, now: u64) -> Decision {
        let layer = Layer {
            algorithm: &self.algorithm,
            role: self.role,
            cost,
            gives_back: false,
        };
        let mut counters = [self.algorithm.load(Some(self.counter.clone()), at(now))];
        let decision = decide(&[layer], &mut counters, at(now));
        let [counter] = counters;
        self.counter = counter;
        decision
    }

    /// The delay of each of so many requests at one moment, in ms; those that are refused have none.
    fn delays(&mut self, count: usize, now: u64) -> Vec<u64> {
        let decisions = (0..count).map(|_| self.ask(1, now));
        decisions
            .filter_map(|decision| delay(&decision))
            .map(|delay| delay / 1_000)
            .collect()
    }

    fn leave(&mut self, units: u64, empty_at: Timestamp, now: u64) {
        self.counter = self.algorithm.load(Some(self.counter.clone()), at(now));
        self.algorithm
            .settle(&mut self.counter, Change::LeaveQueue { units, empty_at }, at(now));
    }
}

/// In µs; `None` where it was refused.
fn delay(decision: &Decision) -> Option<u64> {
    let delay = decision.turn.as_ref().map_or(0, |turn| micros(turn.delay()));
    (decision.verdict == Verdict::Allowed).then_some(delay)
}

#[test]
fn from_empty_the_capacity_passes_the_first_at_once_and_the_others_one_after_the_other() {
    let mut line = Line::of(LeakyBucket::queue(per_second(50), 5, 10 * SECOND).unwrap());
    assert_eq!(line.delays(9, BEGIN), [0, 20, 40, 60, 80]);
    // One has left, and one comes in behind the others.
    assert_eq!(line.delays(9, BEGIN + 20_000), [80]);
    let refused = line.ask(1, BEGIN + 20_000);
    let wait = Wait::For(Duration::from_millis(20));
    assert_eq!(refused.verdict, Verdict::Denied { by: 0, wait });
    assert_eq!((refused.turn, refused.readings[0].remaining), (None, 0));
}

#[test]
fn no_turn_is_later_than_the_longest_delay() {
    let queue = LeakyBucket::queue(per_second(10), 1_000, SECOND).unwrap();
    assert_eq!(queue.capacity(), 11);
    assert_eq!(Line::of(queue).delays(100, BEGIN).last(), Some(&1_000));
    let slow = LeakyBucket::queue(
        Rate {
            units: 1,
            per: 60 * SECOND,
        },
        5,
        10 * SECOND,
    )
    .unwrap();
    assert_eq!(slow.capacity(), 1, "all but the first would wait for a minute");
}

#[test]
fn tokens_are_waited_for_beyond_the_burst() {
    let bucket = TokenBucket::new(per_second(10), 3)
        .unwrap()
        .with_max_wait(SECOND / 4)
        .unwrap();
    let mut line = Line::of(bucket.clone());
    assert_eq!(line.delays(9, BEGIN), [0, 0, 0, 100, 200]);
    let refused = line.ask(1, BEGIN);
    // A token that comes after 300 ms may be waited for 50 ms from now.
    assert_eq!(refused.readings[0].wait, Wait::For(Duration::from_millis(50)));
    assert_eq!(refused.readings[0].remaining, 0);
    assert_eq!(line.delays(9, BEGIN + 50_000), [250]);
    // Nothing of the wait is told as a quota, and a cost above the burst never fits.
    let mut line = Line::of(bucket);
    let first = line.ask(3, BEGIN);
    assert_eq!(
        (first.readings[0].remaining, first.readings[0].wait),
        (0, Wait::For(SECOND / 10))
    );
    assert_eq!(
        line.ask(4, BEGIN + 9_000_000).verdict,
        Verdict::Denied {
            by: 0,
            wait: Wait::Never
        }
    );
    assert_eq!(line.ask(3, BEGIN + 9_000_000).turn, None);
}

#[test]
fn who_takes_nothing_and_who_is_only_watched_waits_for_nothing() {
    let mut line = Line::of(LeakyBucket::queue(per_second(1), 5, 10 * SECOND).unwrap());
    line.ask(3, BEGIN);
    assert_eq!(line.ask(0, BEGIN).turn, None);
    line.role = Role::Shadow;
    assert_eq!(line.ask(1, BEGIN).turn, None);
    line.role = Role::Enforced;
    assert_eq!(
        delay(&line.ask(1, BEGIN)),
        Some(4_000_000),
        "a watched request is counted all the same"
    );
}

#[test]
fn only_the_last_gives_its_turn_back() {
    let mut line = Line::of(LeakyBucket::queue(per_second(10), 5, 10 * SECOND).unwrap());
    assert_eq!(line.delays(3, BEGIN), [0, 100, 200]);
    let last = line.algorithm.expires_at(&line.counter);
    assert_eq!(line.delays(1, BEGIN + 50_000), [250]);
    line.leave(1, last, BEGIN + 60_000);
    assert_eq!(line.delays(1, BEGIN + 60_000), [340], "somebody stood behind");
    let last = line.algorithm.expires_at(&line.counter);
    line.leave(1, last, BEGIN + 70_000);
    assert_eq!(line.delays(1, BEGIN + 70_000), [330], "its turn is free again");
}

#[test]
fn a_share_of_a_queue_is_a_queue() {
    let whole: Algorithm = LeakyBucket::queue(per_second(10), 10, 10 * SECOND).unwrap().into();
    let mut line = Line::of(whole.divided(2));
    assert_eq!(line.delays(9, BEGIN), [0, 200, 400, 600, 800]);
    // However long a turn may take, and however fast it is.
    let fast = Rate {
        units: crate::algorithm::EXACT_MAX,
        per: SECOND,
    };
    let longest = Algorithm::from(LeakyBucket::queue(fast, 10, Duration::MAX).unwrap());
    assert_eq!(longest.divided(2).limit(), 5);
    let bucket = TokenBucket::new(per_second(10), 4)
        .unwrap()
        .with_max_wait(SECOND / 2)
        .unwrap();
    let mut line = Line::of(Algorithm::from(bucket).divided(2));
    assert_eq!(line.delays(9, BEGIN), [0, 0, 200, 400]);
}

#[test]
fn a_wait_that_cannot_be_counted_is_refused_with_its_bound() {
    let bucket = TokenBucket::new(
        Rate {
            units: 1 << 40,
            per: SECOND,
        },
        1,
    )
    .unwrap();
    let Err(crate::AlgorithmError::TooLong { parameter, max }) = bucket.clone().with_max_wait(Duration::MAX) else {
        panic!("it is too long");
    };
    assert_eq!(parameter, "max_wait");
    assert!(bucket.clone().with_max_wait(max).is_ok());
    assert!(bucket.with_max_wait(max + Duration::from_micros(1)).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Whenever requests come, their turns are as far apart as their costs take at the rate, to the microsecond that they
    /// are rounded up to, and none waits longer than it may.
    #[test]
    fn turns_keep_the_rate(
        units in 1_u64..3_000,
        per in 1_000_u64..100_000_000,
        capacity in 1_u64..100,
        max_delay in 0_u64..10_000_000,
        arrivals in prop::collection::vec((0_u64..300, 1_u64..4), 1..60),
    ) {
        let rate = Rate { units, per: Duration::from_micros(per) };
        let queue = LeakyBucket::queue(rate, capacity, Duration::from_micros(max_delay)).unwrap();
        let mut line = Line::of(queue);
        let (mut now, mut free_at) = (BEGIN, 0);
        for (gap, cost) in arrivals {
            now += gap * per / units / 100;
            let Some(delay) = delay(&line.ask(cost, now)) else { continue };
            prop_assert!(delay <= max_delay.max(1));
            let turn = now + delay;
            prop_assert!(turn + 1 >= free_at, "{turn} is before {free_at}");
            prop_assert!(delay == 0 || turn <= free_at + 1, "a turn is lost: {turn} is after {free_at}");
            free_at = turn + cost * per / units;
        }
    }

    /// However requests come, what has left of a bucket that is waited for is within its burst and rate.
    #[test]
    fn who_waits_for_tokens_leaves_within_burst_and_rate(
        units in 1_u64..3_000,
        burst in 1_u64..50,
        max_wait in 0_u64..2_000_000,
        arrivals in prop::collection::vec((0_u64..300, 1_u64..4), 1..60),
    ) {
        let bucket = TokenBucket::new(per_second(units), burst).unwrap();
        let mut line = Line::of(bucket.with_max_wait(Duration::from_micros(max_wait)).unwrap());
        let (mut now, mut left) = (BEGIN, Vec::new());
        for (gap, cost) in arrivals {
            now += gap * 10_000 / units;
            let Some(delay) = delay(&line.ask(cost, now)) else { continue };
            prop_assert!(delay <= max_wait);
            left.push((now + delay, cost));
        }
        for (from, (begin, _)) in left.iter().enumerate() {
            let mut sum = 0;
            for (end, cost) in &left[from..] {
                sum += cost;
                let earned = u128::from(end - begin + 1) * u128::from(units) / 1_000_000;
                prop_assert!(u128::from(sum) <= u128::from(burst) + earned + 1);
            }
        }
    }
}
