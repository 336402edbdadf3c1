//! The fault matrix over TLS, and what is told where TLS fails.

use std::{path::Path, time::Duration};

use limiter_core::test_util::RedisServer;

use crate::support::{BURST, DEADLINE, Gateway, Redis, Settings, Trial, wait_for};

/// Counts there: the server's TLS port, trusting this authority, and showing the client's certificate or none.
fn settings(redis: &Redis, ca: &Path, certified: bool) -> Settings {
    let server = redis.server();
    let certificates = server.certificates();
    let identity = if certified {
        let (cert, key) = (certificates.client_cert(), certificates.client_key());
        format!(", cert: {}, key: {}", cert.display(), key.display())
    } else {
        String::new()
    };
    let (url, ca) = (server.url(), ca.display());
    Trial::settings(&format!("url: \"{url}\", prefix: f, tls: {{ca: {ca}{identity}}}"))
}

async fn start(redis: &Redis, certified: bool) -> Gateway {
    let ca = redis.server().certificates().ca();
    Gateway::with(&settings(redis, &ca, certified)).start().await
}

#[tokio::test]
async fn nothing_happens() {
    let redis = Redis::start_as(RedisServer::start_tls).await;
    let gateway = start(&redis, false).await;
    let trial = Trial::unnoticed("TLS: nothing").lasting(Duration::from_secs(1));
    trial.run(&gateway, async || {}, async || {}).await;
}

#[tokio::test]
async fn killed_and_started_again_with_certified_clients() {
    let redis = Redis::start_as(RedisServer::start_tls_for_certified_clients).await;
    let gateway = start(&redis, true).await;
    let trial = Trial::outage("TLS with client certificates: kill -9, started 3 s later").forgetting(BURST);
    trial
        .run(&gateway, async || redis.kill(), async || redis.start_again().await)
        .await;
}

/// Answers by the policies, and the log says why.
async fn is_told(settings: &Settings, why: &str) {
    let gateway = Gateway::with(settings).start().await;
    assert_eq!(gateway.client().get("/closed").await.status, 503);
    assert_eq!(gateway.client().get("/open").await.status, 200);
    wait_for(DEADLINE, &format!("{why} in the log"), || async {
        gateway.log().to_lowercase().contains(why)
    })
    .await;
}

#[tokio::test]
async fn a_stranger_is_not_trusted_and_told_as_such() {
    let redis = Redis::start_as(RedisServer::start_tls).await;
    let stranger = redis.server().certificates().stranger_ca();
    is_told(&settings(&redis, &stranger, false), "unknownissuer").await;
}

#[tokio::test]
async fn a_certificate_that_is_demanded_and_missing_is_told_as_such() {
    let redis = Redis::start_as(RedisServer::start_tls_for_certified_clients).await;
    let ca = redis.server().certificates().ca();
    is_told(&settings(&redis, &ca, false), "certificate").await;
}
