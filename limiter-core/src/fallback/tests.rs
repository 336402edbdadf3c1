use std::{sync::Weak, time::Duration};

use super::*;
use crate::{
    algorithm::{
        Align, FixedWindow, LeakyBucket, Log, Rate, SlidingWindowCounter, SlidingWindowLog, Summary, TokenBucket,
    },
    decision::{Verdict, Wait},
    test_util::ManualClock,
};

mod properties;
mod settling;
mod warm_up;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// Noon on some day, so that no window of a day ends soon.
const NOON: Timestamp = Timestamp::from_micros((20_000 * 86_400 + 43_200) * 1_000_000);

fn fallback(gateways: u32) -> (Arc<ManualClock>, Fallback) {
    let clock = Arc::new(ManualClock::new(NOON));
    let fallback = Fallback::with_clock(10_000, Arc::clone(&clock) as Arc<dyn Clock>);
    fallback.set_live(gateways);
    (clock, fallback)
}

fn policy(name: &str, algorithm: impl Into<Algorithm>) -> Arc<Policy> {
    Arc::new(Policy::new(name, algorithm, OnFailure::Local))
}

fn window(limit: u64, window: Duration) -> FixedWindow {
    FixedWindow::new(limit, window, Align::Clock).unwrap()
}

/// Each algorithm, with a quota of `limit` in `window`.
fn algorithms(limit: u64, window: Duration) -> [Algorithm; 6] {
    let rate = Rate {
        units: limit,
        per: window,
    };
    [
        TokenBucket::new(rate, limit).unwrap().into(),
        LeakyBucket::new(rate, limit).unwrap().into(),
        FixedWindow::new(limit, window, Align::Clock).unwrap().into(),
        FixedWindow::new(limit, window, Align::FirstRequest).unwrap().into(),
        SlidingWindowCounter::new(limit, window, 6).unwrap().into(),
        SlidingWindowLog::new(limit, window).unwrap().into(),
    ]
}

fn ask(fallback: &Fallback, policy: &Arc<Policy>, key: &str, cost: u64) -> Verdict {
    fallback.decide_now(&[Ask { policy, key, cost }]).verdict
}

/// How many of so many requests for a unit pass.
fn passed(fallback: &Fallback, policy: &Arc<Policy>, key: &str, requests: u64) -> u64 {
    let passes = |_: &u64| ask(fallback, policy, key, 1) == Verdict::Allowed;
    (0..requests).filter(passes).count() as u64
}

/// A counter of the whole quota of which `used` units were used at `now`.
fn used(policy: &Policy, used: u64, now: Timestamp) -> Counter {
    let mut counter = policy.algorithm().load(None, now);
    policy.algorithm().save(&mut counter, used, now);
    counter
}

fn debts(fallback: &Fallback) -> Vec<(String, u64)> {
    let name = |debt: &Debt| format!("{}{}", debt.policy().key_prefix(), debt.key());
    let mut debts: Vec<_> = fallback.take_debts().map(|debt| (name(&debt), debt.units())).collect();
    debts.sort_unstable();
    debts
}

#[test]
fn a_quota_is_divided_among_the_live_gateways() {
    for algorithm in algorithms(100, DAY) {
        let policy = policy("user", algorithm);
        for (gateways, share) in [(0, 100), (1, 100), (3, 33), (200, 1)] {
            let (_, fallback) = fallback(gateways);
            assert_eq!(passed(&fallback, &policy, "alice", 200), share, "{policy:?}");
        }
    }
}

#[test]
fn a_share_begins_with_its_part_of_what_was_last_seen() {
    for algorithm in algorithms(100, DAY) {
        let (_, fallback) = fallback(4);
        let policy = policy("user", algorithm);
        fallback.saw(&policy, "alice", &used(&policy, 99, NOON));
        fallback.saw(&policy, "alice", &used(&policy, 58, NOON));
        // 15 of 25 are used: 14.5, rounded up.
        assert_eq!(passed(&fallback, &policy, "alice", 100), 10, "{policy:?}");
        assert_eq!(passed(&fallback, &policy, "bob", 100), 25, "{policy:?}");
    }
}

#[test]
fn layers_that_are_never_decided_here_are_not_remembered() {
    let (_, fallback) = fallback(1);
    for on_failure in [OnFailure::Open, OnFailure::Closed] {
        let policy = Arc::new(Policy::new("user", window(10, DAY), on_failure));
        fallback.saw(&policy, "alice", &used(&policy, 9, NOON));
    }
    let policy = policy("unused", window(10, DAY));
    fallback.saw(&policy, "alice", &used(&policy, 0, NOON));
    assert!(fallback.is_empty());
}

#[test]
fn units_of_a_log_count_from_when_they_were_seen() {
    let policy = policy("user", SlidingWindowLog::new(10, 60 * SECOND).unwrap());
    let (clock, fallback) = fallback(2);
    // The oldest of 7 was taken long ago; nothing is known of the others.
    let oldest = NOON.as_micros() - 59_000_000;
    let log = Log::Summary(Summary::new(7, 0, oldest));
    fallback.saw(&policy, "alice", &Counter::Log(Box::new(log)));
    assert_eq!(passed(&fallback, &policy, "alice", 9), 1);
    clock.advance(60 * SECOND - Duration::from_micros(1));
    assert_eq!(passed(&fallback, &policy, "alice", 9), 0);
    clock.advance(Duration::from_micros(1));
    assert_eq!(passed(&fallback, &policy, "alice", 9), 5);
}

#[test]
fn a_server_that_comes_and_goes_gives_nobody_a_fresh_share() {
    for algorithm in algorithms(100, DAY) {
        let (clock, fallback) = fallback(4);
        let policy = policy("user", algorithm);
        assert_eq!(passed(&fallback, &policy, "alice", 20), 20);
        for flap in 0..20 {
            clock.advance(Duration::from_millis(50));
            assert_eq!(debts(&fallback).len(), usize::from(flap == 0));
            // The server was told, or it was not: no difference.
            if flap % 2 == 0 {
                fallback.saw(&policy, "alice", &used(&policy, 20, clock.now()));
            }
        }
        assert_eq!(passed(&fallback, &policy, "alice", 100), 5, "{policy:?}");
        // What others had used by then counts too.
        clock.advance(Duration::from_millis(50));
        fallback.saw(&policy, "alice", &used(&policy, 100, clock.now()));
        assert_eq!(passed(&fallback, &policy, "alice", 100), 0, "{policy:?}");
    }
}

#[test]
fn debts_are_what_was_admitted_and_are_told_once() {
    for algorithm in algorithms(100, DAY) {
        let (_, fallback) = fallback(2);
        let policy = policy("user", algorithm);
        fallback.saw(&policy, "alice", &used(&policy, 60, NOON));
        assert_eq!(ask(&fallback, &policy, "alice", 3), Verdict::Allowed);
        assert_eq!(passed(&fallback, &policy, "alice", 100), 17);
        assert_eq!(passed(&fallback, &policy, "bob", 4), 4);
        assert_eq!(ask(&fallback, &policy, "carol", 0), Verdict::Allowed);
        let prefix = policy.key_prefix();
        assert_eq!(
            debts(&fallback),
            [(format!("{prefix}alice"), 20), (format!("{prefix}bob"), 4)]
        );
        assert_eq!(debts(&fallback), []);
    }
}

#[test]
fn what_has_drained_is_not_owed() {
    for algorithm in algorithms(100, 100 * SECOND) {
        let (clock, fallback) = fallback(1);
        let policy = policy("user", algorithm);
        assert_eq!(passed(&fallback, &policy, "alice", 100), 100);
        clock.advance(200 * SECOND);
        assert_eq!(debts(&fallback), [], "{policy:?}");
        assert_eq!(fallback.debtors(), 0);
    }
    // A bucket drains bit by bit, first what was there before.
    let (clock, fallback) = fallback(2);
    let policy = policy("user", algorithms(100, 100 * SECOND)[0].clone());
    fallback.saw(&policy, "alice", &used(&policy, 20, NOON));
    assert_eq!(passed(&fallback, &policy, "alice", 30), 30);
    clock.advance(30 * SECOND);
    // 10 + 30 − 15, of which the server knows nothing any more.
    assert_eq!(debts(&fallback), [("user:tb:alice".to_owned(), 25)]);
}

#[test]
fn debts_are_taken_of_those_wanted_and_others_stay() {
    let (_, fallback) = fallback(1);
    let policy = policy("user", window(10, DAY));
    for key in ["alice", "bob", "carol"] {
        assert_eq!(passed(&fallback, &policy, key, 1), 1);
    }
    let wanted = |prefix: &str, key: &str| prefix == "user:fw:" && key == "bob";
    let keys: Vec<String> = (fallback.take_debts_of(wanted).map(|debt| debt.key().to_owned())).collect();
    assert_eq!(keys, ["bob"]);
    assert_eq!(fallback.take_debts().take(1).count(), 1);
    assert_eq!(fallback.debtors(), 1, "what the iterator did not come to");
}

#[test]
fn debts_of_policies_that_are_gone_are_dropped_and_others_follow_the_name() {
    let (_, fallback) = fallback(1);
    let old = ["gone", "used", "idle"].map(|name| policy(name, window(10, DAY)));
    for policy in &old {
        assert_eq!(passed(&fallback, policy, "alice", 4), 4);
    }
    drop(old);
    let reloaded = ["used", "idle"].map(|name| policy(name, window(20, DAY)));
    let known = reloaded.each_ref().map(Arc::downgrade);
    fallback.use_policies(move |prefix, key| {
        assert_eq!(key, "alice");
        let mut known = known.iter().filter_map(Weak::upgrade);
        known.find(|policy| policy.key_prefix() == prefix)
    });
    assert_eq!(passed(&fallback, &reloaded[0], "bob", 1), 1);
    let mut taken: Vec<_> = fallback.take_debts().collect();
    taken.sort_by_key(|debt| (debt.units(), debt.policy().name().to_string()));
    let units: Vec<_> = taken
        .iter()
        .map(|debt| (&**debt.policy().name(), debt.key(), debt.units()))
        .collect();
    assert_eq!(units, [("used", "bob", 1), ("idle", "alice", 4), ("used", "alice", 4)]);
    let is_reloaded = |debt: &Debt| reloaded.iter().any(|policy| Arc::ptr_eq(policy, debt.policy()));
    assert!(taken.iter().all(is_reloaded));
}

#[test]
fn a_counter_that_was_evicted_owes_at_most_what_was_admitted() {
    for algorithm in algorithms(100, 100 * SECOND) {
        let clock = Arc::new(ManualClock::new(NOON));
        let fallback = Fallback::with_clock(1, Arc::clone(&clock) as Arc<dyn Clock>);
        let policy = policy("user", algorithm);
        fallback.saw(&policy, "alice", &used(&policy, 10, NOON));
        assert_eq!(passed(&fallback, &policy, "alice", 20), 20);
        // Its place is taken.
        assert_eq!(passed(&fallback, &policy, "bob", 1), 1);
        clock.advance(SECOND);
        let owed: u64 = debts(&fallback).iter().map(|(_, units)| units).sum();
        assert!((20..=21).contains(&owed), "{owed} of {policy:?}");
    }
}

#[test]
fn the_ledger_is_bounded() {
    let (clock, mut fallback) = fallback(1);
    fallback.ledger = Ledger::new(4);
    let policy = policy("user", window(10, DAY));
    for key in ["a", "b", "c", "d", "e", "f", "a"] {
        assert_eq!(passed(&fallback, &policy, key, 2), 2);
    }
    assert_eq!((fallback.debtors(), fallback.unrecorded()), (4, 4));
    // What counts no more makes place.
    clock.advance(DAY);
    fallback.sweep(1);
    assert_eq!(passed(&fallback, &policy, "e", 2), 2);
    assert_eq!((fallback.debtors(), fallback.unrecorded()), (1, 4));
}

#[test]
fn a_cost_above_the_share_passes_where_nothing_of_it_is_used() {
    for algorithm in algorithms(100, 100 * SECOND) {
        let (clock, fallback) = fallback(4);
        let policy = policy("user", algorithm);
        assert_eq!(ask(&fallback, &policy, "alice", 60), Verdict::Allowed, "{policy:?}");
        for cost in [1, 60] {
            let Verdict::Denied { by: 0, wait } = ask(&fallback, &policy, "alice", cost) else {
                panic!("{policy:?}: {cost} more passed");
            };
            assert!(
                matches!(wait, Wait::For(_)) && wait.retry_after_secs() >= Some(1),
                "{wait:?}"
            );
        }
        let Verdict::Denied {
            wait: Wait::For(wait), ..
        } = ask(&fallback, &policy, "alice", 60)
        else {
            panic!("{policy:?}");
        };
        clock.advance(wait);
        assert_eq!(ask(&fallback, &policy, "alice", 60), Verdict::Allowed, "{policy:?}");
        let wait = Wait::Never;
        assert_eq!(ask(&fallback, &policy, "bob", 101), Verdict::Denied { by: 0, wait });
    }
}

#[test]
fn a_bucket_pays_back_a_cost_above_the_share() {
    let (clock, fallback) = fallback(4);
    let policy = policy("user", algorithms(100, 100 * SECOND)[0].clone());
    assert_eq!(ask(&fallback, &policy, "alice", 60), Verdict::Allowed);
    clock.advance(239 * SECOND);
    assert_eq!(
        ask(&fallback, &policy, "alice", 60),
        Verdict::Denied {
            by: 0,
            wait: Wait::For(SECOND)
        }
    );
}

#[test]
fn a_refused_request_charges_nothing_and_owes_nothing() {
    let (_, fallback) = fallback(2);
    let (wide, full) = (policy("wide", window(100, DAY)), policy("full", window(2, DAY)));
    assert_eq!(passed(&fallback, &full, "*", 1), 1);
    let asks = [
        Ask {
            policy: &wide,
            key: "alice",
            cost: 7,
        },
        Ask {
            policy: &full,
            key: "*",
            cost: 1,
        },
    ];
    let decision = fallback.decide_now(&asks);
    assert!(matches!(decision.verdict, Verdict::Denied { by: 1, .. }));
    assert_eq!(decision.readings[0].remaining, 50);
    assert_eq!(debts(&fallback), [("full:fw:*".to_owned(), 1)]);
}

#[test]
fn windows_keep_the_edges_of_the_servers_time() {
    let (clock, fallback) = fallback(1);
    let policy = policy("user", window(10, 60 * SECOND));
    // The server is 3 days and 20 seconds behind.
    let server = |clock: &ManualClock| Timestamp::from_micros(clock.now().as_micros() - 259_220_000_000);
    fallback.server_time_is(server(&clock));
    fallback.saw(&policy, "alice", &used(&policy, 6, server(&clock)));
    assert_eq!(passed(&fallback, &policy, "alice", 10), 4);
    clock.advance(20 * SECOND - Duration::from_micros(1));
    assert_eq!(passed(&fallback, &policy, "alice", 10), 0);
    clock.advance(Duration::from_micros(1));
    assert_eq!(passed(&fallback, &policy, "alice", 11), 10);
}

#[test]
fn a_clock_that_steps_back_at_the_server_forgives_no_debt() {
    for algorithm in algorithms(100, 60 * SECOND) {
        let (clock, fallback) = fallback(1);
        let policy = policy("user", algorithm);
        assert_eq!(passed(&fallback, &policy, "alice", 40), 40);
        // Another server, whose clock is an hour behind.
        fallback.server_time_is(Timestamp::from_micros(clock.now().as_micros() - 3_600_000_000));
        assert_eq!(passed(&fallback, &policy, "alice", 100), 60, "{policy:?}");
        assert_eq!(
            debts(&fallback),
            [(format!("{}alice", policy.key_prefix()), 100)],
            "{policy:?}"
        );
        clock.advance(120 * SECOND);
        assert_eq!(passed(&fallback, &policy, "alice", 100), 100, "{policy:?}");
    }
}

#[test]
fn a_flood_of_new_keys_frees_nobody_and_its_memory_comes_back() {
    const KEYS: usize = 10_000;
    let (clock, fallback) = fallback(1);
    let [bucket, ..] = algorithms(10, 100 * SECOND);
    let policy = policy("ip", bucket);
    let abusers: Vec<String> = (0..100).map(|i| format!("abuser-{i}")).collect();
    // Half of them were known before the outage, half come to be known in it.
    for (i, abuser) in abusers.iter().enumerate() {
        if i % 2 == 0 {
            fallback.saw(&policy, abuser, &used(&policy, 10, NOON));
        } else {
            assert_eq!(passed(&fallback, &policy, abuser, 11), 10);
        }
    }
    for i in 0..10 * KEYS {
        let key = format!("flood-{i}");
        fallback.saw(&policy, &key, &used(&policy, 1, NOON));
        ask(&fallback, &policy, &key, 1);
    }
    assert!(fallback.len() <= 2 * KEYS, "{}", fallback.len());
    assert!(fallback.debtors() <= ACCOUNTS_MAX);
    let freed = abusers
        .iter()
        .filter(|abuser| passed(&fallback, &policy, abuser, 1) > 0)
        .count();
    assert_eq!(freed, 0);
    clock.advance(200 * SECOND);
    for _ in 0..20 {
        fallback.sweep(KEYS / 10);
    }
    assert!(fallback.is_empty(), "{} are left", fallback.len());
    assert_eq!(debts(&fallback), []);
}

#[test]
fn every_unit_is_owed_once_under_threads() {
    for algorithm in algorithms(4_000, DAY) {
        let (_, fallback) = fallback(1);
        let policies = ["a", "b"].map(|name| policy(name, algorithm.clone()));
        let owed = std::sync::Mutex::new(0);
        let collect = || {
            let debts: u64 = fallback.take_debts().map(|debt| debt.units()).sum();
            *owed.lock().unwrap() += debts;
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let asks = policies.each_ref().map(|policy| Ask {
                        policy,
                        key: "k",
                        cost: 1,
                    });
                    assert!((0..500).all(|_| fallback.decide_now(&asks).verdict == Verdict::Allowed));
                });
            }
            scope.spawn(|| (0..200).for_each(|_| collect()));
        });
        collect();
        assert_eq!(owed.into_inner().unwrap(), 4 * 500 * 2, "{algorithm:?}");
    }
}

#[test]
fn shares_are_kept_to_until_other_gateways_have_come_back_too() {
    let day = policy("p", window(10, DAY));
    let one = [Ask {
        policy: &day,
        key: "k",
        cost: 1,
    }];
    for (gateways, outage, kept) in [
        (2, 2 * SECOND, 2 * SECOND),
        (2, 60 * SECOND, APART_MAX),
        (1, SECOND, SECOND),
    ] {
        let (clock, fallback) = fallback(gateways);
        let held = || fallback.hold_back(&one, &mut None).is_some();
        let share = u64::from(10 / gateways);
        assert_eq!(passed(&fallback, &day, "k", 20), share);
        assert!(!held(), "the server is away: it is not asked anyway");
        assert_eq!(debts(&fallback), [("p:fw:k".to_owned(), share)]);
        fallback.returned(outage);
        assert_eq!(held(), gateways > 1, "nobody else can come later than a single one");
        clock.advance(kept.checked_sub(Duration::from_micros(1)).unwrap());
        assert_eq!(held(), gateways > 1);
        assert!(
            fallback
                .hold_back(
                    &[Ask {
                        key: "new",
                        ..one[0].clone()
                    }],
                    &mut None
                )
                .is_none(),
            "there is room"
        );
        clock.advance(Duration::from_micros(1));
        assert!(!held());
        assert_eq!(fallback.debtors(), 0, "what passes then is charged at the server");
        fallback.returned(outage);
        fallback.lost();
        assert!(!held());
    }
}
