//! `/api/limits`: what the layers go by, and what they have said.

use serde_json::{Value, json};

use crate::support::{Gateway, Settings, get};

async fn limits(gateway: &Gateway) -> Value {
    let answer = gateway.ask_admin("GET", "/api/limits").await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("application/json"))
    );
    answer.json()
}

fn settings() -> Settings {
    Settings::answering()
        .limit(
            "{name: user, key: header:X-User-Id, algorithm: token_bucket, rate: 3/1h, \
             candidate: {algorithm: leaky_bucket, rate: 1/1h, delay: false}}",
        )
        .limit(
            "{name: tried, key: [route, ip], algorithm: fixed_window, limit: \"${LIMIT}\", window: 1d, mode: shadow}",
        )
        .limit("{name: queue, key: global, algorithm: leaky_bucket, rate: 6000/m}")
        .limit(
            "{name: some, key: query:a, on_missing_key: skip, algorithm: sliding_window_counter, limit: 9, window: 1m}",
        )
        .limit("{name: log, key: global, algorithm: sliding_window_log, limit: 50, window: 90s}")
        .limit("{name: busy, key: global, algorithm: concurrency, limit: 7}")
}

#[tokio::test]
async fn the_layers_and_their_parameters() {
    let gateway = Gateway::with(&settings()).environment("LIMIT", "2").start().await;
    let counts = json!({
        "allowed": 0, "denied": 0, "shadow_denied": 0, "skipped": 0, "fallback_allowed": 0, "fallback_denied": 0,
    });
    let expected = [
        json!({
            "name": "user", "key": "header:X-User-Id", "mode": "enforce", "algorithm": "token_bucket",
            "parameters": {"rate": "3/1h", "burst": 3},
            "candidate": {
                "algorithm": "leaky_bucket", "parameters": {"rate": "1/1h", "capacity": 1, "delay": false}, "denied": 0,
            },
        }),
        json!({
            "name": "tried", "key": ["route", "ip"], "mode": "shadow", "algorithm": "fixed_window",
            "parameters": {"limit": 2, "window": "1d", "align": "clock", "timezone": "UTC"},
        }),
        json!({
            "name": "queue", "key": "global", "mode": "enforce", "algorithm": "leaky_bucket",
            "parameters": {"rate": "6000/m", "capacity": 100, "delay": true, "max_delay": "10s"},
        }),
        json!({
            "name": "some", "key": "query:a", "mode": "enforce", "algorithm": "sliding_window_counter",
            "parameters": {"limit": 9, "window": "1m", "buckets": 6},
        }),
        json!({
            "name": "log", "key": "global", "mode": "enforce", "algorithm": "sliding_window_log",
            "parameters": {"limit": 50, "window": "90s"},
        }),
        json!({
            "name": "busy", "key": "global", "mode": "enforce", "algorithm": "concurrency",
            "parameters": {"limit": 7, "lease": {"ttl": "1s"}},
        }),
    ];
    let found = limits(&gateway).await;
    assert_eq!(found.as_array().unwrap().len(), expected.len(), "{found}");
    for (found, expected) in found.as_array().unwrap().iter().zip(expected) {
        for (key, value) in expected.as_object().unwrap().iter().chain(counts.as_object().unwrap()) {
            assert_eq!(&found[key], value, "{key} of {found}");
        }
        assert!(found.get("candidate").is_none() || expected.get("candidate").is_some());
    }
}

#[tokio::test]
async fn what_was_refused_and_what_would_have_been() {
    let gateway = Gateway::with(&settings()).environment("LIMIT", "2").start().await;
    let answers = gateway.client().repeat(5, &get("/").header("X-User-Id", "a")).await;
    let statuses: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let found = limits(&gateway).await;
    let told = |limit: usize, keys: [&str; 3]| keys.map(|key| found[limit][key].as_u64().unwrap());
    assert_eq!(told(0, ["allowed", "denied", "shadow_denied"]), [3, 2, 0]);
    // All but the first.
    assert_eq!(found[0]["candidate"]["denied"], 4, "{found}");
    assert_eq!(told(1, ["allowed", "denied", "shadow_denied"]), [2, 0, 3]);
    assert_eq!(told(3, ["allowed", "denied", "skipped"]), [0, 0, 5]);
    let post = gateway.ask_admin("POST", "/api/limits").await;
    assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD")));
}
