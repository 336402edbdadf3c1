use std::sync::Arc;

use http::header::RETRY_AFTER;

use super::*;
use limiter_core::{
    Algorithm, OnFailure, Rate,
    algorithm::{Align, FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket},
};
use proptest::prelude::*;

const NOW: Timestamp = Timestamp::from_micros(1_796_040_000_000_000);

fn responses() -> Responses {
    Responses {
        draft_11: true,
        legacy: true,
        legacy_reset: LegacyReset::Epoch,
        rejection: None,
        cors: None,
    }
}

fn window(name: &str, limit: u64, secs: u64) -> Arc<Policy> {
    let algorithm = FixedWindow::new(limit, Duration::from_secs(secs), Align::Clock).unwrap();
    Arc::new(Policy::new(name, algorithm, OnFailure::Local))
}

fn reading(fits: bool, remaining: u64, wait_ms: u64) -> Reading {
    Reading {
        fits,
        remaining,
        taken: 0,
        wait: Wait::For(Duration::from_millis(wait_ms)),
    }
}

fn decision(readings: &[Reading]) -> Decision {
    let denied = readings.iter().position(|reading| !reading.fits);
    let wait = readings
        .iter()
        .filter(|reading| !reading.fits)
        .map(|reading| reading.wait)
        .max();
    Decision {
        verdict: match (denied, wait) {
            (Some(by), Some(wait)) => Verdict::Denied { by, wait },
            _ => Verdict::Allowed,
        },
        readings: readings.iter().copied().collect(),
        turn: None,
        receipt: None,
        held: None,
    }
}

fn written(config: &Responses, layers: &[(Arc<Policy>, Reading)], now: Timestamp, mut headers: HeaderMap) -> HeaderMap {
    let policies: Vec<_> = layers.iter().map(|(policy, _)| Spelled::new(policy)).collect();
    let readings: Vec<_> = layers.iter().map(|(_, reading)| *reading).collect();
    Fields::default().write(config, policies.iter(), &decision(&readings), now, now, &mut headers);
    headers
}

/// `name: value` lines, in order of name.
fn lines(headers: &HeaderMap) -> Vec<String> {
    let mut lines: Vec<_> = headers
        .iter()
        .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()))
        .collect();
    lines.sort();
    lines
}

fn fresh(layers: &[(Arc<Policy>, Reading)]) -> Vec<String> {
    lines(&written(&responses(), layers, NOW, HeaderMap::new()))
}

#[test]
fn the_refusal_of_the_manual() {
    assert_eq!(
        fresh(&[(window("user", 100, 60), reading(false, 0, 23_200))]),
        [
            "ratelimit-policy: \"user\";q=100;w=60",
            "ratelimit: \"user\";r=0;t=24",
            "x-ratelimit-limit: 100",
            "x-ratelimit-remaining: 0",
            "x-ratelimit-reset: 1796040024",
        ]
    );
}

#[test]
fn an_answer_that_passed_begins_with_the_nearest_to_exhaustion() {
    let layers = [
        (window("global", 10_000, 1), reading(true, 9_000, 100)),
        (window("user", 100, 60), reading(true, 3, 20_000)),
        (window("ip", 1_000, 60), reading(true, 29, 1_000)),
    ];
    assert_eq!(
        fresh(&layers),
        [
            "ratelimit-policy: \"ip\";q=1000;w=60, \"global\";q=10000;w=1, \"user\";q=100;w=60",
            "ratelimit: \"ip\";r=29;t=1, \"global\";r=9000;t=1, \"user\";r=3;t=20",
            "x-ratelimit-limit: 1000",
            "x-ratelimit-remaining: 29",
            "x-ratelimit-reset: 1796040001",
        ]
    );
}

#[test]
fn a_refusal_speaks_of_those_that_refused_and_of_the_longest_wait() {
    let layers = [
        (window("spare", 10, 1), reading(true, 1, 0)),
        (window("user", 5, 60), reading(false, 0, 30_000)),
        (window("global", 8, 3600), reading(false, 2, 1_800_000)),
    ];
    assert_eq!(
        fresh(&layers),
        [
            "ratelimit-policy: \"user\";q=5;w=60, \"global\";q=8;w=3600",
            "ratelimit: \"user\";r=0;t=30, \"global\";r=2;t=1800",
            "x-ratelimit-limit: 8",
            "x-ratelimit-remaining: 2",
            "x-ratelimit-reset: 1796041800",
        ]
    );
}

#[test]
fn a_refusal_never_says_zero() {
    let config = Responses {
        legacy_reset: LegacyReset::Delta,
        ..responses()
    };
    for wait_ms in [0, 1, 999, 1000] {
        let headers = written(
            &config,
            &[(window("user", 5, 60), reading(false, 0, wait_ms))],
            NOW,
            HeaderMap::new(),
        );
        assert_eq!(headers[RESET], "1", "{wait_ms}");
        assert_eq!(headers[RATELIMIT], "\"user\";r=0;t=1", "{wait_ms}");
    }
    let headers = written(
        &config,
        &[(window("user", 5, 60), reading(true, 5, 0))],
        NOW,
        HeaderMap::new(),
    );
    assert_eq!(headers[RESET], "0", "full");
}

#[test]
fn an_upstream_that_took_its_time_is_not_waited_for_again() {
    let config = |legacy_reset| Responses {
        legacy_reset,
        ..responses()
    };
    let decision = decision(&[reading(true, 3, 20_000)]);
    for (secs, left) in [(0, 20), (5, 15), (30, 0)] {
        let now = NOW.plus(Duration::from_secs(secs));
        for (legacy_reset, reset) in [(LegacyReset::Epoch, 1_796_040_020), (LegacyReset::Delta, left)] {
            let mut headers = HeaderMap::new();
            Fields::default().write(
                &config(legacy_reset),
                [Spelled::new(&window("user", 5, 60))].iter(),
                &decision,
                NOW,
                now,
                &mut headers,
            );
            assert_eq!(headers[RESET], *reset.to_string(), "after {secs} s");
            assert_eq!(headers[RATELIMIT], *format!("\"user\";r=3;t={left}"), "after {secs} s");
        }
    }
}

#[test]
fn the_epoch_is_never_too_early() {
    let now = NOW.plus(Duration::from_millis(900));
    let headers = written(
        &responses(),
        &[(window("user", 5, 60), reading(false, 0, 200))],
        now,
        HeaderMap::new(),
    );
    assert_eq!(headers[RESET], "1796040002");
}

#[test]
fn where_waiting_cannot_help() {
    let never = Reading {
        wait: Wait::Never,
        ..reading(false, 3, 0)
    };
    assert_eq!(
        fresh(&[
            (window("user", 5, 60), never),
            (window("ip", 5, 60), reading(false, 0, 1_000))
        ]),
        [
            "ratelimit-policy: \"user\";q=5;w=60, \"ip\";q=5;w=60",
            "ratelimit: \"user\";r=3, \"ip\";r=0;t=1",
            "x-ratelimit-limit: 5",
            "x-ratelimit-remaining: 3",
        ]
    );
}

#[test]
fn upstream_fields_are_kept() {
    let mut upstream = HeaderMap::new();
    upstream.insert(RATELIMIT, HeaderValue::from_static("\"theirs\";r=1"));
    upstream.insert(REMAINING, HeaderValue::from_static("1"));
    let headers = written(
        &responses(),
        &[(window("user", 5, 60), reading(true, 3, 0))],
        NOW,
        upstream,
    );
    assert_eq!(
        lines(&headers),
        [
            "ratelimit-policy: \"user\";q=5;w=60",
            "ratelimit: \"theirs\";r=1",
            "ratelimit: \"user\";r=3;t=0",
            "x-ratelimit-remaining: 1",
        ]
    );
}

#[test]
fn only_what_is_configured() {
    let layers = [(window("user", 5, 60), reading(true, 3, 0))];
    let names = |draft_11, legacy| {
        let config = Responses {
            draft_11,
            legacy,
            ..responses()
        };
        written(&config, &layers, NOW, HeaderMap::new()).len()
    };
    assert_eq!(
        [
            names(true, true),
            names(true, false),
            names(false, true),
            names(false, false)
        ],
        [5, 2, 3, 0]
    );
    assert!(fresh(&[]).is_empty());
}

#[test]
fn windows_of_every_algorithm() {
    let rate = Rate {
        units: 3,
        per: Duration::from_secs(1),
    };
    let half = Duration::from_millis(1_500);
    let algorithms: [(Algorithm, &str); 5] = [
        (TokenBucket::new(rate, 10).unwrap().into(), "\"x\";q=10;w=4"),
        (LeakyBucket::new(rate, 7).unwrap().into(), "\"x\";q=7;w=3"),
        (
            FixedWindow::new(5, half, Align::FirstRequest).unwrap().into(),
            "\"x\";q=5;w=2",
        ),
        (SlidingWindowLog::new(5, half).unwrap().into(), "\"x\";q=5;w=2"),
        (SlidingWindowCounter::new(5, half, 6).unwrap().into(), "\"x\";q=5;w=2"),
    ];
    for (algorithm, expected) in algorithms {
        let policy = Arc::new(Policy::new("x", algorithm, OnFailure::Local));
        assert_eq!(
            written(&responses(), &[(policy, reading(true, 1, 0))], NOW, HeaderMap::new())[RATELIMIT_POLICY],
            expected
        );
    }
}

#[test]
fn names_are_escaped() {
    let headers = written(
        &responses(),
        &[(window("a\"b\\c\u{e9}", 5, 60), reading(true, 3, 0))],
        NOW,
        HeaderMap::new(),
    );
    assert_eq!(headers[RATELIMIT], r#""a\"b\\c??";r=3;t=0"#);
}

#[test]
fn a_worker_that_remembers_lists_tells_them_apart() {
    let policies = ["a", "b", "c"].map(|name| Spelled::new(&window(name, 10, 60)));
    let mut fields = Fields::default();
    let mut said = |order: &[usize]| {
        let readings: Vec<_> = order.iter().map(|_| reading(true, 5, 0)).collect();
        let mut headers = HeaderMap::new();
        let policies = order.iter().map(|at| &policies[*at]);
        fields.write(&responses(), policies, &decision(&readings), NOW, NOW, &mut headers);
        headers[RATELIMIT_POLICY]
            .to_str()
            .unwrap()
            .replace(";q=10;w=60", "")
            .replace('"', "")
    };
    // More of them than it remembers.
    for _ in 0..3 {
        for (a, b) in (0..3).flat_map(|a| (0..3).map(move |b| (a, b))) {
            let [first, second] = [a, b].map(|at| ["a", "b", "c"][at]);
            assert_eq!(said(&[a, b]), format!("{first}, {second}"));
            assert_eq!(said(&[a, b, a]), format!("{first}, {second}, {first}"));
        }
        assert_eq!(said(&[2]), "c");
    }
}

proptest! {
    #[test]
    fn a_head_that_was_kept_tells_what_a_new_one_would(
        remaining in 0..3_000_u64, wait_ms in 0..3_000_000_u64, secs in 0..3_u64, epoch in any::<bool>(),
    ) {
        let config = Responses {
            legacy_reset: if epoch { LegacyReset::Epoch } else { LegacyReset::Delta },
            ..responses()
        };
        let (policy, other) = (Spelled::new(&window("user", 5, 60)), Spelled::new(&window("ip", 5, 60)));
        let mut fields = Fields::default();
        let new = |remaining, wait_ms, fields: &mut Fields| {
            let mut headers = HeaderMap::new();
            let reading = reading(false, remaining, wait_ms);
            headers.insert(RETRY_AFTER, HeaderValue::from(reading.wait.retry_after_secs().unwrap()));
            let now = NOW.plus(Duration::from_secs(secs));
            fields.write(&config, [&policy].into_iter(), &decision(&[reading]), NOW, now, &mut headers);
            headers
        };
        let first = new(7, 70_000, &mut fields);
        fields.keep_head(&policy, &first);
        let reading = reading(false, remaining, wait_ms);
        let told = |policy| Told {
            policy,
            reading: &reading,
            retry_after: reading.wait.retry_after_secs().unwrap(),
            asked: NOW,
            now: NOW.plus(Duration::from_secs(secs)),
        };
        prop_assert!(fields.head(&config, &told(&other)).is_none());
        let head = fields.head(&config, &told(&policy)).unwrap();
        prop_assert_eq!(lines(&head), lines(&new(remaining, wait_ms, &mut fields)));
    }

    #[test]
    fn the_epoch_is_at_or_after_the_moment_and_less_than_a_second_later(now in 0..1_u64 << 52, wait_us in 0..1_u64 << 50) {
        let now = Timestamp::from_micros(now);
        let wait = Duration::from_micros(wait_us);
        let reading = Reading { wait: Wait::For(wait), ..reading(false, 0, 0) };
        let headers = written(&responses(), &[(window("user", 5, 60), reading)], now, HeaderMap::new());
        let reset = headers[RESET].to_str().unwrap().parse::<u64>().unwrap() * 1_000_000;
        let moment = now.plus(wait).as_micros();
        prop_assert!((moment..moment + 1_000_000).contains(&reset));
    }
}
