//! Buckets that warm up.

use super::*;

/// Ten a second, forty at once, after ten seconds.
fn warming() -> Arc<Policy> {
    let rate = Rate { units: 10, per: SECOND };
    let bucket = TokenBucket::new(rate, 40).unwrap();
    policy("user", bucket.with_warm_up(10 * SECOND, 1).unwrap())
}

/// A counter of the whole that was charged a unit every tenth of a second for so long, up to `now`.
fn in_use(policy: &Policy, time: Duration, now: Timestamp) -> Counter {
    let algorithm = policy.algorithm();
    let before = now.as_micros() - u64::try_from(time.as_micros()).unwrap();
    let mut at = Timestamp::from_micros(before);
    let mut counter = algorithm.load(None, at);
    while at < now {
        let units = algorithm.free(&counter).min(1);
        algorithm.save(&mut counter, units, at);
        at = at.plus(Duration::from_millis(100));
        counter = algorithm.load(Some(counter), at);
    }
    counter
}

#[test]
fn a_share_of_a_cold_quota_is_cold() {
    let (clock, fallback) = fallback(2);
    let policy = warming();
    assert_eq!(passed(&fallback, &policy, "alice", 9), 1);
    // A third of five a second.
    clock.advance(Duration::from_millis(599));
    assert_eq!(passed(&fallback, &policy, "alice", 9), 0);
    clock.advance(Duration::from_millis(1));
    assert_eq!(passed(&fallback, &policy, "alice", 9), 1);
}

#[test]
fn a_share_goes_on_as_warm_as_the_whole_was() {
    let (clock, fallback) = fallback(2);
    let policy = warming();
    let whole = in_use(&policy, 30 * SECOND, NOON);
    // Full but for the tokens that it was asked for while it was cold.
    let left = policy.algorithm().free(&whole);
    fallback.saw(&policy, "alice", &whole);
    assert_eq!(passed(&fallback, &policy, "alice", 99), 20 - (40 - left).div_ceil(2));
    clock.advance(2 * SECOND);
    assert_eq!(passed(&fallback, &policy, "alice", 99), 10);
    // What is owed is what was admitted and still counts.
    let owed = debts(&fallback);
    assert_eq!(owed.len(), 1);
}

#[test]
fn what_was_admitted_cold_is_owed() {
    let (clock, fallback) = fallback(1);
    let policy = warming();
    assert_eq!(passed(&fallback, &policy, "alice", 9), 1);
    clock.advance(300 * Duration::from_millis(1));
    assert_eq!(passed(&fallback, &policy, "alice", 9), 1);
    assert_eq!(debts(&fallback), [("user:tb:alice".to_owned(), 1)]);
    // Nobody asks for long: it is cold again, and nothing of it counts.
    assert_eq!(passed(&fallback, &policy, "alice", 9), 0);
    clock.advance(60 * SECOND);
    assert_eq!(passed(&fallback, &policy, "alice", 9), 1);
    clock.advance(60 * SECOND);
    assert_eq!(debts(&fallback), []);
}
