//! Layers whose units each gateway takes in lots (`precision: leased`): few calls, and never more than the limit over time.

use rustix::process::Signal;

use crate::support::{
    Algorithm, CLIENTS, Crowd, DEADLINE, FIVE, Gateway, Killing, Redis, Settings, Tally, gateway::check, get, wait_for,
};

/// A window of a day, so that nothing comes back by itself.
fn day(limit: u64, lease: &str) -> String {
    format!(
        "{{name: user, key: global, algorithm: fixed_window, align: first_request, limit: {limit}, window: 1d, \
         precision: leased, lease: {lease}}}"
    )
}

async fn gateway(settings: &Settings) -> Gateway {
    let gateway = Gateway::with(settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    gateway
}

async fn passed(gateway: &Gateway, count: usize) -> usize {
    let responses = gateway.client().repeat(count, &get("/")).await;
    responses.iter().collect::<Tally>().passed()
}

/// Asks until `total` have passed, of which `before` have already, and then some more.
async fn the_rest_passes(gateway: &Gateway, before: usize, total: usize) {
    let sum = std::cell::Cell::new(before);
    wait_for(DEADLINE, "what was in hand to come back", || async {
        sum.set(sum.get() + passed(gateway, 10).await);
        sum.get() >= total
    })
    .await;
    assert_eq!(sum.get() + passed(gateway, 20).await, total);
}

#[tokio::test]
async fn gateways_together_let_pass_what_one_would_and_not_one_more() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "sum")
        .limit(&day(1_500, "{size: 10%, ttl: 200ms}"));
    let (one, two, three) = tokio::join!(gateway(&settings), gateway(&settings), gateway(&settings));
    let addresses = [&one, &two, &three].map(Gateway::address);
    let mut sum = 0;
    for _ in 0..4 {
        let tally = Crowd::of(12).to(&addresses).send(1_000, |_| get("/")).await;
        sum += tally.passed();
        assert!(sum <= 1_500, "{sum} passed");
    }
    the_rest_passes(&two, sum, 1_500).await;
    assert_eq!(passed(&one, 20).await + passed(&three, 20).await, 0);
}

#[tokio::test]
async fn a_hot_key_asks_redis_seldom() {
    let redis = Redis::start().await;
    let settings = Settings::answering().counting_in(&redis, "hot").limit(
        "{name: user, key: global, algorithm: token_bucket, rate: 100000/s, precision: leased, lease: {ttl: 10s}}",
    );
    let gateway = gateway(&settings).await;
    assert_eq!(passed(&gateway, 200).await, 200);
    let (before, began) = (redis.script_calls().await, tokio::time::Instant::now());
    assert_eq!(passed(&gateway, 3_000).await, 3_000);
    let made = redis.script_calls().await - before;
    let heartbeats = began.elapsed().as_secs() + 1;
    assert!(made <= 12 + heartbeats, "{made} calls for 3,000 requests");
}

#[tokio::test]
async fn what_one_does_not_use_another_gets() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "other")
        .limit(&day(100, "{size: 50%, ttl: 300ms}"));
    let (one, two) = tokio::join!(gateway(&settings), gateway(&settings));
    assert_eq!(passed(&one, 20).await, 20);
    the_rest_passes(&two, 20, 100).await;
}

#[tokio::test]
async fn one_that_is_killed_takes_what_it_had_in_hand_along() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "killed")
        .limit(&day(1_000, "{size: 100, ttl: 10s}"));
    let (mut one, two) = tokio::join!(gateway(&settings), gateway(&settings));
    assert_eq!(passed(&one, 205).await, 205);
    one.signal(Signal::KILL);
    one.exit().await;
    let more = passed(&two, 1_000).await;
    assert!((695..=795).contains(&more), "{more} more");
}

#[tokio::test]
async fn one_that_ends_gives_back_what_it_had_in_hand() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "ends")
        .limit(&day(1_000, "{size: 30%, ttl: 1m}"));
    let (mut one, two) = tokio::join!(gateway(&settings), gateway(&settings));
    assert_eq!(passed(&one, 205).await, 205);
    one.signal(Signal::TERM);
    assert_eq!(one.exit().await.code(), Some(0));
    assert_eq!(passed(&two, 800).await, 795);
}

#[tokio::test]
async fn a_reload_keeps_counts_and_gives_back_what_was_in_hand() {
    let redis = Redis::start().await;
    let settings = |layer: &str| Settings::answering().counting_in(&redis, "reload").limit(layer);
    let lease = "{size: 30%, ttl: 1m}";
    let gateway = gateway(&settings(&day(1_000, lease))).await;
    assert_eq!(passed(&gateway, 205).await, 205);
    gateway.write_by_rename(&settings(&day(500, lease)));
    gateway.status_says("/config/version", 2).await;
    the_rest_passes(&gateway, 205, 500).await;
    let exact = day(700, lease).replace(", precision: leased, lease: {size: 30%, ttl: 1m}", "");
    gateway.write_by_rename(&settings(&exact));
    gateway.status_says("/config/version", 3).await;
    the_rest_passes(&gateway, 500, 700).await;
}

#[tokio::test]
async fn a_refusal_by_another_layer_costs_it_nothing() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "both")
        .limit(&day(500, "{size: 20%, ttl: 300ms}"))
        .limit("{name: narrow, key: 'header:x-user-id', algorithm: fixed_window, limit: 60, window: 1d}");
    let gateway = gateway(&settings).await;
    let mallory = get("/").header("x-user-id", "mallory");
    let answers = gateway.client().repeat(400, &mallory).await;
    assert_eq!(answers.iter().collect::<Tally>().passed(), 60);
    let refused = answers.last().unwrap();
    assert_eq!(refused.json()["violated-policies"], serde_json::json!(["narrow"]));
    // Each of the others has 60, and the layer that all share had 440 left.
    let sum = std::cell::Cell::new(60);
    let number = std::cell::Cell::new(0);
    wait_for(DEADLINE, "what was in hand to come back", || async {
        number.set(number.get() + 1);
        let request = get("/").header("x-user-id", &format!("user-{}", number.get()));
        let answers = gateway.client().repeat(50, &request).await;
        sum.set(sum.get() + answers.iter().collect::<Tally>().passed());
        sum.get() >= 500
    })
    .await;
    assert_eq!(sum.get(), 500);
}

#[tokio::test]
async fn without_redis_what_is_in_hand_passes_and_then_the_failure_policy_decides() {
    let redis = Redis::start().await;
    let address = redis.address();
    let settings = Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"redis://{address}/0\", prefix: away, timeout: 1s, on_failure: closed}}}}"
        ))
        .limit(&day(1_000, "{size: 100, ttl: 1m}"));
    let gateway = gateway(&settings).await;
    assert_eq!(passed(&gateway, 205).await, 205);
    redis.kill();
    let answers = gateway.client().repeat(150, &get("/")).await;
    let passed = answers.iter().take_while(|answer| answer.passed()).count();
    assert!((1..=100).contains(&passed), "{passed} passed");
    assert!(answers[passed..].iter().all(|answer| answer.status == 503));
}

#[test]
fn the_bound_is_printed() {
    let bucket = "{name: user, key: ip, algorithm: token_bucket, rate: 2000/s, precision: leased}";
    let settings = Settings::answering()
        .store("{redis: {url: \"redis://127.0.0.1:1/0\"}}")
        .limit(&bucket.replace("leased}", "leased, overrides: {values: 10.0.0.0/8, rate: 50000/s}}"))
        .limit(&day(100, "{size: 7}").replace("name: user", "name: daily"))
        .limit("{name: plain, key: ip, algorithm: token_bucket, rate: 5/s}");
    let (status, text) = check(&settings.to_yaml());
    assert_eq!(status, 0, "{text}");
    for line in [
        "limit `user`: leased: a gateway has up to 20 of 2000 in hand, of each key (up to 500 of those with overrides): within \
         one window up to that many more may pass for each gateway, so 20 with one and 200 with ten; over time never more\n",
        "limit `daily`: leased: a gateway has up to 7 of 100 in hand, of each key: no window lets more pass, for what is in \
         hand ends with it\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("`plain`"), "{text}");
    let (status, text) = check(&Settings::answering().limit(bucket).to_yaml());
    assert_eq!(status, 0, "{text}");
    assert!(
        text.contains("limits[0].precision: the store is this gateway's own memory"),
        "{text}"
    );
    assert!(!text.contains("in hand"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_are_killed_let_nothing_more_pass() {
    const LIMIT: usize = 500;
    let redis = Redis::start().await;
    let known = FIVE
        .into_iter()
        .filter(|algorithm| *algorithm != Algorithm::SlidingWindowLog);
    let layer = |algorithm: Algorithm| {
        let layer = algorithm.layer("header:x-user-id", LIMIT as u64, "1d");
        layer.replacen('{', "{precision: leased, lease: {size: 5%}, ", 1)
    };
    let settings = Settings::answering().counting_in(&redis, "killed");
    let settings = known
        .clone()
        .fold(settings, |settings, one| settings.limit(&layer(one)));
    let killing = Killing::begin(settings).await;
    for algorithm in known {
        for user in 0..2 {
            let request = get(&algorithm.path()).header("x-user-id", &format!("user-{user}"));
            let seen = killing.send(request, 40).await;
            let passed = seen.tally.passed();
            assert!(passed <= LIMIT, "{algorithm:?}: of {LIMIT} a day {passed} passed");
            assert_eq!(passed + seen.tally.denied() + seen.lost, 40 * CLIENTS, "{seen:?}");
        }
    }
    let killed = killing.end().await;
    assert!(killed >= 3, "only {killed} were killed");
}
