//! K01: how long keys live in Redis.

use std::time::Duration;

use tokio::{task::JoinSet, time::Instant};

use crate::support::{
    Algorithm, Crowd, FIVE, Gateway, Redis, Relay, Settings, Tally, get, pause,
    redis::Reply,
    wait::{pause_until, pause_until_phase},
    wait_for,
};

/// Names the counters that would live for ever.
const IMMORTAL: &str = "local found = {}
    for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
        if redis.call('PTTL', key) == -1 and string.sub(key, 1, #ARGV[1] + 2) ~= ARGV[1] .. ':~' then
            found[#found + 1] = key
        end
    end
    return found";

// 001
#[tokio::test]
async fn no_counter_is_ever_left_without_an_expiry() {
    let redis = Redis::start().await;
    let relay = Relay::to(redis.address()).await;
    let settings = Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"redis://{}/0\", prefix: k, on_failure: local}}}}",
            relay.address()
        ))
        .five_limits("header:x-user-id", 20, "2s");
    let (one, two) = (
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    );
    let crowd = Crowd::of(64).to(&[one.address(), two.address()]);
    let traffic = crowd.send(8000, |index| {
        get(&FIVE[index % FIVE.len()].path()).header("x-user-id", &format!("user-{}", index % 499))
    });
    let trouble = async {
        for _ in 0..5 {
            pause(Duration::from_millis(300)).await;
            relay.cut();
            let immortal = redis.command(&["EVAL", IMMORTAL, "0", "k"]).await;
            assert_eq!(immortal, Reply::List(Vec::new()), "counters without an expiry");
        }
    };
    let (tally, ()) = tokio::join!(traffic, trouble);
    assert_eq!(tally.passed() + tally.denied(), 8000, "{tally:?}");
    redis.sees_counters("k").await;
    wait_for(Duration::from_secs(10), "all counters to expire", || async {
        redis.counters("k").await.is_empty()
    })
    .await;
}

// 002
#[tokio::test]
async fn a_counter_lives_as_long_as_it_matters_and_at_most_twice_the_window() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "ttl")
        .five_limits("ip", 10, "10s");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    for algorithm in FIVE {
        let before = redis.counters("ttl").await;
        let asked = Instant::now();
        assert!(client.get(&algorithm.path()).await.passed());
        let mut new = redis.counters("ttl").await;
        new.retain(|key| !before.contains(key));
        assert_eq!(new.len(), 1, "{algorithm:?}: one counter, one key: {new:?}");
        let life = redis
            .time_to_live(&new[0])
            .await
            .flatten()
            .unwrap_or_else(|| panic!("{algorithm:?} never expires"));
        // One unit of a bucket is back after a second; a window matters to its end.
        let matters = match algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => Duration::from_secs(1),
            Algorithm::FixedWindow | Algorithm::SlidingWindowLog | Algorithm::SlidingWindowCounter => {
                Duration::from_secs(10)
            }
        };
        assert!(
            life + asked.elapsed() >= matters,
            "{algorithm:?} is forgotten after {life:?}"
        );
        assert!(life <= Duration::from_secs(20), "{algorithm:?} lives for {life:?}");
    }
}

// 002
#[tokio::test]
async fn a_counter_is_not_lost_within_its_window() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "kept")
        .five_limits("ip", 10, "10s");
    let gateway = Gateway::with(&settings).start().await;
    let mut clients = JoinSet::new();
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindowLog,
        Algorithm::SlidingWindowCounter,
    ] {
        let mut client = gateway.client();
        clients.spawn(async move {
            let start = Instant::now();
            for request in 1..=5_u32 {
                let left = client.get(&algorithm.path()).await.remaining();
                assert_eq!(left, 10 - i64::from(request), "{algorithm:?}");
                pause_until(start, Duration::from_millis(1500) * request).await;
            }
        });
    }
    while let Some(finished) = clients.join_next().await {
        finished.unwrap();
    }
}

async fn the_last_window_still_weighs(settings: Settings) {
    let window = Duration::from_secs(3);
    let gateway = Gateway::with(&settings.limit(&Algorithm::SlidingWindowCounter.layer("ip", 10, "3s")))
        .start()
        .await;
    let (mut client, request) = (gateway.client(), get("/sc/x"));
    pause_until_phase(window, Duration::from_millis(60)).await;
    assert!(client.send(&request).await.passed());
    pause_until_phase(window, Duration::from_millis(2900)).await;
    let before = client.repeat(8, &request).await;
    before.iter().collect::<Tally>().expect(8, 0, "the rest of the nine");
    pause_until_phase(window, Duration::from_millis(60)).await;
    let after: Tally = client.repeat(9, &request).await.iter().collect();
    assert!(
        (1..=2).contains(&after.passed()),
        "of nine just after the edge {} passed",
        after.passed()
    );
}

// 005
#[tokio::test]
async fn the_sliding_counter_remembers_the_window_before_the_edge_in_memory() {
    the_last_window_still_weighs(Settings::answering()).await;
}

// 005
#[tokio::test]
async fn the_sliding_counter_remembers_the_window_before_the_edge_in_redis() {
    let redis = Redis::start().await;
    the_last_window_still_weighs(Settings::answering().counting_in(&redis, "edge")).await;
}
