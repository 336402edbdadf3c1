//! What is tried out, in the log: requests that a shadow or a candidate would have refused say so in their access line.

use serde_json::Value;

use crate::support::{DEADLINE, Gateway, Redis, Settings, get, wait_for};

fn settings() -> Settings {
    Settings::answering()
        .limit("{name: one, key: global, mode: shadow, algorithm: fixed_window, limit: 1, window: 1d}")
        .limit("{name: two, key: global, mode: shadow, algorithm: token_bucket, rate: 2/1d}")
        .limit(
            "{name: real, key: global, algorithm: fixed_window, limit: 4, window: 1d, \
             candidate: {algorithm: sliding_window_log, limit: 3, window: 1h}}",
        )
}

/// Shadows, candidates and the layer that refused, in the order of five requests.
const EXPECTED: [[Option<&str>; 3]; 5] = [
    [None, None, None],
    [Some("one"), None, None],
    [Some("one,two"), None, None],
    [Some("one,two"), Some("real"), None],
    [Some("one,two"), Some("real"), Some("real")],
];

/// The access lines of five requests, once they are there.
async fn lines(gateway: &Gateway) -> Vec<String> {
    gateway.client().repeat(5, &get("/")).await;
    let lines = || {
        let log = gateway.log();
        let lines = log.lines().filter(|line| line.contains("access"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    wait_for(DEADLINE, "the access lines", || {
        let count = lines().len();
        async move { count == 5 }
    })
    .await;
    lines()
}

#[tokio::test]
async fn as_json_in_memory_and_in_redis() {
    let redis = Redis::start().await;
    for settings in [settings(), settings().counting_in(&redis, "tried")] {
        let gateway = Gateway::with(&settings.section("log: {format: json}")).start().await;
        for (line, expected) in lines(&gateway).await.iter().zip(EXPECTED) {
            let line: Value = serde_json::from_str(line).unwrap();
            let told = ["shadow_denied", "candidate_denied", "limit"].map(|key| line.get(key).and_then(Value::as_str));
            assert_eq!(told, expected, "{line}");
        }
    }
}

#[tokio::test]
async fn as_text_and_alone_while_redis_is_away() {
    let redis = Redis::start().await;
    let settings = settings().store(&format!(
        "{{redis: {{url: \"redis://{}/0\", on_failure: local}}}}",
        redis.address()
    ));
    let gateway = Gateway::with(&settings).start().await;
    redis.kill();
    gateway.status_says("/store/state", "down").await;
    for (line, expected) in lines(&gateway).await.iter().zip(EXPECTED) {
        for (key, value) in ["shadow_denied", "candidate_denied", "limit"].into_iter().zip(expected) {
            let told = value.map(|value| format!(" {key}=\"{value}\""));
            match told {
                Some(told) => assert!(line.contains(&told), "{told} in {line}"),
                None => assert!(!line.contains(&format!(" {key}=")), "{key} in {line}"),
            }
        }
    }
}
