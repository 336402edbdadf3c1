//! A request that could be read in two ways is refused, and nothing of it reaches the upstream.

use std::time::Duration;

use crate::support::{Gateway, H2Client, Origin, Raw, Settings, post};

/// Sends these bytes, and expects a 400.
async fn is_refused(gateway: &Gateway, bytes: &str) -> Raw {
    let mut raw = Raw::connect(gateway.address()).await;
    // The gateway may refuse and close before it has all of it.
    drop(raw.send(bytes).await);
    let answer = raw
        .response_to("POST")
        .await
        .unwrap_or_else(|error| panic!("no answer ({error}) to {bytes:?}"));
    assert_eq!(answer.status, 400, "{bytes:?}: {answer:?}");
    raw
}

#[tokio::test]
async fn ambiguous_framing_is_refused() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let hidden = "0\r\n\r\nGET /hidden HTTP/1.1\r\nHost: g\r\n\r\n";
    for lines in [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 5",
        "Content-Length: 5\r\nContent-Length: 6",
        "Content-Length: 5\r\nContent-Length: 5",
        "Content-Length: 5, 5",
        "Content-Length: +5",
        "Content-Length: -5",
        "Content-Length: 5 5",
        "Content-Length: 0x5",
        "Content-Length: ",
        "Content-Length: 99999999999999999999",
        "Transfer-Encoding: gzip",
        "Transfer-Encoding: chunked, gzip",
        "Transfer-Encoding : chunked",
        "Content-Length : 5",
        "X-Any : 5\r\nContent-Length: 5",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
    ] {
        // Empty lines before a request are skipped.
        let lead = if lines.len() % 2 == 0 { "" } else { "\r\n" };
        let bytes = format!("{lead}POST / HTTP/1.1\r\nHost: g\r\n{lines}\r\n\r\n{hidden}");
        let mut raw = is_refused(&gateway, &bytes).await;
        // What follows could be a request, or not.
        assert!(
            raw.closes_within(Duration::from_secs(5)).await,
            "still open after {lines:?}"
        );
    }
    assert_eq!(origin.requests().len(), 0, "{:?}", origin.requests());
}

#[tokio::test]
async fn a_request_without_exactly_one_host_is_refused() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    for lines in [
        "X-Any: 1",
        "Host: a\r\nHost: b",
        "Host: a\r\nHost: a",
        "Host: a b",
        "Host: a/b",
    ] {
        is_refused(&gateway, &format!("GET / HTTP/1.1\r\n{lines}\r\n\r\n")).await;
    }
    assert_eq!(origin.executed(), 0);
}

#[tokio::test]
async fn broken_chunks_end_the_exchange_and_hide_nothing() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    for body in [
        "zz\r\nabc\r\n0\r\n\r\n",
        "-1\r\n\r\n",
        "3\r\nabcdef\r\n0\r\n\r\n",
        "fffffffffffffffff\r\n",
    ] {
        let mut raw = Raw::connect(gateway.address()).await;
        let head = "POST /broken HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n";
        drop(
            raw.send(format!("{head}{body}GET /hidden HTTP/1.1\r\nHost: g\r\n\r\n"))
                .await,
        );
        match raw.response_to("POST").await {
            Ok(answer) => assert!(matches!(answer.status, 400 | 502), "{body:?}: {answer:?}"),
            Err(error) => assert!(error.kind() != std::io::ErrorKind::TimedOut, "{body:?}: {error}"),
        }
        assert!(
            raw.closes_within(Duration::from_secs(5)).await,
            "still open after {body:?}"
        );
    }
    assert_eq!(origin.executed_target("/hidden"), 0);
    assert_eq!(origin.executed_target("/broken"), 0);
}

#[tokio::test]
async fn a_head_that_is_too_large_or_too_slow_is_refused() {
    let origin = Origin::start().await;
    let settings = Settings::forwarding_to(&origin).section("server: {header_timeout: 400ms, max_header_bytes: 16KiB}");
    let gateway = Gateway::with(&settings).start().await;
    let mut large = Raw::connect(gateway.address()).await;
    drop(
        large
            .send(format!(
                "GET / HTTP/1.1\r\nHost: g\r\nX-Large: {}\r\n\r\n",
                "x".repeat(64 * 1024)
            ))
            .await,
    );
    assert_eq!(large.response_to("GET").await.unwrap().status, 431);
    let mut slow = Raw::connect(gateway.address()).await;
    slow.send("GET / HTTP/1.1\r\nHost: g\r\n").await.unwrap();
    assert_eq!(slow.response_to("GET").await.unwrap().status, 408);
    assert!(slow.closes_within(Duration::from_secs(5)).await);
    assert_eq!(origin.executed(), 0);
}

#[tokio::test]
async fn over_http2_a_body_has_one_length_too() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut client = H2Client::connect(gateway.address()).await;
    for second in ["5", "005"] {
        let request = post("/", "hello").header("content-length", "5");
        let answer = client.send(&request.clone().header("content-length", second)).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        assert!(client.send(&request).await.passed());
    }
    let requests = origin.requests();
    let lengths: Vec<_> = requests
        .iter()
        .map(|seen| seen.header_lines("content-length").len())
        .collect();
    assert_eq!(lengths, [1, 1]);
}
