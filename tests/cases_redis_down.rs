//! K08: Redis slow, down, and back.
//!
//! Elsewhere: 042 (a hung Redis delays nobody) in `faults` and `outage`; 049 (memory without bound) in limiter-core's tests of
//! the fallback: `a_flood_of_new_keys_frees_nobody_and_its_memory_comes_back`.

use std::time::Duration;

use limiter_core::test_util::RedisServer;
use tokio::time::Instant;

use crate::{
    outage::{answers_by_policy, policies},
    support::{DEADLINE, Gateway, Load, Redis, Relay, Settings, Tally, get, pause, wait_for},
};

/// As long as the store refuses, in these tests.
const REFUSED: Duration = Duration::from_secs(8);

/// Two gateways of four connections each, that count through relays; they answer whatever becomes of that.
async fn two_gateways(redis: &Redis) -> [(Relay, Gateway); 2] {
    let start = async || {
        let relay = Relay::to(redis.address()).await;
        let settings = Settings::answering()
            .store(&format!(
                "{{redis: {{url: \"redis://{}/0\", prefix: storm, connections: 4, on_failure: open}}}}",
                relay.address()
            ))
            .five_limits("ip", 100_000, "1d");
        let gateway = Gateway::with(&settings).start().await;
        gateway.status_says("/store/state", "connected").await;
        (relay, gateway)
    };
    [start().await, start().await]
}

/// Cases 044 and 045: attempts to connect are few, fewer as time goes on, and never given up.
async fn attempts_are_paced(refusal: &'static str) {
    let redis = Redis::start().await;
    let gateways = two_gateways(&redis).await;
    let loads = gateways
        .each_ref()
        .map(|(_, gateway)| Load::start(gateway.address(), &["/tb/x", "/sl/x"], 4, 100));
    let began = Instant::now();
    for (relay, _) in &gateways {
        relay.refuse_with(refusal);
        relay.cut();
    }
    pause(REFUSED).await;
    let ended = Instant::now();
    for (relay, gateway) in &gateways {
        let attempts =
            |from: Instant, to: Instant| relay.arrivals().iter().filter(|at| (from..to).contains(at)).count();
        let (all, late) = (attempts(began, ended), attempts(began + REFUSED / 2, ended));
        assert!(all <= 2 * 4 * 8, "{all} attempts in {REFUSED:?} with four connections");
        assert!(
            late >= 1 && late <= all / 2,
            "{late} of {all} attempts in the second half"
        );
        let down = gateway.metric("gateway_store_state", &[("state", "connected")]).await;
        assert_eq!(down, 0.0);
        relay.refuse(false);
    }
    for (_, gateway) in &gateways {
        gateway.status_says("/store/state", "connected").await;
    }
    assert!(
        ended.elapsed() < Duration::from_secs(10),
        "back after {:?}",
        ended.elapsed()
    );
    pause(Duration::from_secs(3)).await;
    for load in loads {
        let answers = load.stop().await;
        assert!(answers.iter().all(|answered| answered.status == Some(200)));
    }
    let clients = redis.command(&["CLIENT", "LIST", "TYPE", "normal"]).await.into_text();
    let open = clients.lines().filter(|line| !line.contains("user=guard")).count();
    assert!(
        (2..=8).contains(&open),
        "{open} connections of two gateways with four each:\n{clients}"
    );
}

#[tokio::test]
async fn attempts_are_paced_where_connections_are_closed() {
    attempts_are_paced("").await;
}

#[tokio::test]
async fn attempts_are_paced_where_there_are_too_many_clients() {
    attempts_are_paced("-ERR max number of clients reached\r\n").await;
}

/// Case 046: whatever is wrong with Redis, the answers are the policy's, and those that need no Redis are as always.
async fn answers_are_right(gateway: &Gateway, what: &str) {
    answers_by_policy(gateway, what).await;
    for path in ["/healthz", "/metrics"] {
        assert_eq!(gateway.ask_admin("GET", path).await.status, 200, "{path}, {what}");
    }
}

#[tokio::test]
async fn nobody_gets_a_wrong_answer_where_redis_is_refused() {
    let redis = Redis::start().await;
    redis.kill();
    let gateway = Gateway::with(&policies(redis.address())).start().await;
    answers_are_right(&gateway, "refused").await;
}

#[tokio::test]
async fn nobody_gets_a_wrong_answer_behind_a_black_hole() {
    let redis = Redis::start().await;
    let relay = Relay::to(redis.address()).await;
    let gateway = Gateway::with(&policies(relay.address())).start().await;
    gateway.status_says("/store/state", "connected").await;
    relay.black_hole(true);
    answers_are_right(&gateway, "black hole").await;
}

#[tokio::test]
async fn nobody_gets_a_wrong_answer_for_a_bad_password() {
    let redis = Redis::start_as(|| RedisServer::start_with_password("secret")).await;
    let gateway = Gateway::with(&policies(redis.address())).start().await;
    answers_are_right(&gateway, "bad password").await;
    wait_for(DEADLINE, "what is wrong, in the log", || async {
        gateway.log().contains("NOAUTH")
    })
    .await;
}

/// Case 048: without Redis every layer is enforced, and it is told when that began and ended.
#[tokio::test]
async fn without_redis_every_layer_is_enforced_and_it_is_told() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"redis://{}/0\", prefix: alone}}}}",
            redis.address()
        ))
        .limit(
            "{name: user, key: header:x-user-id, algorithm: fixed_window, align: first_request, limit: 10, window: 1h}",
        )
        .limit(
            "{name: pay, key: header:x-user-id, match: {path: /pay}, algorithm: fixed_window, align: first_request, \
             limit: 4, window: 1h}",
        );
    let gateways = [
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    ];
    for gateway in &gateways {
        gateway.status_says("/store/state", "connected").await;
    }
    redis.kill();
    let (mut passed, mut paid) = (0, 0);
    for gateway in &gateways {
        let mut client = gateway.client();
        let send = async |client: &mut crate::support::Client, path: &str| {
            let request = get(path).header("x-user-id", "u1");
            client.repeat(10, &request).await.iter().collect::<Tally>()
        };
        let (pay, other) = (send(&mut client, "/pay").await, send(&mut client, "/other").await);
        assert!(
            pay.passed() <= 4 && pay.passed() + other.passed() <= 10,
            "{pay:?}, {other:?}"
        );
        assert_eq!(pay.passed() + pay.denied() + other.passed() + other.denied(), 20);
        assert!(pay.passed() >= 1 && other.passed() >= 1, "{pay:?}, {other:?}");
        passed += pay.passed() + other.passed();
        paid += pay.passed();
        let labels = [("limit", "pay"), ("outcome", "fallback_denied")];
        assert!(gateway.metric("gateway_limit_decisions_total", &labels).await > 0.0);
    }
    assert!(passed <= 20 && paid <= 8, "{passed} passed, {paid} of them /pay");
    redis.start_again().await;
    for gateway in &gateways {
        gateway.status_says("/store/state", "connected").await;
        let log = gateway.log();
        for (text, what) in [("redis is away", "start"), ("redis is back", "end")] {
            assert_eq!(
                log.matches(text).count(),
                1,
                "the {what} of the outage in the log:\n{log}"
            );
        }
    }
    // Shared again.
    let request = get("/other").header("x-user-id", "u2");
    let mut tally = Tally::default();
    for gateway in &gateways {
        tally.merge(&gateway.client().repeat(10, &request).await.iter().collect());
    }
    tally.expect(10, 10, "after the outage");
}
