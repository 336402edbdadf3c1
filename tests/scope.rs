//! Layers that each gateway counts for itself (`scope: instance`), beside those that all share.

use crate::support::{DEADLINE, FIVE, Gateway, Redis, Settings, Tally, get, wait_for};

async fn passed(gateway: &Gateway, count: usize) -> usize {
    let responses = gateway.client().repeat(count, &get("/")).await;
    responses.iter().collect::<Tally>().passed()
}

fn limit(name: &str, limit: u64, more: &str) -> String {
    format!(
        "{{name: {name}, key: global, algorithm: fixed_window, align: first_request, limit: {limit}, window: 1d{more}}}"
    )
}

async fn two(settings: &Settings) -> [Gateway; 2] {
    let (one, two) = tokio::join!(Gateway::with(settings).start(), Gateway::with(settings).start());
    for gateway in [&one, &two] {
        gateway.status_says("/store/state", "connected").await;
    }
    [one, two]
}

#[tokio::test]
async fn each_gateway_has_the_whole_of_such_a_limit() {
    let redis = Redis::start().await;
    for algorithm in FIVE {
        let layer = format!(
            "{{name: own, key: global, scope: instance, {}}}",
            algorithm.parameters(5, "1d")
        );
        let settings = Settings::answering().counting_in(&redis, "own").limit(&layer);
        let gateways = two(&settings).await;
        for gateway in &gateways {
            assert_eq!(passed(gateway, 9).await, 5, "{algorithm:?}");
        }
        let alone = Gateway::with(&Settings::answering().limit(&layer)).start().await;
        assert_eq!(passed(&alone, 9).await, 5, "in memory it is as any other");
    }
    assert_eq!(redis.counters("own").await, Vec::<String>::new());
}

#[tokio::test]
async fn it_is_all_or_nothing_with_the_layers_that_are_shared() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "both")
        .limit(&limit("own", 6, ", scope: instance"))
        .limit(&limit("shared", 8, ""));
    let [one, two] = two(&settings).await;
    assert_eq!(passed(&one, 9).await, 6);
    // What one refused for itself has cost the other nothing.
    assert_eq!(passed(&two, 9).await, 2);
    let answer = two.client().repeat(1, &get("/")).await.remove(0);
    assert_eq!(answer.json()["violated-policies"], serde_json::json!(["shared"]));
    // And what the shared layer refused has cost nothing of its own: with more room there, four are left.
    let wider = settings.clone().limits([
        limit("own", 6, ", scope: instance").as_str(),
        limit("shared", 99, "").as_str(),
    ]);
    two.write_by_rename(&wider);
    two.status_says("/config/version", 2).await;
    let answers = two.client().repeat(9, &get("/")).await;
    assert_eq!(
        answers.iter().collect::<Tally>().passed(),
        4,
        "a reload keeps what was counted"
    );
    assert_eq!(answers[8].json()["violated-policies"], serde_json::json!(["own"]));
    assert!(answers[0].header("ratelimit").unwrap().contains("own"), "{answers:?}");
    assert_eq!(
        two.metric(
            "gateway_limit_decisions_total",
            &[("limit", "own"), ("outcome", "denied")]
        )
        .await,
        5.0
    );
}

#[tokio::test]
async fn without_redis_nothing_changes_for_it() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "away")
        .limit(&limit("own", 6, ", scope: instance"))
        .limit(&limit("shared", 40, ""));
    let gateways = two(&settings).await;
    wait_for(DEADLINE, "two gateways", || async {
        gateways[0].metric("gateway_live_gateways", &[]).await == 2.0
    })
    .await;
    assert_eq!(passed(&gateways[0], 2).await, 2);
    redis.kill();
    for gateway in &gateways {
        gateway.status_says("/store/state", "down").await;
    }
    // Neither a share of it, nor anything from the beginning.
    assert_eq!(passed(&gateways[0], 9).await, 4);
    assert_eq!(passed(&gateways[1], 9).await, 6);
    redis.start_again().await;
    for gateway in &gateways {
        gateway.status_says("/store/state", "connected").await;
    }
    redis.sees_counters("away").await;
    assert_eq!(passed(&gateways[0], 9).await, 0);
    let counters = redis.counters("away").await;
    assert!(
        counters.iter().all(|counter| counter.contains("shared")),
        "{counters:?}"
    );
}
