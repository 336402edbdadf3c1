//! Adaptive protection: what an upstream has no room for is shed before it is charged, the lowest priority first.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::JoinHandle,
    time::{Instant, sleep},
};

use crate::support::{Client, DEADLINE, Gateway, Load, Origin, Redis, Response, Settings, Step, get, pause, wait_for};

/// An origin that answers when it is told to.
struct Held {
    origin: Origin,
    go: Arc<Notify>,
}

impl Held {
    async fn start() -> Self {
        let (origin, go) = (Origin::start().await, Arc::new(Notify::new()));
        let signal = Arc::clone(&go);
        origin.answers(move |_| vec![Step::Wait(Arc::clone(&signal)), Step::ok("fine")]);
        Self { origin, go }
    }

    /// Forwards to it with these bounds of what is at it at once.
    fn behind(&self, bounds: &str) -> Settings {
        let address = self.origin.address();
        Settings::new()
            .upstream_with(&format!(
                "origin: {{endpoints: \"http://{address}\", adaptive_concurrency: {bounds}}}"
            ))
            .section("server: {workers: 2}")
    }

    /// Lets all go that wait, and gives their answers.
    async fn release(&self, held: Vec<JoinHandle<Response>>) -> Vec<Response> {
        while !held.iter().all(JoinHandle::is_finished) {
            self.go.notify_waiters();
            pause(Duration::from_millis(5)).await;
        }
        let mut answers = Vec::new();
        for request in held {
            answers.push(request.await.unwrap());
        }
        answers
    }
}

/// A request on its way, over a connection of its own.
fn send(address: SocketAddr, target: &'static str) -> JoinHandle<Response> {
    tokio::spawn(async move { Client::to(address).get(target).await })
}

async fn shed(gateway: &Gateway) -> f64 {
    gateway
        .metric("gateway_upstream_shed_total", &[("upstream", "origin")])
        .await
}

async fn limit(gateway: &Gateway) -> f64 {
    gateway
        .metric("gateway_upstream_concurrency_limit", &[("upstream", "origin")])
        .await
}

/// Four are at the upstream, the next is shed and pays nothing.
async fn pays_nothing(gateway: &Gateway, held: &Held) {
    let before = held.origin.executed();
    let mut waiting = Vec::new();
    for number in 1..=4 {
        waiting.push(send(gateway.address(), "/"));
        held.origin.has_executed(before + number).await;
    }
    for _ in 0..20 {
        let answer = gateway.client().get("/").await;
        assert_eq!((answer.status, answer.retry_after()), (503, Some(1)), "{answer:?}");
        assert!(answer.header("x-ratelimit-limit").is_none(), "{answer:?}");
        let problem = answer.json();
        assert_eq!(
            problem["type"],
            "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity"
        );
    }
    assert_eq!((shed(gateway).await, limit(gateway).await), (20.0, 4.0));
    assert!(held.release(waiting).await.iter().all(Response::passed));
    // A fifth, since the others are back.
    let fifth = held.release(vec![send(gateway.address(), "/")]).await;
    assert_eq!((fifth[0].status, fifth[0].remaining()), (200, 95), "{fifth:?}");
    let denied = [("limit", "all"), ("outcome", "denied")];
    assert_eq!(gateway.metric("gateway_limit_decisions_total", &denied).await, 0.0);
    wait_for(DEADLINE, "the access lines", || {
        let lines = gateway.log().matches("shed=true").count();
        async move { lines == 20 }
    })
    .await;
}

const ALL: &str = "{name: all, key: global, algorithm: fixed_window, limit: 100, window: 1d}";

/// Forwards to `held`, which has room for four.
fn four(held: &Held) -> Settings {
    held.behind("{min: 4, max: 4}")
        .route(r#"{path: "/{*rest}", upstream: origin}"#)
        .limit(ALL)
}

#[tokio::test]
async fn who_is_shed_pays_nothing_in_memory() {
    let held = Held::start().await;
    let gateway = Gateway::with(&four(&held)).start().await;
    pays_nothing(&gateway, &held).await;
}

#[tokio::test]
async fn who_is_shed_pays_nothing_in_redis_and_each_gateway_has_its_own_room() {
    let (held, redis) = (Held::start().await, Redis::start().await);
    let settings = four(&held).counting_in(&redis, "shed");
    let (one, two) = (
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    );
    pays_nothing(&one, &held).await;
    assert_eq!((shed(&two).await, limit(&two).await), (0.0, 4.0));
    let sixth = held.release(vec![send(two.address(), "/")]).await;
    assert_eq!((sixth[0].status, sixth[0].remaining()), (200, 94), "{sixth:?}");
}

#[tokio::test]
async fn who_is_shed_pays_nothing_while_redis_is_away() {
    let (held, redis) = (Held::start().await, Redis::start().await);
    let address = redis.address();
    let settings = four(&held).store(&format!(
        "{{redis: {{url: \"redis://{address}/0\", on_failure: local}}}}"
    ));
    let gateway = Gateway::with(&settings).start().await;
    redis.kill();
    gateway.status_says("/store/state", "down").await;
    pays_nothing(&gateway, &held).await;
}

#[tokio::test]
async fn the_lowest_priority_goes_first() {
    let held = Held::start().await;
    let settings = held
        .behind("{min: 10, max: 10}")
        .route(r#"{path: "/batch", upstream: origin, priority: -5}"#)
        .route(r#"{path: "/{*rest}", upstream: origin}"#)
        .route(r#"{path: "/paid", upstream: origin, priority: 10}"#);
    let gateway = Gateway::with(&settings).start().await;
    let mut waiting = Vec::new();
    for (target, room) in [("/batch", 8), ("/", 9), ("/paid", 10)] {
        while waiting.len() < room {
            waiting.push(send(gateway.address(), target));
            held.origin.has_executed(waiting.len()).await;
        }
        assert_eq!(gateway.client().get(target).await.status, 503, "{target} at {room}");
    }
    assert!(held.release(waiting).await.iter().all(Response::passed));
}

#[tokio::test]
async fn a_client_that_leaves_makes_room() {
    let held = Held::start().await;
    let settings = held
        .behind("{min: 2, max: 2}")
        .route(r#"{path: "/{*rest}", upstream: origin}"#);
    let gateway = Gateway::with(&settings).start().await;
    let waiting = [send(gateway.address(), "/"), send(gateway.address(), "/")];
    held.origin.has_executed(2).await;
    assert_eq!(gateway.client().get("/").await.status, 503);
    for request in &waiting {
        request.abort();
    }
    let there_is_room = || async {
        let mut client = gateway.client();
        let request = get("/");
        tokio::select! {
            answer = client.send(&request) => { assert_eq!(answer.status, 503); false }
            () = held.origin.has_executed(3) => true,
        }
    };
    wait_for(DEADLINE, "room", there_is_room).await;
}

#[tokio::test]
async fn where_a_refused_request_goes_instead_there_has_to_be_room_too() {
    let (origin, held) = (Origin::start().await, Held::start().await);
    let settings = held
        .behind("{min: 1, max: 1}")
        .upstream("first", &[&origin])
        .route(r#"{path: "/{*rest}", upstream: first}"#)
        .limit(
            "{name: one, key: global, algorithm: fixed_window, limit: 1, window: 1d, rejection: {upstream: origin}}",
        );
    let gateway = Gateway::with(&settings).start().await;
    assert!(gateway.client().get("/").await.passed());
    let waiting = send(gateway.address(), "/");
    held.origin.has_executed(1).await;
    let answer = gateway.client().get("/").await;
    assert_eq!((answer.status, answer.retry_after()), (503, Some(1)), "{answer:?}");
    assert_eq!(answer.header("x-gateway-degraded"), Some("one"), "{answer:?}");
    assert!(held.release(vec![waiting]).await[0].passed());
}

#[tokio::test]
async fn a_reload_changes_the_bounds_and_takes_the_protection_away() {
    let held = Held::start().await;
    let route = r#"{path: "/{*rest}", upstream: origin}"#;
    let gateway = Gateway::with(&held.behind("{min: 4, max: 4}").route(route))
        .start()
        .await;
    let waiting = vec![send(gateway.address(), "/"), send(gateway.address(), "/")];
    held.origin.has_executed(2).await;
    gateway.write_by_rename(&held.behind("{min: 2, max: 3}").route(route));
    gateway.status_says("/config/version", 2).await;
    assert_eq!(limit(&gateway).await, 3.0);
    gateway.write_by_rename(&held.behind("{min: 2, max: 2}").route(route));
    gateway.status_says("/config/version", 3).await;
    assert_eq!(
        gateway.client().get("/").await.status,
        503,
        "those that were there are still"
    );
    let unprotected = Settings::new()
        .upstream("origin", &[&held.origin])
        .section("server: {workers: 2}")
        .route(route);
    gateway.write_by_rename(&unprotected);
    gateway.status_says("/config/version", 4).await;
    let third = send(gateway.address(), "/");
    held.origin.has_executed(3).await;
    let answers = held.release(waiting.into_iter().chain([third]).collect()).await;
    assert!(answers.iter().all(Response::passed));
    assert!(!gateway.metrics().await.contains("gateway_upstream_concurrency_limit{"));
}

/// How long the origin's servers take for a request, and how many it has.
const WORK: Duration = Duration::from_millis(20);
const SERVERS: usize = 8;

/// An origin with a queue before its servers.
async fn with_servers() -> Origin {
    let origin = Origin::start().await;
    let free = Mutex::new(vec![Instant::now(); SERVERS]);
    origin.answers(move |_| {
        let (mut free, now) = (free.lock().unwrap(), Instant::now());
        let first = free.iter_mut().min().unwrap();
        *first = (*first).max(now) + WORK;
        vec![Step::Pause(*first - now), Step::ok("fine")]
    });
    origin
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn above_the_knee_it_sheds_and_what_passes_is_quick() {
    let origin = with_servers().await;
    let address = origin.address();
    let settings = Settings::new()
        .upstream_with(&format!(
            "origin: {{endpoints: \"http://{address}\", adaptive_concurrency: {{min: 4, max: 500}}}}"
        ))
        .route(r#"{path: "/low", upstream: origin, priority: -1}"#)
        .route(r#"{path: "/high", upstream: origin}"#)
        .section("log: {access: false}");
    let gateway = Gateway::with(&settings).start().await;
    // The servers can do 400 a second. Unprotected, 150 clients that wait for their answers would wait for 375 ms.
    let low = Load::start(gateway.address(), &["/low"], 150, 700);
    let high = Load::start(gateway.address(), &["/high"], 10, 50);
    sleep(Duration::from_secs(6)).await;
    let (low, high) = (low.stop().await, high.stop().await);

    let settled = Duration::from_secs(2);
    let of = |answers: &[crate::support::Answered], status| {
        let of = answers
            .iter()
            .filter(|answer| answer.sent > settled && answer.status == Some(status));
        let mut waited: Vec<_> = of.map(|answer| answer.waited).collect();
        waited.sort_unstable();
        waited
    };
    let (passed, refused) = (of(&low, 200), of(&low, 503));
    assert!(
        passed.len() + refused.len() > 1_000,
        "{} and {}",
        passed.len(),
        refused.len()
    );
    assert!(refused.len() > 100, "{}", refused.len());
    assert!(
        passed.len() > refused.len() / 3,
        "{} and {}",
        passed.len(),
        refused.len()
    );
    let p95 = passed[passed.len() * 95 / 100];
    assert!(p95 < Duration::from_millis(150), "{p95:?}");
    let (passed, refused) = (of(&high, 200), of(&high, 503));
    assert!(
        refused.len() * 10 <= passed.len(),
        "{} and {}",
        passed.len(),
        refused.len()
    );
    let found = limit(&gateway).await;
    assert!((4.0..60.0).contains(&found), "{found}");
}
