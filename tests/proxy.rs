//! What a proxy must do whatever its limits: pass on what is meant for the other side, and nothing else.

use std::collections::BTreeSet;

use crate::support::{Gateway, H2Client, Origin, Settings, Step, get, post};

#[tokio::test]
async fn a_request_arrives_as_it_was_sent_but_for_what_a_proxy_adds() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let sent = post("/a/b?c=d&e=%20f", "the body")
        .header("X-End", "keep")
        .header("Host", "Shop.example:8080");
    let answer = gateway.client().from("127.0.0.3").send(&sent).await;
    assert_eq!(answer.text(), "POST /a/b?c=d&e=%20f");
    let seen = origin.last();
    assert_eq!(seen.body, b"the body");
    assert_eq!(seen.header("x-end"), Some("keep"));
    assert_eq!(seen.header_lines("host"), ["Shop.example:8080"]);
    assert_eq!(seen.header_lines("x-forwarded-for"), ["127.0.0.3"]);
    assert_eq!(seen.header_lines("x-forwarded-proto"), ["http"]);
    assert_eq!(seen.header_lines("x-forwarded-host"), ["Shop.example:8080"]);
    assert_eq!(seen.header_lines("x-request-id").len(), 1);
}

#[tokio::test]
async fn only_a_trusted_peer_may_bring_forwarding_headers_and_a_request_id() {
    let origin = Origin::start().await;
    let settings = Settings::forwarding_to(&origin).section("client_ip: {trusted_proxies: [127.0.0.2/32]}");
    let gateway = Gateway::with(&settings).start().await;
    let brought = get("/")
        .header("x-forwarded-for", "203.0.113.7")
        .header("x-forwarded-proto", "https")
        .header("x-forwarded-host", "outside.example")
        .header("x-request-id", "brought-along");
    gateway.client().from("127.0.0.2").send(&brought).await;
    let trusted = origin.last();
    assert_eq!(
        trusted.header_lines("x-forwarded-for").join(", "),
        "203.0.113.7, 127.0.0.2"
    );
    assert_eq!(trusted.header_lines("x-forwarded-proto"), ["https"]);
    assert_eq!(trusted.header_lines("x-forwarded-host"), ["outside.example"]);
    assert_eq!(trusted.header_lines("x-request-id"), ["brought-along"]);
    gateway.client().from("127.0.0.3").send(&brought).await;
    let stranger = origin.last();
    assert_eq!(stranger.header_lines("x-forwarded-for").last(), Some(&"127.0.0.3"));
    assert_eq!(stranger.header_lines("x-forwarded-proto"), ["http"]);
    assert_eq!(stranger.header_lines("x-forwarded-host"), ["gateway.test"]);
    assert_ne!(stranger.header_lines("x-request-id"), ["brought-along"]);
}

#[tokio::test]
async fn request_ids_are_unique() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    gateway.client().repeat(50, &get("/")).await;
    let seen = origin.requests();
    let ids: BTreeSet<_> = seen.iter().map(|seen| seen.header("x-request-id").unwrap()).collect();
    assert_eq!(ids.len(), 50);
}

#[tokio::test]
async fn connection_level_headers_stay_on_their_connection() {
    let origin = Origin::start().await;
    origin.answers(|_| {
        let text = "HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Back\r\nX-Back: 1\r\nKeep-Alive: timeout=9\r\n\
            Proxy-Authenticate: Basic\r\nX-End: keep\r\nContent-Length: 4\r\n\r\nfine";
        vec![Step::text(text)]
    });
    // One worker, so that there is one pool.
    let settings = Settings::forwarding_to(&origin).section("server: {workers: 1}");
    let gateway = Gateway::with(&settings).start().await;
    let sent = get("/")
        .header("Connection", "keep-alive, X-Hop")
        .header("CONNECTION", "close, x-other")
        .header("X-Hop", "1")
        .header("X-Other", "1")
        .header("Keep-Alive", "timeout=5")
        .header("Proxy-Connection", "keep-alive")
        .header("Proxy-Authorization", "Basic x")
        .header("TE", "trailers, deflate")
        .header("Trailer", "X-T")
        .header("Upgrade", "h2c")
        .header("HTTP2-Settings", "AAMAAABkAAQAAP__")
        .header("X-End", "keep");
    let answer = gateway.client().send(&sent).await;
    let seen = origin.last();
    assert_eq!(seen.header("x-end"), Some("keep"));
    for gone in [
        "x-hop",
        "x-other",
        "keep-alive",
        "proxy-connection",
        "proxy-authorization",
        "upgrade",
        "http2-settings",
        "trailer",
    ] {
        assert_eq!(seen.header(gone), None, "{gone} went upstream");
    }
    assert!(seen.header("te").is_none_or(|te| te == "trailers"), "{seen:?}");
    assert!(
        seen.header("connection")
            .is_none_or(|value| value.eq_ignore_ascii_case("keep-alive")),
        "{seen:?}"
    );
    assert_eq!(answer.header("x-end"), Some("keep"));
    for gone in ["x-back", "keep-alive", "proxy-authenticate"] {
        assert_eq!(answer.header(gone), None, "{gone} went to the client");
    }
    // The client's `close` is about its own connection.
    gateway.client().get("/").await;
    assert_eq!(origin.connections(), 1);
}

#[tokio::test]
async fn repeated_headers_arrive_each_in_order() {
    let origin = Origin::start().await;
    origin.answers(|_| {
        let text = "HTTP/1.1 200 OK\r\nSet-Cookie: a=1\r\nVary: X\r\nSet-Cookie: b=2\r\nVary: Y\r\nSet-Cookie: c=3\r\n\
            Content-Length: 0\r\n\r\n";
        vec![Step::text(text)]
    });
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let answer = gateway
        .client()
        .send(&get("/").header("X-A", "1").header("X-A", "2"))
        .await;
    assert_eq!(answer.header_lines("set-cookie"), ["a=1", "b=2", "c=3"]);
    assert_eq!(answer.header_lines("vary"), ["X", "Y"]);
    assert_eq!(origin.last().header_lines("x-a"), ["1", "2"]);
}

#[tokio::test]
async fn http2_becomes_one_request_with_one_host() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut h2 = H2Client::connect(gateway.address())
        .await
        .authority("shop.example:8080");
    let crumbs = post("/a?b=c", "body").header("cookie", "a=1").header("cookie", "b=2");
    let answer = h2.send(&crumbs).await;
    assert_eq!(answer.text(), "POST /a?b=c");
    let seen = origin.last();
    assert_eq!(seen.header_lines("host"), ["shop.example:8080"]);
    assert_eq!(seen.header_lines("cookie"), ["a=1; b=2"]);
    assert_eq!(seen.body, b"body");
}

#[tokio::test]
async fn an_absolute_target_becomes_a_path_and_names_the_host() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let sent = get("http://real.example:81/a?b").header("Host", "other.example");
    assert_eq!(gateway.client().send(&sent).await.text(), "GET /a?b");
    assert_eq!(origin.last().header_lines("host"), ["real.example:81"]);
}
