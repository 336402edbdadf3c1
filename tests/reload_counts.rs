//! What a reload leaves of the counts: what was used stays used, under any other parameters; another algorithm begins anew.

use crate::support::{DEADLINE, FIVE, Gateway, Redis, Settings, Tally, Way, get, wait_for};

/// Parameters of a layer, other ones, and how many of many requests pass under those after 6 of 10 units were used.
const CHANGES: [(&str, &str, usize); 22] = [
    // Rates, which give nothing back for the past.
    (
        "algorithm: token_bucket, rate: 10/1d, burst: 10",
        "algorithm: token_bucket, rate: 90/1d, burst: 10",
        4,
    ),
    (
        "algorithm: leaky_bucket, delay: false, rate: 10/1d, capacity: 10",
        "algorithm: leaky_bucket, delay: false, rate: 1/7d, capacity: 10",
        4,
    ),
    // A time to warm up, which what is in use has behind it.
    (
        "algorithm: token_bucket, rate: 10/1d, burst: 10",
        "algorithm: token_bucket, rate: 10/1d, burst: 10, warm_up: 1h",
        4,
    ),
    // Bursts and capacities.
    (
        "algorithm: token_bucket, rate: 10/1d, burst: 10",
        "algorithm: token_bucket, rate: 10/1d, burst: 20",
        14,
    ),
    (
        "algorithm: token_bucket, rate: 10/1d, burst: 10",
        "algorithm: token_bucket, rate: 10/1d, burst: 3",
        0,
    ),
    (
        "algorithm: leaky_bucket, delay: false, rate: 10/1d, capacity: 10",
        "algorithm: leaky_bucket, delay: false, rate: 10/1d, capacity: 20",
        14,
    ),
    (
        "algorithm: leaky_bucket, delay: false, rate: 10/1d, capacity: 10",
        "algorithm: leaky_bucket, delay: false, rate: 10/1d, capacity: 8",
        2,
    ),
    // Limits.
    (
        "algorithm: fixed_window, align: first_request, limit: 10, window: 1d",
        "algorithm: fixed_window, align: first_request, limit: 20, window: 1d",
        14,
    ),
    (
        "algorithm: fixed_window, align: first_request, limit: 10, window: 1d",
        "algorithm: fixed_window, align: first_request, limit: 3, window: 1d",
        0,
    ),
    (
        "algorithm: fixed_window, limit: 10, window: 1000d",
        "algorithm: fixed_window, limit: 8, window: 1000d",
        2,
    ),
    (
        "algorithm: sliding_window_log, limit: 10, window: 1d",
        "algorithm: sliding_window_log, limit: 20, window: 1d",
        14,
    ),
    (
        "algorithm: sliding_window_log, limit: 10, window: 1d",
        "algorithm: sliding_window_log, limit: 3, window: 1d",
        0,
    ),
    (
        "algorithm: sliding_window_counter, limit: 10, window: 1d",
        "algorithm: sliding_window_counter, limit: 20, window: 1d",
        14,
    ),
    (
        "algorithm: sliding_window_counter, limit: 10, window: 1d",
        "algorithm: sliding_window_counter, limit: 3, window: 1d",
        0,
    ),
    // Windows, longer and shorter, and how they are divided.
    (
        "algorithm: fixed_window, align: first_request, limit: 10, window: 1d",
        "algorithm: fixed_window, align: first_request, limit: 10, window: 2d",
        4,
    ),
    (
        "algorithm: fixed_window, align: first_request, limit: 10, window: 1d",
        "algorithm: fixed_window, align: first_request, limit: 10, window: 1h",
        4,
    ),
    (
        "algorithm: fixed_window, align: first_request, limit: 10, window: 1d",
        "algorithm: fixed_window, align: clock, limit: 10, window: 1000d",
        4,
    ),
    (
        "algorithm: sliding_window_log, limit: 10, window: 1d",
        "algorithm: sliding_window_log, limit: 10, window: 2d",
        4,
    ),
    (
        "algorithm: sliding_window_log, limit: 10, window: 1d",
        "algorithm: sliding_window_log, limit: 10, window: 1h",
        4,
    ),
    (
        "algorithm: sliding_window_counter, limit: 10, window: 1d",
        "algorithm: sliding_window_counter, limit: 10, window: 2d",
        4,
    ),
    (
        "algorithm: sliding_window_counter, limit: 10, window: 1d",
        "algorithm: sliding_window_counter, limit: 10, window: 1h",
        4,
    ),
    (
        "algorithm: sliding_window_counter, limit: 10, window: 1d",
        "algorithm: sliding_window_counter, limit: 10, window: 1d, buckets: 60",
        4,
    ),
];

/// A layer under a path of its own, as in `/name/x`.
fn layer(name: &str, parameters: &str) -> String {
    format!("{{name: {name}, key: header:x-user-id, match: {{path: /{name}/**}}, {parameters}}}")
}

/// How many of `count` pass.
async fn passed(gateway: &Gateway, name: &str, count: usize) -> usize {
    let request = get(&format!("/{name}/x")).header("x-user-id", "one");
    let tally: Tally = gateway.client().repeat(count, &request).await.iter().collect();
    assert_eq!(tally.passed() + tally.denied(), count, "{tally:?}");
    tally.passed()
}

/// Takes these settings, which are in force when this returns.
async fn take(gateway: &Gateway, settings: &Settings) {
    gateway.write(Way::Put, &settings.to_yaml()).await;
}

/// In memory, and in a Redis.
async fn on_each_store<F: Future<Output = ()>>(test: impl Fn(Settings) -> F) {
    test(Settings::answering()).await;
    let redis = Redis::start().await;
    test(Settings::answering().counting_in(&redis, "counts")).await;
}

#[tokio::test]
async fn what_was_used_stays_used_under_other_parameters_and_in_another_place() {
    on_each_store(|settings| async move {
        let named = |of: fn(&(&'static str, &'static str, usize)) -> &'static str| {
            let layers = CHANGES.iter().enumerate();
            layers.map(move |(number, change)| layer(&format!("l{number}"), of(change)))
        };
        let before = named(|(before, ..)| before).fold(settings.clone(), |all, layer| all.limit(&layer));
        let after = named(|(_, after, _)| after)
            .rev()
            .fold(settings, |all, layer| all.limit(&layer));
        let gateway = Gateway::with(&before).start().await;
        for number in 0..CHANGES.len() {
            assert_eq!(passed(&gateway, &format!("l{number}"), 6).await, 6);
        }
        take(&gateway, &after).await;
        for (number, (before, after, expected)) in CHANGES.iter().enumerate() {
            let passed = passed(&gateway, &format!("l{number}"), 25).await;
            assert_eq!(passed, *expected, "from `{before}` to `{after}`");
        }
    })
    .await;
}

#[tokio::test]
async fn a_layer_that_was_away_goes_on_from_where_it_was() {
    on_each_store(|settings| async move {
        let limits = settings.clone().five_limits("header:x-user-id", 10, "1d");
        let gateway = Gateway::with(&limits).start().await;
        for algorithm in FIVE {
            assert_eq!(passed(&gateway, algorithm.short(), 6).await, 6);
        }
        take(&gateway, &settings).await;
        for algorithm in FIVE {
            assert_eq!(passed(&gateway, algorithm.short(), 15).await, 15, "no layer, no limit");
        }
        take(&gateway, &limits).await;
        for algorithm in FIVE {
            assert_eq!(passed(&gateway, algorithm.short(), 15).await, 4, "{algorithm:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn another_algorithm_begins_anew() {
    on_each_store(|settings| async move {
        let with = |number: usize| {
            let parameters = FIVE[number].parameters(10, "1d");
            settings.clone().limit(&layer("same", &parameters))
        };
        let gateway = Gateway::with(&with(0)).start().await;
        assert_eq!(passed(&gateway, "same", 12).await, 10);
        for (number, algorithm) in FIVE.iter().enumerate().skip(1) {
            take(&gateway, &with(number)).await;
            assert_eq!(passed(&gateway, "same", 12).await, 10, "{algorithm:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn another_bound_of_the_memory_store_keeps_the_counts() {
    let limits = Settings::answering().five_limits("header:x-user-id", 10, "1d");
    let bounded = |max_keys: u32| limits.clone().store(&format!("{{memory: {{max_keys: {max_keys}}}}}"));
    let gateway = Gateway::with(&bounded(1_000)).start().await;
    for algorithm in FIVE {
        assert_eq!(passed(&gateway, algorithm.short(), 6).await, 6);
    }
    for (max_keys, left) in [(500, 3), (100_000, 2)] {
        take(&gateway, &bounded(max_keys)).await;
        for algorithm in FIVE {
            let request = get(&algorithm.path()).header("x-user-id", "one");
            let answer = gateway.client().send(&request).await;
            assert_eq!(answer.remaining(), left, "{algorithm:?}, {max_keys} keys");
        }
    }
}

/// Counts in this database, and answers 503 where that cannot be.
fn in_database(redis: &Redis, database: u32) -> Settings {
    let address = redis.address();
    Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"redis://{address}/{database}\", prefix: counts, timeout: 10s, on_failure: closed}}}}"
        ))
        .five_limits("header:x-user-id", 10, "1d")
}

/// Counters that a database holds; what gateways tell each other there begins with `~`.
pub(crate) async fn keys(redis: &Redis, database: u32) -> i64 {
    let script = "redis.call('SELECT', ARGV[1]); return tostring(#redis.call('KEYS', 'counts:[^~]*'))";
    let found = redis.command(&["EVAL", script, "0", &database.to_string()]).await;
    found.into_text().parse().unwrap()
}

#[tokio::test]
async fn another_redis_is_connected_before_it_counts() {
    let redis = Redis::start().await;
    let gateway = Gateway::with(&in_database(&redis, 5)).start().await;
    for algorithm in FIVE {
        assert_eq!(passed(&gateway, algorithm.short(), 12).await, 10);
    }
    assert_eq!((keys(&redis, 5).await, keys(&redis, 6).await), (5, 0));
    take(&gateway, &in_database(&redis, 6)).await;
    for algorithm in FIVE {
        // The first one, too: a store that was not connected yet would have it refused.
        assert_eq!(passed(&gateway, algorithm.short(), 12).await, 10);
    }
    assert_eq!((keys(&redis, 5).await, keys(&redis, 6).await), (5, 5));
    assert_eq!((keys(&redis, 0).await, keys(&redis, 1).await), (0, 0));
    // Back: what was used there is still used.
    take(&gateway, &in_database(&redis, 5)).await;
    for algorithm in FIVE {
        assert_eq!(passed(&gateway, algorithm.short(), 12).await, 0);
    }
    wait_for(DEADLINE, "the connections of the former stores to end", || async {
        let clients = redis.command(&["CLIENT", "LIST"]).await.into_text();
        let of = |database: &str| clients.lines().filter(|line| line.contains(database)).count();
        of(" db=6 ") == 0 && of(" db=5 ") > 0
    })
    .await;
}

#[tokio::test]
async fn a_secret_is_rotated_by_a_reload() {
    let redis = Redis::start().await;
    let with = |secret: &str| {
        let address = redis.address();
        Settings::answering()
            .store(&format!(
                "{{redis: {{url: \"redis://{address}/0\", prefix: counts, timeout: 10s, key_secret: {secret}}}}}"
            ))
            .limit(
                "{name: caller, key: header:x-api-key, algorithm: fixed_window, align: first_request, limit: 10, window: 1d}",
            )
    };
    let gateway = Gateway::with(&with("former")).start().await;
    let request = get("/").header("x-api-key", "opensesame");
    let passed = async || {
        let answers = gateway.client().repeat(12, &request).await;
        answers.iter().collect::<Tally>().expect(10, 2, "under one secret");
    };
    passed().await;
    let former = redis.counters("counts").await;
    take(&gateway, &with("latter")).await;
    // The counter has another name now: nobody who knows the old secret can tell whose it is.
    passed().await;
    let both = redis.counters("counts").await;
    assert_eq!((former.len(), both.len()), (1, 2));
    assert!(
        both.contains(&former[0]) && !both.iter().any(|key| key.contains("opensesame")),
        "{both:?}"
    );
    take(&gateway, &with("former")).await;
    assert!(gateway.client().send(&request).await.denied());
}

/// Case 100.
#[tokio::test]
async fn a_reload_refills_no_bucket() {
    on_each_store(|settings| async move {
        let version = |number: usize| {
            let a = layer("a", "algorithm: token_bucket, rate: 10/600s");
            let b = layer(
                "b",
                &format!("algorithm: fixed_window, limit: {}, window: 1000d", 5 + number),
            );
            match number % 3 {
                0 => settings
                    .clone()
                    .limit(&a)
                    .limit(&b)
                    .section(&format!("# edit {number}")),
                1 => settings.clone().limit(&b).limit(&a),
                _ => settings.clone().limit(&a).limit(&b),
            }
        };
        let gateway = Gateway::with(&version(0)).start().await;
        assert_eq!(passed(&gateway, "a", 8).await, 8);
        for number in 1..=10 {
            take(&gateway, &version(number)).await;
        }
        assert_eq!(passed(&gateway, "a", 5).await, 2);
        wait_for(DEADLINE, "ten allowed, three denied in all", || async {
            let of = async |outcome| {
                let labels = [("limit", "a"), ("outcome", outcome)];
                gateway.metric("gateway_limit_decisions_total", &labels).await
            };
            (of("allowed").await, of("denied").await) == (10.0, 3.0)
        })
        .await;
    })
    .await;
}
