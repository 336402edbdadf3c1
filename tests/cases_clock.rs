//! K06: the gateway's wall clock steps, which takes no quota away, and gives none.
//!
//! Steps of the server's clock are in limiter-core: `store_contract` and `script_matches_rust`, which give the script its time.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{Algorithm, FIVE, Gateway, Redis, Response, Settings, Tally, WallClock, get, pause};

const HOUR: i64 = 3600;
const WINDOW: Duration = Duration::from_secs(3);

fn five_a_window(settings: Settings) -> Settings {
    settings.five_limits("ip", 5, "3s")
}

async fn start(settings: &Settings, clock: &WallClock) -> Gateway {
    let launch = Gateway::with(settings);
    let add = |launch: crate::support::gateway::Launch, (name, value): (&str, String)| launch.environment(name, &value);
    clock.environment().into_iter().fold(launch, add).start().await
}

async fn send(gateway: &Gateway, algorithm: Algorithm, count: usize) -> Vec<Response> {
    gateway.client().repeat(count, &get(&algorithm.path())).await
}

/// Case 030: three of five used, an hour back, five more; a window later five; an hour ahead, twenty.
async fn steps_change_nothing(gateway: &Gateway, clock: &WallClock, algorithm: Algorithm) {
    let began = Instant::now();
    clock.set(0);
    let before = send(gateway, algorithm, 3).await;
    before.iter().collect::<Tally>().expect(3, 0, "before the step");
    clock.set(-HOUR);
    let after = send(gateway, algorithm, 5).await;
    let passed = after.iter().collect::<Tally>().passed();
    // One unit comes back in 600 ms, of a bucket or where the window is over.
    let back = usize::try_from(began.elapsed().as_millis() / 600).unwrap();
    assert!(
        (2..=2 + back).contains(&passed),
        "{algorithm:?}: {passed} passed after the step back"
    );
    for answer in after.iter().filter(|answer| answer.denied()) {
        let wait = answer.retry_after().unwrap();
        assert!(wait <= WINDOW.as_secs() + 1, "{algorithm:?}: {answer:?}");
    }

    pause(WINDOW + Duration::from_millis(600)).await;
    let began = Instant::now();
    let whole = send(gateway, algorithm, 5).await;
    whole
        .iter()
        .collect::<Tally>()
        .expect(5, 0, &format!("{algorithm:?}, a window later"));
    clock.set(HOUR);
    let after = send(gateway, algorithm, 20).await;
    let passed = after.iter().collect::<Tally>().passed();
    let back = usize::try_from(began.elapsed().as_millis() / 600).unwrap();
    assert!(passed <= back, "{algorithm:?}: {passed} passed after the step ahead");
}

async fn all_steps_change_nothing(settings: Settings) {
    for algorithm in FIVE {
        let clock = WallClock::new();
        let gateway = start(&five_a_window(settings.clone()), &clock).await;
        steps_change_nothing(&gateway, &clock, algorithm).await;
    }
}

#[tokio::test]
async fn a_step_of_the_gateways_clock_changes_nothing_in_memory() {
    all_steps_change_nothing(Settings::answering()).await;
}

#[tokio::test]
async fn a_step_of_the_gateways_clock_changes_nothing_in_redis() {
    let redis = Redis::start().await;
    all_steps_change_nothing(Settings::answering().counting_in(&redis, "clock")).await;
}

#[tokio::test]
async fn a_step_of_the_gateways_clock_changes_nothing_without_redis() {
    let redis = Redis::start().await;
    let settings = Settings::answering().counting_in(&redis, "clock");
    redis.kill();
    all_steps_change_nothing(settings).await;
}
