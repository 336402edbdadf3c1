//! Keys `jwt:CLAIM`: a claim counts of a verified token only.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::support::{Algorithm, Client, Gateway, Redis, Request, Response, Settings, Tally, get, wait::wall_clock};

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
