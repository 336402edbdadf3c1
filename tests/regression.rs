//! What was wrong once, and must not be again.

use std::time::Duration;

use crate::support::{DEADLINE, Gateway, Origin, Raw, Settings, Step, get, request, wait_for};

// 067: the length was passed on beside the coding, and the client's connection was cut before a byte of the answer.
#[tokio::test]
async fn an_answer_with_a_length_and_a_coding_is_framed_once() {
    let origin = Origin::start().await;
    origin.answers(|_| {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        vec![Step::text(text), Step::Close]
    });
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let answer = gateway.client().get("/").await;
    let lengths = answer.header_lines("content-length").len() + answer.header_lines("transfer-encoding").len();
    assert!(answer.status == 502 || lengths == 1, "{answer:?}");
}

// 062: a name that is complete, with its last dot, was another host than the same name without.
#[tokio::test]
async fn the_last_dot_of_a_host_makes_it_no_other() {
    let settings = Settings::new()
        .route("{path: /, hosts: a.example, respond: {body: a}}")
        .route("{path: /, hosts: b.example., respond: {body: b}}");
    let gateway = Gateway::with(&settings).start().await;
    for (host, body) in [
        ("a.example.", "a"),
        ("a.example.:81", "a"),
        ("B.example", "b"),
        ("b.example.", "b"),
    ] {
        assert_eq!(
            gateway.client().send(&get("/").header("Host", host)).await.text(),
            body,
            "{host}"
        );
    }
}

// An answer of unknown length was logged as broken off, each time.
#[tokio::test]
async fn a_chunked_answer_that_came_whole_is_not_logged_as_incomplete() {
    let origin = Origin::start().await;
    origin.answers(|_| {
        let text = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n";
        vec![Step::text(text)]
    });
    let settings = Settings::forwarding_to(&origin).section("log: {format: json, access: true}");
    let gateway = Gateway::with(&settings).start().await;
    assert_eq!(gateway.client().get("/whole").await.text(), "hello");
    wait_for(DEADLINE, "the access line", async || gateway.log().contains("/whole")).await;
    assert!(!gateway.log().contains("incomplete"), "{}", gateway.log());
}

// A client that connects ahead of its first stream was answered with HTTP/1.1 text after the time for a head.
#[tokio::test]
async fn an_http2_connection_without_a_stream_is_idle_and_ends_in_its_own_way() {
    let settings = Settings::answering().section("server: {header_timeout: 300ms, idle_timeout: 800ms}");
    let gateway = Gateway::with(&settings).start().await;
    let mut raw = Raw::connect(gateway.address()).await;
    raw.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
        .await
        .unwrap();
    assert!(
        !raw.closes_within(Duration::from_millis(500)).await,
        "closed as a late head"
    );
    assert!(raw.closes_within(Duration::from_secs(10)).await, "never closed");
    assert!(
        !raw.received().windows(5).any(|bytes| bytes == b"HTTP/"),
        "{:?}",
        raw.received()
    );
}

// HEAD walked around a limit on GET.
#[tokio::test]
async fn who_matches_get_matches_head() {
    let settings = Settings::new()
        .route("{path: /, methods: GET, respond: {body: a}}")
        .limit("{name: reads, key: ip, match: {methods: GET}, algorithm: fixed_window, limit: 1, window: 1d}");
    let gateway = Gateway::with(&settings).start().await;
    assert!(gateway.client().send(&request("HEAD", "/")).await.passed());
    assert!(gateway.client().get("/").await.denied());
}
