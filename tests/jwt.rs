//! Keys `jwt:CLAIM`: a claim counts of a verified token only.

use std::{fs, path::Path, sync::Arc};

use limiter_core::test_util::Certificates;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use tokio_rustls::TlsAcceptor;

use crate::support::{
    Algorithm, Client, DEADLINE, Gateway, Redis, Request, Response, Settings, Tally, get, wait::wall_clock, wait_for,
};

const LIMIT: u64 = 3;

/// A set of the one key that this secret is.
fn keys(secret: &str) -> String {
    let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
    let key = jsonwebtoken::jwk::Jwk::from_encoding_key(&key, jsonwebtoken::Algorithm::HS256).unwrap();
    json!({"keys": [key]}).to_string()
}

/// A request with a token of these claims.
fn with(secret: &str, claims: &Value) -> Request {
    let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
    let token = jsonwebtoken::encode(&jsonwebtoken::Header::default(), claims, &key).unwrap();
    get("/").header("authorization", &format!("Bearer {token}"))
}

fn claims(subject: &str) -> Value {
    let secs = wall_clock().as_secs();
    json!({"sub": subject, "iss": "id", "aud": ["orders"], "nbf": secs - 1, "exp": secs + 600})
}

/// A layer by the subject, and what else is said of it.
fn settings(settings: Settings, jwks: &Path, more: &str) -> Settings {
    let parameters = Algorithm::FixedWindow.parameters(LIMIT, "1d");
    settings
        .section(&format!(
            "jwt: {{jwks_file: \"{}\", issuer: id, audience: orders}}",
            jwks.display()
        ))
        .limit(&format!("{{name: subject, key: \"jwt:sub\", {parameters}, {more}}}"))
}

async fn send(gateways: &[Gateway], request: &Request, times: usize) -> Vec<Response> {
    let mut answers = Vec::new();
    for at in 0..times {
        answers.push(gateways[at % gateways.len()].client().send(request).await);
    }
    answers
}

async fn counts_subjects_apart(gateways: &[Gateway]) {
    let tally = async |request: &Request| send(gateways, request, 5).await.iter().collect::<Tally>();
    for subject in ["alice", "bob"] {
        // A new token of the same subject is the same client.
        let mut other = claims(subject);
        other["jti"] = json!("2");
        tally(&with("secret", &claims(subject))).await.expect(3, 2, subject);
        tally(&with("secret", &other)).await.expect(0, 5, subject);
    }
    // What is not verified is counted by its address, whoever it says that it is, and all of it together.
    let mut expired = claims("alice");
    expired["exp"] = json!(wall_clock().as_secs() - 1);
    let mut foreign = claims("alice");
    foreign["aud"] = json!("billing");
    tally(&with("forged", &claims("carol"))).await.expect(3, 2, "forged");
    for request in [with("secret", &expired), with("secret", &foreign), get("/")] {
        tally(&request).await.expect(0, 5, "not verified");
    }
    tally(&with("secret", &claims("carol")))
        .await
        .expect(3, 2, "carol herself");
}

#[tokio::test]
async fn subjects_are_counted_apart_in_memory_and_in_redis() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = folder.path().join("jwks.json");
    fs::write(&jwks, keys("secret")).unwrap();
    let here = settings(Settings::answering(), &jwks, "cost: 1");
    counts_subjects_apart(&[Gateway::with(&here).start().await]).await;
    let redis = Redis::start().await;
    let there = settings(Settings::answering().counting_in(&redis, "gw"), &jwks, "cost: 1");
    counts_subjects_apart(&[Gateway::with(&there).start().await, Gateway::with(&there).start().await]).await;
}

#[tokio::test]
async fn without_a_verified_token_the_layer_says_what_happens() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = folder.path().join("jwks.json");
    fs::write(&jwks, keys("secret")).unwrap();
    let deny = settings(
        Settings::answering(),
        &jwks,
        "on_missing_key: deny, overrides: {values: root, deny: true}",
    );
    let gateway = Gateway::with(&deny).start().await;
    let mut client = gateway.client();
    assert_eq!(client.send(&with("forged", &claims("alice"))).await.status, 403);
    assert_eq!(
        client.send(&with("secret", &claims("root"))).await.status,
        403,
        "an override by a claim"
    );
    let passed = client.send(&with("secret", &claims("alice"))).await;
    assert_eq!((passed.status, passed.remaining()), (200, 2));
    let doubled = with("secret", &claims("alice")).header("authorization", "Basic x");
    assert_eq!(Client::to(gateway.address()).send(&doubled).await.status, 400);
}

#[tokio::test]
async fn a_changed_set_of_keys_is_taken_and_its_old_tokens_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let jwks = folder.path().join("jwks.json");
    fs::write(&jwks, keys("old")).unwrap();
    let gateway = Gateway::with(&settings(Settings::answering(), &jwks, "on_missing_key: deny"))
        .start()
        .await;
    let (old, new) = (with("old", &claims("alice")), with("new", &claims("alice")));
    let status = async |request| gateway.client().send(request).await.status;
    assert_eq!((status(&old).await, status(&new).await), (200, 403));
    fs::write(&jwks, "{}").unwrap();
    gateway.status_says("/config/last_reload/outcome", "rejected").await;
    assert_eq!(
        (status(&old).await, status(&new).await),
        (200, 403),
        "the last good set stays"
    );
    fs::write(&jwks, keys("new")).unwrap();
    gateway.status_says("/config/version", 2).await;
    assert_eq!((status(&old).await, status(&new).await), (403, 200));
}

/// A gateway that answers `/jwks.json` with these keys.
fn key_server(keys: &str) -> Settings {
    let keys = keys.replace('\'', "''");
    Settings::new().route(&format!("{{path: /jwks.json, respond: {{body: '{keys}'}}}}"))
}

/// A set of the key that this secret is, under a name; and a request with a token of it.
fn named(name: &str, secret: &str) -> (String, Request) {
    let mut set: Value = serde_json::from_str(&keys(secret)).unwrap();
    set["keys"][0]["kid"] = json!(name);
    let header = jsonwebtoken::Header {
        kid: Some(name.to_owned()),
        ..jsonwebtoken::Header::default()
    };
    let key = jsonwebtoken::EncodingKey::from_secret(secret.as_bytes());
    let token = jsonwebtoken::encode(&header, &claims("alice"), &key).unwrap();
    (
        set.to_string(),
        get("/").header("authorization", &format!("Bearer {token}")),
    )
}

#[tokio::test]
async fn keys_at_a_url_are_followed_and_the_last_ones_stay() {
    let ((old, old_token), (new, new_token)) = (named("1", "old"), named("2", "new"));
    let server = Gateway::with(&key_server(&old)).start().await;
    let parameters = Algorithm::FixedWindow.parameters(900, "1d");
    let settings = Settings::answering()
        .section(&format!("jwt: {{jwks_url: \"http://{}/jwks.json\"}}", server.address()))
        .limit(&format!(
            "{{name: subject, key: \"jwt:sub\", on_missing_key: deny, {parameters}}}"
        ));
    let gateway = Gateway::with(&settings).start().await;
    let status = async |request| gateway.client().send(request).await.status;
    assert_eq!((status(&old_token).await, status(&new_token).await), (200, 403));
    // A token that names an unknown key has the keys asked for again.
    server.write_by_rename(&key_server(&new));
    server.status_says("/config/version", 2).await;
    wait_for(DEADLINE, "the new key", || async { status(&new_token).await == 200 }).await;
    assert_eq!(status(&old_token).await, 403);
    // A reload keeps them, also while they cannot be had.
    drop(server);
    gateway.write_by_rename(&settings.section("server: {drain: 7s}"));
    gateway.status_says("/config/version", 2).await;
    assert_eq!((status(&old_token).await, status(&new_token).await), (403, 200));
}

#[tokio::test]
async fn a_gateway_starts_without_the_keys_and_takes_them_when_they_come() {
    let server = Gateway::with(&key_server("{}")).start().await;
    let (keys, token) = named("1", "secret");
    let parameters = Algorithm::FixedWindow.parameters(900, "1d");
    let settings = Settings::answering()
        .section(&format!("jwt: {{jwks_url: \"http://{}/jwks.json\"}}", server.address()))
        .limit(&format!(
            "{{name: subject, key: \"jwt:sub\", on_missing_key: deny, {parameters}}}"
        ));
    let gateway = Gateway::with(&settings).start().await;
    assert_eq!(gateway.client().send(&token).await.status, 403);
    assert!(gateway.log().contains("no token is believed until it does"));
    server.write_by_rename(&key_server(&keys));
    server.status_says("/config/version", 2).await;
    wait_for(DEADLINE, "the keys", || async {
        gateway.client().send(&token).await.status == 200
    })
    .await;
}

/// Answers one request after the other over TLS, with these keys.
async fn serve(listener: TcpListener, made: &Certificates, keys: String) {
    let certs = CertificateDer::pem_file_iter(made.server_cert())
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let key = PrivateKeyDer::from_pem_file(made.server_key()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(certs, key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        // Who does not believe the certificate leaves.
        let Ok(mut stream) = acceptor.accept(stream).await else {
            continue;
        };
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let length = keys.len();
        let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{keys}");
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.ok();
    }
}

#[tokio::test]
async fn keys_are_read_over_tls_from_whom_the_system_believes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let made = Certificates::make();
    let parameters = Algorithm::FixedWindow.parameters(900, "1d");
    let settings = Settings::answering()
        .section(&format!("jwt: {{jwks_url: \"https://{address}/jwks.json\"}}"))
        .limit(&format!(
            "{{name: subject, key: \"jwt:sub\", on_missing_key: deny, {parameters}}}"
        ));
    let (keys, token) = named("1", "secret");
    let test = async {
        for (ca, expected) in [(made.ca(), 200), (made.stranger_ca(), 403)] {
            let launch = Gateway::with(&settings).environment("SSL_CERT_FILE", ca.to_str().unwrap());
            let gateway = launch.start().await;
            assert_eq!(
                gateway.client().send(&token).await.status,
                expected,
                "{}",
                gateway.log()
            );
        }
    };
    tokio::select! {
        () = test => {}
        () = serve(listener, &made, keys) => {}
    }
}
