//! The admin listener: health, metrics, status.

use crate::support::{Client, Gateway, Origin, Raw, Redis, Settings, Step, get, request, wait_for};
use rustix::process::Signal;
use std::{collections::BTreeSet, sync::Arc, time::Duration};
use tokio::sync::Notify;

const LAYER: &str = "{name: user, key: header:x-user-id, algorithm: token_bucket, rate: 2/1h}";

/// The names of the samples in an exposition, without the suffixes of histograms.
fn families(text: &str) -> BTreeSet<String> {
    let typed = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    typed
        .filter_map(|rest| rest.split(' ').next().map(str::to_owned))
        .collect()
}

#[tokio::test]
async fn liveness_and_readiness() {
    let gateway = Gateway::with(&Settings::answering()).start().await;
    for path in ["/healthz", "/readyz"] {
        let answer = gateway.ask_admin("GET", path).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_eq!(
            gateway.client().get(path).await.text(),
            "fine",
            "no admin path on the traffic listener"
        );
    }
}

#[tokio::test]
async fn readiness_ends_where_draining_begins() {
    let origin = Origin::start().await;
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    origin.answers(move |_| vec![Step::Wait(Arc::clone(&wait)), Step::ok("late")]);
    let mut gateway = Gateway::with(&Settings::forwarding_to(&origin)).start().await;
    let mut raw = Raw::connect(gateway.address()).await;
    raw.send(get("/").to_bytes()).await.unwrap();
    origin.has_executed(1).await;
    gateway.signal(Signal::TERM);
    wait_for(Duration::from_secs(5), "503 from /readyz", || async {
        Client::to(gateway.admin())
            .try_send(&get("/readyz"))
            .await
            .is_ok_and(|answer| answer.status == 503)
    })
    .await;
    assert_eq!(
        gateway.ask_admin("GET", "/healthz").await.status,
        200,
        "it still serves"
    );
    go.notify_one();
    let response = raw.response_to("GET").await.unwrap();
    assert_eq!((response.status, response.text().as_str()), (200, "late"));
    assert_eq!(gateway.exit().await.code(), Some(0));
}

#[tokio::test]
async fn status_says_what_runs() {
    let gateway = Gateway::with(&Settings::answering()).start().await;
    let status = gateway.status().await;
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert!(status["uptime_s"].is_number(), "{status}");
    assert_eq!(status["config"]["version"], 1);
    assert!(status["config"]["loaded_at"].is_string(), "{status}");
    assert_eq!(status["store"]["kind"], "memory");
    assert_eq!(status["store"]["state"], "connected");
    let listeners = status["listeners"].to_string();
    assert!(listeners.contains(&gateway.address().to_string()), "{listeners}");
}

#[tokio::test]
async fn status_tells_when_redis_is_lost_and_when_it_is_back() {
    let redis = Redis::start().await;
    let settings = Settings::answering().limit(LAYER).store(&format!(
        "{{redis: {{url: \"redis://{}/0\", prefix: admin, on_failure: open}}}}",
        redis.address()
    ));
    let gateway = Gateway::with(&settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    assert_eq!(gateway.status().await["store"]["kind"], "redis");
    redis.kill();
    wait_for(Duration::from_secs(10), "the loss in /api/status", || async {
        gateway.client().send(&get("/").header("X-User-Id", "a")).await;
        gateway.status().await["store"]["state"] != "connected"
    })
    .await;
    redis.start_again().await;
    gateway.status_says("/store/state", "connected").await;
}

#[tokio::test]
async fn every_metric_is_there_from_the_start() {
    let gateway = Gateway::with(&Settings::answering().limit(LAYER)).start().await;
    let answer = gateway.ask_admin("GET", "/metrics").await;
    assert!(
        answer
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("text/plain")),
        "{answer:?}"
    );
    let text = answer.text();
    let families = families(&text);
    for family in [
        "gateway_requests_total",
        "gateway_request_duration_seconds",
        "gateway_in_flight_requests",
        "gateway_connections",
        "gateway_limit_decisions_total",
        "gateway_store_duration_seconds",
        "gateway_store_errors_total",
        "gateway_store_state",
        "gateway_config_reloads_total",
        "gateway_config_loaded_timestamp_seconds",
        "gateway_memory_store_keys",
    ] {
        assert!(families.contains(family), "{family} is missing: {families:?}");
    }
    for (family, labels) in [
        (
            "gateway_limit_decisions_total",
            [("limit", "user"), ("outcome", "allowed")],
        ),
        (
            "gateway_limit_decisions_total",
            [("limit", "user"), ("outcome", "denied")],
        ),
    ] {
        let line = text.lines().any(|line| {
            line.starts_with(family)
                && labels
                    .iter()
                    .all(|(key, value)| line.contains(&format!("{key}=\"{value}\"")))
        });
        assert!(line, "{family} {labels:?} is not there before the first request");
        assert_eq!(gateway.metric(family, &labels).await, 0.0);
    }
}

#[tokio::test]
async fn metrics_count_what_happened() {
    let gateway = Gateway::with(&Settings::answering().limit(LAYER)).start().await;
    let mut client = gateway.client();
    for _ in 0..5 {
        client.send(&get("/").header("X-User-Id", "a")).await;
    }
    client.get("/%zz").await;
    for (family, labels, expected) in [
        (
            "gateway_limit_decisions_total",
            [("limit", "user"), ("outcome", "allowed")],
            2.0,
        ),
        (
            "gateway_limit_decisions_total",
            [("limit", "user"), ("outcome", "denied")],
            3.0,
        ),
        ("gateway_requests_total", [("route", "all"), ("code", "200")], 2.0),
        ("gateway_requests_total", [("route", "all"), ("code", "429")], 3.0),
    ] {
        // A request is counted when its answer has gone out, which is after the client has it.
        wait_for(
            Duration::from_secs(5),
            &format!("{family} {labels:?} to be {expected}"),
            || async { (gateway.metric(family, &labels).await - expected).abs() < 0.5 },
        )
        .await;
    }
    let refused = gateway.metric("gateway_requests_total", &[("code", "400")]).await;
    assert!(
        (refused - 1.0).abs() < 0.5,
        "a request without a route is counted too: {refused}"
    );
    assert!(gateway.metric("gateway_memory_store_keys", &[]).await >= 1.0);
    assert!(gateway.metric("gateway_connections", &[]).await >= 1.0);
}

#[tokio::test]
async fn no_label_holds_what_clients_invent() {
    let gateway = Gateway::with(&Settings::answering().limit(LAYER)).start().await;
    let mut client = gateway.client();
    let series = |text: String| text.lines().filter(|line| !line.starts_with('#')).count();
    client.send(&get("/").header("X-User-Id", "first")).await;
    let before = series(gateway.metrics().await);
    for number in 0..50 {
        let method = if number % 2 == 0 {
            "GET".to_owned()
        } else {
            format!("INVENTED{number}")
        };
        let odd = request(&method, &format!("/invented/{number}?invented={number}"))
            .header("X-User-Id", &format!("invented-{number}"))
            .header("Host", &format!("invented{number}.test"));
        client.send(&odd).await;
    }
    let text = gateway.metrics().await;
    assert!(!text.to_lowercase().contains("invented"), "{text}");
    assert!(!text.contains("127.0.0.1"), "an address in a label: {text}");
    let after = series(text);
    assert!(after <= before + 5, "{before} series became {after}");
}

#[tokio::test]
async fn openmetrics_where_accept_asks() {
    let gateway = Gateway::with(&Settings::answering()).start().await;
    let accept = get("/metrics").header("Accept", "application/openmetrics-text; version=1.0.0");
    let answer = Client::to(gateway.admin()).send(&accept).await;
    assert!(
        answer
            .header("content-type")
            .is_some_and(|kind| kind.starts_with("application/openmetrics-text")),
        "{answer:?}"
    );
    assert!(answer.text().ends_with("# EOF\n"), "{}", answer.text());
}

#[tokio::test]
async fn what_it_does_not_have_is_a_problem_document() {
    let gateway = Gateway::with(&Settings::answering()).start().await;
    for (method, path, status) in [("GET", "/nothing", 404), ("POST", "/healthz", 405)] {
        let answer = gateway.ask_admin(method, path).await;
        assert_eq!(answer.status, status, "{method} {path}: {answer:?}");
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json"),
            "{method} {path}"
        );
        assert_eq!(answer.json()["status"], status);
    }
}
