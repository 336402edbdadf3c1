//! What a proxy must do whatever its limits: pass on what is meant for the other side, and nothing else.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::Notify;

use crate::support::{
    DEADLINE, Gateway, H2Client, Origin, Raw, Settings, Step, get, post, raw::contains, request, wait_for,
};

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
async fn an_answer_streams_as_it_comes() {
    let origin = Origin::start().await;
    let go_on = Arc::new(Notify::new());
    let signal = Arc::clone(&go_on);
    origin.answers(move |_| {
        vec![
            Step::text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n"),
            Step::Wait(Arc::clone(&signal)),
            Step::text("6\r\nsecond\r\n0\r\n\r\n"),
        ]
    });
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut raw = Raw::connect(gateway.address()).await;
    raw.send(get("/").to_bytes()).await.unwrap();
    raw.read_until("first").await.unwrap();
    go_on.notify_one();
    let answer = raw.response_to("GET").await.unwrap();
    assert_eq!((answer.text().as_str(), answer.complete), ("firstsecond", true));
}

#[tokio::test]
async fn a_request_body_streams_as_it_comes() {
    let origin = Origin::start().await;
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut raw = Raw::connect(gateway.address()).await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 11\r\n\r\nfirst")
        .await
        .unwrap();
    wait_for(DEADLINE, "the first part at the origin", || async {
        contains(&origin.bytes(0), b"first")
    })
    .await;
    assert_eq!(origin.executed(), 0);
    raw.send("second").await.unwrap();
    assert!(raw.response_to("POST").await.unwrap().passed());
    assert_eq!(origin.last().body, b"firstsecond");
}

#[tokio::test]
async fn the_timeout_is_for_the_head_and_cuts_no_stream() {
    let origin = Origin::start().await;
    origin.answers(|_| {
        let head = Step::text("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhead,");
        vec![head, Step::Pause(Duration::from_millis(900)), Step::text("body")]
    });
    let settings = Settings::new()
        .upstream_with(&format!(
            "origin: {{endpoints: [\"http://{}\"], timeout: 300ms}}",
            origin.address()
        ))
        .route("{path: \"/{*rest}\", upstream: origin}");
    let gateway = Gateway::with(&settings).start().await;
    assert_eq!(gateway.client().get("/").await.text(), "head,body");
}

#[tokio::test]
async fn an_upstream_may_answer_before_it_has_the_body() {
    let origin = Origin::start().await;
    origin.answers_early(|_| vec![Step::text("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno")]);
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut raw = Raw::connect(gateway.address()).await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: 1000000\r\n\r\nonly the start")
        .await
        .unwrap();
    let answer = raw.response_to("POST").await.unwrap();
    assert_eq!(
        (answer.status, answer.text().as_str(), answer.complete),
        (403, "no", true)
    );
}

#[tokio::test]
async fn large_bodies_arrive_byte_for_byte_both_ways() {
    let origin = Origin::start().await;
    origin.answers(|seen| {
        let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", seen.body.len()).into_bytes();
        bytes.extend_from_slice(&seen.body);
        vec![Step::Send(bytes)]
    });
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut client = gateway.client();
    for size in [0_usize, 1, 64 * 1024, 3 * 1024 * 1024 + 7] {
        let body: Vec<u8> = (0..size).map(|index| (index * 31 % 251) as u8).collect();
        let answer = client.send(&post("/", body.clone())).await;
        assert!(answer.body == body, "{size} bytes came back as {}", answer.body.len());
        let mut h2 = H2Client::connect(gateway.address()).await;
        let answer = h2.send(&post("/", body.clone())).await;
        assert!(
            answer.body == body,
            "{size} bytes came back over HTTP/2 as {}",
            answer.body.len()
        );
    }
    let mut raw = Raw::connect(gateway.address()).await;
    raw.send("POST / HTTP/1.1\r\nHost: g\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(raw.response_to("POST").await.unwrap().text(), "abcdefg");
}

#[tokio::test]
async fn answers_without_a_body_keep_their_framing() {
    let origin = Origin::start().await;
    origin.answers(|seen| {
        let text = match (seen.method.as_str(), seen.target.as_str()) {
            ("HEAD", "/length") => "HTTP/1.1 200 OK\r\nContent-Length: 12345\r\n\r\n",
            ("HEAD", "/chunked") => "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            ("GET", "/204") => "HTTP/1.1 204 No Content\r\n\r\n",
            ("GET", "/304") => "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 500\r\n\r\n",
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        };
        vec![Step::text(text)]
    });
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut client = gateway.client();
    assert_eq!(
        client.send(&request("HEAD", "/length")).await.number("content-length"),
        Some(12345)
    );
    assert_eq!(client.send(&request("HEAD", "/chunked")).await.status, 200);
    let none = client.get("/204").await;
    assert_eq!(
        (
            none.status,
            none.header("content-length"),
            none.header("transfer-encoding")
        ),
        (204, None, None)
    );
    let unchanged = client.get("/304").await;
    assert_eq!((unchanged.status, unchanged.header("etag")), (304, Some("\"x\"")));
    assert_ne!(unchanged.header("content-length"), Some("0"));
    assert_eq!(client.get("/empty").await.number("content-length"), Some(0));
    assert_eq!(
        origin.connections(),
        1,
        "each of these answers leaves the connection usable"
    );
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

#[tokio::test]
async fn failures_are_problem_documents() {
    let origin = Origin::start().await;
    origin.answers(|seen| match seen.target.as_str() {
        "/stall" => vec![Step::Stall],
        "/rubbish" => vec![Step::text("SSH-2.0-OpenSSH\r\n\r\n"), Step::Close],
        _ => vec![Step::Close],
    });
    let settings = Settings::new()
        .upstream_with(&format!(
            "origin: {{endpoints: [\"http://{}\"], timeout: 300ms}}",
            origin.address()
        ))
        .upstream_with("nobody: {endpoints: [\"http://127.0.0.1:1\"]}")
        .route("{path: \"/{what}\", upstream: origin}")
        .route("{path: \"/nobody/{*rest}\", upstream: nobody}");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    for (target, status) in [
        ("/no/such/route", 404),
        ("/nobody/", 502),
        ("/rubbish", 502),
        ("/close", 502),
        ("/stall", 504),
        ("/a%zz", 400),
    ] {
        let answer = client.get(target).await;
        assert_eq!(answer.status, status, "{target}: {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json"),
            "{target}: {answer:?}"
        );
        let problem = answer.json();
        assert_eq!(
            (&problem["type"], &problem["status"]),
            (&"about:blank".into(), &status.into()),
            "{target}"
        );
        assert!(
            problem["title"].is_string() && problem["instance"].is_string(),
            "{target}: {problem}"
        );
    }
}

#[tokio::test]
async fn a_cut_answer_is_seen_as_cut() {
    let origin = Origin::start().await;
    origin.answers(|seen| match seen.target.as_str() {
        "/length" => vec![
            Step::text("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
            Step::Close,
        ],
        "/chunked" => {
            vec![
                Step::text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
                Step::Close,
            ]
        }
        _ => vec![
            Step::text("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf"),
            Step::Reset,
        ],
    });
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    for target in ["/length", "/chunked", "/reset"] {
        let mut client = gateway.client();
        match client.try_send(&get(target)).await {
            Ok(answer) => assert!(!answer.complete, "{target} looks complete: {answer:?}"),
            Err(error) => assert!(error.kind() != std::io::ErrorKind::TimedOut, "{target} hangs"),
        }
        let over_h2 = H2Client::connect(gateway.address()).await.try_send(&get(target)).await;
        assert!(
            over_h2.is_err() || over_h2.is_ok_and(|answer| !answer.complete),
            "{target} looks complete over HTTP/2"
        );
    }
}

#[tokio::test]
async fn upstream_connections_are_used_again() {
    let origin = Origin::start().await;
    let settings = Settings::forwarding_to(&origin).section("server: {workers: 1}");
    let gateway = Gateway::with(&settings).start().await;
    for _ in 0..10 {
        gateway.client().repeat(5, &get("/")).await;
    }
    assert_eq!((origin.executed(), origin.connections()), (50, 1));
}

#[tokio::test]
async fn endpoints_are_used_in_turn_and_one_that_refuses_is_passed_over() {
    let (one, two) = (Origin::start().await, Origin::start().await);
    let settings = Settings::new()
        .upstream("both", &[&one, &two])
        .upstream_with(&format!(
            "half: {{endpoints: [\"http://127.0.0.1:1\", \"http://{}\"]}}",
            one.address()
        ))
        .route("{path: /both, upstream: both}")
        .route("{path: /half, upstream: half}")
        .section("server: {workers: 1}");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    client.repeat(20, &get("/both")).await;
    assert_eq!((one.executed(), two.executed()), (10, 10));
    let answers = client.repeat(10, &post("/half", "body")).await;
    assert!(answers.iter().all(crate::support::Response::passed), "{answers:?}");
    assert_eq!(one.executed_target("/half"), 10);
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_upstream_request_along() {
    let origin = Origin::start().await;
    origin.answers(|_| vec![Step::Stall]);
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut waiting = Raw::connect(gateway.address()).await;
    waiting.send(get("/").to_bytes()).await.unwrap();
    let mut resetting = Raw::connect(gateway.address()).await;
    resetting.send(get("/").to_bytes()).await.unwrap();
    origin.has_executed(2).await;
    assert_eq!(gateway.metric("gateway_in_flight_requests", &[]).await, 2.0);
    drop(waiting);
    resetting.reset();
    wait_for(DEADLINE, "the origin's connections to close", || async {
        origin.open_connections() == 0
    })
    .await;
    wait_for(DEADLINE, "no request in flight", || async {
        gateway.metric("gateway_in_flight_requests", &[]).await == 0.0
    })
    .await;
}

#[tokio::test]
async fn a_post_is_never_sent_twice() {
    let origin = Origin::start().await;
    // Closes each connection as the next request on it arrives: the worst moment.
    origin.answers(|seen| match seen.target.as_str() {
        "/first" => vec![Step::ok("fine")],
        _ => vec![Step::Close],
    });
    let settings = Settings::forwarding_to(&origin).section("server: {workers: 1}");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    for number in 0..5 {
        client.get("/first").await;
        let target = format!("/post/{number}");
        assert_eq!(client.send(&post(&target, "body")).await.status, 502);
        assert_eq!(origin.executed_target(&target), 1);
    }
}

#[tokio::test]
async fn a_route_may_answer_by_itself() {
    let settings = Settings::new()
        .route("{path: /ping, methods: GET, respond: {status: 201, body: \"${WORD}\", headers: {x-made: here}}}")
        .route("{path: /ping, respond: {status: 405}}")
        .route("{path: \"/a/{b}\", hosts: a.example, respond: {body: host}}")
        .route("{path: \"/a/{*b}\", respond: {body: rest}}");
    let gateway = Gateway::with(&settings).environment("WORD", "pong").start().await;
    let mut client = gateway.client();
    let pong = client.get("/ping").await;
    assert_eq!(
        (pong.status, pong.text().as_str(), pong.header("x-made")),
        (201, "pong", Some("here"))
    );
    assert_eq!(client.send(&post("/ping", "")).await.status, 405);
    assert_eq!(
        client.send(&get("/a/b").header("Host", "A.Example.:80")).await.text(),
        "host"
    );
    assert_eq!(client.get("/a/b").await.text(), "rest");
    assert_eq!(client.get("/a/").await.text(), "rest");
    assert_eq!(client.get("/b").await.status, 404);
}

#[tokio::test]
async fn a_refused_upload_still_gets_its_answer() {
    let origin = Origin::start().await;
    let layer = crate::support::Algorithm::FixedWindow.parameters(1, "1h");
    let settings = Settings::forwarding_to(&origin).limit(&format!("{{name: one, key: ip, {layer}}}"));
    let gateway = Gateway::with(&settings).start().await;
    assert!(gateway.client().get("/").await.passed());
    for _ in 0..10 {
        let mut raw = Raw::connect(gateway.address()).await;
        let size = 4 * 1024 * 1024;
        raw.send(format!("POST / HTTP/1.1\r\nHost: g\r\nContent-Length: {size}\r\n\r\n"))
            .await
            .unwrap();
        // The gateway may stop reading; what counts is that the answer can still be read.
        drop(raw.send(vec![b'x'; size]).await);
        let answer = raw.response_to("POST").await.unwrap();
        assert_eq!((answer.status, answer.complete), (429, true), "{answer:?}");
    }
    assert_eq!(origin.executed(), 1);
}
