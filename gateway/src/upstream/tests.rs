//! An upstream against origins on loopback.

use std::{cell::Cell, future::Future, net::SocketAddr, pin::pin, rc::Rc, sync::Arc, task::Poll, time::Duration};

use http::{Method, Request, Response};
use http_body_util::BodyExt;
use limiter_core::Timestamp;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    runtime::{Builder, LocalOptions},
    sync::Notify,
    task::{spawn_local, yield_now},
    time::timeout,
};

use super::Upstream;
use crate::{
    body::{Body, RequestBody},
    config,
    error::UpstreamError,
    worker::deadlines::Deadlines,
};

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
/// For what happens at once; only a fault makes it run out.
const SOON: Duration = Duration::from_secs(5);

/// A server that answers each request of a connection with the next of its script; an empty answer closes.
struct Origin {
    address: SocketAddr,
    connections: Rc<Cell<usize>>,
    open: Rc<Cell<usize>>,
    requests: Rc<Cell<usize>>,
    /// Answers wait for this where they begin with a `#`.
    go: Rc<Notify>,
}

impl Origin {
    async fn start(script: &'static [&'static str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = Self {
            address: listener.local_addr().unwrap(),
            connections: Rc::default(),
            open: Rc::default(),
            requests: Rc::default(),
            go: Rc::default(),
        };
        let (connections, open) = (Rc::clone(&origin.connections), Rc::clone(&origin.open));
        let (requests, go) = (Rc::clone(&origin.requests), Rc::clone(&origin.go));
        spawn_local(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                connections.set(connections.get() + 1);
                open.set(open.get() + 1);
                let (open, requests, go) = (Rc::clone(&open), Rc::clone(&requests), Rc::clone(&go));
                spawn_local(async move {
                    converse(stream, script, &requests, &go).await;
                    open.set(open.get() - 1);
                });
            }
        });
        origin
    }
}

async fn converse(mut stream: TcpStream, script: &[&str], requests: &Cell<usize>, go: &Notify) {
    let mut head = Vec::new();
    loop {
        match stream.read_buf(&mut head).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if !head.ends_with(b"\r\n\r\n") {
            continue;
        }
        head.clear();
        let answer = script[requests.get() % script.len()];
        requests.set(requests.get() + 1);
        let answer = match answer.strip_prefix('#') {
            Some(rest) => {
                go.notified().await;
                rest
            }
            None => answer,
        };
        let (answer, closes) = answer.strip_suffix('!').map_or((answer, false), |rest| (rest, true));
        if stream.write_all(answer.as_bytes()).await.is_err() || closes {
            return;
        }
    }
}

fn run<F: Future>(test: F) -> F::Output {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(test)
}

fn upstream(origins: &[SocketAddr], max_connections: usize) -> Upstream {
    let endpoint = |origin: &SocketAddr| config::Endpoint {
        host: origin.ip().to_string(),
        port: origin.port(),
        weight: 1,
    };
    let config = config::Upstream {
        name: "u".into(),
        endpoints: origins.iter().map(endpoint).collect(),
        connect_timeout: Duration::from_millis(200),
        timeout: Duration::from_secs(1),
        idle_timeout: Duration::from_secs(4),
        max_connections,
        adaptive_concurrency: None,
    };
    Upstream::build(&config, None, 1, &mut fastrand::Rng::with_seed(1), at(0))
}

fn at(secs: u64) -> Timestamp {
    Timestamp::from_micros(secs * 1_000_000)
}

async fn send(upstream: &Upstream, deadlines: &Deadlines) -> Result<Response<Body>, UpstreamError> {
    let request = Request::builder()
        .method(Method::POST)
        .uri("/")
        .header("host", "a")
        .body(RequestBody::empty());
    timeout(SOON, upstream.send(request.unwrap(), None, at(0), deadlines))
        .await
        .expect("an answer or an error")
}

async fn text(response: Result<Response<Body>, UpstreamError>) -> String {
    let body = response.unwrap().into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

/// Lets connection tasks run until `state` holds.
async fn until(what: &str, state: impl Fn() -> bool) {
    let wait = async {
        while !state() {
            yield_now().await;
        }
    };
    timeout(SOON, wait).await.expect(what);
}

#[test]
fn a_connection_is_used_again_once_the_body_has_ended() {
    run(async {
        let origin = Origin::start(&[OK]).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 8), Deadlines::default());
        for _ in 0..3 {
            assert_eq!(text(send(&upstream, &deadlines).await).await, "ok");
            until("a ready connection", || upstream.pools[0].is_any_ready()).await;
        }
        assert_eq!((origin.connections.get(), origin.requests.get()), (1, 3));
    });
}

#[test]
fn a_body_that_is_dropped_closes_its_connection() {
    run(async {
        let origin = Origin::start(&["HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf"]).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 8), Deadlines::default());
        drop(send(&upstream, &deadlines).await.unwrap());
        until("the origin sees the end", || origin.open.get() == 0).await;
    });
}

#[test]
fn a_client_that_leaves_before_the_answer_closes_the_connection() {
    run(async {
        let origin = Origin::start(&["#HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"]).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 8), Deadlines::default());
        {
            let mut sent = pin!(send(&upstream, &deadlines));
            let begun = std::future::poll_fn(|cx| {
                assert!(sent.as_mut().poll(cx).is_pending());
                if origin.requests.get() == 1 {
                    Poll::Ready(())
                } else {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            });
            timeout(SOON, begun).await.expect("a request");
        }
        origin.go.notify_one();
        until("the origin sees the end", || origin.open.get() == 0).await;
    });
}

#[test]
fn an_idle_connection_that_has_ended_is_replaced_before_anything_is_sent() {
    run(async {
        let origin = Origin::start(&["HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok!"]).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 8), Deadlines::default());
        for round in 1..=3 {
            assert_eq!(text(send(&upstream, &deadlines).await).await, "ok");
            assert_eq!(origin.requests.get(), round, "each request was executed once");
        }
    });
}

#[test]
fn a_request_waits_for_a_free_connection_and_too_many_do_not() {
    run(async {
        let origin = Origin::start(&[OK]).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 1), Deadlines::default());
        let first = send(&upstream, &deadlines).await;
        let second = async { text(send(&upstream, &deadlines).await).await };
        let rest = async {
            // The second waits: one may. The third is refused at once.
            yield_now().await;
            let third = send(&upstream, &deadlines).await;
            assert!(matches!(third, Err(UpstreamError::Busy { .. })), "{third:?}");
            text(first).await
        };
        assert_eq!(tokio::join!(second, rest), ("ok".into(), "ok".into()));
        assert_eq!(origin.connections.get(), 1);
    });
}

#[test]
fn who_waits_too_long_for_a_connection_is_told_so() {
    run(async {
        let origin = Origin::start(&[OK]).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 1), Deadlines::default());
        let _held = send(&upstream, &deadlines).await;
        let second = send(&upstream, &deadlines).await;
        assert!(matches!(second, Err(UpstreamError::Busy { .. })), "{second:?}");
    });
}

#[test]
fn an_endpoint_that_refuses_is_passed_over() {
    run(async {
        let origin = Origin::start(&[OK]).await;
        let gone = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let (both, deadlines) = (upstream(&[gone, origin.address], 8), Deadlines::default());
        for _ in 0..4 {
            assert_eq!(text(send(&both, &deadlines).await).await, "ok");
        }
        let failed = send(&upstream(&[gone], 8), &deadlines).await;
        assert!(matches!(failed, Err(UpstreamError::Connect { .. })), "{failed:?}");
    });
}

#[test]
fn requests_take_turns_between_endpoints() {
    run(async {
        let (a, b) = (Origin::start(&[OK]).await, Origin::start(&[OK]).await);
        let (upstream, deadlines) = (upstream(&[a.address, b.address], 8), Deadlines::default());
        for _ in 0..6 {
            assert_eq!(text(send(&upstream, &deadlines).await).await, "ok");
        }
        assert_eq!((a.requests.get(), b.requests.get()), (3, 3));
    });
}

#[test]
fn an_answer_that_does_not_come_in_time_is_given_up() {
    run(async {
        let origin = Origin::start(&["#never"]).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 8), Deadlines::default());
        let sweep = async {
            until("a request", || origin.requests.get() == 1).await;
            deadlines.sweep(at(1));
        };
        let (sent, ()) = tokio::join!(send(&upstream, &deadlines), sweep);
        assert!(matches!(sent, Err(UpstreamError::Timeout { .. })), "{sent:?}");
    });
}

#[test]
fn a_broken_answer_is_an_error_and_a_broken_body_too() {
    run(async {
        let script = &[
            "nonsense\r\n\r\n!",
            "!",
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhalf!",
        ];
        let origin = Origin::start(script).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 8), Deadlines::default());
        for _ in 0..2 {
            let failed = send(&upstream, &deadlines).await;
            assert!(matches!(failed, Err(UpstreamError::Exchange { .. })), "{failed:?}");
        }
        let body = send(&upstream, &deadlines).await.unwrap().into_body();
        assert!(body.collect().await.is_err());
    });
}

#[test]
fn a_switch_of_protocols_that_nobody_asked_for_is_an_error() {
    run(async {
        let origin =
            Origin::start(&["HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"]).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 8), Deadlines::default());
        let failed = send(&upstream, &deadlines).await;
        assert!(matches!(failed, Err(UpstreamError::Switched { .. })), "{failed:?}");
    });
}

#[test]
fn idle_connections_grow_old_and_go() {
    run(async {
        let origin = Origin::start(&[OK]).await;
        let (upstream, deadlines) = (upstream(&[origin.address], 8), Deadlines::default());
        assert_eq!(text(send(&upstream, &deadlines).await).await, "ok");
        upstream.evict(at(3));
        until("a ready connection", || upstream.pools[0].is_any_ready()).await;
        assert_eq!(origin.open.get(), 1);
        upstream.evict(at(4));
        until("the origin sees the end", || origin.open.get() == 0).await;
    });
}

#[test]
fn an_endpoint_that_stays_keeps_its_connections() {
    run(async {
        let origin = Origin::start(&[OK]).await;
        let (old, deadlines) = (upstream(&[origin.address], 8), Deadlines::default());
        assert_eq!(text(send(&old, &deadlines).await).await, "ok");
        until("a ready connection", || old.pools[0].is_any_ready()).await;
        let config = config::Upstream {
            name: Arc::clone(old.name()),
            endpoints: vec![config::Endpoint {
                host: "127.0.0.1".into(),
                port: origin.address.port(),
                weight: 1,
            }],
            connect_timeout: SOON,
            timeout: SOON,
            idle_timeout: SOON,
            max_connections: 1,
            adaptive_concurrency: None,
        };
        let new = Upstream::build(&config, Some(&old), 1, &mut fastrand::Rng::new(), at(0));
        drop(old);
        assert_eq!(text(send(&new, &deadlines).await).await, "ok");
        assert_eq!(origin.connections.get(), 1);
    });
}
