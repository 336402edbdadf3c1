//! Costs that the answer says, and answers that are not charged.

use super::*;

const LIMIT: i64 = 1_000;

/// A layer of each algorithm under its own path, as in `/tb/x`.
fn layers(settings: Settings, limit: i64, more: &str) -> Settings {
    FIVE.iter().fold(settings, |settings, algorithm| {
        let parameters = algorithm.parameters(limit.unsigned_abs(), "1d");
        let name = algorithm.short();
        settings.limit(&format!(
            "{{name: {name}, key: global, match: {{path: \"/{name}/**\"}}, {more}, {parameters}}}"
        ))
    })
}

fn addresses(gateways: &[Gateway]) -> Vec<std::net::SocketAddr> {
    gateways.iter().map(Gateway::address).collect()
}

#[tokio::test]
async fn a_counter_holds_the_sum_of_what_the_answers_said() {
    let origin = origin().await;
    let cost = "cost: {response_header: X-Used, estimate: 3}";
    let settings = layers(Settings::forwarding_to(&origin), LIMIT, cost);
    // By number: 0 to 6 units, an answer that does not say, and one that cannot be read.
    let said = |number: usize| match number % 9 {
        7 => (String::new(), 3),
        8 => ("&used=-4".to_owned(), 3),
        used => (format!("&used={used}"), used as i64),
    };
    for (store, gateways, redis) in everywhere(&settings).await {
        for algorithm in FIVE {
            let path = algorithm.path();
            let crowd = Crowd::of(6).to(&addresses(&gateways));
            let make = move |number| get(&format!("{path}?n=1{}", said(number).0));
            crowd.send(60, make).await.expect(60, 0, store);
            let used: i64 = (0..60).map(|number| said(number).1).sum();
            let probe = get(&format!("{}?used=0", algorithm.path()));
            let what = format!("{algorithm:?} {store}");
            finds_left(&gateways[0], &probe, LIMIT - used, &what).await;
            if redis.is_some() {
                finds_left(&gateways[1], &probe, LIMIT - used, &what).await;
            }
        }
    }
}

/// Many at once over both gateways: settlements share calls with decisions, and with each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sum_is_exact_under_load() {
    const REQUESTS: usize = 2_000;
    let (origin, redis) = (origin().await, Redis::start().await);
    let limit = 50_000;
    for algorithm in [Algorithm::FixedWindow, Algorithm::SlidingWindowLog] {
        let parameters = algorithm.parameters(limit, "1d");
        let layer = format!("{{name: l, key: global, cost: {{response_header: x-used, estimate: 5}}, {parameters}}}");
        let settings = Settings::forwarding_to(&origin)
            .limit(&layer)
            .counting_in(&redis, &format!("load{}", algorithm.short()));
        let gateways = [
            Gateway::with(&settings).start().await,
            Gateway::with(&settings).start().await,
        ];
        let crowd = Crowd::of(24).to(&addresses(&gateways));
        let tally = crowd
            .send(REQUESTS, |number| get(&format!("/?used={}", number % 11)))
            .await;
        tally.expect(REQUESTS, 0, "all have room");
        let used: usize = (0..REQUESTS).map(|number| number % 11).sum();
        let left = i64::try_from(limit).unwrap() - i64::try_from(used).unwrap();
        let probe = get("/?used=0");
        finds_left(&gateways[0], &probe, left, &format!("{algorithm:?}")).await;
    }
}

#[tokio::test]
async fn an_answer_is_passed_on_as_it_was_and_may_cost_more_than_there_is() {
    let origin = origin().await;
    let cost = "cost: {response_header: x-used, estimate: 3}";
    let settings = layers(Settings::forwarding_to(&origin), 50, cost);
    for (store, gateways, _redis) in everywhere(&settings).await {
        for algorithm in FIVE {
            let answer = gateways[0].client().get(&format!("{}?used=70", algorithm.path())).await;
            assert!(answer.passed(), "{algorithm:?} {store}: {answer:?}");
            assert_eq!((answer.header("x-used"), answer.remaining()), (Some("70"), 0));
            let probe = get(&format!("{}?used=0", algorithm.path()));
            let last = &gateways[gateways.len() - 1];
            wait_for(DEADLINE, "the debt", || async {
                let answer = last.client().send(&probe).await;
                assert!(answer.passed() || answer.retry_after().is_some(), "{answer:?}");
                answer.denied()
            })
            .await;
        }
    }
}

#[tokio::test]
async fn only_failed_logins_count() {
    let origin = origin().await;
    let settings = layers(Settings::forwarding_to(&origin), 5, "charge: {status: [401, 403]}");
    for (store, gateways, _redis) in everywhere(&settings).await {
        for algorithm in FIVE {
            let what = format!("{algorithm:?} {store}");
            let path = algorithm.path();
            // One after the other over the same connection: in Redis, what is given back is on its way.
            for (at, gateway) in gateways.iter().enumerate() {
                for number in 0..12 {
                    let answer = gateway.client().get(&format!("{path}?status=200")).await;
                    assert!(answer.passed(), "{what}: {number} at {at}: {answer:?}");
                    finds_left(gateway, &get(&format!("{path}?status=204")), 5, &what).await;
                }
            }
            let last = &gateways[gateways.len() - 1];
            for status in [401, 403, 401, 403, 401] {
                let answer = last.client().get(&format!("{path}?status={status}")).await;
                assert_eq!(answer.status, status, "{what}");
            }
            for gateway in &gateways {
                let answer = gateway.client().get(&format!("{path}?status=200")).await;
                assert!(answer.denied(), "{what}: {answer:?}");
            }
        }
    }
}

/// What is charged by its status may cost what its answer says, too.
#[tokio::test]
async fn both_together_charge_what_the_answers_that_count_said() {
    let origin = origin().await;
    let both = "charge: {status: 401}, cost: {response_header: x-used, estimate: 3}";
    let settings = layers(Settings::forwarding_to(&origin), LIMIT, both);
    for (store, gateways, _redis) in everywhere(&settings).await {
        for algorithm in FIVE {
            let mut client = gateways[0].client();
            for query in [
                "status=401&used=20",
                "status=200&used=99",
                "status=401",
                "status=401&used=1",
            ] {
                client.get(&format!("{}?{query}", algorithm.path())).await;
            }
            let probe = get(&format!("{}?status=200&used=5", algorithm.path()));
            finds_left(&gateways[0], &probe, LIMIT - 24, &format!("{algorithm:?} {store}")).await;
        }
    }
}

/// An answer of the gateway's own says nothing of a cost, and has a status.
#[tokio::test]
async fn what_never_reached_an_upstream_costs_nothing() {
    let nobody = crate::support::Origin::start().await;
    let address = nobody.address();
    drop(nobody);
    let parameters = Algorithm::TokenBucket.parameters(50, "1d");
    let settings = Settings::new()
        .upstream_with(&format!("gone: {{endpoints: \"http://{address}\"}}"))
        .route(r#"{name: told, path: "/told", respond: {status: 200, headers: {x-used: "7"}}}"#)
        .route(r#"{name: asks, path: "/asks", respond: {status: 200, headers: {x-used: "0"}}}"#)
        .route(r#"{name: all, path: "/{*rest}", upstream: gone}"#)
        .limit(&format!(
            "{{name: used, key: global, cost: {{response_header: x-used, estimate: 5}}, {parameters}}}"
        ))
        .limit(&format!(
            "{{name: status, key: global, match: {{path: /status}}, charge: {{status: 502}}, {}}}",
            Algorithm::FixedWindow.parameters(3, "1d")
        ));
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    for _ in 0..20 {
        assert_eq!(client.get("/away").await.status, 502);
    }
    assert_eq!(client.get("/asks").await.remaining(), 50);
    // A route's own answer counts as any.
    assert_eq!(client.get("/told").await.remaining(), 43);
    assert_eq!(client.get("/asks").await.remaining(), 43);
    let answers = client.repeat(4, &get("/status")).await;
    assert_eq!(answers.iter().collect::<Tally>().of(502), 3, "our own status counts");
    assert_eq!(answers[3].json()["violated-policies"], json!(["status"]));
}

#[tokio::test]
async fn shadows_and_candidates_are_settled_for_what_they_took() {
    let origin = origin().await;
    let cost = "cost: {response_header: x-used, estimate: 1}";
    for algorithm in FIVE {
        let tried = algorithm.parameters(11, "1d");
        let wide = algorithm.parameters(500, "1d");
        let settings = Settings::forwarding_to(&origin)
            .limit(&format!("{{name: shadow, key: global, mode: shadow, {cost}, {tried}}}"))
            .limit(&format!(
                "{{name: live, key: global, {cost}, {wide}, candidate: {{{tried}}}}}"
            ));
        let gateway = Gateway::with(&settings).start().await;
        // 5, 10 and 15 of 11; then nothing fits.
        let answers = gateway.client().repeat(8, &get("/?used=5")).await;
        answers.iter().collect::<Tally>().expect(8, 0, "the layer itself");
        for (limit, outcome) in [("shadow", "shadow_denied"), ("live", "candidate_denied")] {
            let labels = [("limit", limit), ("outcome", outcome)];
            let refused = gateway.metric("gateway_limit_decisions_total", &labels).await;
            assert_eq!(refused, 5.0, "{algorithm:?}: {outcome}");
        }
    }
}

/// A candidate admits what its layer refuses; that was not answered by anybody, so its estimate stays.
#[tokio::test]
async fn what_is_refused_has_no_answer_but_the_refusal() {
    let narrow = Algorithm::FixedWindow.parameters(2, "1d");
    let wide = Algorithm::FixedWindow.parameters(4, "1d");
    for (more, refused) in [
        ("cost: {response_header: x-used, estimate: 1}", 4.0),
        ("charge: {status: 401}", 0.0),
        ("charge: {status: [200, 429]}", 4.0),
    ] {
        let layer = format!("{{name: l, key: global, {more}, {narrow}, candidate: {{{wide}}}}}");
        let gateway = Gateway::with(&Settings::answering().limit(&layer)).start().await;
        gateway.client().repeat(8, &get("/")).await;
        let labels = [("limit", "l"), ("outcome", "candidate_denied")];
        let counted = gateway.metric("gateway_limit_decisions_total", &labels).await;
        assert_eq!(counted, refused, "{more}");
    }
}
