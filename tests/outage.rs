//! Redis hung, gone and back, with all that the answers say; the times and the counts are in `faults`.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{
    Algorithm, Crowd, DEADLINE, FIVE, Gateway, Redis, Relay, Response, Settings, Tally, get, pause, wait_for,
};

/// Three paths whose layers answer an outage each in its own way, and one that is not limited.
pub(crate) fn policies(redis_address: std::net::SocketAddr) -> Settings {
    let layer = |policy: &str| {
        let parameters = Algorithm::FixedWindow.parameters(5, "1h");
        format!("{{name: {policy}, key: ip, match: {{path: /{policy}}}, on_store_failure: {policy}, {parameters}}}")
    };
    Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"redis://{redis_address}/0\", prefix: out, timeout: 150ms}}}}"
        ))
        .limit(&layer("local"))
        .limit(&layer("open"))
        .limit(&layer("closed"))
}

/// Each path ten times: the outcome is the policy's, and no answer is late.
pub(crate) async fn answers_by_policy(gateway: &Gateway, what: &str) {
    let mut times = Vec::new();
    let mut client = gateway.client();
    for policy in ["local", "open", "closed", "free"] {
        let mut answers = Vec::new();
        for _ in 0..10 {
            let sent = Instant::now();
            answers.push(client.get(&format!("/{policy}")).await);
            times.push(sent.elapsed());
        }
        let tally: Tally = answers.iter().collect();
        match policy {
            "local" => tally.expect(5, 5, &format!("{policy}, {what}")),
            "closed" => assert_eq!(tally.of(503), 10, "{policy}, {what}: {tally:?}"),
            _ => tally.expect(10, 0, &format!("{policy}, {what}")),
        }
        for answer in &answers {
            is_honest(answer, policy);
        }
    }
    times.sort();
    // The deadline is 150 ms, and after a few failures nobody waits; the rest is room for a busy machine.
    let (median, worst) = (times[times.len() / 2], times[times.len() - 1]);
    assert!(
        median < Duration::from_millis(40) && worst < Duration::from_millis(1500),
        "{what}: {median:?}, {worst:?}"
    );
}

fn is_honest(answer: &Response, policy: &str) {
    match answer.status {
        503 => {
            assert!(answer.retry_after().is_some(), "{answer:?}");
            let kind = answer.json()["type"].as_str().unwrap().to_owned();
            assert!(kind.ends_with("#temporary-reduced-capacity"), "{answer:?}");
        }
        429 => assert!(answer.retry_after().is_some(), "{answer:?}"),
        _ if policy == "open" => assert_eq!(answer.header("x-ratelimit-remaining"), None, "invented: {answer:?}"),
        _ => {}
    }
}

/// Counts in Redis again, by itself.
async fn counts_in_redis_again(gateway: &Gateway, redis: &Redis) {
    gateway.status_says("/store/state", "connected").await;
    let before = redis.counters("out").await.len();
    wait_for(DEADLINE, "a decision by Redis", || async {
        let answer = gateway.client().get("/closed").await;
        answer.passed() || answer.denied()
    })
    .await;
    assert!(redis.counters("out").await.len() >= before.max(1));
}

#[tokio::test]
async fn while_redis_is_gone_the_policy_answers_and_then_redis_again() {
    let redis = Redis::start().await;
    let gateway = Gateway::with(&policies(redis.address())).start().await;
    gateway.status_says("/store/state", "connected").await;
    redis.kill();
    answers_by_policy(&gateway, "killed").await;
    wait_for(DEADLINE, "the loss in /api/status", || async {
        gateway.status().await.pointer("/store/state") != Some(&"connected".into())
    })
    .await;
    assert!(
        gateway
            .metric("gateway_limit_decisions_total", &[("outcome", "fallback_allowed")])
            .await
            > 0.0
    );
    assert!(gateway.metric("gateway_store_errors_total", &[]).await > 0.0);
    assert_eq!(gateway.ask_admin("GET", "/healthz").await.status, 200);
    redis.start_again().await;
    counts_in_redis_again(&gateway, &redis).await;
}

#[tokio::test]
async fn while_redis_hangs_the_policy_answers_and_then_redis_again() {
    let redis = Redis::start().await;
    let gateway = Gateway::with(&policies(redis.address())).start().await;
    gateway.status_says("/store/state", "connected").await;
    redis.freeze();
    // This call waits in the frozen server's socket; the layer lets pass what it has no answer for.
    gateway.client().get("/open").await;
    answers_by_policy(&gateway, "frozen").await;
    // What the server finds there when it runs again is too late to be written.
    redis.thaw();
    counts_in_redis_again(&gateway, &redis).await;
    let passed = gateway.client().repeat(6, &get("/open")).await;
    passed.iter().collect::<Tally>().expect(5, 1, "a late call was charged");
    // Here the five that passed meanwhile are charged now.
    let passed = gateway.client().repeat(5, &get("/local")).await;
    passed.iter().collect::<Tally>().expect(0, 5, "a debt was forgiven");
}

#[tokio::test]
async fn it_starts_without_redis_and_finds_it_later() {
    let redis = Redis::start().await;
    redis.kill();
    let gateway = Gateway::with(&policies(redis.address())).start().await;
    answers_by_policy(&gateway, "at the start").await;
    redis.start_again().await;
    counts_in_redis_again(&gateway, &redis).await;
}

#[tokio::test]
async fn it_starts_behind_a_black_hole_and_finds_redis_later() {
    let redis = Redis::start().await;
    let relay = Relay::to(redis.address()).await;
    relay.black_hole(true);
    let gateway = Gateway::with(&policies(relay.address())).start().await;
    answers_by_policy(&gateway, "at the start").await;
    relay.black_hole(false);
    counts_in_redis_again(&gateway, &redis).await;
}

#[tokio::test]
async fn redis_restarted_under_load_fails_no_request() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"redis://{}/0\", prefix: out, timeout: 2s, on_failure: local}}}}",
            redis.address()
        ))
        .five_limits("header:x-user-id", 1000, "1d");
    let (one, two) = (
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    );
    let crowd = Crowd::of(16).to(&[one.address(), two.address()]);
    let traffic = crowd.send(12_000, |index| get(&FIVE[index % 5].path()).header("x-user-id", "one"));
    let restart = async {
        pause(Duration::from_millis(500)).await;
        redis.kill();
        pause(Duration::from_millis(500)).await;
        redis.start_again().await;
    };
    let (tally, ()) = tokio::join!(traffic, restart);
    assert_eq!(tally.passed() + tally.denied(), 12_000, "{tally:?}");
    for gateway in [&one, &two] {
        gateway.status_says("/store/state", "connected").await;
    }
    // Shared and exact again: a fresh user on both.
    let tally = crowd.send(1200, |_| get("/fw/x").header("x-user-id", "two")).await;
    tally.expect(1000, 200, "after the restart");
}

#[tokio::test]
async fn a_flushed_script_cache_is_not_noticed() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "flush")
        .five_limits("ip", 40, "1d");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    let mut tallies = [(); 5].map(|()| Tally::default());
    for round in 0..60 {
        if round % 5 == 0 {
            redis.command(&["SCRIPT", "FLUSH"]).await;
        }
        for (tally, algorithm) in tallies.iter_mut().zip(FIVE) {
            tally.add(&client.get(&algorithm.path()).await);
        }
    }
    for (tally, algorithm) in tallies.iter().zip(FIVE) {
        tally.expect(40, 20, &format!("{algorithm:?}"));
    }
    for outcome in ["fallback_allowed", "fallback_denied"] {
        assert_eq!(
            gateway
                .metric("gateway_limit_decisions_total", &[("outcome", outcome)])
                .await,
            0.0,
            "{outcome}"
        );
    }
}
