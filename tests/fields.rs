//! What an answer tells of the limits: the RateLimit fields, and the trio of old.

use crate::support::{Gateway, Origin, Settings, Step, get, post, wait::wall_clock};

fn two_layers(settings: Settings) -> Settings {
    settings
        .limit("{name: wide, key: ip, algorithm: token_bucket, rate: 10/100s, burst: 50}")
        .limit("{name: narrow, key: ip, algorithm: fixed_window, limit: 3, window: 1h, align: first_request}")
}

#[tokio::test]
async fn every_policy_that_applied_is_listed_the_nearest_to_exhaustion_first() {
    let gateway = Gateway::with(&two_layers(Settings::answering())).start().await;
    let mut client = gateway.client();
    let first = client.get("/").await;
    // A bucket's window is the time in which all of it comes back.
    assert_eq!(
        first.header("ratelimit-policy"),
        Some("\"narrow\";q=3;w=3600, \"wide\";q=50;w=500")
    );
    let field = first.header("ratelimit").unwrap().to_owned();
    let items: Vec<_> = field.split(", ").collect();
    assert!(items.len() == 2 && items[0].starts_with("\"narrow\";r=2;t="), "{field}");
    assert!(items[1].starts_with("\"wide\";r=49;t="), "{field}");
    assert_eq!((first.number("x-ratelimit-limit"), first.remaining()), (Some(3), 2));
    client.repeat(2, &get("/")).await;
    // On a refusal, those that refused.
    let denied = client.get("/").await;
    assert_eq!(denied.header("ratelimit-policy"), Some("\"narrow\";q=3;w=3600"));
    let wait = denied.retry_after().unwrap();
    assert_eq!(denied.header("ratelimit").unwrap(), format!("\"narrow\";r=0;t={wait}"));
    let detail = denied.json()["detail"].as_str().unwrap().to_owned();
    assert!(
        detail.contains("narrow") && detail.contains(&wait.to_string()),
        "{detail}"
    );
    assert_eq!(denied.json()["code"], "TOO_MANY_REQUESTS");
}

#[tokio::test]
async fn the_fields_may_be_chosen() {
    for (choice, draft, legacy) in [
        ("[]", false, false),
        ("draft-11", true, false),
        ("[legacy]", false, true),
    ] {
        let settings =
            two_layers(Settings::answering()).section(&format!("responses: {{ratelimit_headers: {choice}}}"));
        let gateway = Gateway::with(&settings).start().await;
        let mut client = gateway.client();
        for answer in client.repeat(4, &get("/")).await {
            assert_eq!(answer.header("ratelimit").is_some(), draft, "{choice}: {answer:?}");
            assert_eq!(
                answer.header("ratelimit-policy").is_some(),
                draft,
                "{choice}: {answer:?}"
            );
            for name in ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"] {
                assert_eq!(answer.header(name).is_some(), legacy, "{choice}: {answer:?}");
            }
            assert_eq!(answer.retry_after().is_some(), answer.denied(), "{choice}: {answer:?}");
        }
    }
}

#[tokio::test]
async fn the_reset_is_a_moment_or_a_time_from_now() {
    for (word, from) in [("epoch", wall_clock().as_secs()), ("delta", 0)] {
        let settings = two_layers(Settings::answering()).section(&format!("responses: {{legacy_reset: {word}}}"));
        let gateway = Gateway::with(&settings).start().await;
        let reset = gateway.client().get("/").await.number("x-ratelimit-reset").unwrap();
        let from = i64::try_from(from).unwrap();
        assert!((from..=from + 3630).contains(&reset), "{word}: {reset}");
    }
}

#[tokio::test]
async fn an_upstreams_own_fields_are_kept() {
    let origin = Origin::start().await;
    origin.answers(|_| {
        let text = "HTTP/1.1 200 OK\r\nRateLimit: \"own\";r=7\r\nRateLimit-Policy: \"own\";q=9\r\nX-RateLimit-Limit: 9\r\n\
            X-RateLimit-Remaining: 7\r\nX-RateLimit-Reset: 5\r\nContent-Length: 0\r\n\r\n";
        vec![Step::text(text)]
    });
    let gateway = Gateway::with(&two_layers(Settings::forwarding_to(&origin)))
        .start()
        .await;
    let answer = gateway.client().get("/").await;
    let list = |name| answer.header_lines(name).join(", ");
    assert!(
        list("ratelimit").starts_with("\"own\";r=7, \"narrow\";r=2"),
        "{answer:?}"
    );
    assert!(
        list("ratelimit-policy").starts_with("\"own\";q=9, \"narrow\";q=3"),
        "{answer:?}"
    );
    assert_eq!(answer.header_lines("x-ratelimit-limit"), ["9"]);
    assert_eq!(answer.header_lines("x-ratelimit-remaining"), ["7"]);
    assert_eq!(answer.header_lines("x-ratelimit-reset"), ["5"]);
}

#[tokio::test]
async fn an_upstreams_own_429_passes_unchanged_and_is_not_ours() {
    let origin = Origin::start().await;
    origin.answers(|_| {
        vec![Step::text(
            "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 77\r\nContent-Length: 5\r\n\r\ntheir",
        )]
    });
    let gateway = Gateway::with(&two_layers(Settings::forwarding_to(&origin)))
        .start()
        .await;
    let answer = gateway.client().get("/").await;
    assert_eq!(
        (answer.status, answer.header("retry-after"), answer.text().as_str()),
        (429, Some("77"), "their")
    );
    assert_eq!(
        gateway
            .metric("gateway_limit_decisions_total", &[("outcome", "denied")])
            .await,
        0.0
    );
}

#[tokio::test]
async fn a_call_of_grpc_is_refused_in_its_own_words() {
    let gateway = Gateway::with(&two_layers(Settings::answering())).start().await;
    let call = post("/", "").header("content-type", "application/grpc+proto");
    let answers = gateway.client().repeat(4, &call).await;
    let refused = &answers[3];
    assert_eq!(
        (refused.status, refused.header("grpc-status")),
        (200, Some("8")),
        "{refused:?}"
    );
    assert!(refused.retry_after().is_some(), "{refused:?}");
}

#[tokio::test]
async fn a_request_that_no_layer_meets_is_told_nothing() {
    let settings =
        Settings::answering().limit("{name: a, key: ip, match: {path: /a}, algorithm: token_bucket, rate: 1/h}");
    let gateway = Gateway::with(&settings).start().await;
    let answer = gateway.client().get("/b").await;
    assert!(answer.passed());
    let told = answer
        .headers
        .iter()
        .any(|(name, _)| name.to_lowercase().contains("ratelimit"));
    assert!(!told && answer.retry_after().is_none(), "{answer:?}");
}
