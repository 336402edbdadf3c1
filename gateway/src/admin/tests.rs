use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use http_body_util::BodyExt as _;
use limiter_core::{Health, Timestamp};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;
use crate::reload::LastReload;

const START: Timestamp = Timestamp::from_micros(1_796_040_000_000_000);

#[derive(Debug, Default)]
struct Fake {
    draining: AtomicBool,
    last_reload: Option<LastReload>,
    token: Option<String>,
    /// What a reload waits for.
    busy: tokio::sync::Mutex<()>,
    reloads: AtomicUsize,
}

impl Running for Fake {
    fn is_ready(&self) -> bool {
        !self.draining.load(Relaxed)
    }

    fn status(&self) -> Status {
        Status {
            uptime: Duration::from_millis(61_900),
            config_version: 3,
            loaded_at: START,
            last_reload: self.last_reload.clone(),
            store_kind: "redis",
            store_state: Health::Degraded,
            listeners: vec!["127.0.0.1:8080".parse().unwrap(), "[::1]:8080".parse().unwrap()],
        }
    }

    fn limits(&self) -> Value {
        json!([{"name": "user"}])
    }

    fn gauges(&self) -> Gauges {
        Gauges {
            memory_store_keys: 17,
            ..Gauges::default()
        }
    }

    fn token(&self) -> Option<String> {
        self.token.clone()
    }

    fn reload(&self) -> ReloadOutcome {
        self.reloads.fetch_add(1, Relaxed);
        drop(self.busy.blocking_lock());
        ReloadOutcome::Applied { version: 4 }
    }

    fn bans(&self) -> Vec<Ban> {
        vec![Ban {
            limit: "ip".into(),
            key: "2001:db8::/64".into(),
            until: START,
            left: Duration::from_millis(59_001),
        }]
    }

    fn lift_ban(&self, limit: &str, key: &str) -> Result<bool, StoreError> {
        match (limit, key) {
            ("ip", "2001:db8::/64") => Ok(true),
            ("ip", "away") => Err(StoreError::Timeout),
            _ => Ok(false),
        }
    }

    fn replace_config(&self, bytes: Vec<u8>) -> io::Result<ReloadOutcome> {
        match &bytes[..] {
            b"same" => Ok(ReloadOutcome::Unchanged),
            b"moved" => Ok(ReloadOutcome::RestartRequired {
                fields: vec!["listen", "admin"],
            }),
            b"read-only" => Err(io::ErrorKind::ReadOnlyFilesystem.into()),
            _ => {
                let error = crate::config::parse("g.yaml", "limts: []\nroots: []\n").unwrap_err();
                Ok(ReloadOutcome::Rejected(error.into()))
            }
        }
    }
}

fn admin(fake: Fake) -> Admin {
    Admin::new(Arc::new(Metrics::new(START)), Arc::new(fake))
}

fn client() -> SocketAddr {
    "127.0.0.1:1".parse().unwrap()
}

/// Status, media type and text of an answer.
async fn ask(admin: &Admin, method: Method, target: &str, accept: &str) -> (u16, String, String) {
    let request = Request::builder()
        .method(method)
        .uri(target)
        .header(ACCEPT, accept)
        .body(Full::<Bytes>::default())
        .unwrap();
    let (head, body) = admin.answer(request, client()).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let media_type = head.headers[CONTENT_TYPE].to_str().unwrap().to_owned();
    (
        head.status.as_u16(),
        media_type,
        String::from_utf8(body.to_vec()).unwrap(),
    )
}

async fn get(admin: &Admin, target: &str) -> (u16, Value) {
    let (status, _, body) = ask(admin, Method::GET, target, "*/*").await;
    (status, serde_json::from_str(&body).unwrap())
}

#[tokio::test]
async fn health_and_readiness() {
    let ready = admin(Fake::default());
    assert_eq!(get(&ready, "/healthz").await.0, 200);
    assert_eq!(get(&ready, "/readyz?verbose").await.0, 200);
    let draining = admin(Fake {
        draining: AtomicBool::new(true),
        ..Fake::default()
    });
    assert_eq!(get(&draining, "/healthz").await.0, 200);
    let (status, body) = get(&draining, "/readyz").await;
    assert_eq!((status, &body["detail"]), (503, &json!("draining")));
}

#[tokio::test]
async fn status_before_and_after_a_reload() {
    let (status, body) = get(&admin(Fake::default()), "/api/status").await;
    assert_eq!(status, 200);
    assert_eq!(
        body,
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "uptime_s": 61,
            "config": {
                "version": 3,
                "loaded_at": "2026-11-30T12:00:00Z",
                "last_reload": {"outcome": "applied", "at": "2026-11-30T12:00:00Z", "error": null},
            },
            "store": {"kind": "redis", "state": "degraded"},
            "listeners": ["127.0.0.1:8080", "[::1]:8080"],
        })
    );
    let reloaded = admin(Fake {
        last_reload: Some(LastReload {
            outcome: "rejected",
            at: START.plus(Duration::from_millis(1_500)),
            error: Some("gateway.yaml:1:1: limits: …".to_owned()),
        }),
        ..Fake::default()
    });
    assert_eq!(
        get(&reloaded, "/api/status").await.1["config"]["last_reload"],
        json!({"outcome": "rejected", "at": "2026-11-30T12:00:01.5Z", "error": "gateway.yaml:1:1: limits: …"})
    );
}

#[tokio::test]
async fn metrics_in_both_formats() {
    let admin = admin(Fake::default());
    let (status, media_type, text) = ask(&admin, Method::GET, "/metrics", "*/*").await;
    assert_eq!(
        (status, media_type.as_str()),
        (200, "text/plain; version=0.0.4; charset=utf-8")
    );
    assert!(text.contains("gateway_memory_store_keys 17\n") && !text.contains("# EOF"));
    let (_, media_type, text) = ask(&admin, Method::GET, "/metrics", "application/openmetrics-text").await;
    assert!(media_type.starts_with("application/openmetrics-text; version=1.0.0"));
    assert!(text.ends_with("# EOF\n"));
}

#[tokio::test]
async fn what_is_not_there_and_what_cannot_be_done() {
    let admin = admin(Fake::default());
    for (method, target, expected) in [
        (Method::GET, "/", 404),
        (Method::GET, "/healthz/", 404),
        (Method::POST, "/nothing", 404),
        (Method::POST, "/healthz", 405),
        (Method::DELETE, "/api/status", 405),
    ] {
        let (status, media_type, body) = ask(&admin, method, target, "*/*").await;
        assert_eq!(
            (status, media_type.as_str()),
            (expected, "application/problem+json"),
            "{target}"
        );
        assert_eq!(serde_json::from_str::<Value>(&body).unwrap()["status"], expected);
    }
    for (target, method, allowed) in [("/metrics", "POST", "GET, HEAD"), ("/api/reload", "PUT", "POST")] {
        let call = Request::builder().method(method).uri(target);
        let call = call.body(Full::<Bytes>::default()).unwrap();
        assert_eq!(admin.answer(call, client()).await.headers()[ALLOW], allowed);
    }
}

#[tokio::test]
async fn over_a_socket_until_it_is_stopped() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, admin(Fake::default()), async {
        stopped.await.unwrap();
    }));
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"HEAD /readyz HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(stream.read_buf(&mut head).await.unwrap() > 0, "closed after {head:?}");
    }
    assert!(head.starts_with(b"HTTP/1.1 200 OK\r\n"));
    stop.send(()).unwrap();
    server.await.unwrap();
    assert_eq!(
        stream.read_buf(&mut head).await.unwrap_or(0),
        0,
        "the connection has ended"
    );
}

/// Status and body of a change.
async fn change(admin: &Admin, method: &str, target: &str, authorization: &str, body: &'static [u8]) -> (u16, Value) {
    let call = Request::builder().method(method).uri(target);
    let call = call
        .header("authorization", authorization)
        .body(Full::from(body))
        .unwrap();
    let (head, body) = admin.answer(call, client()).await.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), serde_json::from_slice(&body).unwrap())
}

#[tokio::test]
async fn changes_are_answered_with_their_outcome() {
    let admin = admin(Fake::default());
    let applied = change(&admin, "POST", "/api/reload", "", b"").await;
    assert_eq!(applied, (200, json!({"outcome": "applied", "version": 4})));
    let unchanged = change(&admin, "PUT", "/api/config", "", b"same").await;
    assert_eq!(unchanged, (200, json!({"outcome": "unchanged", "version": 3})));
    let restart = change(&admin, "PUT", "/api/config", "", b"moved").await;
    assert_eq!(
        restart,
        (
            409,
            json!({
                "type": "about:blank", "title": "Conflict", "status": 409, "detail": "needs restart: listen, admin",
                "outcome": "restart_required", "version": 3, "fields": ["listen", "admin"],
            })
        )
    );
    let (status, rejected) = change(&admin, "PUT", "/api/config", "", b"wrong").await;
    assert_eq!((status, &rejected["outcome"]), (400, &json!("rejected")));
    let problems: Vec<_> = rejected["problems"].as_array().unwrap().iter().collect();
    assert_eq!(problems.len(), 2);
    assert!(
        problems[0]
            .as_str()
            .unwrap()
            .starts_with("g.yaml:1:1: limts: unknown key")
    );
    let (status, failed) = change(&admin, "PUT", "/api/config", "", b"read-only").await;
    assert_eq!(status, 500);
    assert!(
        failed["detail"].as_str().unwrap().contains("read-only filesystem"),
        "{failed}"
    );
}

#[tokio::test]
async fn changes_need_the_token_and_reading_does_not() {
    let admin = admin(Fake {
        token: Some("s3cret".to_owned()),
        ..Fake::default()
    });
    for (method, target) in [("POST", "/api/reload"), ("PUT", "/api/config")] {
        for wrong in ["", "Bearer s3cre", "Basic s3cret"] {
            let (status, body) = change(&admin, method, target, wrong, b"same").await;
            assert_eq!((status, &body["status"]), (401, &json!(401)), "{target} {wrong:?}");
        }
        assert_eq!(change(&admin, method, target, "Bearer s3cret", b"same").await.0, 200);
    }
    assert_eq!(get(&admin, "/api/status").await.0, 200);
}

#[tokio::test]
async fn a_body_has_bounds() {
    let admin = admin(Fake::default());
    static LARGE: [u8; (16 << 20) + 1] = [b'#'; (16 << 20) + 1];
    assert_eq!(change(&admin, "PUT", "/api/config", "", &LARGE[1..]).await.0, 400);
    assert_eq!(change(&admin, "PUT", "/api/config", "", &LARGE).await.0, 413);
}

#[tokio::test]
async fn more_changes_than_a_few_at_once_are_sent_away() {
    let fake = Arc::new(Fake::default());
    let admin = Admin::new(
        Arc::new(Metrics::new(START)),
        Arc::<Fake>::clone(&fake) as Arc<dyn Running>,
    );
    let busy = fake.busy.lock().await;
    let reload = || {
        let admin = admin.clone();
        tokio::spawn(async move { change(&admin, "POST", "/api/reload", "", b"").await.0 })
    };
    let waiting: Vec<_> = (0..4).map(|_| reload()).collect();
    while fake.reloads.load(Relaxed) < 4 {
        tokio::task::yield_now().await;
    }
    assert_eq!(reload().await.unwrap(), 503);
    drop(busy);
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), 200);
    }
    assert_eq!(reload().await.unwrap(), 200);
}

#[tokio::test]
async fn bans_are_listed_and_lifted() {
    let admin = admin(Fake::default());
    let (status, body) = get(&admin, "/api/bans").await;
    assert_eq!(status, 200);
    let until = "2026-11-30T12:00:00Z";
    assert_eq!(
        body,
        json!([{"limit": "ip", "key": "2001:db8::/64", "until": until, "seconds_left": 60}])
    );
    let lift = async |path: &str| {
        let request = Request::delete(path).body(Full::<Bytes>::default()).unwrap();
        admin.answer(request, client()).await.status().as_u16()
    };
    assert_eq!(lift("/api/bans/ip/2001:db8::%2F64").await, 204);
    assert_eq!(lift("/api/bans/ip/203.0.113.7").await, 404);
    assert_eq!(lift("/api/bans").await, 405, "not all at once");
    assert_eq!(lift("/api/bans/ip").await, 404);
    assert_eq!(lift("/api/bans/ip/away").await, 503);
}
