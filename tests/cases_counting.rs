//! K02: nothing is counted twice, or not at all.

use std::time::Duration;

use tokio::{task::JoinSet, time::Instant};

use crate::support::{Algorithm, Crowd, FIVE, Gateway, Raw, Redis, Settings, get, pause};

/// Opens `count` connections over the gateways, sends each request but for its last byte, then all last bytes at once. The
/// status of each answer.
async fn all_at_once(gateways: &[&Gateway], count: usize, path: &str) -> Vec<u16> {
    let bytes = get(path).header("x-user-id", "one").to_bytes();
    let (last, most) = bytes.split_last().unwrap();
    let mut connections = Vec::with_capacity(count);
    for index in 0..count {
        let mut connection = Raw::connect(gateways[index % gateways.len()].address()).await;
        connection.send(most).await.unwrap();
        connections.push(connection);
    }
    for connection in &mut connections {
        connection.send([*last]).await.unwrap();
    }
    let mut statuses = Vec::with_capacity(count);
    for mut connection in connections {
        statuses.push(connection.response_to("GET").await.unwrap().status);
    }
    statuses
}

// 006
#[tokio::test]
async fn requests_released_at_once_over_two_gateways_never_pass_above_the_quota() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "race")
        .five_limits("header:x-user-id", 50, "3600s");
    let (one, two) = (
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    );
    for algorithm in FIVE {
        let statuses = all_at_once(&[&one, &two], 300, &algorithm.path()).await;
        let (passed, denied) = [200, 429]
            .map(|wanted| statuses.iter().filter(|status| **status == wanted).count())
            .into();
        assert_eq!((passed, denied), (50, 250), "{algorithm:?}");
    }
}

// 007
#[tokio::test]
async fn requests_of_one_instant_are_counted_each() {
    let redis = Redis::start().await;
    for settings in [
        Settings::answering(),
        Settings::answering().counting_in(&redis, "instant"),
    ] {
        let settings = settings.limit(&Algorithm::SlidingWindowLog.layer("ip", 20, "1h"));
        let gateway = Gateway::with(&settings).start().await;
        let tally = Crowd::of(50).to(&[gateway.address()]).send(200, |_| get("/sl/x")).await;
        tally.expect(20, 180, "a log of 20");
    }
}

/// A steady client far below its limit over many windows: never denied, and what is left is back near the limit in each.
async fn steady(gateway: &Gateway, path: &'static str) {
    let mut clients = JoinSet::new();
    let start = Instant::now();
    for _ in 0..4 {
        let mut client = gateway.client();
        clients.spawn(async move {
            let mut left = Vec::new();
            while start.elapsed() < Duration::from_secs(8) {
                let answer = client.get(path).await;
                assert!(answer.passed(), "{path}: {answer:?}");
                left.push((start.elapsed(), answer.remaining()));
                // No catching up after a stall: it could bring more than the pace into one window.
                pause(Duration::from_millis(20)).await;
            }
            left
        });
    }
    let mut left = Vec::new();
    while let Some(finished) = clients.join_next().await {
        left.extend(finished.unwrap());
    }
    left.sort();
    // At most 11 a window from each of four, of 200.
    let least = left.iter().map(|(_, remaining)| *remaining).min().unwrap();
    assert!(least >= 200 - 44, "{path}: only {least} of 200 left");
    // Any 250 ms hold an edge of a window of 200 ms, unless the machine stood still.
    for window in left
        .windows(60)
        .filter(|window| window[59].0 - window[0].0 > Duration::from_millis(250))
    {
        let most = window.iter().map(|(_, remaining)| *remaining).max().unwrap();
        assert!(
            most >= 190,
            "{path}: never above {most} of 200 from {:?} to {:?}",
            window[0].0,
            window[59].0
        );
    }
}

// 011
#[tokio::test]
async fn a_client_far_below_its_limit_is_never_denied_at_the_edge_of_a_window() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "edge")
        .limit("{name: clock, key: ip, match: {path: /clock}, algorithm: fixed_window, limit: 200, window: 200ms}")
        .limit(
            "{name: first, key: ip, match: {path: /first}, algorithm: fixed_window, limit: 200, window: 200ms, \
             align: first_request}",
        );
    let gateway = Gateway::with(&settings).start().await;
    tokio::join!(steady(&gateway, "/clock"), steady(&gateway, "/first"));
}
