//! Every counter has an expiry that is long enough, one that lost it gets it back, and none is kept for nothing.

use std::{sync::Arc, time::Duration};

use limiter_core::{
    Ask, OnFailure, Policy, Rate, Verdict,
    algorithm::{Concurrency, TokenBucket},
    test_util::script::{Answered, Batch, Settle, script_text},
};

use crate::{
    edges::{MINUTE, NOW, ask, asks, call, policies, two_in},
    redis::{Redis, Value},
};

fn name(policy: &Policy) -> String {
    format!("t:{}k", policy.key_prefix())
}

fn time_to_live(redis: &mut Redis, policy: &Policy) -> i64 {
    match redis.command(&[b"PTTL", name(policy).as_bytes()]) {
        Value::Int(ttl) => ttl,
        other => panic!("no time to live: {other:?}"),
    }
}

/// Takes the expiry of the counter `k`.
fn persist(redis: &mut Redis, policy: &Policy) {
    assert_eq!(
        redis.command(&[b"PERSIST", name(policy).as_bytes()]),
        Value::Int(1),
        "{policy:?}"
    );
    assert_eq!(time_to_live(redis, policy), -1);
}

/// Applies a settlement to the counter `k`.
fn settle(redis: &mut Redis, policy: &Arc<Policy>, settle: Settle) {
    let mut batch = Batch::default();
    assert!(batch.settle(policy, "k", settle));
    let Value::Bytes(reply) = call(redis, &batch, &script_text(true), None, Some(NOW)) else {
        panic!("the script failed over {policy:?}")
    };
    assert!(matches!(batch.replay(&reply), Ok(Answered::Decided(_, decisions, 0)) if decisions.is_empty()));
}

#[test]
fn every_key_lives_as_long_as_it_matters_and_not_much_longer() {
    let mut redis = Redis::start();
    for policy in policies() {
        ask(&mut redis, &policy, "k", NOW);
        let ttl = time_to_live(&mut redis, &policy);
        // A second for a slow machine, between the call and the question.
        assert!((59_000..=120_000).contains(&ttl), "{ttl} ms: {policy:?}");
    }
}

#[test]
fn a_refused_request_lets_a_counter_live_as_long_as_a_longer_window_counts_it() {
    let mut redis = Redis::start();
    for (minute, hour) in policies().into_iter().zip(two_in(60 * MINUTE)) {
        if minute.algorithm().holds() {
            // A lease is as long as was said when it was taken.
            continue;
        }
        for _ in 0..2 {
            ask(&mut redis, &minute, "k", NOW);
        }
        assert!(time_to_live(&mut redis, &minute) <= 120_000);
        let decision = ask(&mut redis, &hour, "k", NOW);
        assert!(matches!(decision.verdict, Verdict::Denied { .. }), "{hour:?}");
        let ttl = time_to_live(&mut redis, &hour);
        assert!((3_590_000..=7_200_000).contains(&ttl), "{ttl} ms: {hour:?}");
    }
}

#[test]
fn more_than_a_lowered_burst_keeps_its_own_time_to_live() {
    let mut redis = Redis::start();
    let bucket = |per, burst| {
        let rate = Rate {
            units: 1,
            per: Duration::from_secs(per),
        };
        Arc::new(Policy::new(
            "p",
            TokenBucket::new(rate, burst).unwrap(),
            OnFailure::Open,
        ))
    };
    let mut batch = Batch::default();
    assert!(batch.add(&asks(&[bucket(1, 100)], 100)));
    call(&mut redis, &batch, &script_text(true), None, Some(NOW));
    // 100 used, of 2: at a token in ten seconds, that is 1,000 s.
    let new = bucket(10, 2);
    let decision = ask(&mut redis, &new, "k", NOW);
    assert!(matches!(decision.verdict, Verdict::Denied { .. }));
    let ttl = time_to_live(&mut redis, &new);
    assert!((990_000..=1_000_010).contains(&ttl), "{ttl} ms");
}

#[test]
fn a_counter_lives_as_long_as_the_longest_lease_in_it() {
    let mut redis = Redis::start();
    let lease = |lease| {
        let slots = Concurrency::new(2, lease).unwrap();
        Arc::new(Policy::new("p", slots, OnFailure::Open))
    };
    let (hour, minute) = (lease(60 * MINUTE), lease(MINUTE));
    for (holder, policy) in [(1, &hour), (2, &minute)] {
        let mut batch = Batch::of(holder);
        assert!(batch.add(&asks(std::slice::from_ref(policy), 1)));
        call(&mut redis, &batch, &script_text(true), None, Some(NOW));
    }
    let ttl = time_to_live(&mut redis, &minute);
    assert!((3_590_000..=3_600_010).contains(&ttl), "{ttl} ms");
}

#[test]
fn a_refused_request_gives_a_lost_expiry_back() {
    let mut redis = Redis::start();
    for policy in policies() {
        for _ in 0..2 {
            ask(&mut redis, &policy, "k", NOW);
        }
        persist(&mut redis, &policy);
        let later = NOW.plus(Duration::from_millis(1));
        let decision = ask(&mut redis, &policy, "k", later);
        assert!(matches!(decision.verdict, Verdict::Denied { .. }), "{policy:?}");
        let ttl = time_to_live(&mut redis, &policy);
        assert!((59_000..=120_000).contains(&ttl), "{ttl} ms: {policy:?}");
        // What it holds is the same: nothing comes back before its time.
        let early = NOW.plus(Duration::from_secs(29));
        let decision = ask(&mut redis, &policy, "k", early);
        assert!(matches!(decision.verdict, Verdict::Denied { .. }), "{policy:?}");
    }
}

#[test]
fn a_request_that_takes_nothing_gives_a_lost_expiry_back() {
    let mut redis = Redis::start();
    for policy in policies() {
        ask(&mut redis, &policy, "k", NOW);
        persist(&mut redis, &policy);
        let mut batch = Batch::default();
        assert!(batch.add(&asks(std::slice::from_ref(&policy), 0)));
        call(&mut redis, &batch, &script_text(true), None, Some(NOW));
        let ttl = time_to_live(&mut redis, &policy);
        assert!((59_000..=120_000).contains(&ttl), "{ttl} ms: {policy:?}");
    }
}

#[test]
fn what_lost_its_expiry_and_says_nothing_any_more_is_deleted() {
    let mut redis = Redis::start();
    let all = policies();
    let later = NOW.plus(10 * MINUTE);
    for policy in &all {
        ask(&mut redis, policy, "k", NOW);
        persist(&mut redis, policy);
        // Refused by another layer.
        let full = &two_in(60 * MINUTE)[0];
        let asks = [
            Ask {
                policy,
                key: "k",
                cost: 1,
            },
            Ask {
                policy: &Arc::new(Policy::new("q", full.algorithm().clone(), OnFailure::Open)),
                key: "k",
                cost: 3,
            },
        ];
        let mut batch = Batch::default();
        assert!(batch.add(&asks));
        call(&mut redis, &batch, &script_text(true), None, Some(later));
        assert_eq!(
            redis.command(&[b"EXISTS", name(policy).as_bytes()]),
            Value::Int(0),
            "{policy:?}"
        );
    }
}

#[test]
fn a_debit_beyond_the_limit_lives_as_long_as_it_counts() {
    let mut redis = Redis::start();
    for policy in policies() {
        settle(&mut redis, &policy, Settle::Debit(20));
        // A bucket drains two a minute, and so for ten minutes; all others forget within a window and a part.
        let bound = if name(&policy).contains('b') {
            599_000..=600_010
        } else {
            59_000..=120_000
        };
        let ttl = time_to_live(&mut redis, &policy);
        assert!(bound.contains(&ttl), "{ttl} ms: {policy:?}");
        let decision = ask(&mut redis, &policy, "k", NOW.plus(MINUTE / 2));
        assert!(matches!(decision.verdict, Verdict::Denied { .. }), "{policy:?}");
    }
}

#[test]
fn of_what_was_given_back_nothing_is_kept() {
    let mut redis = Redis::start();
    for policy in policies() {
        settle(&mut redis, &policy, Settle::GiveBack(5, NOW));
        assert_eq!(
            redis.command(&[b"DBSIZE"]),
            Value::Int(0),
            "nothing was there: {policy:?}"
        );
        ask(&mut redis, &policy, "k", NOW);
        settle(&mut redis, &policy, Settle::GiveBack(5, NOW));
        assert_eq!(redis.command(&[b"DBSIZE"]), Value::Int(0), "all went back: {policy:?}");
        settle(&mut redis, &policy, Settle::Debit(0));
        assert_eq!(
            redis.command(&[b"DBSIZE"]),
            Value::Int(0),
            "nothing was taken: {policy:?}"
        );
    }
}
