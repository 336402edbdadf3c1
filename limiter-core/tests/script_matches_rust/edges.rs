//! What random calls do not meet: deadlines, bounds, the server's own clock, damaged replies.

use std::{sync::Arc, time::Duration};

use limiter_core::{
    Algorithm, Ask, Decision, OnFailure, Policy, Rate, Timestamp, Verdict,
    algorithm::{Align, Concurrency, FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket},
    test_util::script::{Answered, Batch, Settle, script_text},
};

use crate::redis::{Redis, Value};

pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_796_040_000_000_000);

pub(crate) const MINUTE: Duration = Duration::from_secs(60);

/// Two units a minute, by every algorithm.
pub(crate) fn policies() -> Vec<Arc<Policy>> {
    two_in(MINUTE)
}

/// Two units in a time, by every algorithm.
pub(crate) fn two_in(window: Duration) -> Vec<Arc<Policy>> {
    let rate = Rate { units: 2, per: window };
    let algorithms: [Algorithm; 6] = [
        TokenBucket::new(rate, 2).unwrap().into(),
        LeakyBucket::new(rate, 2).unwrap().into(),
        FixedWindow::new(2, window, Align::FirstRequest).unwrap().into(),
        SlidingWindowCounter::new(2, window, 6).unwrap().into(),
        SlidingWindowLog::new(2, window).unwrap().into(),
        Concurrency::new(2, window).unwrap().into(),
    ];
    algorithms
        .into_iter()
        .map(|algorithm| Arc::new(Policy::new("p", algorithm, OnFailure::Open)))
        .collect()
}

pub(crate) fn call(
    redis: &mut Redis,
    batch: &Batch,
    script: &str,
    not_after: Option<Timestamp>,
    now: Option<Timestamp>,
) -> Value {
    let (keys, args) = batch.arguments("t", not_after);
    let (count, now) = (keys.len().to_string(), now.map(|now| now.as_micros().to_string()));
    let mut command: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
    command.extend(keys.iter().chain(&args).map(|bytes| &bytes[..]));
    command.extend(now.as_ref().map(|now| now.as_bytes()));
    redis.command(&command)
}

/// So many units of the counter `k` of each.
pub(crate) fn asks(policies: &[Arc<Policy>], cost: u64) -> Vec<Ask<'_>> {
    let ask = |policy| Ask { policy, key: "k", cost };
    policies.iter().map(ask).collect()
}

/// Asks for one unit of `key`, at a given time.
pub(crate) fn ask(redis: &mut Redis, policy: &Arc<Policy>, key: &str, now: Timestamp) -> Decision {
    let mut batch = Batch::default();
    assert!(batch.add(&[Ask { policy, key, cost: 1 }]));
    let reply = call(redis, &batch, &script_text(true), None, Some(now));
    let Value::Bytes(reply) = reply else {
        panic!("the script failed: {reply:?}")
    };
    match batch.replay(&reply).unwrap() {
        Answered::Decided(at, mut decisions, 0) if at == now => decisions.remove(0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_that_comes_too_late_does_nothing() {
    let mut redis = Redis::start();
    let script = script_text(true);
    let policies = policies();
    let mut batch = Batch::default();
    assert!(batch.add(&asks(&policies, 1)));
    let later = NOW.plus(Duration::from_micros(1));
    let Value::Bytes(reply) = call(&mut redis, &batch, &script, Some(NOW), Some(later)) else {
        panic!("no reply")
    };
    assert!(matches!(batch.replay(&reply), Ok(Answered::Late(at)) if at == later));
    assert_eq!(redis.command(&[b"DBSIZE"]), Value::Int(0));
    let Value::Bytes(reply) = call(&mut redis, &batch, &script, Some(NOW), Some(NOW)) else {
        panic!("no reply")
    };
    assert!(matches!(batch.replay(&reply), Ok(Answered::Decided(_, _, 0))));
    assert_eq!(redis.command(&[b"DBSIZE"]), Value::Int(6));
}

#[test]
fn a_refused_request_leaves_redis_as_it_was() {
    let mut redis = Redis::start();
    let policies = policies();
    // Each in turn refuses, as the last layer, what all others would admit.
    for full in 0..policies.len() {
        redis.command(&[b"FLUSHALL"]);
        for _ in 0..2 {
            ask(&mut redis, &policies[full], "full", NOW);
        }
        let others = policies.iter().enumerate().filter(|(index, _)| *index != full);
        let mut asks: Vec<Ask<'_>> = others
            .map(|(_, policy)| Ask {
                policy,
                key: "new",
                cost: 1,
            })
            .collect();
        asks.push(Ask {
            policy: &policies[full],
            key: "full",
            cost: 1,
        });
        let mut batch = Batch::default();
        assert!(batch.add(&asks));
        let Value::Bytes(reply) = call(&mut redis, &batch, &script_text(true), None, Some(NOW)) else {
            panic!("no reply")
        };
        let Ok(Answered::Decided(_, decisions, 0)) = batch.replay(&reply) else {
            panic!("not decided")
        };
        assert!(matches!(decisions[0].verdict, Verdict::Denied { by: 5, .. }));
        assert_eq!(
            redis.command(&[b"DBSIZE"]),
            Value::Int(1),
            "the counter that was full, and no other"
        );
    }
}

#[test]
fn without_a_given_time_the_server_s_counts() {
    let mut redis = Redis::start();
    let policies = policies();
    let mut batch = Batch::default();
    assert!(batch.add(&asks(&policies[..1], 1)));
    let time = |redis: &mut Redis| -> u64 {
        let Value::List(parts) = redis.command(&[b"TIME"]) else {
            panic!("no time")
        };
        let part = |index: usize| -> u64 {
            let Value::Bytes(digits) = &parts[index] else {
                panic!("not digits")
            };
            String::from_utf8_lossy(digits).parse().unwrap()
        };
        part(0) * 1_000_000 + part(1)
    };
    let before = time(&mut redis);
    let reply = call(&mut redis, &batch, &script_text(false), None, None);
    let after = time(&mut redis);
    let Value::Bytes(reply) = reply else {
        panic!("the script failed: {reply:?}")
    };
    let Ok(Answered::Decided(now, ..)) = batch.replay(&reply) else {
        panic!("not decided")
    };
    assert!((before..=after).contains(&now.as_micros()));
}

#[test]
fn a_batch_takes_what_a_call_can_carry() {
    let policies = policies();
    let mut batch = Batch::default();
    let keys: Vec<String> = (0..300).map(|key| key.to_string()).collect();
    let many = |range: std::ops::Range<usize>| -> Vec<Ask<'_>> {
        range
            .map(|key| Ask {
                policy: &policies[0],
                key: &keys[key],
                cost: 1,
            })
            .collect()
    };
    assert!(!batch.add(&many(0..256)), "more layers than the answer can name");
    assert!(batch.add(&many(0..200)));
    assert!(!batch.add(&many(190..257)), "257 keys");
    assert!(batch.add(&many(190..256)), "256 keys, of which 10 are there");
    for _ in 2..128 {
        assert!(batch.add(&many(0..1)));
    }
    assert!(!batch.add(&many(0..1)), "129 requests");
    let (keys, args) = batch.arguments("t", None);
    assert_eq!((keys.len(), args.len()), (256, 3));

    let mut redis = Redis::start();
    let Value::Bytes(reply) = call(&mut redis, &batch, &script_text(true), None, Some(NOW)) else {
        panic!("no reply")
    };
    assert!(matches!(batch.replay(&reply), Ok(Answered::Decided(_, decisions, 0)) if decisions.len() == 128));
}

#[test]
fn a_call_may_carry_settlements_alone_as_many_as_keys() {
    let policies = policies();
    let keys: Vec<String> = (0..257).map(|key| key.to_string()).collect();
    let debit = Settle::Debit(1);
    // 256 keys, a settlement each.
    let mut batch = Batch::default();
    for key in &keys[..256] {
        assert!(batch.settle(&policies[0], key, debit));
    }
    assert!(!batch.settle(&policies[0], &keys[256], debit), "257 keys");
    assert!(!batch.settle(&policies[0], &keys[0], debit), "257 settlements");
    let mut redis = Redis::start();
    let Value::Bytes(reply) = call(&mut redis, &batch, &script_text(true), None, Some(NOW)) else {
        panic!("no reply")
    };
    assert!(matches!(batch.replay(&reply), Ok(Answered::Decided(_, decisions, 0)) if decisions.is_empty()));
    assert_eq!(redis.command(&[b"DBSIZE"]), Value::Int(256));
    // Beside requests, the keys of both count.
    let mut batch = Batch::default();
    for key in &keys[..255] {
        assert!(
            batch.add(&[Ask {
                policy: &policies[0],
                key,
                cost: 1
            }]) || batch.settle(&policies[0], key, debit)
        );
    }
    assert!(batch.settle(&policies[1], "one more", debit));
    assert!(!batch.settle(&policies[1], "too many", debit));
    let late = call(
        &mut redis,
        &batch,
        &script_text(true),
        Some(NOW),
        Some(NOW.plus(MINUTE)),
    );
    let Value::Bytes(reply) = late else { panic!("no reply") };
    assert!(matches!(batch.replay(&reply), Ok(Answered::Late(_))));
    assert_eq!(
        redis.command(&[b"DBSIZE"]),
        Value::Int(256),
        "too late: nothing is settled"
    );
}

#[test]
fn the_same_counter_under_other_parameters_waits_for_the_next_call() {
    let policy = |limit| {
        let window = FixedWindow::new(limit, Duration::from_secs(1), Align::Clock).unwrap();
        Arc::new(Policy::new("p", window, OnFailure::Open))
    };
    let (old, same, new) = (policy(5), policy(5), policy(6));
    let mut batch = Batch::default();
    assert!(batch.add(&asks(&[old], 1)));
    assert!(batch.add(&asks(&[same], 1)));
    assert_eq!(batch.arguments("t", None).0.len(), 1);
    assert!(!batch.add(&asks(&[new], 1)));
}

#[test]
fn counters_of_one_policy_may_have_parameters_of_their_own() {
    let policy = |limit| {
        let window = FixedWindow::new(limit, Duration::from_secs(1), Align::Clock).unwrap();
        Arc::new(Policy::new("p", window, OnFailure::Open))
    };
    let (own, other) = (policy(5), policy(7));
    let mut batch = Batch::default();
    // Interleaved, for the keys of a call are ordered by policy.
    let requests = [
        (&own, "a"),
        (&other, "b"),
        (&own, "c"),
        (&other, "b"),
        (&other, "d"),
        (&own, "c"),
    ];
    for (policy, key) in requests {
        assert!(batch.add(&[Ask { policy, key, cost: 1 }]), "{key}");
    }
    let swapped = Ask {
        policy: &own,
        key: "b",
        cost: 1,
    };
    assert!(
        !batch.add(&[swapped]),
        "a counter has the parameters that it is in the call with"
    );
    assert_eq!(batch.arguments("t", None).0.len(), 4);

    let mut redis = Redis::start();
    let Value::Bytes(reply) = call(&mut redis, &batch, &script_text(true), None, Some(NOW)) else {
        panic!("no reply")
    };
    let Ok(Answered::Decided(_, decisions, 0)) = batch.replay(&reply) else {
        panic!("script and replay disagree")
    };
    let remaining: Vec<u64> = decisions
        .iter()
        .map(|decision| decision.readings[0].remaining)
        .collect();
    assert_eq!(remaining, [4, 6, 4, 5, 6, 3]);
}

#[test]
fn what_is_no_reply_is_an_error_and_no_panic() {
    let mut redis = Redis::start();
    let policies = policies();
    let mut batch = Batch::default();
    for _ in 0..3 {
        assert!(batch.add(&asks(&policies, 2)));
    }
    let script = script_text(true);
    let mut reply = Value::Nil;
    for _ in 0..2 {
        reply = call(&mut redis, &batch, &script, None, Some(NOW));
    }
    let Value::Bytes(reply) = reply else {
        panic!("the script failed: {reply:?}")
    };
    assert!(batch.replay(&reply).is_ok());
    for len in 0..reply.len() {
        assert!(batch.replay(&reply[..len]).is_err(), "cut to {len}");
    }
    // Damaged ones may be read as something, but never panic.
    let mut rng = fastrand::Rng::with_seed(7);
    let mut refused = 0;
    for _ in 0..20_000 {
        let mut damaged = reply.clone();
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(0..damaged.len());
            damaged[at] = rng.u8(..);
        }
        refused += u32::from(batch.replay(&damaged).is_err());
    }
    assert!(refused > 100);
}
