//! Counting while Redis is away (`local`): gateways share what was left, and charge it when Redis is back.

use std::time::Duration;

use rustix::process::Signal;

use crate::support::{DEADLINE, FIVE, Gateway, Redis, Settings, Tally, get, wait_for};

const LIMIT: u64 = 40;

/// The five algorithms in `redis`, and `local` without it.
fn settings(redis: &Redis, limit: u64) -> Settings {
    Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"redis://{}/0\", timeout: 1s, on_failure: local}}}}",
            redis.address()
        ))
        .five_limits("header:x-user-id", limit, "1d")
}

/// Waits until every one of so many gateways has said twice that it lives, and so knows of all others.
async fn know_of_each_other(redis: &Redis, gateways: i64) {
    let mut since = "-inf".to_owned();
    for _ in 0..3 {
        let range = ["ZCOUNT", "gw:~gateways", &since, "+inf"];
        wait_for(DEADLINE, "heartbeats", || async {
            redis.command(&range).await.int() == Some(gateways)
        })
        .await;
        let last = redis
            .command(&["ZREVRANGE", "gw:~gateways", "0", "0", "WITHSCORES"])
            .await;
        since = format!("({}", last.texts()[1]);
    }
}

/// So many requests of one user under each of the five algorithms: how many pass of each.
async fn passed(gateway: &Gateway, user: &str, requests: usize) -> [usize; 5] {
    let mut client = gateway.client();
    let mut passed = [0; 5];
    for (passed, algorithm) in passed.iter_mut().zip(FIVE) {
        let request = get(&algorithm.path()).header("x-user-id", user);
        let tally: Tally = client.repeat(requests, &request).await.iter().collect();
        assert_eq!(tally.passed() + tally.denied(), requests, "{tally:?}");
        *passed = tally.passed();
    }
    passed
}

/// The same requests to two gateways at the same time: both wait for a server that is frozen.
async fn passed_by_both([one, two]: &[Gateway; 2], user: &str, requests: usize) -> [[usize; 5]; 2] {
    let (one, two) = tokio::join!(passed(one, user, requests), passed(two, user, requests));
    [one, two]
}

#[tokio::test]
async fn gateways_share_what_was_left_and_charge_it_afterwards() {
    let redis = Redis::start().await;
    let settings = settings(&redis, LIMIT);
    let gateways = [
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    ];
    let [one, two] = &gateways;
    for gateway in &gateways {
        gateway.status_says("/store/state", "connected").await;
    }
    know_of_each_other(&redis, 2).await;

    // 20 of 40 are used, and both have seen that, or 19 of them.
    for (gateway, requests) in [(one, 9), (two, 9), (one, 1), (two, 1)] {
        assert_eq!(passed(gateway, "alice", requests).await, [requests; 5]);
    }
    redis.freeze();
    // Half of a share is used: 10 each are left.
    assert_eq!(
        passed_by_both(&gateways, "alice", 25).await,
        [[10; 5]; 2],
        "in the outage"
    );
    // It comes and goes, and goes again.
    for outage in ["the next", "the last"] {
        redis.thaw();
        for gateway in &gateways {
            gateway.status_says("/store/state", "connected").await;
            // Answered after what the gateway owed was charged.
            assert_eq!(passed(gateway, outage, 1).await, [1; 5]);
        }
        assert_eq!(
            passed_by_both(&gateways, "alice", 5).await,
            [[0; 5]; 2],
            "before {outage} outage"
        );
        redis.freeze();
        assert_eq!(
            passed_by_both(&gateways, "alice", 5).await,
            [[0; 5]; 2],
            "in {outage} outage"
        );
    }
}

#[tokio::test]
async fn a_gateway_alone_goes_on_where_redis_was() {
    let redis = Redis::start().await;
    let settings = settings(&redis, LIMIT);
    let gateway = Gateway::with(&settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    assert_eq!(passed(&gateway, "alice", 33).await, [33; 5]);
    redis.kill();
    assert_eq!(passed(&gateway, "alice", 20).await, [7; 5]);
    // What Redis lost is lost: the 7 are all that it is told of.
    redis.start_again().await;
    gateway.status_says("/store/state", "connected").await;
    wait_for(Duration::from_secs(5), "the debts", || async {
        redis.counters("gw").await.len() == 5
    })
    .await;
    assert_eq!(passed(&gateway, "alice", 50).await, [33; 5]);
}

#[tokio::test]
async fn what_passed_before_the_end_is_charged_or_told_of() {
    let redis = Redis::start().await;
    let settings = settings(&redis, LIMIT);
    let mut gateway = Gateway::with(&settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    redis.freeze();
    assert_eq!(passed(&gateway, "alice", 30).await, [30; 5]);
    gateway.signal(Signal::TERM);
    redis.thaw();
    assert!(gateway.exit().await.success());

    let mut gateway = Gateway::with(&settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    assert_eq!(passed(&gateway, "alice", 30).await, [10; 5]);
    redis.kill();
    assert_eq!(passed(&gateway, "bob", 1).await, [1; 5]);
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().await.success());
    let told = "redis is not told what was admitted while it was away counters=5";
    assert!(gateway.log().contains(told), "{}", gateway.log());
}

#[tokio::test]
async fn what_passed_before_a_reload_is_charged_after_it() {
    let redis = Redis::start().await;
    let gateway = Gateway::with(&settings(&redis, LIMIT)).start().await;
    gateway.status_says("/store/state", "connected").await;
    redis.freeze();
    assert_eq!(passed(&gateway, "alice", 30).await, [30; 5]);
    // No request meets the new layers before Redis is back.
    gateway.write_by_rename(&settings(&redis, LIMIT + 2));
    gateway.status_says("/config/version", 2).await;
    redis.thaw();
    gateway.status_says("/store/state", "connected").await;
    assert_eq!(passed(&gateway, "alice", 20).await, [12; 5]);
}
