//! The number that the operator wrote is the number that passes: in time, and over several gateways.

use std::time::Duration;

use tokio::task::JoinSet;

use crate::support::{Algorithm, Client, Crowd, FIVE, Gateway, Judge, Redis, Settings, Tally, get, pause};

/// A burst far over the quota, then requests at uneven paces over several windows: each answer is what the algorithm gives.
async fn follow(gateway: &Gateway, algorithm: Algorithm, limit: u64, window_ms: u64) {
    let mut judge = Judge::new(algorithm, limit, window_ms);
    let mut client = gateway.client();
    let request = get(&algorithm.path()).header("x-user-id", "one");
    for _ in 0..3 * limit {
        judge.send(&mut client, &request).await;
    }
    for pace_ms in [130, 17, 410, 61, 230] {
        for _ in 0..(window_ms * 4 / 5 / pace_ms) {
            pause(Duration::from_millis(pace_ms)).await;
            // Until it is denied, so that what came back is used up and the next answers are certain again.
            for _ in 0..=limit {
                if judge.send(&mut client, &request).await.denied() {
                    break;
                }
            }
        }
    }
    judge.is_certain();
    assert!(
        judge.admitted() as u64 >= 3 * limit,
        "{algorithm:?}: only {} were admitted",
        judge.admitted()
    );
}

async fn follow_all(settings: Settings) {
    let (limit, window_ms) = (10, 1500);
    let settings = settings.five_limits("header:x-user-id", limit, "1500ms");
    let gateway = Gateway::with(&settings).start().await;
    let follow_five = FIVE.map(|algorithm| follow(&gateway, algorithm, limit, window_ms));
    let [a, b, c, d, e] = follow_five;
    tokio::join!(a, b, c, d, e);
}

#[tokio::test]
async fn in_memory_exactly_the_quota_passes_and_then_what_the_algorithm_gives() {
    follow_all(Settings::answering()).await;
}

#[tokio::test]
async fn in_redis_exactly_the_quota_passes_and_then_what_the_algorithm_gives() {
    let redis = Redis::start().await;
    follow_all(Settings::answering().counting_in(&redis, "exact")).await;
}

#[tokio::test]
async fn two_gateways_share_a_quota_to_the_unit() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "shared")
        .five_limits("header:x-user-id", 500, "1d");
    let (one, two) = (
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    );
    for algorithm in FIVE {
        let crowd = Crowd::of(64).to(&[one.address(), two.address()]);
        let request = get(&algorithm.path()).header("x-user-id", "one");
        let tally = crowd.send(900, move |_| request.clone()).await;
        // Within a test's seconds nothing comes back of 500 a day.
        tally.expect(500, 400, algorithm.short());
    }
}

/// Four layers of which one is the narrowest.
fn four_layers(narrowest: &str, algorithm: Algorithm) -> Vec<String> {
    ["global", "header:x-user-id", "route", "ip"]
        .map(|key| {
            let limit = if key == narrowest { 500 } else { 700 };
            let name = key.replace(':', "-");
            format!(
                "{{name: {name}, key: \"{key}\", {}}}",
                algorithm.parameters(limit, "1d")
            )
        })
        .to_vec()
}

#[tokio::test]
async fn of_four_layers_the_narrowest_binds_two_gateways_to_the_unit() {
    let redis = Redis::start().await;
    let narrowest = ["global", "header:x-user-id", "route", "ip"];
    let mut algorithms = FIVE.iter().cycle();
    for (round, key) in narrowest.into_iter().cycle().take(FIVE.len()).enumerate() {
        let algorithm = *algorithms.next().unwrap();
        let layers = four_layers(key, algorithm);
        let settings = Settings::answering()
            .counting_in(&redis, &format!("four{round}"))
            .limits(layers.iter().map(String::as_str));
        let (one, two) = (
            Gateway::with(&settings).start().await,
            Gateway::with(&settings).start().await,
        );
        let crowd = Crowd::of(64).to(&[one.address(), two.address()]);
        let tally = crowd.send(900, |_| get("/").header("x-user-id", "one")).await;
        tally.expect(500, 400, &format!("{algorithm:?}, narrowest at {key}"));
        let denied = one.client().send(&get("/").header("x-user-id", "one")).await;
        let name = key.replace(':', "-");
        assert_eq!(denied.json()["violated-policies"][0], name.as_str());
    }
}

#[tokio::test]
async fn keys_are_counted_apart_and_all_exactly() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "apart")
        .five_limits("header:x-user-id", 5, "1d");
    let gateway = Gateway::with(&settings).start().await;
    let mut clients = JoinSet::new();
    for user in 0..20 {
        let address = gateway.address();
        clients.spawn(async move {
            let mut client = Client::to(address);
            for algorithm in FIVE {
                let request = get(&algorithm.path()).header("x-user-id", &format!("user-{user}"));
                let answers = client.repeat(8, &request).await;
                answers
                    .iter()
                    .collect::<Tally>()
                    .expect(5, 3, &format!("{algorithm:?} for user {user}"));
            }
        });
    }
    while let Some(finished) = clients.join_next().await {
        finished.unwrap();
    }
}
