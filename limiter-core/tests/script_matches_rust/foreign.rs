//! Whatever is under a key that is no state of its algorithm: it makes no error, changes no decision, and is counted
//! where it is replaced.

use std::sync::Arc;

use limiter_core::{
    Algorithm, Ask, Policy, Verdict,
    test_util::script::{Answered, Batch, script_text},
};

use crate::{
    edges::{MINUTE, NOW, call, policies},
    redis::{Redis, Value},
};

/// A command, with `KEY` for the name of the key.
type Command = Vec<Vec<u8>>;

fn command(parts: &[&[u8]]) -> Command {
    parts.iter().map(|part| part.to_vec()).collect()
}

fn set(value: &[u8]) -> Command {
    command(&[b"SET", b"KEY", value])
}

fn doubles(numbers: &[f64]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// What no algorithm has under any of its keys.
fn strangers() -> Vec<Command> {
    let now = NOW.as_micros() as f64;
    let mut all = vec![
        set(b"12"),
        set(b""),
        set(&[b'x'; 4_000]),
        command(&[b"RPUSH", b"KEY", b"abc", b"defg"]),
        command(&[b"RPUSH", b"KEY", &doubles(&[f64::NAN]), &doubles(&[f64::NAN])]),
        command(&[b"RPUSH", b"KEY", &doubles(&[-1.0]), &doubles(&[now])]),
        command(&[b"RPUSH", b"KEY", &doubles(&[now]), &doubles(&[f64::INFINITY])]),
        command(&[b"RPUSH", b"KEY", &doubles(&[now]), b"twelve"]),
        command(&[b"HSET", b"KEY", b"a", b"b"]),
        command(&[b"SADD", b"KEY", b"a"]),
        command(&[b"ZADD", b"KEY", b"1", b"a"]),
        command(&[b"XADD", b"KEY", b"*", b"a", b"b"]),
    ];
    // Of the length of some state, and all the same number.
    for len in [3, 4, 10] {
        for number in [
            f64::NAN,
            f64::INFINITY,
            f64::NEG_INFINITY,
            -1.0,
            0.0,
            9.1e15,
            1e300,
            f64::MIN_POSITIVE,
        ] {
            all.push(set(&doubles(&vec![number; len])));
        }
        all.push(set(&vec![b'x'; 8 * len]));
    }
    all
}

/// A state that could be, with each number in turn replaced by one that cannot.
fn damaged(policy: &Policy) -> Vec<Command> {
    let (now, minute) = (NOW.as_micros() as f64, MINUTE.as_micros() as f64);
    // The least that is right for each number, or none where 0 is.
    let (good, least): (Vec<f64>, Vec<f64>) = match policy.algorithm() {
        Algorithm::TokenBucket(_) | Algorithm::LeakyBucket(_) => {
            (vec![minute / 2.0, now, 1.0, minute / 2.0], vec![0.0, 0.0, 1.0, 1.0])
        }
        Algorithm::FixedWindow(_) => (vec![1.0, now, minute], vec![1.0, 0.0, 1.0]),
        Algorithm::SlidingWindowCounter(_) => {
            let head = (now / minute).floor() * 6.0;
            let counts = [1.0; 7];
            let state = [&[head, minute, 6.0], &counts[..]].concat();
            (state, [&[0.0, 1.0, 1.0], &[0.0; 7][..]].concat())
        }
        Algorithm::Concurrency(_) => (vec![7.0, 1.0, now, minute], vec![0.0, 1.0, 0.0, 1.0]),
        Algorithm::SlidingWindowLog(_) => return Vec::new(),
    };
    let mut all = Vec::new();
    for index in 0..good.len() {
        for number in [
            f64::NAN,
            f64::INFINITY,
            -1.0,
            9_007_199_254_740_992.0,
            1e300,
            least[index] - 1.0,
        ] {
            let mut state = good.clone();
            state[index] = number;
            all.push(set(&doubles(&state)));
        }
    }
    all
}

/// Puts it under the key.
fn place(redis: &mut Redis, command: &Command, name: &str) {
    let command: Vec<&[u8]> = (command.iter())
        .map(|part| if part == b"KEY" { name.as_bytes() } else { &part[..] })
        .collect();
    let reply = redis.command(&command);
    assert!(!matches!(reply, Value::Error(_)), "{reply:?}");
}

/// Whether it passed, and how many values were replaced.
fn decide(redis: &mut Redis, asks: &[Ask<'_>]) -> (bool, usize) {
    let mut batch = Batch::default();
    assert!(batch.add(asks));
    let reply = call(redis, &batch, &script_text(true), None, Some(NOW));
    let Value::Bytes(reply) = reply else {
        panic!("the script failed: {reply:?}")
    };
    match batch.replay(&reply) {
        Ok(Answered::Decided(_, decisions, 0)) => (
            decisions[0].verdict == Verdict::Allowed,
            batch.replaced(&reply).unwrap(),
        ),
        other => panic!("{other:?}"),
    }
}

fn name(policy: &Policy, key: &str) -> String {
    format!("t:{}{key}", policy.key_prefix())
}

#[test]
fn whatever_is_under_a_key_reads_as_absent_and_is_replaced_and_counted() {
    let mut redis = Redis::start();
    for policy in policies() {
        for (index, command) in strangers().iter().chain(&damaged(&policy)).enumerate() {
            let key = index.to_string();
            let ask = [Ask {
                policy: &policy,
                key: &key,
                cost: 1,
            }];
            place(&mut redis, command, &name(&policy, &key));
            let answers: Vec<_> = (0..3).map(|_| decide(&mut redis, &ask)).collect();
            assert_eq!(
                answers,
                [(true, 1), (true, 0), (false, 0)],
                "{policy:?} over {command:?}"
            );
        }
    }
}

#[test]
fn a_refused_request_leaves_a_stranger_alone() {
    let mut redis = Redis::start();
    let policies = policies();
    for (index, policy) in policies.iter().enumerate() {
        let other = &policies[(index + 1) % policies.len()];
        for (number, command) in strangers().iter().enumerate() {
            let key = number.to_string();
            let name = name(policy, &key);
            place(&mut redis, command, &name);
            let before = redis.command(&[b"DUMP", name.as_bytes()]);
            let asks = [
                Ask {
                    policy,
                    key: &key,
                    cost: 1,
                },
                Ask {
                    policy: other,
                    key: "other",
                    cost: 3,
                },
            ];
            assert_eq!(decide(&mut redis, &asks), (false, 0), "{policy:?} over {command:?}");
            assert_eq!(redis.command(&[b"DUMP", name.as_bytes()]), before);
        }
    }
}

#[test]
fn all_that_one_call_replaces_are_counted() {
    let mut redis = Redis::start();
    let policies = policies();
    for policy in &policies {
        place(&mut redis, &command(&[b"SADD", b"KEY", b"a"]), &name(policy, "k"));
    }
    let ask = |policy: &Arc<Policy>, key| {
        let _: &str = key;
        (Arc::clone(policy), key)
    };
    let asks: Vec<_> = policies
        .iter()
        .flat_map(|policy| [ask(policy, "k"), ask(policy, "new")])
        .collect();
    let asks: Vec<Ask<'_>> = asks.iter().map(|(policy, key)| Ask { policy, key, cost: 1 }).collect();
    assert_eq!(decide(&mut redis, &asks), (true, policies.len()));
    assert_eq!(decide(&mut redis, &asks), (true, 0));
}
