//! Refusals of the operator's design, and who may read them.

use serde_json::Value;

use crate::support::{
    DEADLINE, Gateway, H2Client, Origin, Raw, Redis, Response, Settings, Step, get, post, request, wait_for,
};

/// One request passes in a day, and a layer may have more to say.
fn one_a_day(more: &str) -> String {
    format!("{{name: daily, key: ip, algorithm: fixed_window, limit: 1, window: 1d{more}}}")
}

/// The second answer to `GET /`: a refusal.
async fn refusal(settings: &Settings) -> Response {
    let gateway = Gateway::with(settings).start().await;
    let answers = gateway.client().repeat(2, &get("/")).await;
    assert!(answers[0].passed(), "{:?}", answers[0]);
    answers[1].clone()
}

/// What every refusal tells, whatever its status and body.
fn tells_when(answer: &Response) {
    let wait = answer.retry_after().unwrap();
    assert_eq!(
        answer.header("ratelimit").unwrap(),
        format!("\"daily\";r=0;t={wait}"),
        "{answer:?}"
    );
    assert_eq!(
        answer.header("ratelimit-policy"),
        Some("\"daily\";q=1;w=86400"),
        "{answer:?}"
    );
    assert_eq!(answer.remaining(), 0);
    assert_eq!(answer.header("cache-control"), Some("no-store"), "{answer:?}");
    assert!(answer.header("x-request-id").is_some(), "{answer:?}");
}

#[tokio::test]
async fn a_refusal_has_the_status_that_is_written() {
    for status in [400, 403, 429, 503, 599] {
        let settings = Settings::answering()
            .section(&format!("responses: {{rejection: {{status: {status}}}}}"))
            .limit(&one_a_day(""));
        let answer = refusal(&settings).await;
        assert_eq!(answer.status, status, "{answer:?}");
        tells_when(&answer);
        // The document is of the same type, and so has the same title.
        let document = answer.json();
        assert!(
            document["type"].as_str().unwrap().ends_with("#quota-exceeded"),
            "{document}"
        );
        assert_eq!(
            (&document["title"], &document["code"]),
            (&"Too Many Requests".into(), &"TOO_MANY_REQUESTS".into())
        );
        assert_eq!(document["status"], status);
        assert_eq!(document["violated-policies"][0], "daily");
    }
}

const JSON: &str = r#"'{"why": {{detail}}, "layer": "{{layer}}", "quota": [{{limit}}, {{window}}, {{remaining}}], "wait": {{retry_after}}, "status": {{status}}, "id": {{request_id}}}'"#;

#[tokio::test]
async fn a_refusal_has_the_body_that_is_written() {
    let settings = Settings::answering()
        .section(&format!(
            "responses: {{rejection: {{status: 503, body: {{content_type: application/json, template: {JSON}}}}}}}"
        ))
        .limit(&one_a_day(""));
    let answer = refusal(&settings).await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (503, Some("application/json"))
    );
    tells_when(&answer);
    let (body, wait) = (answer.json(), answer.retry_after().unwrap());
    assert_eq!(body["layer"], "daily");
    assert_eq!(
        body["why"],
        format!("limit \"daily\" of 1 per 86400 s is used up; retry in {wait} s")
    );
    assert_eq!(body["quota"], serde_json::json!([1, 86400, 0]));
    assert_eq!(
        (body["wait"].as_u64(), body["status"].as_u64()),
        (Some(wait), Some(503))
    );
    assert_eq!(body["id"].as_str(), answer.header("x-request-id"));
}

#[tokio::test]
async fn a_layers_own_rejection_takes_the_place_of_the_global_one() {
    let settings = Settings::answering()
        .section("responses: {rejection: {status: 503, body: {content_type: text/plain, template: all}}}")
        .limit(&one_a_day(", match: {path: /own}, rejection: {body: {content_type: text/html, template: '<b>{{detail}}</b>'}}"))
        .limit("{name: plain, key: ip, match: {path: /plain}, algorithm: fixed_window, limit: 1, window: 1d, rejection: {}}")
        .limit("{name: other, key: ip, match: {path: /other}, algorithm: fixed_window, limit: 1, window: 1d}");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    let mut second = async |path: &str| client.repeat(2, &get(path)).await[1].clone();
    let own = second("/own").await;
    assert_eq!((own.status, own.header("content-type")), (429, Some("text/html")));
    assert!(own.text().starts_with("<b>limit &quot;daily&quot; of 1 per"), "{own:?}");
    let plain = second("/plain").await;
    assert_eq!(
        (plain.status, plain.header("content-type")),
        (429, Some("application/problem+json"))
    );
    let other = second("/other").await;
    assert_eq!((other.status, other.text().as_str()), (503, "all"));
    // HEAD has the head of it.
    let head = client.send(&request("HEAD", "/other")).await;
    assert_eq!(
        (head.status, head.number("content-length"), head.text().as_str()),
        (503, Some(3), "")
    );
    let mut client = H2Client::connect(gateway.address()).await;
    let over_http2 = client.send(&get("/other")).await;
    assert_eq!((over_http2.status, over_http2.text().as_str()), (503, "all"));
}

#[tokio::test]
async fn of_several_that_refuse_the_first_says() {
    let layers = [
        "{name: a, key: ip, algorithm: fixed_window, limit: 1, window: 1d, rejection: {status: 403}}",
        "{name: b, key: ip, algorithm: fixed_window, limit: 1, window: 1d, rejection: {status: 503}}",
    ];
    for (first, second, status) in [(0, 1, 403), (1, 0, 503)] {
        let settings = Settings::answering().limits([layers[first], layers[second]]);
        let answer = refusal(&settings).await;
        assert_eq!(answer.status, status);
        assert_eq!(
            answer.json()["violated-policies"].as_array().unwrap().len(),
            2,
            "{answer:?}"
        );
    }
}

#[tokio::test]
async fn a_call_of_grpc_is_refused_in_its_own_words_whatever_the_design() {
    for (status, code) in [(429, "8"), (403, "8"), (503, "14")] {
        let settings = Settings::answering().limit(&one_a_day(&format!(
            ", rejection: {{status: {status}, body: {{content_type: text/plain, template: no}}}}"
        )));
        let gateway = Gateway::with(&settings).start().await;
        let call = post("/", "").header("content-type", "application/grpc");
        let refused = gateway.client().repeat(2, &call).await[1].clone();
        assert_eq!(
            (refused.status, refused.header("grpc-status")),
            (200, Some(code)),
            "{refused:?}"
        );
        assert!(
            refused.retry_after().is_some() && refused.body.is_empty(),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn other_answers_are_not_of_that_design() {
    let settings = Settings::new()
        .route("{path: /, respond: {body: fine}}")
        .store("{redis: {url: \"redis://127.0.0.1:1\", on_failure: closed}}")
        .section("responses: {rejection: {status: 418, body: {content_type: text/plain, template: tea}}}")
        .limit("{name: known, key: \"header:x-user-id\", on_missing_key: deny, algorithm: fixed_window, limit: 9, window: 1d}");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    for (request, status) in [
        (get("/"), 403),
        (get("/nowhere"), 404),
        (get("/").header("x-user-id", "a"), 503),
    ] {
        let answer = client.send(&request).await;
        assert_eq!(
            (answer.status, answer.json()["status"].as_u64()),
            (status, Some(status.into())),
            "{answer:?}"
        );
    }
}

/// Two upstreams, and a layer that sends what it refuses to the second.
fn degrading(main: &Origin, spare: &Origin) -> Settings {
    Settings::new()
        .upstream("main", &[main])
        .upstream("spare", &[spare])
        .route(r#"{name: all, path: "/{*rest}", upstream: main}"#)
        .limit("{name: wide, key: ip, algorithm: fixed_window, limit: 100, window: 1d}")
        .limit(
            "{name: fresh, key: global, algorithm: fixed_window, limit: 3, window: 1d, rejection: {upstream: spare}}",
        )
}

#[tokio::test]
async fn what_is_refused_goes_elsewhere_and_is_charged_to_nobody() {
    let (redis, main, spare) = (Redis::start().await, Origin::start().await, Origin::start().await);
    let in_memory = degrading(&main, &spare);
    for (settings, store) in [
        (in_memory.clone(), "memory"),
        (in_memory.counting_in(&redis, "deg"), "redis"),
    ] {
        let (passed, sent) = (main.executed(), spare.executed());
        let first = Gateway::with(&settings).start().await;
        let second = Gateway::with(&settings).start().await;
        // In memory each gateway counts alone.
        let shares: [usize; 2] = if store == "redis" { [2, 1] } else { [3, 3] };
        for (gateway, quota) in [(&first, shares[0]), (&second, shares[1])] {
            for answer in gateway.client().repeat(quota, &get("/a")).await {
                assert!(
                    answer.passed() && answer.header("x-gateway-degraded").is_none(),
                    "{store}: {answer:?}"
                );
            }
        }
        let before = redis.dump("deg").await;
        for gateway in [&first, &second] {
            for answer in gateway.client().repeat(5, &get("/b")).await {
                assert_eq!((answer.status, answer.text().as_str()), (200, "GET /b"), "{store}");
                assert_eq!(
                    answer.header_lines("x-gateway-degraded"),
                    ["fresh"],
                    "{store}: {answer:?}"
                );
                assert!(
                    answer.header("ratelimit").unwrap().starts_with("\"fresh\";r=0;t="),
                    "{store}: {answer:?}"
                );
                assert_eq!(
                    (answer.remaining(), answer.retry_after()),
                    (0, None),
                    "{store}: {answer:?}"
                );
            }
            let denied = [("limit", "fresh"), ("outcome", "denied")];
            assert_eq!(
                gateway.metric("gateway_limit_decisions_total", &denied).await,
                5.0,
                "{store}"
            );
            let answered = [("upstream", "spare"), ("code", "200")];
            assert_eq!(
                gateway.metric("gateway_upstream_requests_total", &answered).await,
                5.0,
                "{store}"
            );
        }
        assert_eq!(redis.dump("deg").await, before, "a degraded request was charged");
        assert_eq!(
            (main.executed() - passed, spare.executed() - sent),
            (shares.iter().sum(), 10),
            "{store}"
        );
    }
}

#[tokio::test]
async fn a_degraded_request_is_the_one_that_came() {
    let (main, spare) = (Origin::start().await, Origin::start().await);
    let settings = degrading(&main, &spare).section("log: {format: json}");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    // Nobody but the gateway says so.
    let forged = get("/").header("x-gateway-degraded", "forged");
    client.repeat(3, &forged).await;
    assert!(
        main.requests()
            .iter()
            .all(|seen| seen.header("x-gateway-degraded").is_none())
    );
    let body = vec![b'x'; 300_000];
    let request = post("/v1/orders?a=%20b", body.clone())
        .header("x-gateway-degraded", "forged")
        .header("x-own", "kept");
    let answer = client.send(&request).await;
    assert!(answer.passed(), "{answer:?}");
    let seen = spare.last();
    assert_eq!(
        (seen.method.as_str(), seen.target.as_str()),
        ("POST", "/v1/orders?a=%20b")
    );
    assert_eq!(seen.header_lines("x-gateway-degraded"), ["fresh"]);
    assert_eq!(
        (seen.header("x-own"), seen.header("host")),
        (Some("kept"), Some("gateway.test"))
    );
    assert_eq!(seen.body.len(), body.len());
    assert_eq!((main.executed(), spare.executed()), (3, 1));
    wait_for(DEADLINE, "the access line", async || {
        gateway.log().contains("/v1/orders")
    })
    .await;
    let log = gateway.log();
    let line = log.lines().find(|line| line.contains("/v1/orders")).unwrap();
    let line: Value = serde_json::from_str(line).unwrap();
    assert_eq!(
        (&line["limit"], &line["status"]),
        (&"fresh".into(), &200.into()),
        "{line}"
    );
}

#[tokio::test]
async fn a_degraded_request_streams() {
    let (main, spare) = (Origin::start().await, Origin::start().await);
    let gateway = Gateway::with(&degrading(&main, &spare)).start().await;
    gateway.client().repeat(3, &get("/")).await;
    let mut raw = Raw::connect(gateway.address()).await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 11\r\n\r\nfirst")
        .await
        .unwrap();
    wait_for(DEADLINE, "the first part at the spare", async || {
        spare.bytes(0).ends_with(b"first")
    })
    .await;
    assert_eq!(spare.executed(), 0);
    raw.send("second").await.unwrap();
    assert!(raw.response_to("POST").await.unwrap().passed());
    assert_eq!(spare.last().body, b"firstsecond");
}

#[tokio::test]
async fn where_the_spare_fails_it_is_an_upstreams_failure() {
    let (main, spare) = (Origin::start().await, Origin::start().await);
    spare.answers(|_| vec![Step::Close]);
    let gateway = Gateway::with(&degrading(&main, &spare)).start().await;
    let answers = gateway.client().repeat(4, &get("/")).await;
    let failed = &answers[3];
    assert_eq!(
        (failed.status, failed.json()["status"].as_u64()),
        (502, Some(502)),
        "{failed:?}"
    );
    assert_eq!(failed.header("x-gateway-degraded"), Some("fresh"));
    assert!(
        failed.header("ratelimit").unwrap().starts_with("\"fresh\";r=0"),
        "{failed:?}"
    );
}

#[tokio::test]
async fn a_route_that_answers_itself_can_be_degraded_too() {
    let spare = Origin::start().await;
    let settings = Settings::answering()
        .upstream("spare", &[&spare])
        .section("responses: {rejection: {upstream: spare}}")
        .limit(&one_a_day(""));
    let answer = refusal(&settings).await;
    assert_eq!(
        (answer.text().as_str(), answer.header("x-gateway-degraded")),
        ("GET /", Some("daily"))
    );
}

#[tokio::test]
async fn the_fallback_degrades_too() {
    let (main, spare) = (Origin::start().await, Origin::start().await);
    let settings = degrading(&main, &spare).store("{redis: {url: \"redis://127.0.0.1:1\"}}");
    let gateway = Gateway::with(&settings).start().await;
    let answers = gateway.client().repeat(5, &get("/")).await;
    let degraded = answers
        .iter()
        .filter(|answer| answer.header("x-gateway-degraded") == Some("fresh"));
    assert_eq!((degraded.count(), main.executed(), spare.executed()), (2, 3, 2));
    assert!(answers.iter().all(Response::passed));
}

#[tokio::test]
async fn a_reload_changes_the_answer_and_keeps_the_counts() {
    let settings = Settings::answering().limit(&one_a_day(""));
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    assert_eq!(client.repeat(2, &get("/")).await[1].status, 429);
    gateway.write_by_rename(&Settings::answering().limit(&one_a_day(", rejection: {status: 503}")));
    wait_for(DEADLINE, "the new status", async || {
        gateway.client().get("/").await.status == 503
    })
    .await;
}

const LIST: &str = "responses: {cors: {allow_origin: [\"https://a.example\", \"https://b.example:8443\"]}}";

#[tokio::test]
async fn scripts_of_listed_origins_may_read_our_own_answers() {
    let origin = Origin::start().await;
    let settings = Settings::new()
        .upstream("origin", &[&origin])
        .upstream_with("nobody: {endpoints: [\"http://127.0.0.1:1\"]}")
        .route("{path: /upstream, upstream: origin}")
        .route("{path: /nobody, upstream: nobody}")
        .route("{path: /fixed, respond: {body: fine}}")
        .route("{path: /own, respond: {headers: {access-control-allow-origin: \"https://own.example\"}}}")
        .section(LIST)
        .limit("{name: one, key: path, match: {path: /fixed}, algorithm: fixed_window, limit: 1, window: 1d}");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    let from = |path: &str, origin: &str| get(path).header("Origin", origin);
    for (path, status) in [
        ("/fixed", 200),
        ("/fixed", 429),
        ("/nobody", 502),
        ("/nowhere", 404),
        ("/%zz", 400),
    ] {
        let answer = client.send(&from(path, "https://b.example:8443")).await;
        assert_eq!(answer.status, status, "{answer:?}");
        assert_eq!(
            answer.header_lines("access-control-allow-origin"),
            ["https://b.example:8443"],
            "{answer:?}"
        );
        assert_eq!(answer.header_lines("vary"), ["origin"], "{answer:?}");
        let exposed: Vec<_> = answer
            .header("access-control-expose-headers")
            .unwrap()
            .split(", ")
            .collect();
        for name in [
            "retry-after",
            "ratelimit",
            "ratelimit-policy",
            "x-ratelimit-limit",
            "x-ratelimit-remaining",
            "x-ratelimit-reset",
            "x-request-id",
        ] {
            assert!(exposed.contains(&name), "{name}: {answer:?}");
        }
    }
    for request in [
        get("/fixed"),
        from("/fixed", "https://c.example"),
        from("/fixed", "null"),
    ] {
        let answer = client.send(&request).await;
        assert_eq!(
            (answer.header("access-control-allow-origin"), answer.header("vary")),
            (None, Some("origin")),
            "{answer:?}"
        );
    }
    // What comes from an upstream, or says itself whom it allows, is left alone.
    let theirs = client.send(&from("/upstream", "https://a.example")).await;
    assert!(theirs.passed());
    assert_eq!(
        (theirs.header("access-control-allow-origin"), theirs.header("vary")),
        (None, None),
        "{theirs:?}"
    );
    let own = client.send(&from("/own", "https://a.example")).await;
    assert_eq!(own.header_lines("access-control-allow-origin"), ["https://own.example"]);
}

#[tokio::test]
async fn scripts_of_everybody_may_read_our_own_answers_but_no_upstreams() {
    let (main, spare) = (Origin::start().await, Origin::start().await);
    for (written, said) in [("\"*\"", "*"), ("\"https://a.example\"", "https://a.example")] {
        let settings = degrading(&main, &spare).section(&format!("responses: {{cors: {{allow_origin: {written}}}}}"));
        let gateway = Gateway::with(&settings).start().await;
        let answers = gateway
            .client()
            .repeat(4, &get("/").header("Origin", "https://a.example"))
            .await;
        assert_eq!(answers[3].header("x-gateway-degraded"), Some("fresh"));
        for answer in answers {
            assert_eq!(answer.header("access-control-allow-origin"), None, "{answer:?}");
        }
        let lost = gateway.client().get("/%zz").await;
        assert_eq!(
            (lost.header("access-control-allow-origin"), lost.header("vary")),
            (Some(said), None),
            "{lost:?}"
        );
        // Too large a head is answered before there is a request.
        let mut raw = Raw::connect(gateway.address()).await;
        raw.send(get("/").header("x-large", &"x".repeat(70_000)).to_bytes())
            .await
            .unwrap();
        let answer = raw.response_to("GET").await.unwrap();
        assert_eq!(
            (answer.status, answer.header("access-control-allow-origin")),
            (431, Some(said)),
            "{answer:?}"
        );
    }
}
