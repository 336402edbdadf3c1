//! K05: what a client is told is about the layer that matters, and true. (Retry-After's own tests are in `retry_after`.)

use crate::support::{
    Algorithm, FIVE, Gateway, H2Client, Origin, Redis, Response, Settings, get, post, request, wait::wall_clock,
};

// 027
#[tokio::test]
async fn the_answer_speaks_of_the_layer_that_denied() {
    let redis = Redis::start().await;
    for settings in [
        Settings::answering(),
        Settings::answering().counting_in(&redis, "speaks"),
    ] {
        let user = Algorithm::FixedWindow.parameters(5, "60s");
        let all = Algorithm::FixedWindow.parameters(8, "3600s");
        let settings = settings
            .limit(&format!("{{name: user, key: \"header:x-user-id\", {user}}}"))
            .limit(&format!("{{name: all, key: global, {all}}}"));
        let gateway = Gateway::with(&settings).start().await;
        let mut client = gateway.client();
        let one = client.repeat(6, &get("/").header("x-user-id", "u1")).await;
        assert!(one[..5].iter().all(Response::passed));
        let denied = &one[5];
        assert_eq!(denied.status, 429);
        assert_eq!((denied.number("x-ratelimit-limit"), denied.remaining()), (Some(5), 0));
        assert!((1..=60).contains(&denied.retry_after().unwrap()));
        assert_eq!(denied.json()["violated-policies"], serde_json::json!(["user"]));
        assert_eq!(denied.header("ratelimit-policy").unwrap(), "\"user\";q=5;w=60");
        let two = client.repeat(4, &get("/").header("x-user-id", "u2")).await;
        assert!(two[..3].iter().all(Response::passed));
        let denied = &two[3];
        assert_eq!((denied.number("x-ratelimit-limit"), denied.remaining()), (Some(8), 0));
        assert!((3590..=3600).contains(&denied.retry_after().unwrap()));
        assert_eq!(denied.json()["violated-policies"][0], "all");
        // Both deny now: the first in order is named, the longer wait is told.
        let both = client.send(&get("/").header("x-user-id", "u1")).await;
        assert_eq!(both.json()["violated-policies"][0], "user");
        assert!((3590..=3600).contains(&both.retry_after().unwrap()));
    }
}

/// What an answer of a layer of 2 in 60 s must say, whatever the algorithm.
fn is_consistent(answer: &Response, method: &str, nth: usize, what: &str) {
    let longest = 61;
    let what = format!("{what}, request {nth}: {answer:?}");
    for name in [
        "x-ratelimit-limit",
        "x-ratelimit-remaining",
        "x-ratelimit-reset",
        "retry-after",
        "content-length",
    ] {
        assert!(
            answer.number(name).unwrap_or_default() >= 0,
            "a negative {name}: {what}"
        );
    }
    assert_eq!(answer.number("x-ratelimit-limit"), Some(2), "{what}");
    let epoch = i64::try_from(wall_clock().as_secs()).unwrap();
    let reset_in = answer.number("x-ratelimit-reset").unwrap() - epoch;
    if nth < 2 {
        assert!(answer.passed(), "{what}");
        assert_eq!(answer.header("retry-after"), None, "{what}");
        assert_eq!(answer.remaining(), 1 - i64::try_from(nth).unwrap(), "{what}");
        assert!((0..=longest).contains(&reset_in), "{what}");
        return;
    }
    assert!(answer.denied(), "{what}");
    let wait = i64::try_from(answer.retry_after().unwrap()).unwrap();
    assert!((1..=longest).contains(&wait), "{what}");
    assert!(
        (wait - reset_in).abs() <= 2,
        "reset in {reset_in} s, but retry in {wait} s: {what}"
    );
    assert_eq!(
        (answer.ratelimit("r"), answer.ratelimit("t")),
        (Some(0), Some(wait)),
        "{what}"
    );
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{what}");
    assert_eq!(
        answer.header("content-type"),
        Some("application/problem+json"),
        "{what}"
    );
    if method != "HEAD" {
        let problem = answer.json();
        assert_eq!(problem["status"], 429, "{what}");
        assert_eq!(problem["retry-after"], wait, "{what}");
        assert_eq!(
            problem["type"], "https://iana.org/assignments/http-problem-types#quota-exceeded",
            "{what}"
        );
    }
}

// 029
#[tokio::test]
async fn the_answers_before_and_after_the_quota_agree_with_themselves() {
    let origin = Origin::start().await;
    origin.answers(|seen| {
        let body = if seen.method == "HEAD" { "" } else { "fine" };
        vec![crate::support::Step::text(&format!(
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{body}"
        ))]
    });
    let settings = Settings::forwarding_to(&origin).five_limits("header:x-user-id", 2, "60s");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    let mut h2 = H2Client::connect(gateway.address()).await;
    for algorithm in FIVE {
        for method in ["GET", "HEAD", "POST", "h2"] {
            for nth in 0..4 {
                let path = algorithm.path();
                let request = match method {
                    "POST" => post(&path, "body"),
                    "h2" => get(&path),
                    method => request(method, &path),
                };
                let request = request.header("x-user-id", method);
                let answer = if method == "h2" {
                    h2.send(&request).await
                } else {
                    client.send(&request).await
                };
                is_consistent(&answer, method, nth, &format!("{algorithm:?} by {method}"));
            }
        }
    }
    // What was denied never reached the origin: half of 5 x 4 x 4.
    assert_eq!(origin.executed(), 40);
}
