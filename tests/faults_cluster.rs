//! The fault matrix with a cluster: the counters of a request lie on different nodes.

use std::{sync::Arc, time::Duration};

use limiter_core::test_util::RedisCluster;

use crate::support::{BURST, Gateway, Trial, redis::aside};

const SECOND: Duration = Duration::from_secs(1);
const LAYERS: [&str; 3] = ["local", "open", "closed"];

/// A cluster, and a gateway whose three counters lie on three nodes.
struct Spread {
    cluster: Arc<RedisCluster>,
    gateway: Gateway,
    /// The key of each layer's counter.
    keys: [String; 3],
}

impl Spread {
    async fn over(start: impl FnOnce() -> RedisCluster + Send + 'static) -> Self {
        let cluster = Arc::new(aside(start).await);
        let searched = Arc::clone(&cluster);
        let (prefix, keys) = aside(move || {
            let keys = |prefix: &str| LAYERS.map(|layer| format!("{prefix}:{layer}:tb:*"));
            let is_spread = |keys: &[String; 3]| {
                let [a, b, c] = keys.each_ref().map(|key| searched.owner_of(key));
                a != b && b != c && c != a
            };
            let prefixes = (0..200).map(|number| format!("f{number}"));
            let mut spread = prefixes
                .map(|prefix| (keys(&prefix), prefix))
                .filter(|(keys, _)| is_spread(keys));
            let (keys, prefix) = spread.next().unwrap();
            (prefix, keys)
        })
        .await;
        let settings = Trial::settings(&format!("url: \"{}\", prefix: {prefix}", cluster.url()));
        let gateway = Gateway::with(&settings).start().await;
        gateway.status_says("/store/state", "connected").await;
        let spread = Self { cluster, gateway, keys };
        spread.gateway.client().get("/all").await;
        let exists = |cluster: &RedisCluster, keys: &[String; 3]| {
            for key in keys {
                let node = &cluster.nodes()[cluster.owner_of(key)];
                assert_eq!(
                    node.command(&["EXISTS", key]).int(),
                    Some(1),
                    "{key}: {:?}",
                    node.command(&["KEYS", "*"])
                );
            }
        };
        spread.trouble(exists).await;
        spread
    }

    /// Does this to the cluster, beside the load.
    async fn trouble(&self, work: impl FnOnce(&RedisCluster, &[String; 3]) + Send + 'static) {
        let (cluster, keys) = (Arc::clone(&self.cluster), self.keys.clone());
        aside(move || work(&cluster, &keys)).await;
    }

    /// The other layers were the store's all the while.
    async fn others_are_unharmed(&self) {
        for layer in ["local", "open"] {
            let labels = [("limit", layer), ("outcome", "fallback_allowed")];
            let alone = self.gateway.metric("gateway_limit_decisions_total", &labels).await;
            assert!(alone <= 20.0, "{layer} passed {alone} without the store");
        }
    }
}

#[tokio::test]
async fn a_node_lost_that_has_a_replica() {
    let spread = Spread::over(RedisCluster::start).await;
    let kill = async || {
        spread
            .trouble(|cluster, keys| {
                let node = cluster.owner_of(&keys[2]);
                let heir = cluster.replica_of(node).unwrap();
                cluster.kill_node(node);
                cluster.wait_until_primary(heir);
            })
            .await;
    };
    // What was not yet with the replica is forgotten: a few ms of it.
    Trial::change("cluster: a node with a replica killed")
        .forgetting(5)
        .run(&spread.gateway, kill, async || {})
        .await;
}

#[tokio::test]
async fn a_node_lost_that_has_none() {
    let spread = Spread::over(RedisCluster::start_without_replicas).await;
    let node = spread.cluster.owner_of(&spread.keys[2]);
    let kill = async || spread.trouble(move |cluster, _| cluster.kill_node(node)).await;
    let restart = async || {
        spread
            .trouble(move |cluster, _| {
                cluster.restart_node(node);
                cluster.wait_until_settled();
            })
            .await;
    };
    let trial = Trial::change("cluster: a node without a replica killed, started 3 s later")
        .forgetting(BURST)
        .lasting(3 * SECOND);
    trial.run(&spread.gateway, kill, restart).await;
    spread.others_are_unharmed().await;
}

#[tokio::test]
async fn slots_on_the_move() {
    let spread = Spread::over(RedisCluster::start_without_replicas).await;
    let migrate = async || {
        spread
            .trouble(|cluster, keys| {
                for _ in 0..3 {
                    for key in keys {
                        let from = cluster.owner_of(key);
                        cluster.migrate_slots(from, (from + 1) % 3, 10);
                    }
                }
            })
            .await;
    };
    let trial = Trial::unnoticed("cluster: slots on the move").lasting(Duration::ZERO);
    trial.run(&spread.gateway, migrate, async || {}).await;
}

#[tokio::test]
async fn failover_by_order() {
    let spread = Spread::over(RedisCluster::start).await;
    let order = async || {
        spread
            .trouble(|cluster, keys| {
                let heir = cluster.replica_of(cluster.owner_of(&keys[2])).unwrap();
                cluster.fail_over_to(heir);
            })
            .await;
    };
    Trial::change("cluster: failover by order")
        .run(&spread.gateway, order, async || {})
        .await;
}
