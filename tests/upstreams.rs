//! Where a request goes, and what the client is told when nothing comes back.

use crate::support::{Gateway, Origin, Response, Settings, Step, get, post};

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
    assert!(answers.iter().all(Response::passed), "{answers:?}");
    assert_eq!(one.executed_target("/half"), 10);
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
