//! Layers that only watch (`mode: shadow`), and layers that charge what is refused (`charge: all`): in memory, in Redis
//! over two gateways, and alone while Redis is away.

use crate::support::{FIVE, Gateway, Redis, Settings, Tally, get};

const OUTCOMES: &str = "gateway_limit_decisions_total";

/// The same in memory, and in Redis.
async fn each_store(limits: &[String]) -> Vec<(Settings, Option<Redis>)> {
    let redis = Redis::start().await;
    let settings = Settings::answering().limits(limits.iter().map(String::as_str));
    vec![
        (settings.clone(), None),
        (settings.counting_in(&redis, "roles"), Some(redis)),
    ]
}

#[tokio::test]
async fn a_shadow_refuses_nothing_and_counts_what_it_would_have_refused() {
    for algorithm in FIVE {
        let limits = [
            format!(
                "{{name: watched, key: global, mode: shadow, {}}}",
                algorithm.parameters(3, "1d")
            ),
            format!("{{name: real, key: global, {}}}", algorithm.parameters(8, "1d")),
        ];
        for (settings, _redis) in each_store(&limits).await {
            let gateway = Gateway::with(&settings).start().await;
            let answers = gateway.client().repeat(10, &get("/")).await;
            answers
                .iter()
                .collect::<Tally>()
                .expect(8, 2, "the enforced layer alone");
            for (at, answer) in answers.iter().enumerate() {
                assert_eq!(
                    answer.number("x-ratelimit-limit"),
                    Some(8),
                    "of no other layer: {answer:?}"
                );
                let fields = answer.header("ratelimit").unwrap();
                assert!(!fields.contains("watched"), "{fields}");
                if at >= 8 {
                    assert_eq!(answer.json()["violated-policies"], serde_json::json!(["real"]));
                }
            }
            for (outcome, expected) in [("allowed", 3.0), ("shadow_denied", 7.0), ("denied", 0.0)] {
                let counted = gateway
                    .metric(OUTCOMES, &[("limit", "watched"), ("outcome", outcome)])
                    .await;
                assert_eq!(counted, expected, "{algorithm:?}: {outcome}");
            }
        }
    }
}

#[tokio::test]
async fn a_shadow_that_is_enforced_keeps_its_counts() {
    let redis = Redis::start().await;
    for algorithm in FIVE {
        let settings = |mode: &str| {
            let layer = format!(
                "{{name: l, key: global, mode: {mode}, {}}}",
                algorithm.parameters(5, "1d")
            );
            Settings::answering()
                .counting_in(&redis, &format!("promote{}", algorithm.short()))
                .limits([layer.as_str()])
        };
        let gateways = [
            Gateway::with(&settings("shadow")).start().await,
            Gateway::with(&settings("shadow")).start().await,
        ];
        for gateway in &gateways {
            let answers = gateway.client().repeat(2, &get("/")).await;
            answers.iter().collect::<Tally>().expect(2, 0, "a shadow");
        }
        gateways[0].write_by_rename(&settings("enforce"));
        gateways[0].status_says("/config/version", 2).await;
        let answers = gateways[0].client().repeat(3, &get("/")).await;
        answers
            .iter()
            .collect::<Tally>()
            .expect(1, 2, "four were counted on two gateways");
    }
}

#[tokio::test]
async fn a_layer_that_always_charges_charges_what_it_and_others_refuse() {
    for algorithm in FIVE {
        let limits = [
            format!(
                "{{name: attempts, key: global, charge: all, {}}}",
                algorithm.parameters(6, "1d")
            ),
            format!(
                "{{name: narrow, key: \"header:x-user-id\", {}}}",
                algorithm.parameters(2, "1d")
            ),
        ];
        for (settings, _redis) in each_store(&limits).await {
            let gateway = Gateway::with(&settings).start().await;
            let mut client = gateway.client();
            let answers = client.repeat(5, &get("/").header("x-user-id", "a")).await;
            answers.iter().collect::<Tally>().expect(2, 3, "the narrow layer");
            // Five attempts are charged, and so a sixth is the last.
            let answers = client.repeat(2, &get("/").header("x-user-id", "b")).await;
            answers.iter().collect::<Tally>().expect(1, 1, "the attempts");
            assert_eq!(
                answers[1].json()["violated-policies"],
                serde_json::json!(["attempts"]),
                "{algorithm:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_shadow_watches_also_where_redis_is_away() {
    let redis = Redis::start().await;
    let algorithm = FIVE[0];
    let limits = [
        format!(
            "{{name: watched, key: global, mode: shadow, {}}}",
            algorithm.parameters(3, "1d")
        ),
        format!("{{name: real, key: global, {}}}", algorithm.parameters(8, "1d")),
    ];
    let settings = Settings::answering()
        .counting_in(&redis, "away")
        .limits(limits.iter().map(String::as_str));
    let gateway = Gateway::with(&settings).start().await;
    redis.kill();
    gateway.status_says("/store/state", "down").await;
    let answers = gateway.client().repeat(10, &get("/")).await;
    answers
        .iter()
        .collect::<Tally>()
        .expect(8, 2, "the enforced layer alone");
    let labels = [("limit", "watched"), ("outcome", "shadow_denied")];
    assert_eq!(gateway.metric(OUTCOMES, &labels).await, 7.0);
}

#[tokio::test]
async fn a_shadow_refuses_nothing_in_no_way() {
    let redis = Redis::start().await;
    let algorithm = FIVE[2].parameters(3, "1d");
    let limits = [
        format!("{{name: closed, key: global, mode: shadow, on_store_failure: closed, {algorithm}}}"),
        format!("{{name: missing, key: \"header:x-team\", mode: shadow, on_missing_key: deny, {algorithm}}}"),
        format!("{{name: listed, key: method, mode: shadow, overrides: {{values: GET, deny: true}}, {algorithm}}}"),
    ];
    let settings = Settings::answering()
        .counting_in(&redis, "nothing")
        .limits(limits.iter().map(String::as_str));
    let gateway = Gateway::with(&settings).start().await;
    let answers = gateway.client().repeat(5, &get("/")).await;
    answers.iter().collect::<Tally>().expect(5, 0, "with Redis");
    redis.kill();
    gateway.status_says("/store/state", "down").await;
    let answers = gateway.client().repeat(5, &get("/")).await;
    answers.iter().collect::<Tally>().expect(5, 0, "without Redis");
}

#[tokio::test]
async fn a_candidate_counts_what_it_would_have_refused_in_place_of_its_layer() {
    for (at, algorithm) in FIVE.into_iter().enumerate() {
        let other = FIVE[(at + 1) % FIVE.len()];
        for tried in [algorithm, other] {
            let live = format!(
                "{{name: live, key: \"header:x-user-id\", {}, candidate: {{{}}}}}",
                algorithm.parameters(12, "1d"),
                tried.parameters(6, "1d")
            );
            let enforced = format!(
                "{{name: live, key: \"header:x-user-id\", {}}}",
                tried.parameters(6, "1d")
            );
            for (settings, _redis) in each_store(&[live]).await {
                let gateway = Gateway::with(&settings).start().await;
                let answers = gateway.client().repeat(20, &get("/").header("x-user-id", "a")).await;
                answers.iter().collect::<Tally>().expect(12, 8, "the layer itself");
                let labels = [("limit", "live"), ("outcome", "candidate_denied")];
                let would_be = gateway.metric(OUTCOMES, &labels).await;
                let alone = Gateway::with(&Settings::answering().limits([enforced.as_str()]))
                    .start()
                    .await;
                let answers = alone.client().repeat(20, &get("/").header("x-user-id", "a")).await;
                let refused = answers.iter().collect::<Tally>().denied();
                assert_eq!(would_be, refused as f64, "{tried:?} beside {algorithm:?}");
                assert_eq!(
                    gateway
                        .metric(OUTCOMES, &[("limit", "live"), ("outcome", "allowed")])
                        .await,
                    12.0
                );
            }
        }
    }
}

#[tokio::test]
async fn a_candidate_of_another_algorithm_that_is_promoted_keeps_its_counts() {
    let redis = Redis::start().await;
    let [live, tried] = [FIVE[0].parameters(9, "1d"), FIVE[2].parameters(5, "1d")];
    let settings = |layer: &str| {
        let layer = format!("{{name: l, key: global, {layer}}}");
        Settings::answering()
            .counting_in(&redis, "candidate")
            .limits([layer.as_str()])
    };
    let gateway = Gateway::with(&settings(&format!("{live}, candidate: {{{tried}}}")))
        .start()
        .await;
    gateway.client().repeat(3, &get("/")).await;
    gateway.write_by_rename(&settings(&tried));
    gateway.status_says("/config/version", 2).await;
    let answers = gateway.client().repeat(4, &get("/")).await;
    answers.iter().collect::<Tally>().expect(2, 2, "three were counted");
}
