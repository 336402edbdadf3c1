//! Other terms for some keys: the same in memory, in Redis over two gateways, and while Redis is away.

use std::fs;

use tokio::task::JoinSet;

use crate::support::{Algorithm, Client, DEADLINE, FIVE, Gateway, Redis, Response, Settings, Tally, get, wait_for};

/// Of everybody; `gold` has more.
const LIMIT: u64 = 2;
const GOLD: usize = 5;

/// A layer that counts everything, and one for each algorithm, as in `/tb/anything`, with these terms for some users.
fn with_overrides(settings: Settings, overrides: impl Fn(Algorithm) -> String) -> Settings {
    let all = "{name: all, key: global, algorithm: fixed_window, limit: 9000, window: 1d}";
    FIVE.iter().fold(settings.limit(all), |settings, algorithm| {
        let layer = algorithm.layer("header:x-user-id", LIMIT, "1d");
        let layer = layer.strip_suffix('}').unwrap();
        settings.limit(&format!("{layer}, {}}}", overrides(*algorithm)))
    })
}

/// The parameters for a quota, without the algorithm's name.
fn quota(algorithm: Algorithm, limit: usize) -> String {
    let parameters = algorithm.parameters(limit as u64, "1d");
    parameters.split_once(", ").unwrap().1.to_owned()
}

fn terms(algorithm: Algorithm) -> String {
    let gold = quota(algorithm, GOLD);
    format!(
        "overrides: [{{values: [\"gold-*\", \"~ip:127.0.0.1\"], {gold}}}, {{values: free, unlimited: true}}, \
         {{values: bad, deny: true}}]"
    )
}

/// So many requests of a user to all gateways in turn.
async fn send(gateways: &[Gateway], algorithm: Algorithm, user: &str, requests: usize) -> Vec<Response> {
    let mut answers = Vec::new();
    for at in 0..requests {
        let request = get(&algorithm.path()).header("x-user-id", user);
        answers.push(gateways[at % gateways.len()].client().send(&request).await);
    }
    answers
}

async fn keeps_to_its_terms(gateways: &[Gateway], where_: &str) {
    for algorithm in FIVE {
        let what = format!("{algorithm:?} {where_}");
        for (user, passing) in [
            ("alice", 2),
            ("gold-1", GOLD),
            ("gold-2", GOLD),
            ("", GOLD),
            ("Gold-1", 2),
        ] {
            let answers = send(gateways, algorithm, user, 8).await;
            let tally: Tally = answers.iter().collect();
            tally.expect(passing, 8 - passing, &format!("{what}, {user:?}"));
            // Headers and document speak of the numbers that were applied.
            let first = answers[0].header("ratelimit-policy").unwrap();
            assert!(
                first.contains(&format!("\"{}\";q={passing};", algorithm.short())),
                "{what}: {first}"
            );
            assert_eq!(answers[0].number("x-ratelimit-limit"), Some(passing as i64), "{what}");
            let detail = answers[7].json()["detail"].to_string();
            assert!(detail.contains(&format!(" of {passing} per ")), "{what}: {detail}");
        }
        let free = send(gateways, algorithm, "free", 8).await;
        free.iter().collect::<Tally>().expect(8, 0, &what);
        for answer in &free {
            assert_eq!(
                answer.header("ratelimit-policy").unwrap(),
                "\"all\";q=9000;w=86400",
                "{what}"
            );
        }
        let left = free[7].ratelimit("r").unwrap();
        for answer in send(gateways, algorithm, "bad", 3).await {
            assert_eq!(answer.status, 403, "{what}: {answer:?}");
            let problem = answer.json();
            assert_eq!(problem["type"], "about:blank");
            assert!(
                problem["detail"].as_str().unwrap().contains(algorithm.short()),
                "{problem}"
            );
            assert_eq!(answer.header("ratelimit"), None);
        }
        let next = send(gateways, algorithm, "free", 1).await;
        assert_eq!(next[0].ratelimit("r"), Some(left - 1), "{what}: a 403 was charged");
    }
    let mut skipped = 0.0;
    let mut denied = 0.0;
    for gateway in gateways {
        let metric = "gateway_limit_decisions_total";
        skipped += gateway.metric(metric, &[("limit", "tb"), ("outcome", "skipped")]).await;
        denied += gateway.metric(metric, &[("limit", "tb"), ("outcome", "denied")]).await;
    }
    assert_eq!(
        (skipped, denied),
        (9.0, 24.0),
        "{where_}: 6 + 3 + 3 + 3 + 6 for want of room, and 3 by name"
    );
}

#[tokio::test]
async fn keys_keep_to_their_own_terms_in_memory() {
    let settings = with_overrides(Settings::answering(), terms);
    keeps_to_its_terms(&[Gateway::with(&settings).start().await], "in memory").await;
}

#[tokio::test]
async fn keys_keep_to_their_own_terms_in_redis_over_two_gateways() {
    let redis = Redis::start().await;
    let settings = with_overrides(Settings::answering().counting_in(&redis, "gw"), terms);
    let gateways = [
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    ];
    keeps_to_its_terms(&gateways, "in Redis").await;
}

/// Many keys, each with parameters of its own, ask at the same time: nothing is lost where they go in one call.
#[tokio::test]
async fn keys_with_different_parameters_are_counted_exactly_at_the_same_time() {
    let redis = Redis::start().await;
    let overrides = |algorithm| {
        let items = (1..=20).map(|user| format!("{{values: u{user}, {}}}", quota(algorithm, user)));
        format!("overrides: [{}]", items.collect::<Vec<_>>().join(", "))
    };
    let settings = with_overrides(Settings::answering().counting_in(&redis, "gw"), overrides);
    let gateways = [
        Gateway::with(&settings).start().await,
        Gateway::with(&settings).start().await,
    ];
    let addresses = [gateways[0].address(), gateways[1].address()];
    let mut users = JoinSet::new();
    for (algorithm, user) in FIVE
        .iter()
        .flat_map(|algorithm| (1..=20).map(move |user| (*algorithm, user)))
    {
        users.spawn(async move {
            let request = get(&algorithm.path()).header("x-user-id", &format!("u{user}"));
            let mut tally = Tally::default();
            for at in 0..22 {
                tally.add(&Client::to(addresses[at % 2]).send(&request).await);
            }
            tally.expect(user, 22 - user, &format!("{algorithm:?}, u{user}"));
        });
    }
    users.join_all().await;
}

#[tokio::test]
async fn own_terms_go_on_while_redis_is_away_and_after() {
    let redis = Redis::start().await;
    let store = format!(
        "{{redis: {{url: \"redis://{}/0\", timeout: 1s, on_failure: local}}}}",
        redis.address()
    );
    let gateways = [
        Gateway::with(&with_overrides(Settings::answering().store(&store), terms))
            .start()
            .await,
    ];
    let [gateway] = &gateways;
    gateway.status_says("/store/state", "connected").await;
    let passed = async |user, requests| {
        let mut passed = [0; 5];
        for (passed, algorithm) in passed.iter_mut().zip(FIVE) {
            let tally: Tally = send(&gateways, algorithm, user, requests).await.iter().collect();
            *passed = tally.passed();
        }
        passed
    };
    assert_eq!(passed("gold-1", 1).await, [1; 5]);
    redis.freeze();
    assert_eq!(passed("gold-1", 2).await, [2; 5]);
    assert_eq!(passed("alice", 3).await, [2; 5]);
    assert_eq!(passed("free", 4).await, [4; 5]);
    assert_eq!(passed("bad", 1).await, [0; 5]);
    redis.thaw();
    gateway.status_says("/store/state", "connected").await;
    // What passed meanwhile was charged to the same counters, under the same terms.
    assert_eq!(passed("gold-1", 8).await, [GOLD - 3; 5]);
    assert_eq!(passed("alice", 3).await, [0; 5]);
}

/// More than the layer's own terms would ever hold was admitted before a reload, and is charged after it.
#[tokio::test]
async fn what_passed_under_own_terms_is_charged_under_them_after_a_reload() {
    let redis = Redis::start().await;
    let store = format!(
        "{{redis: {{url: \"redis://{}/0\", timeout: 1s, on_failure: local}}}}",
        redis.address()
    );
    let settings = with_overrides(Settings::answering().store(&store), terms);
    let gateways = [Gateway::with(&settings).start().await];
    let [gateway] = &gateways;
    gateway.status_says("/store/state", "connected").await;
    redis.freeze();
    for algorithm in FIVE {
        let tally: Tally = send(&gateways, algorithm, "gold-1", GOLD).await.iter().collect();
        tally.expect(GOLD, 0, "in the outage");
    }
    gateway.write_by_rename(&settings.section("server: {drain: 7s}"));
    gateway.status_says("/config/version", 2).await;
    redis.thaw();
    gateway.status_says("/store/state", "connected").await;
    for algorithm in FIVE {
        let tally: Tally = send(&gateways, algorithm, "gold-1", 3).await.iter().collect();
        tally.expect(0, 3, &format!("{algorithm:?} after it"));
    }
}

#[tokio::test]
async fn a_file_of_overrides_is_watched_and_counts_stay() {
    let settings = |more: &str| with_overrides(Settings::answering(), |_| more.to_owned());
    let gateways = [Gateway::with(&settings("precision: exact")).start().await];
    let [gateway] = &gateways;
    let path = gateway.config_path().with_file_name("gold.yaml");
    let window = Algorithm::FixedWindow;
    let remaining = async |user: &str| send(&gateways, window, user, 1).await[0].remaining();
    assert_eq!(remaining("gold-1").await, 1);

    // The file that is named is not there yet. It is waited for.
    let named = "overrides_file: gold.yaml".to_owned();
    let one_layer = |more: &str| {
        let layer = window.layer("header:x-user-id", LIMIT, "1d");
        Settings::answering().limit(&format!("{}, {more}}}", layer.strip_suffix('}').unwrap()))
    };
    gateway.write_by_rename(&one_layer(&named));
    gateway.status_says("/config/last_reload/outcome", "rejected").await;
    fs::write(&path, "- {values: \"gold-*\", limit: 10}\n").unwrap();
    gateway.status_says("/config/version", 2).await;
    assert_eq!(remaining("gold-1").await, 8, "1 was used before");

    // In place, broken, and by a rename.
    fs::write(&path, r#"[{"values": ["gold-1"], "limit": 20}]"#).unwrap();
    gateway.status_says("/config/version", 3).await;
    assert_eq!(remaining("gold-1").await, 17);
    fs::write(&path, "- values: gold-1\n  limt: 20\n").unwrap();
    gateway.status_says("/config/last_reload/outcome", "rejected").await;
    let status = gateway.status().await;
    let error = status.pointer("/config/last_reload/error").unwrap().as_str().unwrap();
    assert!(
        error.ends_with("gold.yaml:2:3: [0].limt: unknown key, did you mean `limit`?"),
        "{error}"
    );
    assert_eq!(remaining("gold-1").await, 16, "what runs goes on");
    let beside = path.with_extension("new");
    fs::write(&beside, "- {values: gold-1, limit: 30}\n").unwrap();
    fs::rename(&beside, &path).unwrap();
    gateway.status_says("/config/version", 4).await;
    assert_eq!(remaining("gold-1").await, 25);

    // No longer named, no longer of interest.
    gateway.write_by_rename(&one_layer("precision: exact"));
    gateway.status_says("/config/version", 5).await;
    fs::write(&path, "[").unwrap();
    gateway.write_by_rename(&one_layer("cost: 1"));
    wait_for(DEADLINE, "the next version", || async {
        gateway.status().await.pointer("/config/last_reload/outcome").unwrap() == "applied"
            && gateway.status().await.pointer("/config/version").unwrap() == 6
    })
    .await;
}
