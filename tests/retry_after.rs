//! Retry-After is true: alone, a client that waits that long is admitted.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::support::{Algorithm, Client, FIVE, Gateway, Redis, Settings, get, pause};

/// One key's client: goes over, waits exactly as told, and must pass.
async fn obey(mut client: Client, algorithm: Algorithm, user: String, rounds: usize, window_s: u64) {
    let request = get(&algorithm.path()).header("x-user-id", &user);
    for round in 0..rounds {
        let mut answer = client.send(&request).await;
        while answer.passed() {
            answer = client.send(&request).await;
        }
        let told = format!("{algorithm:?}, {user}, round {round}: {answer:?}");
        assert!(answer.denied(), "neither passed nor denied: {told}");
        let wait = answer.retry_after().unwrap_or_else(|| panic!("no Retry-After: {told}"));
        assert!(wait <= window_s + 1, "longer than the window: {told}");
        pause(Duration::from_secs(wait)).await;
        let again = client.send(&request).await;
        assert!(
            again.passed(),
            "waited {wait} s as told and was refused: {told}, then {again:?}"
        );
    }
}

/// Rounds for each algorithm, spread over many keys at once, so that they take little time.
async fn obey_all(settings: Settings, limit: u64, window_s: u64, users: usize, rounds: usize) {
    let settings = settings.five_limits("header:x-user-id", limit, &format!("{window_s}s"));
    let gateway = Gateway::with(&settings).start().await;
    let mut clients = JoinSet::new();
    for algorithm in FIVE {
        for user in 0..users {
            // Apart in time, so that they meet the windows at different places.
            let (client, late) = (gateway.client(), Duration::from_millis(37 * user as u64));
            clients.spawn(async move {
                pause(late).await;
                obey(client, algorithm, format!("user-{user}"), rounds, window_s).await;
            });
        }
    }
    while let Some(finished) = clients.join_next().await {
        finished.unwrap();
    }
}

// 026
#[tokio::test]
async fn in_memory_who_waits_as_told_passes() {
    obey_all(Settings::answering(), 5, 1, 25, 3).await;
}

// 026
#[tokio::test]
async fn in_redis_who_waits_as_told_passes() {
    let redis = Redis::start().await;
    obey_all(Settings::answering().counting_in(&redis, "obey"), 5, 1, 25, 3).await;
}

// 026: one unit in a long window, where rounding down by anything shows.
#[tokio::test]
async fn in_memory_who_waits_a_whole_window_as_told_passes() {
    obey_all(Settings::answering(), 1, 3, 25, 2).await;
}

// 026
#[tokio::test]
async fn in_redis_who_waits_a_whole_window_as_told_passes() {
    let redis = Redis::start().await;
    obey_all(Settings::answering().counting_in(&redis, "obey"), 1, 3, 25, 2).await;
}

#[tokio::test]
async fn of_several_layers_that_refuse_the_longest_wait_is_told() {
    let redis = Redis::start().await;
    for (settings, kind) in [
        (Settings::answering(), "memory"),
        (Settings::answering().counting_in(&redis, "longest"), "redis"),
    ] {
        let settings = settings
            .limit("{name: short, key: ip, algorithm: fixed_window, limit: 1, window: 2s, align: first_request}")
            .limit("{name: long, key: global, algorithm: fixed_window, limit: 1, window: 1h, align: first_request}");
        let gateway = Gateway::with(&settings).start().await;
        let mut client = gateway.client();
        assert!(client.get("/").await.passed());
        let denied = client.get("/").await;
        assert_eq!(
            denied.json()["violated-policies"][0],
            "short",
            "{kind}: the first that refuses is named"
        );
        let wait = denied.retry_after().unwrap();
        assert!((3590..=3600).contains(&wait), "{kind}: told to wait {wait} s");
    }
}
