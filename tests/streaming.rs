//! Bodies pass through as they come, whole or visibly cut, and end with whoever leaves.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpSocket,
    sync::Notify,
    time::timeout,
};

use crate::support::{
    Algorithm, DEADLINE, Gateway, H2Client, Origin, Raw, Settings, Step, get, pause, post, raw::contains, request,
    wait_for,
};

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
async fn a_refused_upload_still_gets_its_answer() {
    let origin = Origin::start().await;
    let layer = Algorithm::FixedWindow.parameters(1, "1h");
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

/// Downloads slowly, so that the body waits in the gateway after it has ended at the upstream.
async fn download(address: SocketAddr, target: String) -> Vec<u8> {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(2048).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nHost: g\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    pause(Duration::from_millis(300)).await;
    let (mut bytes, mut piece) = (Vec::new(), [0; 5001]);
    while let Ok(Ok(count @ 1..)) = timeout(DEADLINE, stream.read(&mut piece)).await {
        bytes.extend_from_slice(&piece[..count]);
    }
    bytes
}

/// Wherever the kernel takes no more, one of these bodies goes on with the beginning of an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_looks_like_answers_arrives_as_it_is() {
    const LINE: &str = "HTTP/1.1 404 \n";
    let origin = Origin::start().await;
    origin.answers(|seen| {
        let lead = seen.target.trim_start_matches('/').parse().unwrap();
        vec![Step::ok(&("x".repeat(lead) + &LINE.repeat(200_000)))]
    });
    let gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let downloads: Vec<_> = (0..LINE.len())
        .map(|lead| (lead, tokio::spawn(download(gateway.address(), format!("/{lead}")))))
        .collect();
    for (lead, download) in downloads {
        let answer = String::from_utf8(download.await.unwrap()).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let body = body.strip_prefix(&"x".repeat(lead)).unwrap();
        assert_eq!(body.len(), LINE.len() * 200_000, "after {lead}");
        assert!(body.split_inclusive('\n').all(|line| line == LINE), "after {lead}");
    }
}
