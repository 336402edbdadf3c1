//! The fault matrix with a primary, its replica and three sentinels.

use std::sync::Arc;

use limiter_core::test_util::RedisSentinels;

use crate::support::{BURST, Gateway, Trial, redis::aside};

async fn start() -> (Arc<RedisSentinels>, Gateway) {
    let all = Arc::new(aside(RedisSentinels::start).await);
    let settings = Trial::settings(&format!("url: \"{}\", prefix: f", all.url()));
    let gateway = Gateway::with(&settings).start().await;
    (all, gateway)
}

#[tokio::test]
async fn primary_killed() {
    let (all, gateway) = start().await;
    let kill = async || {
        let all = Arc::clone(&all);
        aside(move || {
            let old = all.kill_primary();
            all.wait_for_successor_of(old);
        })
        .await;
    };
    // What was not yet with the replica is forgotten: a few ms of it.
    Trial::change("sentinel: primary killed")
        .forgetting(5)
        .run(&gateway, kill, async || {})
        .await;
}

#[tokio::test]
async fn primary_frozen() {
    let (all, gateway) = start().await;
    let freeze = async || {
        let all = Arc::clone(&all);
        aside(move || {
            let old = all.primary_port();
            all.primary().pause();
            all.wait_for_successor_of(old);
        })
        .await;
    };
    // It goes on as a primary, for all that it knows, until the sentinels tell it otherwise: a gateway that had not heard of
    // the other one yet would go back to it for a moment, and what it counts there is forgotten.
    let thaw = async || {
        gateway.status_says("/store/state", "connected").await;
        let all = Arc::clone(&all);
        aside(move || {
            all.replica().resume();
            all.wait_until_settled();
        })
        .await;
    };
    Trial::change("sentinel: primary frozen, and back")
        .forgetting(5)
        .run(&gateway, freeze, thaw)
        .await;
}

#[tokio::test]
async fn failover_by_order() {
    let (all, gateway) = start().await;
    let order = async || {
        let all = Arc::clone(&all);
        aside(move || {
            let old = all.primary_port();
            all.order_failover();
            all.wait_for_successor_of(old);
        })
        .await;
    };
    // The old primary takes writes until it is told: what it counts is forgotten, and a burst at most is free at the new one.
    Trial::change("sentinel: failover by order")
        .forgetting(BURST)
        .run(&gateway, order, async || {})
        .await;
}
