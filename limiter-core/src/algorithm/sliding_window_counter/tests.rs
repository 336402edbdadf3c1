use proptest::prelude::*;

use super::*;

fn policy(limit: u64, window: Duration, buckets: u32) -> SlidingWindowCounter {
    SlidingWindowCounter::new(limit, window, buckets).unwrap()
}

#[test]
fn the_oldest_weighs_as_much_as_it_overlaps() {
    let policy = policy(100, Duration::from_secs(10), 1);
    let mut counter = policy.load(None, 9_000_000);
    SlidingWindowCounter::save(&mut counter, 100);
    let used = |now| policy.load(Some(counter.clone()), now).used;
    assert_eq!(used(10_000_000), 100);
    assert_eq!(used(10_000_001), 99, "a part of a unit counts as none");
    assert_eq!(used(12_500_000), 75);
    assert_eq!(used(19_900_000), 1);
    assert_eq!(used(19_900_001), 0);
}

#[test]
fn other_sub_windows_keep_what_was_used() {
    let (old, new) = (
        policy(10, Duration::from_secs(60), 6),
        policy(10, Duration::from_secs(60), 4),
    );
    let now = 600_000_000;
    let mut counter = old.load(None, now);
    SlidingWindowCounter::save(&mut counter, 7);
    let counter = new.load(Some(counter), now + 9_000_000);
    assert_eq!(new.free(&counter), 3);
    assert_eq!(new.free(&new.load(Some(counter), now + 75_000_000)), 10);
}

#[test]
fn a_count_goes_where_its_last_instant_is() {
    let (old, new) = (
        policy(10, Duration::from_secs(60), 6),
        policy(10, Duration::from_secs(60), 4),
    );
    // Until 600 s; until 610 s, which is not over; and what lies before the window.
    let mut counter = None;
    for (at, cost) in [(540_000_000, 4), (595_000_000, 1), (605_000_000, 2)] {
        let mut loaded = old.load(counter, at);
        SlidingWindowCounter::save(&mut loaded, cost);
        counter = Some(loaded);
    }
    let counter = new.load(counter, 615_000_000);
    assert_eq!(counter.counts[..], [0, 2, 1, 0, 0]);
}

#[test]
fn a_clock_that_stepped_back_moves_the_counts_along() {
    let policy = policy(5, Duration::from_secs(10), 10);
    let mut counter = policy.load(None, 9_000_000_000);
    SlidingWindowCounter::save(&mut counter, 5);
    let counter = policy.load(Some(counter), 1_000_000_000);
    assert_eq!(policy.free(&counter), 0);
    assert_eq!(policy.free(&policy.load(Some(counter), 1_011_000_000)), 5);
}

#[test]
fn what_cannot_be_exact_is_refused_with_its_bound() {
    let (second, parameter) = (Duration::from_secs(1), "limit");
    let max = (1 << 50) - 1;
    let error = SlidingWindowCounter::new(max + 1, second, 6);
    assert_eq!(error, Err(AlgorithmError::TooLarge { parameter, max }));
    let (parameter, max) = ("buckets", 60);
    assert_eq!(
        SlidingWindowCounter::new(1, second, 0),
        Err(AlgorithmError::Zero { parameter })
    );
    assert_eq!(
        SlidingWindowCounter::new(1, second, 61),
        Err(AlgorithmError::TooLarge { parameter, max })
    );
    let (parameter, max) = ("window", Duration::from_secs(150_119_987));
    let error = SlidingWindowCounter::new(1, Duration::from_secs(150_119_988), 60);
    assert_eq!(error, Err(AlgorithmError::TooLong { parameter, max }));
    assert!(SlidingWindowCounter::new(1, max, 60).is_ok());
}

proptest! {
    /// What is used is the real-number weight of what passed, rounded down once: computed here from every passed
    /// request, with the sub-window of a time as `⌊t × b / w⌋`.
    #[test]
    fn used_is_the_weight_of_what_passed(
        limit in prop_oneof![1_u64..200, Just(COUNTER_LIMIT_MAX), 1..=COUNTER_LIMIT_MAX],
        (buckets, window) in (1_u32..=60).prop_flat_map(|buckets| {
            let max = EXACT_MAX / u64::from(buckets);
            let micros = prop_oneof![1_000_u64..100_000, 1_000_u64..max.min(259_200_000_000_000)];
            (Just(buckets), micros)
        }),
        arrivals in prop::collection::vec((0_u64..=2_000, 1_u64..=1_000), 1..80),
    ) {
        let policy = policy(limit, Duration::from_micros(window), buckets);
        let (w, b) = (u128::from(window), u128::from(buckets));
        let index = |time: u64| u128::from(time) * b / w;
        let (mut now, mut counter, mut passed) = (1_796_040_000_000_000, None, Vec::new());
        for (gap, share) in arrivals {
            // In thousandths of the window and of the limit.
            now += gap * window / 1_000;
            let cost = (limit / 1_000 * share).max(1);
            let loaded = policy.load(counter.take(), now);
            let head = index(now);
            let sum = |from: u128, to: u128| -> u128 {
                let inside = passed.iter().filter(|(at, _)| (from..=to).contains(&index(*at)));
                inside.map(|(_, cost)| u128::from(*cost)).sum()
            };
            let (newer, oldest) = (sum(head - b + 1, head), sum(head - b, head - b));
            let overlap = w - u128::from(now) * b % w;
            prop_assert_eq!(u128::from(loaded.used), newer + oldest * overlap / w);
            let mut loaded = loaded;
            if policy.free(&loaded) >= cost {
                SlidingWindowCounter::save(&mut loaded, cost);
                passed.push((now, cost));
            }
            counter = Some(loaded);
        }
    }
}
