//! K07: what Redis replies, and which server it is.
//!
//! Elsewhere: 032 (flushed scripts) in `outage` and `faults`, 033 (an old primary keeps the connections) in `faults`; the commands that a user needs (041) in limiter-core's `store_contract`.

use std::time::Duration;

use limiter_core::test_util::{RedisCluster, RedisServer};
use tokio::task::JoinSet;

use crate::{
    reload_counts::keys,
    support::{
        DEADLINE, FIVE, Gateway, Load, Redis, Settings, Tally, Way, get, pause,
        redis::{Reply, aside},
        wait_for,
    },
};

/// Decisions that were not the store's, and calls to it that failed.
async fn troubles(gateway: &Gateway) -> f64 {
    let mut sum = gateway.metric("gateway_store_errors_total", &[]).await;
    for outcome in ["fallback_allowed", "fallback_denied"] {
        let labels = [("outcome", outcome)];
        sum += gateway.metric("gateway_limit_decisions_total", &labels).await;
    }
    sum
}

/// Case 032: the counts outlive a restart where Redis keeps them, and the script is loaded again.
#[tokio::test]
async fn a_restart_with_an_append_only_file_loses_nothing() {
    let redis = Redis::start_as(|| RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"])).await;
    let settings = Settings::answering()
        .counting_in(&redis, "aof")
        .five_limits("ip", 100, "1d");
    let gateway = Gateway::with(&settings).start().await;
    let mut client = gateway.client();
    let tally = async |client: &mut crate::support::Client, path: &str, count| {
        client.repeat(count, &get(path)).await.iter().collect::<Tally>()
    };
    for algorithm in FIVE {
        tally(&mut client, &algorithm.path(), 60)
            .await
            .expect(60, 0, algorithm.short());
    }
    redis.start_again().await;
    gateway.status_says("/store/state", "connected").await;
    for algorithm in FIVE {
        let after = tally(&mut client, &algorithm.path(), 60).await;
        after.expect(40, 20, &format!("{algorithm:?} after the restart"));
    }
}

/// Case 034: on a cluster every counter is exact, whichever node has it, and so are requests whose counters lie on several.
#[tokio::test]
async fn on_a_cluster_each_user_has_exactly_the_quota() {
    let cluster = aside(RedisCluster::start_without_replicas).await;
    let settings = Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"{}\", prefix: slots, timeout: 10s}}}}",
            cluster.url()
        ))
        .five_limits("header:x-user-id", 5, "1d")
        .limit("{name: all, key: [header:x-user-id, path], algorithm: fixed_window, limit: 7, window: 1000d}");
    let gateway = Gateway::with(&settings).start().await;
    gateway.status_says("/store/state", "connected").await;
    let mut users = JoinSet::new();
    for user in 0..60 {
        let mut client = gateway.client();
        users.spawn(async move {
            for algorithm in FIVE {
                let request = get(&algorithm.path()).header("x-user-id", &format!("user-{user}"));
                let tally: Tally = client.repeat(8, &request).await.iter().collect();
                tally.expect(5, 3, &format!("{algorithm:?} for user {user}"));
            }
        });
    }
    while let Some(finished) = users.join_next().await {
        finished.unwrap();
    }
    assert_eq!(troubles(&gateway).await, 0.0);
    let log = gateway.log();
    for error in ["CROSSSLOT", "undeclared", "MOVED"] {
        assert!(!log.contains(error), "{log}");
    }
    for node in cluster.nodes() {
        assert!(
            node.command(&["DBSIZE"]).int() > Some(100),
            "a node without its part of the counters"
        );
    }
}

/// Case 036: one layer through all algorithms; each begins anew, none stumbles over what another left.
#[tokio::test]
async fn another_algorithm_never_reads_what_was_left() {
    let redis = Redis::start().await;
    let with = |number: usize| {
        let parameters = FIVE[number].parameters(3, "300s");
        Settings::answering()
            .counting_in(&redis, "kinds")
            .limit(&format!("{{name: u, key: header:x-user-id, {parameters}}}"))
    };
    let gateway = Gateway::with(&with(0)).start().await;
    let request = get("/").header("x-user-id", "u1");
    for round in 1..=10 {
        let answers = gateway.client().repeat(5, &request).await;
        let passed = answers.iter().collect::<Tally>().passed();
        // The second time round, what was used of that algorithm is still used.
        let expected = if round <= FIVE.len() { 3 } else { 0 };
        assert_eq!(passed, expected, "round {round}");
        let version = gateway.status().await["config"]["version"].as_u64().unwrap();
        gateway.write(Way::Post, &with(round % FIVE.len()).to_yaml()).await;
        gateway.status_says("/config/version", version + 1).await;
    }
    assert_eq!(troubles(&gateway).await, 0.0);
}

/// Case 036: a key under which another program put something else is taken over.
#[tokio::test]
async fn a_foreign_value_under_a_key_is_replaced() {
    let redis = Redis::start().await;
    let settings = Settings::answering()
        .counting_in(&redis, "alien")
        .five_limits("ip", 3, "300s");
    let gateway = Gateway::with(&settings).start().await;
    for algorithm in FIVE {
        gateway.client().get(&algorithm.path()).await;
    }
    let counters = redis.counters("alien").await;
    assert_eq!(counters.len(), FIVE.len());
    for foreign in [["HSET", "a", "b"], ["SADD", "a", "b"], ["ZADD", "1", "a"]] {
        for key in &counters {
            redis.command(&["DEL", key]).await;
            let made = redis.command(&[foreign[0], key, foreign[1], foreign[2]]).await;
            assert!(made.int().is_some(), "{made:?}");
        }
        for algorithm in FIVE {
            let answers = gateway.client().repeat(5, &get(&algorithm.path())).await;
            answers
                .iter()
                .collect::<Tally>()
                .expect(3, 2, &format!("{algorithm:?} over {foreign:?}"));
        }
        // For so long a refusal is repeated without asking.
        pause(Duration::from_secs(1)).await;
    }
    // It is told, and nothing else went wrong.
    let replaced = gateway
        .metric("gateway_store_errors_total", &[("kind", "replaced")])
        .await;
    assert_eq!((replaced, troubles(&gateway).await), (15.0, 15.0));
}

/// Case 039: every connection logs in and selects its database, the tenth as the first.
#[tokio::test]
async fn each_new_connection_is_that_user_in_that_database() {
    let redis = Redis::start_as(|| RedisServer::start_with_user("gw", "secret", "~counts:* +@all")).await;
    let in_database = |database: u32| {
        let port = redis.address().port();
        Settings::answering()
            .store(&format!(
                "{{redis: {{url: \"redis://gw:secret@127.0.0.1:{port}/{database}\", prefix: counts, timeout: 1s}}}}"
            ))
            .five_limits("ip", 10_000, "1d")
    };
    let gateway = Gateway::with(&in_database(5)).start().await;
    gateway.status_says("/store/state", "connected").await;
    let load = Load::start(
        gateway.address(),
        &["/tb/x", "/lb/x", "/fw/x", "/sl/x", "/sc/x"],
        4,
        100,
    );
    for _ in 0..6 {
        pause(Duration::from_millis(500)).await;
        redis.command(&["CLIENT", "KILL", "TYPE", "normal"]).await;
    }
    pause(Duration::from_millis(500)).await;
    assert_eq!(keys(&redis, 5).await, 5);
    gateway.write(Way::Post, &in_database(6).to_yaml()).await;
    pause(Duration::from_secs(1)).await;
    let answers = load.stop().await;
    assert!(answers.iter().all(|answered| answered.status == Some(200)));
    assert_eq!(keys(&redis, 6).await, 5);
    assert_eq!([keys(&redis, 0).await, keys(&redis, 1).await], [0, 0]);
    let log = gateway.log();
    for error in ["NOAUTH", "NOPERM", "WRONGPASS"] {
        assert!(!log.contains(error), "{log}");
    }
}

/// Case 041: what the user may not do is said, by name.
#[tokio::test]
async fn a_missing_permission_is_told_as_such() {
    let redis = Redis::start_as(|| RedisServer::start_with_user("gw", "secret", "~login:* +@all -@scripting")).await;
    let port = redis.address().port();
    let settings = Settings::answering()
        .store(&format!(
            "{{redis: {{url: \"redis://gw:secret@127.0.0.1:{port}/0\", prefix: login, on_failure: closed}}}}"
        ))
        .five_limits("ip", 5, "1d");
    let gateway = Gateway::with(&settings).start().await;
    let answer = gateway.client().get("/tb/x").await;
    assert_eq!(answer.status, 503);
    wait_for(DEADLINE, "the missing permission in the log", || async {
        gateway.log().contains("NOPERM")
    })
    .await;
    assert!(matches!(
        redis.command(&["ACL", "SETUSER", "gw", "+@scripting"]).await,
        Reply::Text(_)
    ));
    wait_for(DEADLINE, "a decision by Redis", || async {
        gateway.client().get("/tb/x").await.passed()
    })
    .await;
}
