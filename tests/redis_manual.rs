//! What docs/redis.md says of the user that a gateway needs, held against a server.

use limiter_core::test_util::RedisServer;

use crate::support::{DEADLINE, FIVE, Gateway, Redis, Settings, wait_for};

const MANUAL: &str = include_str!("../docs/redis.md");
/// The script, the heartbeat, and the bans.
const LUA: [&str; 12] = [
    include_str!("../lua/head.lua"),
    include_str!("../lua/clock.lua"),
    include_str!("../lua/bucket.lua"),
    include_str!("../lua/token_bucket.lua"),
    include_str!("../lua/leaky_bucket.lua"),
    include_str!("../lua/fixed_window.lua"),
    include_str!("../lua/sliding_window_counter.lua"),
    include_str!("../lua/sliding_window_log.lua"),
    include_str!("../lua/decide.lua"),
    include_str!("../lua/beat.lua"),
    include_str!("../lua/ban.lua"),
    include_str!("../lua/clock_given.lua"),
];

/// The rules of the user in the manual, after its password.
fn rules() -> &'static str {
    let mut lines = MANUAL.lines();
    lines
        .find_map(|line| line.strip_prefix("user gateway on >PASSWORD "))
        .expect("a user in the manual")
}

/// A server of that user, with these rules.
async fn server(rules: String) -> Redis {
    Redis::start_as(move || RedisServer::start_with_user("gateway", "secret", &rules)).await
}

/// A limit of each algorithm, in a database of its own: a user may have to SELECT it.
fn settings(redis: &Redis) -> Settings {
    let url = format!("redis://gateway:secret@{}/2", redis.address());
    Settings::answering()
        .store(&format!("{{redis: {{url: \"{url}\", timeout: 10s}}}}"))
        .five_limits("global", 3, "1h")
        .limit(
            "{name: ban, key: method, match: {path: /ban}, algorithm: fixed_window, limit: 1, window: 1d, \
             ban: {after: 1, within: 1m, for: [1m, 1h]}}",
        )
}

#[tokio::test]
async fn the_user_of_the_manual_may_do_all_that_a_gateway_does() {
    let redis = server(rules().to_owned()).await;
    let gateway = Gateway::with(&settings(&redis)).start().await;
    gateway.status_says("/store/state", "connected").await;
    let mut client = gateway.client();
    for algorithm in FIVE {
        let path = format!("/{}/", algorithm.short());
        for place in 0..5 {
            let answer = client.get(&path).await;
            assert_eq!(answer.passed(), place < 3, "{algorithm:?}, request {place}: {answer:?}");
        }
    }
    for status in [200, 429, 429] {
        assert_eq!(client.get("/ban").await.status, status);
    }
    wait_for(DEADLINE, "a ban", || async {
        redis
            .command(&["INFO", "commandstats"])
            .await
            .text()
            .is_some_and(|stats| stats.contains("cmdstat_zremrangebyrank"))
    })
    .await;
    assert_eq!(gateway.ask_admin("DELETE", "/api/bans/ban/GET").await.status, 204);
    wait_for(DEADLINE, "a heartbeat", || async {
        redis
            .command(&["INFO", "commandstats"])
            .await
            .text()
            .is_some_and(|stats| stats.contains("cmdstat_zcard"))
    })
    .await;
    wait_for(DEADLINE, "a look at the memory", || async {
        redis
            .command(&["INFO", "commandstats"])
            .await
            .text()
            .is_some_and(|stats| stats.contains("cmdstat_info"))
    })
    .await;
    let refused = redis.command(&["ACL", "LOG"]).await;
    assert!(refused.items().is_empty(), "{refused:?}");
}

#[test]
fn the_user_of_the_manual_may_do_what_the_scripts_do() {
    for text in LUA {
        for call in text.split("call('").skip(1) {
            let command = call.split('\'').next().unwrap().to_lowercase();
            let rule = format!("+{command}");
            assert!(
                rules().split(' ').any(|own| own == rule),
                "{rule} is missing in docs/redis.md"
            );
        }
    }
}
