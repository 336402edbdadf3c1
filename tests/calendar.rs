//! Windows of days, weeks and months in time zones, whose edges are where the calendar has them.

use std::{future::Future, time::Duration};

use limiter_core::{
    Timestamp,
    algorithm::{Calendar, Zone},
};

use crate::support::{Gateway, Redis, Response, Settings, Tally, WallClock, Way, get, pause, wait::wall_clock};

const HOUR: u64 = 3_600;

fn limit(limit: u64, window: &str, zone: &str) -> String {
    format!("{{name: all, key: global, algorithm: fixed_window, limit: {limit}, window: {window}, timezone: {zone}}}")
}

async fn answers(gateway: &Gateway, count: usize) -> Vec<Response> {
    gateway.client().repeat(count, &get("/")).await
}

async fn passed(gateway: &Gateway, count: usize) -> usize {
    answers(gateway, count).await.iter().collect::<Tally>().passed()
}

/// Zones whose day goes on for ten minutes at least, and when it ends.
fn quiet_zones() -> impl Iterator<Item = (&'static str, Timestamp)> {
    let zones = [
        "Europe/Berlin",
        "America/New_York",
        "Asia/Tokyo",
        "UTC",
        "Pacific/Auckland",
    ];
    zones.into_iter().filter_map(|name| {
        let calendar = Calendar::days(Zone::named(name).unwrap(), 1).unwrap();
        let (_, end) = calendar.window_at(wall_clock());
        (end.since(wall_clock()) > Duration::from_secs(600)).then_some((name, end))
    })
}

/// In memory, and in a Redis.
async fn on_each_store<F: Future<Output = ()>>(test: impl Fn(Settings) -> F) {
    test(Settings::answering()).await;
    let redis = Redis::start().await;
    test(Settings::answering().counting_in(&redis, "calendar")).await;
}

/// A gateway that starts shortly before a window ends is told so, to the second, and how long the next one is.
async fn ends_at(zone: &str, window: &str, edge: &str, next_hours: u64) {
    let what = format!("{window} in {zone}, to {edge}");
    let edge: jiff::Timestamp = edge.parse().unwrap();
    let (clock, now) = (WallClock::new(), i64::try_from(wall_clock().as_secs()).unwrap());
    clock.set(edge.as_second() - now - 15);
    let settings = Settings::answering().limit(&limit(2, window, zone));
    let environment = clock.environment();
    let launch = (environment.iter()).fold(Gateway::with(&settings), |launch, (name, value)| {
        launch.environment(name, value)
    });
    let gateway = launch.start().await;

    let resets_at = |answer: &Response| answer.number("x-ratelimit-reset").unwrap();
    let before = answers(&gateway, 3).await;
    let tally: Tally = before.iter().collect();
    tally.expect(2, 1, &what);
    assert!(
        (0..=1).contains(&(resets_at(&before[2]) - edge.as_second())),
        "{what}: {:?}",
        before[2]
    );
    pause(Duration::from_secs(before[2].retry_after().unwrap())).await;
    let after = answers(&gateway, 3).await;
    let tally: Tally = after.iter().collect();
    tally.expect(2, 1, &format!("{what}, and after it"));
    let next = edge.as_second() + i64::try_from(next_hours * HOUR).unwrap();
    assert!(
        (0..=1).contains(&(resets_at(&after[2]) - next)),
        "{what}: {:?}",
        after[2]
    );
    let wait = after[2].retry_after().unwrap();
    assert!(
        (next_hours * HOUR - 60..=next_hours * HOUR).contains(&wait),
        "{what}: told to wait {wait} s"
    );
}

#[tokio::test]
async fn a_window_ends_where_the_calendar_says_and_the_next_is_as_long_as_it_says() {
    tokio::join!(
        // The days in which clocks are set forward, and back.
        ends_at("Europe/Berlin", "1d", "2026-03-29T00:00:00+01:00", 23),
        ends_at("Europe/Berlin", "1d", "2026-10-25T00:00:00+02:00", 25),
        ends_at("America/New_York", "1d", "2026-03-08T00:00:00-05:00", 23),
        ends_at("America/New_York", "1d", "2026-11-01T00:00:00-04:00", 25),
        // Leap day, weeks and months.
        ends_at("Europe/Berlin", "1d", "2028-02-29T00:00:00+01:00", 24),
        ends_at("UTC", "1mo", "2028-02-01T00:00:00Z", 29 * 24),
        ends_at("Europe/Berlin", "1mo", "2026-03-01T00:00:00+01:00", 31 * 24 - 1),
        ends_at("UTC", "1w", "2026-11-30T00:00:00Z", 7 * 24),
    );
}

#[tokio::test]
async fn gateways_whose_clocks_are_weeks_apart_count_the_days_of_redis() {
    let redis = Redis::start().await;
    let (zone, end) = quiet_zones().next().unwrap();
    let settings = Settings::answering()
        .counting_in(&redis, "calendar")
        .limit(&limit(5, "1d", zone));
    let clock = WallClock::new();
    clock.set(40 * 86_400);
    let environment = clock.environment();
    let ahead = (environment.iter()).fold(Gateway::with(&settings), |launch, (name, value)| {
        launch.environment(name, value)
    });
    let (ahead, right) = (ahead.start().await, Gateway::with(&settings).start().await);
    assert_eq!(passed(&ahead, 3).await, 3);
    assert_eq!(passed(&right, 3).await, 2);
    for gateway in [&ahead, &right] {
        let denied = answers(gateway, 1).await.remove(0);
        let (told, wait) = (denied.retry_after().unwrap(), end.since(wall_clock()).as_secs());
        assert!(told.abs_diff(wait) <= 2, "told {told} s, but midnight is in {wait} s");
    }
}

#[tokio::test]
async fn what_was_used_stays_used_in_another_time_zone() {
    on_each_store(|settings| async move {
        let zones: Vec<_> = quiet_zones().map(|(zone, _)| zone).collect();
        let limits = [
            limit(2, "1d", zones[0]),
            limit(4, "1d", zones[1]),
            limit(5, "1w", zones[1]),
            limit(6, "1mo", zones[2]),
            "{name: all, key: global, algorithm: fixed_window, limit: 7, window: 100d, align: first_request}"
                .to_owned(),
            limit(8, "1d", zones[0]),
        ];
        let gateway = Gateway::with(&settings.clone().limit(&limits[0])).start().await;
        assert_eq!(passed(&gateway, 3).await, 2, "{}", limits[0]);
        for (at, limit) in limits.iter().enumerate().skip(1) {
            gateway.write(Way::Put, &settings.clone().limit(limit).to_yaml()).await;
            let more = if at == 1 { 2 } else { 1 };
            assert_eq!(passed(&gateway, 3).await, more, "{limit}");
        }
    })
    .await;
}

#[tokio::test]
async fn without_redis_the_day_ends_at_the_same_midnight() {
    let redis = Redis::start().await;
    let (zone, end) = quiet_zones().next().unwrap();
    let settings = Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"redis://{}/0\", timeout: 1s, on_failure: local}}}}",
            redis.address()
        ))
        .limit(&limit(5, "1d", zone));
    let gateway = Gateway::with(&settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    assert_eq!(passed(&gateway, 3).await, 3);
    redis.kill();
    gateway.status_says("/store/state", "down").await;
    assert_eq!(passed(&gateway, 4).await, 2, "what Redis had counted is remembered");
    let denied = answers(&gateway, 1).await.remove(0);
    let (told, wait) = (denied.retry_after().unwrap(), end.since(wall_clock()).as_secs());
    assert!(told.abs_diff(wait) <= 2, "told {told} s, but midnight is in {wait} s");
}
