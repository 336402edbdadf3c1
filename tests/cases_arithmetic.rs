//! K03: the arithmetic of the algorithms, over real time.

use std::time::Duration;

use tokio::time::Instant;

use crate::support::{
    Algorithm, Crowd, FIVE, Gateway, Judge, Quota, Redis, Settings, Tally, get, pause,
    wait::{pause_until, pause_until_phase},
};

/// Polls one key at a pace for a while; each answer must be what the algorithm gives.
async fn poll(gateway: &Gateway, quota: Quota, path: &str, pace: Duration, time: Duration) -> Judge {
    let mut judge = Judge::by(quota);
    let (mut client, request) = (gateway.client(), get(path));
    let start = Instant::now();
    while start.elapsed() < time {
        judge.send(&mut client, &request).await;
        pause(pace).await;
    }
    judge
}

/// Case 012: a drained bucket that is asked more often than it refills must not lose the fractions.
async fn polling_loses_nothing(settings: Settings) {
    let settings = settings.limit("{name: tb, key: ip, algorithm: token_bucket, rate: 2/s, burst: 5}");
    let gateway = Gateway::with(&settings).start().await;
    let quota = Quota {
        refill: 2,
        ..Quota::new(Algorithm::TokenBucket, 5, 1000)
    };
    let judge = poll(&gateway, quota, "/", Duration::from_millis(130), Duration::from_secs(8)).await;
    judge.is_certain();
    let (least_us, most_us) = judge.elapsed_us();
    let admitted = judge.admitted() as u64;
    assert!(
        admitted >= 5 + least_us * 2 / 1_000_000,
        "only {admitted} in {least_us} us"
    );
    assert!(
        admitted <= 5 + most_us * 2 / 1_000_000 + 1,
        "as many as {admitted} in {most_us} us"
    );
}

// 012
#[tokio::test]
async fn a_bucket_that_is_polled_refills_all_the_same() {
    let redis = Redis::start().await;
    let gone = "{redis: {url: \"redis://127.0.0.1:1/0\", on_failure: local}}";
    tokio::join!(
        polling_loses_nothing(Settings::answering()),
        polling_loses_nothing(Settings::answering().counting_in(&redis, "poll")),
        polling_loses_nothing(Settings::answering().store(gone)),
    );
}

/// Case 013: a leaky bucket leaks all the time, not in jumps, and while it is hit.
async fn leaks_steadily(settings: Settings) {
    let leaky = |name: &str, limit: u64, window: &str| {
        let parameters = Algorithm::LeakyBucket.parameters(limit, window);
        format!("{{name: {name}, key: ip, match: {{path: /{name}}}, {parameters}}}")
    };
    let settings = settings.limit(&leaky("a", 3, "1s")).limit(&leaky("b", 10, "6s"));
    let gateway = Gateway::with(&settings).start().await;
    let quota = |limit, window_ms| Quota::new(Algorithm::LeakyBucket, limit, window_ms);
    let time = Duration::from_secs(9);
    let (a, b) = tokio::join!(
        poll(&gateway, quota(3, 1000), "/a", Duration::from_millis(100), time),
        poll(&gateway, quota(10, 6000), "/b", Duration::from_millis(200), time),
    );
    for (judge, burst, rate_per_6s) in [(a, 3, 18), (b, 10, 10)] {
        judge.is_certain();
        let (least_us, most_us) = judge.elapsed_us();
        let admitted = judge.admitted() as u64;
        let came_back = |time_us: u64| burst + time_us * rate_per_6s / 6_000_000;
        assert!(admitted >= came_back(least_us), "only {admitted} in {least_us} us");
        assert!(
            admitted <= came_back(most_us) + 1,
            "as many as {admitted} in {most_us} us"
        );
    }
}

// 013
#[tokio::test]
async fn a_leaky_bucket_leaks_steadily_while_it_is_hit() {
    let redis = Redis::start().await;
    let in_redis = Settings::answering().counting_in(&redis, "leak");
    tokio::join!(leaks_steadily(Settings::answering()), leaks_steadily(in_redis));
}

/// Case 015: rates as written, per period in milliseconds, with a capacity and a cost that leave a slow machine room to ask
/// more often than the rate gives.
const ODD_RATES: [(&str, u64, u64, u64, u64); 4] = [
    ("700/60s", 700, 60_000, 10, 1),
    ("40000/60s", 40_000, 60_000, 500, 25),
    ("120000/60s", 120_000, 60_000, 1_500, 75),
    ("2500/1s", 2_500, 1_000, 1_875, 100),
];

async fn keeps_the_rate(gateway: &Gateway, algorithm: Algorithm, index: usize) {
    let (rate, refill, period_ms, capacity, cost) = ODD_RATES[index];
    let quota = Quota {
        refill,
        cost,
        ..Quota::new(algorithm, capacity, period_ms)
    };
    let path = format!("/{}{index}", algorithm.short());
    // Twice the rate: two requests in the time that one's cost takes to come back.
    let pace = Duration::from_micros(cost * period_ms * 1000 / refill / 2);
    let judge = poll(gateway, quota, &path, pace, Duration::from_secs(8)).await;
    let (_, most_us) = judge.elapsed_us();
    let taken = judge.admitted() as u64 * cost;
    let came_back = capacity + most_us * refill / (period_ms * 1000);
    assert!(taken <= came_back, "{algorithm:?} {rate}: {taken} of {came_back}");
    // Each answer was judged; this only shows that it was asked faster than the rate gives.
    assert!(
        taken * 10 >= came_back * 9,
        "{algorithm:?} {rate}: only {taken} of {came_back}"
    );
}

// 015
#[tokio::test]
async fn high_and_odd_rates_are_kept_as_written() {
    let redis = Redis::start().await;
    let mut settings = Settings::answering().counting_in(&redis, "odd");
    for (index, (rate, _, _, capacity, cost)) in ODD_RATES.iter().enumerate() {
        let layer = |name: &str, parameters: &str| {
            format!("{{name: {name}{index}, key: ip, match: {{path: /{name}{index}}}, cost: {cost}, {parameters}}}")
        };
        let token = format!("algorithm: token_bucket, rate: {rate}, burst: {capacity}");
        let leaky = format!("algorithm: leaky_bucket, rate: {rate}, capacity: {capacity}, delay: false");
        settings = settings.limit(&layer("tb", &token)).limit(&layer("lb", &leaky));
    }
    let gateway = Gateway::with(&settings).start().await;
    let [a, b, c, d] = [0, 1, 2, 3].map(|index| keeps_the_rate(&gateway, Algorithm::TokenBucket, index));
    let [e, f, g, h] = [0, 1, 2, 3].map(|index| keeps_the_rate(&gateway, Algorithm::LeakyBucket, index));
    tokio::join!(a, b, c, d, e, f, g, h);
}

// 016
#[tokio::test]
async fn six_thousand_a_minute_takes_a_page_load() {
    for (capacity, at_once) in [("", 60), (", capacity: 100", 100)] {
        let settings = Settings::answering().limit(&format!(
            "{{name: lb, key: \"header:x-user-id\", algorithm: leaky_bucket, rate: 6000/60s, delay: false{capacity}}}"
        ));
        let gateway = Gateway::with(&settings).start().await;
        let crowd = Crowd::of(at_once).to(&[gateway.address()]);
        let tally = crowd.send(at_once, |_| get("/").header("x-user-id", "page")).await;
        tally.expect(at_once, 0, &format!("{at_once} at once{capacity}"));
        // One second's worth is the default, and no more than that passes at one moment.
        let start = Instant::now();
        let flood = crowd.send(500, |_| get("/").header("x-user-id", "flood")).await;
        let most = 100 + start.elapsed().as_millis() / 10 + 1;
        assert!(
            flood.passed() >= 100 && flood.passed() as u128 <= most,
            "of a flood {} of {most}",
            flood.passed()
        );
    }
}

// 018
#[tokio::test]
async fn only_the_fixed_window_gives_a_double_allowance_across_its_edge() {
    let redis = Redis::start().await;
    let window = Duration::from_secs(5);
    let mut settings = Settings::answering().counting_in(&redis, "edge");
    for algorithm in FIVE {
        let layer = algorithm
            .layer("ip", 60, "5s")
            .replace(", align: first_request", ", align: clock");
        settings = settings.limit(&layer);
    }
    let gateway = Gateway::with(&settings).start().await;
    pause_until_phase(window, Duration::from_secs(3)).await;
    let start = Instant::now();
    let batch = |algorithm: Algorithm| {
        let mut client = gateway.client();
        async move {
            client
                .repeat(60, &get(&algorithm.path()))
                .await
                .iter()
                .collect::<Tally>()
        }
    };
    let [a, b, c, d, e] = FIVE.map(batch);
    let before: [Tally; 5] = tokio::join!(a, b, c, d, e).into();
    assert!(
        start.elapsed() < Duration::from_millis(1900),
        "too slow to be done before the edge"
    );
    assert!(before.iter().all(|tally| tally.passed() == 60), "{before:?}");
    pause_until(start, Duration::from_millis(2300)).await;
    let [a, b, c, d, e] = FIVE.map(batch);
    let after: [Tally; 5] = tokio::join!(a, b, c, d, e).into();
    // What the buckets drained meanwhile: 12 a second.
    let drained = start.elapsed().as_millis() * 12 / 1000 + 1;
    let passed = after.each_ref().map(Tally::passed);
    let [token, leaky, fixed, log, counter] = passed;
    assert!(
        token as u128 <= drained && leaky as u128 <= drained,
        "{passed:?}, drained: {drained}"
    );
    assert_eq!((fixed, log, counter), (60, 0, 0), "{passed:?}");
}
