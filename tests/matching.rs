//! Which layers a request meets, and what counts it apart from others.

use crate::support::{Algorithm, Gateway, Request, Settings, Tally, get, post, request};

const ONE: &str = "algorithm: fixed_window, limit: 1, window: 1h, align: first_request";

async fn one_layer(layer: &str) -> Gateway {
    let settings = Settings::answering().limit(&format!("{{name: one, {layer}, {ONE}}}"));
    Gateway::with(&settings).start().await
}

/// All of these are one and the same to the layer: the first passes.
async fn share(gateway: &Gateway, requests: &[Request]) {
    let mut client = gateway.client();
    for (index, request) in requests.iter().enumerate() {
        let answer = client.send(request).await;
        assert_eq!(
            answer.status,
            if index == 0 { 200 } else { 429 },
            "{request:?}: {answer:?}"
        );
    }
}

/// Each of these is new to the layer, or does not meet it.
async fn all_pass(gateway: &Gateway, requests: &[Request]) {
    let mut client = gateway.client();
    for request in requests {
        let answer = client.send(request).await;
        assert!(answer.passed(), "{request:?}: {answer:?}");
    }
}

#[tokio::test]
async fn keys_count_apart_what_they_name() {
    let cookie = |value: &str| get("/").header("Cookie", value);
    let host = |value: &str| get("/").header("Host", value);
    for (key, same, others) in [
        ("global", vec![get("/a"), post("/b", "x")], vec![]),
        (
            "path",
            vec![get("/a"), get("/a?b"), get("//a"), post("/a", "")],
            vec![get("/b"), get("/a/")],
        ),
        (
            "method",
            vec![get("/a"), get("/b")],
            vec![post("/a", ""), request("HEAD", "/a")],
        ),
        (
            "host",
            vec![host("a.example"), host("A.Example:80"), host("a.example.")],
            vec![host("b.example"), host("[::1]:80")],
        ),
        (
            "cookie:session",
            vec![
                cookie("session=1"),
                cookie("other=2; session=1"),
                cookie("session=1;x=y"),
            ],
            vec![cookie("session=2"), cookie("xsession=1; session=3")],
        ),
        (
            "query:user",
            vec![get("/?user=a"), get("/b?x=y&user=a"), get("/?user=%61")],
            vec![get("/?user=b"), get("/?user=a%20b"), get("/?users=a&user=c")],
        ),
        (
            "header:x-user-id",
            vec![get("/").header("X-User-Id", "a"), get("/").header("x-user-id", " a ")],
            vec![get("/").header("x-user-id", "b"), get("/").header("x-user-id", "A")],
        ),
    ] {
        let gateway = one_layer(&format!("key: \"{key}\"")).await;
        share(&gateway, &same).await;
        all_pass(&gateway, &others).await;
    }
}

#[tokio::test]
async fn the_parts_of_a_composite_never_run_into_each_other() {
    let gateway = one_layer("key: [\"header:a\", \"header:b\"]").await;
    let pair = |a: &str, b: &str| get("/").header("a", a).header("b", b);
    share(&gateway, &[pair("x", "y"), pair("x", "y")]).await;
    all_pass(
        &gateway,
        &[
            pair("y", "x"),
            pair("x|y", "z"),
            pair("x", "y|z"),
            pair("x:y", "z"),
            pair("x", "y:z"),
            pair("xy", "z"),
            pair("x", "yz"),
            pair("x,y", "z"),
            pair("x", "y,z"),
            pair("1:x", "y"),
            pair("x\\", "y"),
            pair("x\\|", "y"),
            pair("x", "\\|y"),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_route_is_one_key_for_all_its_paths() {
    let settings = Settings::answering()
        .route("{name: items, path: \"/items/{id}\", respond: {status: 200}}")
        .limit(&format!("{{name: one, key: route, {ONE}}}"));
    let gateway = Gateway::with(&settings).start().await;
    share(&gateway, &[get("/items/1"), get("/items/2"), post("/items/3", "")]).await;
    share(&gateway, &[get("/elsewhere"), get("/items/1/2")]).await;
}

#[tokio::test]
async fn a_layer_applies_where_all_its_conditions_hold() {
    for (condition, met, not_met) in [
        (
            "path: /a",
            vec![get("/a"), get("/a?x")],
            vec![get("/"), get("/a/"), get("/a/b"), get("/A")],
        ),
        (
            "path: \"/a/*\"",
            vec![get("/a/b"), get("/a/c")],
            vec![get("/a"), get("/a/b/c")],
        ),
        (
            "path: \"/a/**\"",
            vec![get("/a/b"), get("/a/b/c"), get("/a")],
            vec![get("/ab"), get("/b/a/c")],
        ),
        (
            "path: [/a, \"/b/*\"]",
            vec![get("/a"), get("/b/c")],
            vec![get("/c"), get("/b")],
        ),
        (
            "methods: [POST, PUT]",
            vec![post("/", ""), request("PUT", "/")],
            vec![get("/"), request("HEAD", "/")],
        ),
        (
            "hosts: a.example",
            vec![
                get("/").header("Host", "A.example:81"),
                get("/").header("Host", "a.example."),
            ],
            vec![get("/"), get("/").header("Host", "b.a.example")],
        ),
        (
            "headers: {x-plan: free}",
            vec![get("/").header("X-Plan", "free"), get("/b").header("x-plan", "free")],
            vec![
                get("/"),
                get("/").header("X-Plan", "freeish"),
                get("/").header("X-Plan", "Free"),
            ],
        ),
        ("ip: 127.0.0.0/30", vec![get("/"), get("/b")], vec![]),
        ("ip: 10.0.0.0/8", vec![], vec![get("/"), get("/")]),
        (
            "not: {path: /a}",
            vec![get("/b"), get("/c")],
            vec![get("/a"), get("/a")],
        ),
        (
            "path: \"/a/**\", methods: POST, not: {headers: {x-free: \"1\"}}",
            vec![post("/a/b", ""), post("/a", "")],
            vec![get("/a/b"), post("/b", ""), post("/a/b", "").header("x-free", "1")],
        ),
    ] {
        let gateway = one_layer(&format!("key: global, match: {{{condition}}}")).await;
        all_pass(&gateway, &not_met).await;
        share(&gateway, &met).await;
        all_pass(&gateway, &not_met).await;
    }
}

#[tokio::test]
async fn a_preflight_meets_no_layer_whose_key_it_cannot_carry() {
    let settings = Settings::answering()
        .limit(&format!("{{name: user, key: \"header:x-user-id\", {ONE}}}"))
        .limit(&format!("{{name: session, key: \"cookie:s\", {ONE}}}"))
        .limit(&format!(
            "{{name: ip, key: ip, {}}}",
            Algorithm::FixedWindow.parameters(5, "1h")
        ));
    let gateway = Gateway::with(&settings).start().await;
    let preflight = request("OPTIONS", "/")
        .header("Origin", "https://a.example")
        .header("Access-Control-Request-Method", "PUT");
    let answers = gateway.client().repeat(6, &preflight).await;
    answers
        .iter()
        .collect::<Tally>()
        .expect(5, 1, "only the layer by address is met");
    assert_eq!(answers[5].json()["violated-policies"][0], "ip");
}

#[tokio::test]
async fn what_has_no_route_is_refused_before_it_is_charged() {
    let settings = Settings::new()
        .route("{path: /there, respond: {status: 200}}")
        .limit(&format!("{{name: one, key: global, {ONE}}}"));
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    for _ in 0..3 {
        assert_eq!(client.get("/not/there").await.status, 404);
    }
    share(&gateway, &[get("/there"), get("/there")]).await;
    assert_eq!(client.get("/not/there").await.status, 404);
}

// 055
#[tokio::test]
async fn where_the_key_is_missing_a_layer_may_be_skipped_or_refuse() {
    let layer = |action: &str| {
        format!(
            "{{name: {action}, key: \"header:x-user-id\", match: {{path: /{action}}}, on_missing_key: {action}, {ONE}}}"
        )
    };
    let gateway = Gateway::with(&Settings::answering().limit(&layer("skip")).limit(&layer("deny")))
        .start()
        .await;
    all_pass(&gateway, &vec![get("/skip"); 5]).await;
    let mut client = gateway.client();
    for blank in [get("/deny"), get("/deny").header("x-user-id", " ")] {
        let refused = client.send(&blank).await;
        assert_eq!(refused.status, 403, "{refused:?}");
        assert_eq!(refused.json()["type"], "about:blank");
    }
    share(&gateway, &vec![get("/deny").header("x-user-id", "one"); 2]).await;
}
