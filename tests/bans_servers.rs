//! Bans where Redis is away, fails over, or is a cluster.

use std::{sync::Arc, time::Duration};

use limiter_core::test_util::{RedisCluster, RedisSentinels};

use crate::{
    bans::{answering, ask, course, is_banned, knows_of, two},
    support::{Gateway, Redis, Settings, pause, redis::aside},
};

/// Bans that are known stay; new ones are made alone, and are those of all when Redis is back.
#[tokio::test]
async fn bans_go_on_while_redis_is_away() {
    let redis = Redis::start().await;
    let store = format!(
        "{{redis: {{url: \"redis://{}/0\", timeout: 1s, on_failure: local}}}}",
        redis.address()
    );
    let [one, two] = two(&answering("{after: 2, within: 1m, for: 10m}").store(&store)).await;
    assert_eq!(course(&one, "alice", 3).await, "pdd");
    knows_of(&two, 1).await;
    redis.kill();
    one.status_says("/store/state", "down").await;
    two.status_says("/store/state", "down").await;
    assert_eq!(course(&two, "alice", 2).await, "bb");
    assert_eq!(course(&one, "bob", 4).await, "pddb", "refusals of the fallback count");
    assert_eq!(course(&two, "bob", 1).await, "p");
    // What cannot be done everywhere is said.
    let answer = two.ask_admin("DELETE", "/api/bans/user/alice").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(!is_banned(&ask(&two, "alice").await), "but it is done here");
    // It comes back empty: those who know tell.
    redis.start_again().await;
    for gateway in [&one, &two] {
        gateway.status_says("/store/state", "connected").await;
        knows_of(gateway, 2).await;
    }
    assert_eq!(two.ask_admin("DELETE", "/api/bans/user/alice").await.status, 204);
    knows_of(&one, 1).await;
}

/// Nothing is on record yet, and refusals are told four times a second.
#[tokio::test]
async fn in_an_empty_redis_a_refusal_counts_once() {
    let redis = Redis::start().await;
    let settings = answering("{after: 4, within: 1m, for: 10m}").counting_in(&redis, "gw");
    let [one, two] = two(&settings).await;
    assert_eq!(course(&one, "alice", 3).await, "pdd");
    pause(Duration::from_secs(2)).await;
    let tally = redis.command(&["GET", "gw:~{bans}:user:alice"]).await;
    // No ban, and then times and how many refusals each.
    let counts = tally.text().unwrap().split(' ').skip(3).skip(1).step_by(2);
    assert_eq!(counts.map(|count| count.parse::<u64>().unwrap()).sum::<u64>(), 2);
    assert_eq!(one.ask_admin("DELETE", "/api/bans/user/nobody").await.status, 404);
    assert_eq!(course(&two, "alice", 2).await, "dd");
    knows_of(&one, 1).await;
}

#[tokio::test]
async fn a_redis_that_was_emptied_is_told_of_the_bans() {
    let redis = Redis::start().await;
    let settings = answering("{after: 1, within: 1m, for: 10m}").counting_in(&redis, "gw");
    let [one, two] = two(&settings).await;
    assert_eq!(course(&one, "alice", 3).await, "pdb");
    knows_of(&two, 1).await;
    redis.command(&["FLUSHALL"]).await;
    let three = Gateway::with(&settings).start().await;
    knows_of(&three, 1).await;
    redis.command(&["FLUSHALL"]).await;
    assert_eq!(two.ask_admin("DELETE", "/api/bans/user/alice").await.status, 204);
    for gateway in [&one, &two, &three] {
        knows_of(gateway, 0).await;
    }
}

/// 503 is no refusal of the key.
#[tokio::test]
async fn what_a_closed_layer_refuses_without_its_store_bans_nobody() {
    let redis = Redis::start().await;
    let url = format!("redis://{}/0", redis.address());
    let store = format!("{{redis: {{url: \"{url}\", timeout: 1s, on_failure: closed}}}}");
    let gateway = Gateway::with(&answering("{after: 1, within: 1m, for: 10m}").store(&store))
        .start()
        .await;
    gateway.status_says("/store/state", "connected").await;
    assert_eq!(course(&gateway, "alice", 3).await, "pdb");
    redis.kill();
    gateway.status_says("/store/state", "down").await;
    for _ in 0..3 {
        assert_eq!(ask(&gateway, "bob").await.status, 503);
    }
    assert_eq!(course(&gateway, "alice", 1).await, "b", "who was banned is");
    knows_of(&gateway, 1).await;
}

/// Bans by the sum over two gateways, which count there.
fn counting_at(url: &str) -> Settings {
    let store = format!("{{redis: {{url: \"{url}\", timeout: 10s}}}}");
    answering("{after: 4, within: 1m, for: 10m}").store(&store)
}

/// Refused so often by both together that the user is banned, by neither alone.
async fn offend(one: &Gateway, two: &Gateway, user: &str) {
    assert_eq!(course(one, user, 3).await, "pdd");
    assert_eq!(course(two, user, 2).await, "dd");
}

#[tokio::test]
async fn in_a_cluster_bans_are_shared_wherever_their_slot_goes() {
    let cluster = Arc::new(aside(RedisCluster::start).await);
    let settings = counting_at(&cluster.url());
    let [one, two] = two(&settings).await;
    offend(&one, &two, "alice").await;
    knows_of(&one, 1).await;
    knows_of(&two, 1).await;
    let migrated = Arc::clone(&cluster);
    aside(move || {
        let slot = migrated.slot_of("gw:~{bans}");
        let from = migrated.owner_of_slot(slot);
        let to = migrated.primaries().into_iter().find(|node| *node != from).unwrap();
        migrated.migrate_slot(slot, from, to);
    })
    .await;
    offend(&one, &two, "bob").await;
    knows_of(&one, 2).await;
    knows_of(&two, 2).await;
    let killed = Arc::clone(&cluster);
    aside(move || {
        let owner = killed.owner_of("gw:~{bans}");
        let heir = killed.replica_of(owner).unwrap();
        killed.wait_until_settled();
        killed.kill_node(owner);
        killed.wait_until_primary(heir);
    })
    .await;
    assert_eq!(course(&one, "alice", 2).await, "bb");
    one.status_says("/store/state", "connected").await;
    two.status_says("/store/state", "connected").await;
    offend(&one, &two, "carol").await;
    knows_of(&two, 3).await;
    let three = Gateway::with(&settings).start().await;
    knows_of(&three, 3).await;
    assert_eq!(three.ask_admin("DELETE", "/api/bans/user/alice").await.status, 204);
    knows_of(&one, 2).await;
    knows_of(&two, 2).await;
}

#[tokio::test]
async fn bans_survive_the_loss_of_a_primary() {
    let all = Arc::new(aside(RedisSentinels::start).await);
    let settings = counting_at(&all.url());
    let [one, two] = two(&settings).await;
    offend(&one, &two, "alice").await;
    knows_of(&one, 1).await;
    knows_of(&two, 1).await;
    let killed = Arc::clone(&all);
    aside(move || {
        let old = killed.kill_primary();
        killed.wait_for_successor_of(old);
    })
    .await;
    assert_eq!(course(&two, "alice", 2).await, "bb");
    one.status_says("/store/state", "connected").await;
    two.status_says("/store/state", "connected").await;
    offend(&one, &two, "bob").await;
    let three = Gateway::with(&settings).start().await;
    for gateway in [&one, &two, &three] {
        knows_of(gateway, 2).await;
    }
}
