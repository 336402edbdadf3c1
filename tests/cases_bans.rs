//! K19: how long a ban lasts, also over reloads. And what K09 asks of the keys that are told of.

use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::{
    bans::{SHARED, answering, ask, bans, course, is_banned, knows_of, logs, two},
    support::{Client, DEADLINE, Gateway, Redis, Response, Settings, get, wait::pause_until, wait_for},
};

const PATIENT: &str = "127.0.0.8";
const IMPATIENT: &str = "127.0.0.9";

async fn from(gateway: &Gateway, address: &str) -> Response {
    Client::to(gateway.address()).from(address).get("/").await
}

/// Case 103, with a ban of 6 s in place of 20.
#[tokio::test]
async fn a_ban_lasts_as_long_as_the_file_says_however_often_it_is_asked_after() {
    const BAN: Duration = Duration::from_secs(6);
    let redis = Redis::start().await;
    let settings = Settings::answering().counting_in(&redis, "gw").limit(
        "{name: ip, key: ip, algorithm: sliding_window_log, limit: 5, window: 10s, ban: {after: 3, within: 60s, for: 6s}}",
    );
    let [one, two] = two(&settings).await;
    for _ in 0..5 {
        for address in [PATIENT, IMPATIENT] {
            assert_eq!(from(&one, address).await.status, 200);
        }
    }
    let began = Instant::now();
    for _ in 0..3 {
        for address in [PATIENT, IMPATIENT] {
            let answer = from(&one, address).await;
            assert!(answer.status == 429 && !is_banned(&answer), "{answer:?}");
        }
    }
    let banned = Instant::now();
    knows_of(&two, 2).await;

    // Five a second, at both, to a second before its end.
    for step in 1..22 {
        pause_until(banned, step * Duration::from_millis(200)).await;
        let gateway = [&one, &two][step as usize % 2];
        let since = began.elapsed();
        let answer = from(gateway, IMPATIENT).await;
        assert!(is_banned(&answer), "after {since:?}: {answer:?}");
        let left = answer.retry_after().unwrap();
        let bounds = [BAN.saturating_sub(banned.elapsed()), BAN.saturating_sub(since) + SHARED];
        let [least, most] = bounds.map(|time| time.as_secs());
        assert!((least..=most + 1).contains(&left), "{left} s are left after {since:?}");
    }
    assert!(is_banned(&from(&two, PATIENT).await));
    assert_eq!(from(&two, "127.0.0.10").await.status, 200, "others are untouched");

    pause_until(banned, BAN + SHARED).await;
    for address in [PATIENT, IMPATIENT] {
        for gateway in [&one, &two] {
            assert!(!is_banned(&from(gateway, address).await), "{address} at T + 7 s");
        }
    }
}

/// Case 100, of a ban: ten reloads do not begin it anew, nor end it.
#[tokio::test]
async fn a_ban_outlasts_ten_reloads() {
    let redis = Redis::start().await;
    let ban = "{after: 2, within: 1m, for: 10m}";
    for settings in [answering(ban), answering(ban).counting_in(&redis, "gw")] {
        let gateway = Gateway::with(&settings).start().await;
        assert_eq!(course(&gateway, "alice", 4).await, "pddb");
        let began = Instant::now();
        for number in 1..=10 {
            let edited = settings.clone().section(&format!("# edit {number}"));
            gateway.write_by_rename(&edited);
            gateway.status_says("/config/version", number + 1).await;
        }
        pause_until(began, Duration::from_secs(3)).await;
        assert_eq!(course(&gateway, "alice", 1).await, "b");
        let left = bans(&gateway).await[0]["seconds_left"].as_u64().unwrap();
        let expected = 600 - began.elapsed().as_secs();
        assert!(
            (expected - 1..=expected + 1).contains(&left),
            "{left}, expected {expected}"
        );
    }
}

/// A secret stands neither in the list, nor in the log, nor in Redis: the ban is listed, and lifted, by its hash.
#[tokio::test]
async fn a_secret_key_is_told_of_by_its_hash() {
    let redis = Redis::start().await;
    let settings = Settings::answering().counting_in(&redis, "gw").limit(
        "{name: token, key: \"header:authorization\", algorithm: fixed_window, limit: 1, window: 1d, \
         ban: {after: 1, within: 1m, for: 10m}}",
    );
    let gateway = Gateway::with(&settings).start().await;
    let request = get("/").header("authorization", "Bearer hunter2hunter2");
    for expected in [200, 429, 429] {
        assert_eq!(gateway.client().send(&request).await.status, expected);
    }
    let listed = gateway.ask_admin("GET", "/api/bans").await;
    let key = listed.json()[0]["key"].as_str().unwrap().to_owned();
    assert!(key.starts_with('#') && key.len() == 33, "{key}");
    assert_eq!(listed.json()[0]["limit"], json!("token"));
    logs(&gateway, "a ban began").await;
    wait_for(DEADLINE, "the ban in Redis", || async {
        redis.keys("gw:~{bans}:token:").await == [format!("gw:~{{bans}}:token:{key}")]
    })
    .await;
    let all = format!("{}{}{:?}", listed.text(), gateway.log(), redis.keys("gw").await);
    assert!(!all.contains("hunter2"), "{all}");
    let lift = format!("/api/bans/token/{}", key.replace('#', "%23"));
    assert_eq!(gateway.ask_admin("DELETE", &lift).await.status, 204);
    assert_eq!(
        gateway.client().send(&request).await.json()["type"]
            .as_str()
            .unwrap()
            .split('#')
            .nth(1),
        Some("quota-exceeded")
    );
}

/// Layers do not ban for each other (K11): each by its own refusals, with its own key, and of two bans the longer one is
/// told.
#[tokio::test]
async fn each_layer_bans_by_what_it_refuses_itself() {
    let redis = Redis::start().await;
    let settings = Settings::answering();
    let layers = [
        "{name: user, key: \"header:x-user-id\", algorithm: fixed_window, limit: 2, window: 1d, \
         ban: {after: 2, within: 1m, for: 10m}}",
        "{name: ip, key: ip, algorithm: fixed_window, limit: 4, window: 1d, ban: {after: 4, within: 1m, for: 1h}}",
    ];
    let settings = settings.limits(layers);
    for settings in [settings.clone(), settings.counting_in(&redis, "gw")] {
        let gateway = Gateway::with(&settings).start().await;
        let violated = async |user| {
            let answer = ask(&gateway, user).await;
            let names = answer.json()["violated-policies"].clone();
            (is_banned(&answer), names, answer.retry_after().unwrap())
        };
        for user in ["a", "a", "b", "b"] {
            assert_eq!(ask(&gateway, user).await.status, 200);
        }
        // Both refuse a; of c the address alone.
        assert_eq!(violated("a").await.1, json!(["user", "ip"]));
        assert_eq!(violated("c").await.1, json!(["ip"]));
        assert_eq!(violated("a").await.1, json!(["user", "ip"]));
        let (banned, by, left) = violated("a").await;
        assert!(banned && (590..=600).contains(&left), "{left}");
        assert_eq!(by, json!(["user"]), "a was refused twice, the address three times");
        assert!(!violated("c").await.0, "that is the fourth");
        let (banned, by, left) = violated("c").await;
        assert!(banned && (3590..=3600).contains(&left), "{left}");
        assert_eq!(by, json!(["ip"]));
        let (banned, by, left) = violated("a").await;
        assert!(banned && (3590..=3600).contains(&left), "the longer one: {left}");
        assert_eq!(by, json!(["user", "ip"]));
        let answer = ask(&gateway, "a").await;
        assert_eq!(answer.header_lines("ratelimit").len(), 1);
        assert_eq!(answer.number("x-ratelimit-limit"), Some(4), "of the longest wait");
    }
}
