//! The guards and clients themselves: a test stands on what these do.

use std::time::Duration;

use crate::support::{Algorithm, Client, Crowd, Judge, Origin, Raw, Redis, Relay, Step, get, post, wait_for};

#[tokio::test]
async fn the_origin_reads_and_answers_one_request_after_the_other() {
    let origin = Origin::start().await;
    let mut client = Client::to(origin.address());
    assert_eq!(client.get("/a").await.text(), "GET /a");
    assert_eq!(client.send(&post("/b", "body")).await.text(), "POST /b");
    assert_eq!(origin.last().body, b"body");
    assert_eq!((origin.executed(), origin.connections()), (2, 1));
}

#[tokio::test]
async fn the_raw_client_reads_chunks_and_notices_a_cut() {
    let origin = Origin::start().await;
    origin.answers(|seen| {
        let head = Step::text("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        let end = if seen.target == "/whole" {
            Step::text("0\r\n\r\n")
        } else {
            Step::Close
        };
        vec![head, end]
    });
    let mut raw = Raw::connect(origin.address()).await;
    raw.send(get("/whole").to_bytes()).await.unwrap();
    let whole = raw.response_to("GET").await.unwrap();
    assert_eq!((whole.text().as_str(), whole.complete), ("abc", true));
    raw.send(get("/cut").to_bytes()).await.unwrap();
    let cut = raw.response_to("GET").await.unwrap();
    assert_eq!((cut.text().as_str(), cut.complete), ("abc", false));
}

#[tokio::test]
async fn a_crowd_sends_each_request_once() {
    let origin = Origin::start().await;
    let tally = Crowd::of(8)
        .to(&[origin.address()])
        .send(100, |index| get(&format!("/{index}")))
        .await;
    tally.expect(100, 0, "a crowd at the origin");
    assert_eq!((origin.executed(), origin.connections()), (100, 8));
    assert!((0..100).all(|index| origin.executed_target(&format!("/{index}")) == 1));
}

#[tokio::test]
async fn redis_loses_what_it_held_when_it_is_killed_and_comes_back_on_its_port() {
    let redis = Redis::start().await;
    redis.command(&["SET", "mine:a", "1", "PX", "60000"]).await;
    redis.command(&["SET", "mine:~a", "1"]).await;
    assert_eq!(redis.counters("mine").await, ["mine:a"]);
    assert!(redis.time_to_live("mine:a").await.unwrap().unwrap() > Duration::from_secs(1));
    assert_eq!(redis.time_to_live("mine:~a").await, Some(None));
    redis.kill();
    redis.start_again().await;
    assert_eq!(redis.keys("mine").await, Vec::<String>::new());
}

#[tokio::test]
async fn the_relay_holds_back_and_cuts() {
    let origin = Origin::start().await;
    let relay = Relay::to(origin.address()).await;
    let mut client = Client::to(relay.address());
    assert!(client.get("/").await.passed());
    relay.black_hole(true);
    let request = get("/late");
    let held = tokio::time::timeout(Duration::from_millis(200), client.try_send(&request)).await;
    assert!(held.is_err(), "the black hole let something through: {held:?}");
    relay.black_hole(false);
    wait_for(Duration::from_secs(5), "what was held back", || async {
        origin.executed() == 2
    })
    .await;
    let mut raw = Raw::connect(relay.address()).await;
    raw.send(get("/").to_bytes()).await.unwrap();
    raw.response_to("GET").await.unwrap();
    relay.cut();
    assert!(raw.closes_within(Duration::from_secs(5)).await);
}

#[tokio::test]
#[should_panic(expected = "gave up after")]
async fn waiting_for_what_never_comes_fails() {
    wait_for(Duration::from_millis(30), "never", || async { false }).await;
}

/// An upstream that claims to limit, but answers so whatever comes.
async fn judged(answer: &'static str, count: usize) {
    let origin = Origin::start().await;
    origin.answers(move |_| vec![Step::text(answer)]);
    let mut judge = Judge::new(Algorithm::SlidingWindowLog, 3, 3_600_000);
    let mut client = Client::to(origin.address());
    for _ in 0..count {
        judge.send(&mut client, &get("/")).await;
    }
}

#[tokio::test]
#[should_panic(expected = "must be denied, but passed")]
async fn the_judge_notices_one_too_many() {
    let origin = Origin::start().await;
    let left = std::sync::atomic::AtomicI64::new(3);
    origin.answers(move |_| {
        let left = (left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) - 1).max(0);
        vec![Step::text(&format!(
            "HTTP/1.1 200 OK\r\nX-RateLimit-Remaining: {left}\r\nContent-Length: 0\r\n\r\n"
        ))]
    });
    let mut judge = Judge::new(Algorithm::SlidingWindowLog, 3, 3_600_000);
    let mut client = Client::to(origin.address());
    for _ in 0..4 {
        judge.send(&mut client, &get("/")).await;
    }
}

#[tokio::test]
#[should_panic(expected = "must pass, but was denied")]
async fn the_judge_notices_one_too_few() {
    judged("HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n", 1).await;
}

#[tokio::test]
#[should_panic(expected = "remaining is wrong")]
async fn the_judge_notices_a_wrong_remaining() {
    judged(
        "HTTP/1.1 200 OK\r\nX-RateLimit-Remaining: 3\r\nContent-Length: 0\r\n\r\n",
        1,
    )
    .await;
}
