//! K04: values at the edge are exact, or refused at load with a reason; never an unlimited layer, never a crash.

use std::time::Duration;

use crate::support::{
    Algorithm, FIVE, Gateway, Judge, Redis, Response, Settings, gateway::check, get, pause, wait::wall_clock,
};

/// Checks a file with this one layer: none if it loads, else what was printed.
fn refusal(layer: &str) -> Option<String> {
    let (code, text) = check(&Settings::answering().limit(layer).to_yaml());
    match code {
        0 => None,
        2 => Some(text),
        other => panic!("gateway check exits with {other} for {layer}: {text}"),
    }
}

#[track_caller]
fn is_refused(layer: &str, naming: &str) {
    let text = refusal(layer).unwrap_or_else(|| panic!("this was loaded: {layer}"));
    assert!(
        text.contains(naming),
        "{layer} was refused without naming {naming}: {text}"
    );
    assert!(
        text.contains("gateway.yaml:"),
        "{layer} was refused without its place: {text}"
    );
}

// 019
#[tokio::test]
async fn a_quota_of_nothing_is_refused_at_load_by_name() {
    for algorithm in FIVE {
        let zero = format!("{{name: zero, key: ip, {}}}", algorithm.parameters(0, "10s"));
        let naming = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => "rate",
            Algorithm::FixedWindow | Algorithm::SlidingWindowLog | Algorithm::SlidingWindowCounter => "limit",
        };
        is_refused(&zero, naming);
        let no_time = format!("{{name: zero, key: ip, {}}}", algorithm.parameters(10, "0s"));
        is_refused(&no_time, if naming == "rate" { "rate" } else { "window" });
    }
    is_refused(
        "{name: zero, key: ip, algorithm: token_bucket, rate: 10/s, burst: 0}",
        "burst",
    );
    is_refused(
        "{name: zero, key: ip, algorithm: leaky_bucket, rate: 10/s, capacity: 0, delay: false}",
        "capacity",
    );
}

// 020
#[tokio::test]
async fn a_cost_that_can_never_be_paid_is_refused_at_load() {
    let bucket = "algorithm: token_bucket, rate: 10/60s, burst: 10";
    is_refused(&format!("{{name: dear, key: ip, {bucket}, cost: 11}}"), "cost");
    for algorithm in FIVE {
        is_refused(
            &format!("{{name: dear, key: ip, {}, cost: 11}}", algorithm.parameters(10, "60s")),
            "cost",
        );
    }
    let redis = Redis::start().await;
    for settings in [Settings::answering(), Settings::answering().counting_in(&redis, "dear")] {
        let gateway = Gateway::with(&settings.limit(&format!("{{name: dear, key: ip, {bucket}, cost: 10}}")))
            .start()
            .await;
        let mut client = gateway.client();
        let first = client.get("/").await;
        assert_eq!((first.status, first.remaining()), (200, 0));
        let second = client.get("/").await;
        assert_eq!((second.status, second.remaining()), (429, 0));
        let wait = second.retry_after().unwrap();
        assert!(
            (55..=60).contains(&wait),
            "told to wait {wait} s for ten units at one in six seconds"
        );
    }
}

// 021
#[tokio::test]
async fn a_cost_that_is_no_whole_number_is_refused_and_none_takes_nothing() {
    let bucket = "algorithm: token_bucket, rate: 1/h, burst: 3";
    for cost in ["-5", "2.5", "\"1e3\"", "-1"] {
        is_refused(&format!("{{name: odd, key: ip, {bucket}, cost: {cost}}}"), "cost");
    }
    let settings = Settings::answering()
        .limit(&format!(
            "{{name: free, key: ip, match: {{path: /free}}, {bucket}, cost: 0}}"
        ))
        .limit(&format!("{{name: paid, key: ip, match: {{path: /paid}}, {bucket}}}"));
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    for _ in 0..5 {
        let answer = client.get("/free").await;
        assert_eq!((answer.status, answer.remaining()), (200, 3));
    }
    assert_eq!(client.get("/paid").await.remaining(), 2);
}

// 022
#[tokio::test]
async fn very_large_limits_and_windows_are_exact_or_refused_with_the_bound() {
    let redis = Redis::start().await;
    let mut refused = Vec::new();
    for (round, (limit, window, window_s)) in [
        (5_000_000_000, "24h", 86_400),
        (10, "400d", 34_560_000),
        (9_007_199_254_740_993, "1s", 1),
    ]
    .into_iter()
    .enumerate()
    {
        for algorithm in FIVE {
            let layer = format!("{{name: big, key: ip, {}}}", algorithm.parameters(limit, window));
            if let Some(text) = refusal(&layer) {
                let bound = text
                    .split(|c: char| !c.is_ascii_digit() && c != ',')
                    .filter(|word| word.len() > 3);
                assert!(bound.count() > 0, "{layer} is refused without the bound: {text}");
                refused.push((algorithm, limit));
                continue;
            }
            let prefix = format!("big{round}{}", algorithm.short());
            let gateway = Gateway::with(&Settings::answering().counting_in(&redis, &prefix).limit(&layer))
                .start()
                .await;
            let mut client = gateway.client();
            let answers = client.repeat(5, &get("/")).await;
            assert!(answers.iter().all(Response::passed), "{layer}: {answers:?}");
            let first = &answers[0];
            let told = (first.number("x-ratelimit-limit"), first.remaining());
            assert_eq!(
                told,
                (i64::try_from(limit).ok(), i64::try_from(limit).unwrap() - 1),
                "{layer}"
            );
            for key in redis.counters(&prefix).await {
                let life = redis
                    .time_to_live(&key)
                    .await
                    .flatten()
                    .unwrap_or_else(|| panic!("{layer}: for ever"));
                assert!(
                    life > Duration::ZERO && life <= Duration::from_secs(2 * window_s),
                    "{layer}: lives {life:?}"
                );
            }
        }
    }
    // What a log or Lua's numbers cannot hold, and nothing else.
    assert!(
        refused.contains(&(Algorithm::SlidingWindowLog, 5_000_000_000)),
        "{refused:?}"
    );
    assert!(
        refused.contains(&(Algorithm::FixedWindow, 9_007_199_254_740_993)),
        "{refused:?}"
    );
    assert!(!refused.iter().any(|(_, limit)| *limit == 10), "{refused:?}");
    assert!(
        !refused.contains(&(Algorithm::FixedWindow, 5_000_000_000)),
        "{refused:?}"
    );
}

/// Case 024 for one window in Redis: each answer as the algorithm gives, and no error from Redis.
async fn is_kept(redis: &Redis, limit: u64, window_ms: u64) {
    let settings = Settings::answering()
        .counting_in(redis, &format!("window{window_ms}"))
        .five_limits("ip", limit, &format!("{window_ms}ms"));
    let gateway = Gateway::with(&settings).start().await;
    for algorithm in FIVE {
        let mut judge = Judge::new(algorithm, limit, window_ms);
        let (mut client, request) = (gateway.client(), get(&algorithm.path()));
        for _ in 0..4 {
            for _ in 0..limit + 2 {
                judge.send(&mut client, &request).await;
            }
            pause(Duration::from_millis(window_ms / 3)).await;
        }
    }
    assert_eq!(
        gateway.metric("gateway_store_errors_total", &[]).await,
        0.0,
        "{window_ms} ms"
    );
}

// 024
#[tokio::test]
async fn windows_of_fractions_of_a_second_are_kept_as_written() {
    let redis = Redis::start().await;
    tokio::join!(is_kept(&redis, 20, 1500), is_kept(&redis, 20, 500));
    // A window of a millisecond cannot be judged from outside: it must only do no harm.
    let settings = Settings::answering()
        .counting_in(&redis, "tiny")
        .five_limits("ip", 20, "1ms");
    let (code, text) = check(&settings.to_yaml());
    if code == 0 {
        let gateway = Gateway::with(&settings).start().await;
        for algorithm in FIVE {
            for answer in gateway.client().repeat(20, &get(&algorithm.path())).await {
                assert!(answer.passed() || answer.denied(), "{algorithm:?}: {answer:?}");
            }
        }
        assert_eq!(gateway.metric("gateway_store_errors_total", &[]).await, 0.0);
    } else {
        assert!(text.contains("window"), "refused without naming the window: {text}");
    }
}

// 024
#[tokio::test]
async fn a_rate_that_is_no_whole_number_a_second_is_kept_as_written() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "seven")
        .limit("{name: tb, key: ip, algorithm: token_bucket, rate: 7/3s, burst: 7}");
    let gateway = Gateway::with(&settings).start().await;
    let mut judge = Judge::new(Algorithm::TokenBucket, 7, 3000);
    let (mut client, start) = (gateway.client(), wall_clock());
    while wall_clock().since(start) < Duration::from_secs(4) {
        judge.send(&mut client, &get("/")).await;
        pause(Duration::from_millis(110)).await;
    }
    judge.is_certain();
}

// 025
#[tokio::test]
async fn a_full_log_of_a_hundred_thousand_slows_nobody() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "log")
        .limit(
            "{name: big, key: \"header:x-user-id\", match: {path: /big}, algorithm: sliding_window_log, \
             limit: 100000, window: 24h, cost: 1000}",
        )
        .limit("{name: small, key: ip, match: {path: /small}, algorithm: token_bucket, rate: 1000/s, burst: 1000}");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    let fill = client.repeat(100, &get("/big").header("x-user-id", "one")).await;
    assert!(fill.iter().all(Response::passed), "the log took less than its limit");
    redis.command(&["CONFIG", "RESETSTAT"]).await;
    for _ in 0..200 {
        let denied = client.send(&get("/big").header("x-user-id", "one")).await;
        assert!(denied.denied(), "{denied:?}");
        assert!(client.get("/small").await.passed());
    }
    // An average, since one script may be interrupted by the machine. Reading 100,000 entries would take milliseconds.
    let statistics = redis.command(&["INFO", "commandstats"]).await.into_text();
    let line = statistics
        .lines()
        .find(|line| line.starts_with("cmdstat_evalsha:"))
        .expect("no script ran");
    let (_, average) = line.split_once("usec_per_call=").unwrap();
    let average_us: f64 = average.split(',').next().unwrap().parse().unwrap();
    assert!(average_us < 1000.0, "a script took {average_us} us on average");
}

// 025
#[tokio::test]
async fn a_log_above_its_bound_is_refused_with_the_bound() {
    let layer = "{name: log, key: ip, algorithm: sliding_window_log, limit: 100001, window: 24h}";
    let text = refusal(layer).expect("a log of 100,001 was loaded");
    assert!(
        text.replace(',', "").contains("100000"),
        "refused without the bound: {text}"
    );
}
