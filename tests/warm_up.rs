//! Token buckets that have to warm up: in memory, in Redis over two gateways, and alone while Redis is away.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{Gateway, Redis, Response, Settings, Tally, get, pause};

/// In memory with one gateway, and in Redis with two.
async fn each_store(limit: &str) -> Vec<(Vec<Gateway>, Option<Redis>)> {
    let (settings, redis) = (Settings::answering().limit(limit), Redis::start().await);
    let alone = Gateway::with(&settings).start().await;
    let shared = settings.counting_in(&redis, "warm");
    let (one, two) = (
        Gateway::with(&shared).start().await,
        Gateway::with(&shared).start().await,
    );
    vec![(vec![alone], None), (vec![one, two], Some(redis))]
}

/// So many requests of a user, to each gateway in turn.
async fn ask(gateways: &[Gateway], user: &str, count: usize) -> Vec<Response> {
    let request = get("/").header("x-user-id", user);
    let mut responses = Vec::new();
    for index in 0..count {
        let gateway = &gateways[index % gateways.len()];
        responses.extend(gateway.client().repeat(1, &request).await);
    }
    responses
}

fn passed(responses: &[Response]) -> usize {
    responses.iter().collect::<Tally>().passed()
}

const SLOW: &str = "{name: user, key: \"header:x-user-id\", algorithm: token_bucket, rate: 6/1h, warm_up: 1d}";

#[tokio::test]
async fn a_cold_bucket_gives_no_burst_and_a_third_of_its_rate() {
    for (gateways, _redis) in each_store(SLOW).await {
        let responses = ask(&gateways, "alice", 4).await;
        assert_eq!(passed(&responses), 1);
        // A sixth of an hour is the time of a token, and three times that at a third of the rate.
        for refused in &responses[1..] {
            assert!((1_700..=1_800).contains(&refused.retry_after().unwrap()), "{refused:?}");
            assert_eq!(
                (refused.number("x-ratelimit-limit"), refused.remaining()),
                (Some(6), 0),
                "{refused:?}"
            );
        }
        assert_eq!(passed(&ask(&gateways, "bob", 4).await), 1);
    }
}

#[tokio::test]
async fn who_waits_as_told_is_admitted_at_every_step() {
    let limit = "{name: all, key: global, algorithm: token_bucket, rate: 120/m, warm_up: 10s}";
    for (gateways, _redis) in each_store(limit).await {
        assert_eq!(passed(&ask(&gateways, "alice", 1).await), 1);
        for _ in 0..3 {
            let refused = ask(&gateways, "alice", 1).await.remove(0);
            assert!(refused.denied(), "{refused:?}");
            pause(Duration::from_secs(refused.retry_after().unwrap())).await;
            assert_eq!(passed(&ask(&gateways, "alice", 1).await), 1, "after {refused:?}");
            // What the rounded wait gave beyond the token.
            ask(&gateways, "alice", 1).await;
        }
    }
}

/// A bucket of 20/s that warms up in 3 s, asked as fast as its refusals come: what passes is what the steps allow, until
/// it is warm, and a burst is there.
#[tokio::test]
async fn a_bucket_in_use_warms_up_and_one_that_nobody_uses_is_cold_again() {
    let limit = "{name: all, key: global, algorithm: token_bucket, rate: 20/s, warm_up: 3s}";
    for (gateways, _redis) in each_store(limit).await {
        let (began, mut total) = (Instant::now(), 0);
        while began.elapsed() < Duration::from_secs(4) {
            total += passed(&ask(&gateways, "alice", 2).await);
            // The first of the steps begins with the first request, and each next one is a fifteenth of the rate more.
            let (elapsed, step) = (began.elapsed().as_secs_f64(), 0.3);
            let later = |k: i32| (elapsed - f64::from(k) * step).max(0.0);
            let fifteenths = 5.0 * elapsed + (1..=10).map(later).sum::<f64>();
            let most = 1.0 + 20.0 * fifteenths / 15.0;
            assert!(total as f64 <= most, "{total} of {most} in {elapsed} s");
            pause(Duration::from_millis(20)).await;
        }
        // Warm, it has what refills in a second; and longer than a second nobody can fill it.
        pause(Duration::from_millis(1_100)).await;
        let burst = passed(&ask(&gateways, "alice", 20).await);
        assert_eq!(burst, 20);
        pause(Duration::from_millis(3_200)).await;
        let began = Instant::now();
        let cold = passed(&ask(&gateways, "alice", 20).await);
        let most = 1.0 + 20.0 * began.elapsed().as_secs_f64();
        assert!((1..20).contains(&cold) && cold as f64 <= most, "{cold} of {most}");
    }
}

#[tokio::test]
async fn without_redis_the_local_share_is_cold_too() {
    let redis = Redis::start().await;
    let settings = Settings::answering().counting_in(&redis, "warm").limit(SLOW);
    let gateways = [Gateway::with(&settings).start().await];
    assert_eq!(passed(&ask(&gateways, "alice", 2).await), 1);
    redis.kill();
    gateways[0].status_says("/store/state", "down").await;
    assert_eq!(passed(&ask(&gateways, "alice", 4).await), 0, "it was seen in use");
    assert_eq!(passed(&ask(&gateways, "bob", 4).await), 1);
    redis.start_again().await;
    gateways[0].status_says("/store/state", "connected").await;
    redis.sees_counters("warm").await;
    assert_eq!(passed(&ask(&gateways, "bob", 4).await), 0, "that was owed");
}
