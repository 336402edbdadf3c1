//! Windows of a calendar, at their edges to the microsecond.

use std::{sync::Arc, time::Duration};

use limiter_core::{
    Ask, Decision, OnFailure, Policy, Timestamp, Verdict, Wait,
    algorithm::{Calendar, FixedWindow, Zone},
    test_util::script::{Answered, Batch, script_text},
};

use crate::redis::{Redis, Value};

const HOUR: u64 = 3_600_000_000;

/// Midnight in Berlin, at the begin of 25 October 2026: clocks are set back in that night.
const MIDNIGHT: u64 = 1_792_879_200_000_000;
/// The next, after 25 hours, and the one after that.
const NEXT: u64 = MIDNIGHT + 25 * HOUR;
const LAST: u64 = NEXT + 24 * HOUR;

fn at(micros: u64) -> Timestamp {
    Timestamp::from_micros(micros)
}

fn two_a_day() -> Arc<Policy> {
    let berlin = Zone::named("Europe/Berlin").unwrap();
    let window = FixedWindow::of_calendar(2, Calendar::days(berlin, 1).unwrap()).unwrap();
    Arc::new(Policy::new("p", window, OnFailure::Open))
}

/// Asks for `cost` units, believing that it is `about`, at `now`. Nothing where the call had edges of other windows.
fn ask(redis: &mut Redis, cost: u64, about: u64, now: u64) -> Option<Decision> {
    let (policy, mut batch, script) = (two_a_day(), Batch::default(), script_text(true));
    let key = "k";
    assert!(batch.add(&[Ask {
        policy: &policy,
        key,
        cost
    }]));
    let (keys, args) = batch.arguments_about("t", None, at(about));
    let (count, given) = (keys.len().to_string(), now.to_string());
    let mut command: Vec<&[u8]> = vec![b"EVAL", script.as_bytes(), count.as_bytes()];
    command.extend(keys.iter().chain(&args).map(|bytes| &bytes[..]));
    command.push(given.as_bytes());
    let Value::Bytes(reply) = redis.command(&command) else {
        panic!("no reply")
    };
    match batch.replay(&reply).unwrap() {
        Answered::Late(told) if told == at(now) => None,
        Answered::Decided(told, mut decisions, 0) if told == at(now) => decisions.pop(),
        other => panic!("{other:?}"),
    }
}

fn denied(micros: u64) -> Verdict {
    let wait = Wait::For(Duration::from_micros(micros));
    Verdict::Denied { by: 0, wait }
}

#[test]
fn the_present_window_and_the_next_are_known_and_no_other() {
    let mut redis = Redis::start();
    for about in [MIDNIGHT, NEXT - 1] {
        for now in [MIDNIGHT - 1, LAST, LAST + 1, 0] {
            assert_eq!(ask(&mut redis, 1, about, now), None, "{about} {now}");
        }
        assert_eq!(redis.command(&[b"DBSIZE"]), Value::Int(0));
        for now in [MIDNIGHT, NEXT - 1, NEXT, LAST - 1] {
            let verdict = ask(&mut redis, 0, about, now).map(|decision| decision.verdict);
            assert_eq!(verdict, Some(Verdict::Allowed), "{about} {now}");
        }
    }
}

#[test]
fn a_window_ends_with_its_edge_whichever_was_believed_to_be_the_present() {
    let mut redis = Redis::start();
    let mut verdict = |about, now| ask(&mut redis, 2, about, now).unwrap().verdict;
    assert_eq!(verdict(MIDNIGHT, MIDNIGHT), Verdict::Allowed);
    assert_eq!(verdict(MIDNIGHT - 1, MIDNIGHT), denied(25 * HOUR));
    assert_eq!(verdict(MIDNIGHT, NEXT - 1), denied(1));
    assert_eq!(verdict(MIDNIGHT, NEXT), Verdict::Allowed);
    assert_eq!(verdict(NEXT, NEXT + 1), denied(24 * HOUR - 1));
    assert_eq!(verdict(LAST - 1, LAST), Verdict::Allowed);
}

#[test]
fn a_counter_lives_to_the_end_of_its_window() {
    let mut redis = Redis::start();
    // At its first moment, the longest way to its end.
    assert!(ask(&mut redis, 2, MIDNIGHT, MIDNIGHT).is_some());
    let Value::Int(ttl) = redis.command(&[b"PTTL", b"t:p:fw:k"]) else {
        panic!("no time to live")
    };
    // Redis has read the time before the script did, if only a little.
    let most = i64::try_from(25 * HOUR / 1_000).unwrap() + 2;
    assert!((most - 5_000..=most).contains(&ttl), "{ttl} ms");
}
