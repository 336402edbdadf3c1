//! Layers are decided as one step: all are charged, or none is.

use std::time::Duration;

use crate::support::{Algorithm, FIVE, Gateway, Redis, Settings, Tally, get, pause};

/// All orders of three.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

#[tokio::test]
async fn a_refused_request_leaves_redis_as_it_was_in_any_order_of_layers() {
    let redis = Redis::start().await;
    for (round, (order, algorithm)) in ORDERS.iter().zip(FIVE.iter().cycle()).enumerate() {
        let layers = [
            format!(
                "{{name: narrow, key: \"header:x-team\", {}}}",
                algorithm.parameters(2, "1d")
            ),
            format!(
                "{{name: user, key: \"header:x-user-id\", {}}}",
                Algorithm::TokenBucket.parameters(50, "1d")
            ),
            format!(
                "{{name: log, key: ip, {}}}",
                Algorithm::SlidingWindowLog.parameters(50, "1d")
            ),
        ];
        let prefix = format!("order{round}");
        let settings = Settings::answering()
            .counting_in(&redis, &prefix)
            .limits(order.iter().map(|index| layers[*index].as_str()));
        let gateway = Gateway::with(&settings).start().await;
        let mut client = gateway.client();
        let request = get("/").header("x-team", "red").header("x-user-id", "known");
        let answers = client.repeat(2, &request).await;
        answers
            .iter()
            .collect::<Tally>()
            .expect(2, 0, "the quota of the narrow layer");
        let before = redis.dump(&prefix).await;
        assert_eq!(before.len(), 3, "a counter for each layer: {before:?}");
        // One whose other counters are there, and one whose user is new.
        for user in ["new", "known", "new", "known"] {
            let denied = client
                .send(&get("/").header("x-team", "red").header("x-user-id", user))
                .await;
            assert!(denied.denied(), "{algorithm:?} in order {order:?}: {denied:?}");
            assert_eq!(denied.json()["violated-policies"][0], "narrow");
            // So that Redis is asked each time: a first refusal is repeated for 50 ms.
            pause(Duration::from_millis(120)).await;
        }
        let repeated = gateway.metric("gateway_local_refusals_total", &[]).await;
        assert_eq!(repeated, 0.0, "answered without asking Redis");
        let after = redis.dump(&prefix).await;
        assert_eq!(
            before, after,
            "{algorithm:?} in order {order:?}: a refused request wrote a counter"
        );
    }
}

/// The layers of case 064 in both orders: 3 for each user, 50 for the route, 100 for everybody.
async fn refusals_spend_nothing(settings: Settings, algorithm: Algorithm, reversed: bool) {
    let mut layers = [
        ("user", "header:x-user-id", 3),
        ("path", "path", 50),
        ("all", "global", 100),
    ]
    .map(|(name, key, limit)| {
        format!(
            "{{name: {name}, key: \"{key}\", {}}}",
            algorithm.parameters(limit, "1h")
        )
    });
    if reversed {
        layers.reverse();
    }
    let what = format!("{algorithm:?}, reversed: {reversed}");
    let settings = settings.limits(layers.iter().map(String::as_str));
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    let greedy = client.repeat(200, &get("/p").header("x-user-id", "u1")).await;
    greedy.iter().collect::<Tally>().expect(3, 197, &what);
    let mut others = Tally::default();
    for user in 2..=40 {
        let request = get("/p").header("x-user-id", &format!("u{user}"));
        others.merge(&client.repeat(3, &request).await.iter().collect());
    }
    others.expect(47, 39 * 3 - 47, &what);
    // Another path, so that only the layer for everybody is left to bind: 50 of its 100 are used.
    let mut rest = Tally::default();
    for user in 0..60 {
        rest.add(&client.send(&get("/q").header("x-user-id", &format!("v{user}"))).await);
    }
    rest.expect(50, 10, &what);
}

// 064
#[tokio::test]
async fn a_refusal_by_one_layer_spends_no_other_in_memory() {
    for algorithm in [Algorithm::FixedWindow, Algorithm::TokenBucket] {
        for reversed in [false, true] {
            refusals_spend_nothing(Settings::answering(), algorithm, reversed).await;
        }
    }
}

// 064
#[tokio::test]
async fn a_refusal_by_one_layer_spends_no_other_in_redis() {
    let redis = Redis::start().await;
    for (round, algorithm) in [Algorithm::FixedWindow, Algorithm::TokenBucket].into_iter().enumerate() {
        for reversed in [false, true] {
            let settings = Settings::answering().counting_in(&redis, &format!("spend{round}{reversed}"));
            refusals_spend_nothing(settings, algorithm, reversed).await;
        }
    }
}

/// Case 066: two layers for `/a` and `/b`, and one for `/c` and `/d`.
async fn counters_are_apart(settings: &Settings, what: &str) -> Gateway {
    let layer = |name: &str, path: &str| {
        let parameters = Algorithm::FixedWindow.parameters(5, "1h");
        format!("{{name: {name}, key: ip, match: {{path: {path}}}, {parameters}}}")
    };
    let settings = settings
        .clone()
        .limit(&layer("a", "/a"))
        .limit(&layer("b", "/b"))
        .limit(&layer("both", "[/c, /d]"));
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    for (path, passed) in [("/a", 5), ("/b", 5), ("/c", 5), ("/d", 0)] {
        let answers = client.repeat(6, &get(path)).await;
        answers
            .iter()
            .collect::<Tally>()
            .expect(passed, 6 - passed, &format!("{path}, {what}"));
    }
    gateway
}

// 066
#[tokio::test]
async fn two_layers_never_share_a_counter_wherever_they_count() {
    let redis = Redis::start().await;
    counters_are_apart(&Settings::answering(), "in memory").await;
    counters_are_apart(&Settings::answering().counting_in(&redis, "apart"), "in Redis").await;
    // Another gateway on the same Redis, of another prefix, starts from nothing.
    counters_are_apart(
        &Settings::answering().counting_in(&redis, "other"),
        "under another prefix",
    )
    .await;
    redis.kill();
    let outage = format!(
        "{{redis: {{url: \"redis://{}/0\", on_failure: local}}}}",
        redis.address()
    );
    counters_are_apart(&Settings::answering().store(&outage), "while Redis is away").await;
}
