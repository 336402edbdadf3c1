//! Sentinel and Cluster: what holds for one server holds for several.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use limiter_core::{
    MonotonicClock,
    test_util::{RedisCluster, RedisSentinels},
};

use super::{
    redis_only::{allowed, quotas},
    *,
};

async fn store(url: &str) -> Arc<RedisStore> {
    let store = RedisStore::start(config_of(url), &tokio::runtime::Handle::current()).unwrap();
    let store = Arc::new(store);
    connected(&store).await;
    store
}

/// The guards of servers block.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Four layers of every algorithm, whose counters lie in different slots; the second is the narrowest.
fn four_layers(narrow: u64) -> Vec<[Arc<Policy>; 4]> {
    let layer = |name: &str, limit, at: usize| {
        let algorithm = quotas(limit)[at].algorithm().clone();
        policy(&format!("{name}{at}"), algorithm)
    };
    (0..quotas(1).len())
        .map(|at| {
            [
                layer("first", 10_000, at),
                layer("narrow", narrow, at),
                layer("third", 20_000, at),
                layer("last", 30_000, at),
            ]
        })
        .collect()
}

/// Asks `count` times from each of 16 tasks over all stores; says how many passed.
async fn admitted(stores: &[Arc<RedisStore>], layers: &[Arc<Policy>], count: usize) -> usize {
    let passed = Arc::new(AtomicUsize::new(0));
    let deciders: Vec<_> = (0..16)
        .map(|i| {
            let (store, passed) = (Arc::clone(&stores[i % stores.len()]), Arc::clone(&passed));
            let layers: Vec<_> = layers.to_vec();
            tokio::spawn(async move {
                for _ in 0..count {
                    let asks: Vec<_> = layers.iter().map(|layer| (layer, "k", 1)).collect();
                    let result = decide(&*store, &asks).await;
                    passed.fetch_add(usize::from(allowed(&result)), Ordering::Relaxed);
                    result.unwrap();
                }
            })
        })
        .collect();
    for decider in deciders {
        decider.await.unwrap();
    }
    passed.load(Ordering::Relaxed)
}

/// Units left of each layer.
async fn remaining(store: &RedisStore, layers: &[Arc<Policy>]) -> Vec<u64> {
    let asks: Vec<_> = layers.iter().map(|layer| (layer, "k", 0)).collect();
    let decision = decide(store, &asks).await.unwrap();
    decision.readings.iter().map(|reading| reading.remaining).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_admits_no_more_than_the_narrowest_layer_and_gives_back_the_rest() {
    let cluster = RedisCluster::start_without_replicas();
    let stores = [store(&cluster.url()).await, store(&cluster.url()).await];
    for layers in four_layers(100) {
        let passed = admitted(&stores, &layers, 20).await;
        // Between a reservation and its return another request may be refused early.
        assert!((90..=100).contains(&passed), "{passed} of 100: {:?}", layers[1]);
        // One after the other, nobody is refused early.
        let mut all = passed;
        while allowed(&decide(&*stores[0], &layers.each_ref().map(|layer| (layer, "k", 1))).await) {
            all += 1;
        }
        assert_eq!(all, 100, "{:?}", layers[1]);
        let all = all as u64;
        let left = [10_000 - all, 0, 20_000 - all, 30_000 - all];
        let settled = async {
            while remaining(&stores[0], &layers).await != left {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let settled = tokio::time::timeout(5 * SECOND, settled).await;
        assert!(
            settled.is_ok(),
            "{:?}, not {left:?}",
            remaining(&stores[0], &layers).await
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_layer_in_a_cluster_is_exact() {
    let cluster = RedisCluster::start_without_replicas();
    let stores = [store(&cluster.url()).await, store(&cluster.url()).await];
    for policy in quotas(100) {
        assert_eq!(admitted(&stores, &[Arc::clone(&policy)], 12).await, 100, "{policy:?}");
    }
}

/// What `load` sees of a store while something happens to its servers.
#[derive(Debug, Default)]
struct Seen {
    passed: usize,
    refused: usize,
    failed: usize,
}

/// Asks for one of many users, over and over, until told to stop.
fn load(store: &Arc<RedisStore>, policy: &Arc<Policy>, stop: &Arc<AtomicBool>) -> tokio::task::JoinHandle<Seen> {
    let (store, policy, stop) = (Arc::clone(store), Arc::clone(policy), Arc::clone(stop));
    tokio::spawn(async move {
        let (mut seen, mut user) = (Seen::default(), 0);
        while !stop.load(Ordering::Relaxed) {
            user = (user + 1) % 50;
            let result = decide(&*store, &[(&policy, &*format!("user{user}"), 1)]).await;
            match &result {
                Err(_) => seen.failed += 1,
                Ok(_) if allowed(&result) => seen.passed += 1,
                Ok(_) => seen.refused += 1,
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        seen
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_under_load_are_followed_without_a_failure() {
    let cluster = Arc::new(RedisCluster::start_without_replicas());
    let store = store(&cluster.url()).await;
    for policy in quotas(20) {
        let stop = Arc::default();
        let seen = load(&store, &policy, &stop);
        let moved = Arc::clone(&cluster);
        blocking(move || {
            moved.migrate_slots(0, 1, 25);
            moved.migrate_slots(1, 0, 25);
        })
        .await;
        let exhausted = async { while decide(&*store, &[(&policy, "user49", 0)]).await.is_err() {} };
        exhausted.await;
        stop.store(true, Ordering::Relaxed);
        let seen = seen.await.unwrap();
        assert_eq!(seen.failed, 0, "{seen:?}");
        assert!(seen.passed <= 50 * 20, "{seen:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_takes_over_in_a_cluster_is_followed() {
    let cluster = Arc::new(RedisCluster::start());
    let store = store(&cluster.url()).await;
    let policy = &quotas(100_000)[0];
    let stop = Arc::default();
    let seen = load(&store, policy, &stop);
    let guard = Arc::clone(&cluster);
    blocking(move || {
        guard.fail_over_to(guard.replica_of(0).unwrap());
        let killed = guard.primaries()[0];
        guard.kill_node(killed);
    })
    .await;
    eventually("the loss is noticed", || store.health() != Health::Connected).await;
    eventually("all slots have a primary that answers", || {
        store.health() == Health::Connected
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    let seen = seen.await.unwrap();
    assert!(seen.failed < seen.passed, "{seen:?}");
    for user in 0..50 {
        decide(&*store, &[(policy, &*format!("user{user}"), 1)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_left_of_a_cluster_goes_on() {
    let cluster = RedisCluster::start_without_replicas();
    let store = store(&cluster.url()).await;
    let policy = &quotas(100_000)[0];
    cluster.kill_node(0);
    let (mut answered, mut failed) = (0, 0);
    eventually("it is noticed", || store.health() == Health::Degraded).await;
    for user in 0..300 {
        match decide(&*store, &[(policy, &*format!("user{user}"), 1)]).await {
            Ok(_) => answered += 1,
            Err(_) => failed += 1,
        }
    }
    assert!((130..270).contains(&answered), "{answered} answered, {failed} failed");
    // Of a request over two servers, what the one says counts.
    let other = &quotas(99_999)[1];
    let (mut wholly, mut partly) = (0, 0);
    for user in 0..300 {
        let user = format!("user{user}");
        match decide(&*store, &[(policy, &user, 1), (other, &user, 1)]).await {
            Ok(_) => wholly += 1,
            Err(StoreError::Partly(part)) if part.layers.len() == 1 && part.taken.len() == 1 => partly += 1,
            Err(_) => {}
        }
    }
    assert!(wholly > 20 && partly > 20, "{wholly} wholly, {partly} partly");
    cluster.restart_node(0);
    connected(&store).await;
    for user in 0..300 {
        decide(&*store, &[(policy, &*format!("user{user}"), 1)]).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_primary_that_sentinels_name_is_followed() {
    let sentinels = Arc::new(RedisSentinels::start());
    let store = store(&sentinels.url()).await;
    let policy = &quotas(100_000)[0];
    for kill in [false, true] {
        let stop = Arc::default();
        let seen = load(&store, policy, &stop);
        let guard = Arc::clone(&sentinels);
        let old = blocking(move || {
            let old = guard.primary_port();
            if kill {
                guard.kill_primary();
            } else {
                guard.order_failover();
            }
            guard.wait_for_successor_of(old);
            old
        })
        .await;
        let clock = MonotonicClock::new();
        let switched = clock.now();
        let new = sentinels.primary_port();
        assert_ne!(new, old);
        eventually("it is connected", || store.health() == Health::Connected).await;
        stop.store(true, Ordering::Relaxed);
        eprintln!(
            "kill {kill}: {:?} after the switch, {:?}",
            clock.now().since(switched),
            seen.await.unwrap()
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_in_several_slots_of_a_cluster_are_one_turn() {
    let cluster = RedisCluster::start_without_replicas();
    let store = store(&cluster.url()).await;
    let queue = |name: &str, seconds, capacity| {
        let rate = Rate {
            units: 1,
            per: seconds * SECOND,
        };
        policy(name, LeakyBucket::queue(rate, capacity, 3600 * SECOND).unwrap())
    };
    let layers = [queue("slow", 60, 9), queue("full", 10, 3), queue("fast", 20, 9)];
    let limiter = Limiter::new(Arc::<RedisStore>::clone(&store), Arc::<RedisStore>::clone(&store));
    let enter = async || {
        let asks: Vec<_> = (layers.iter())
            .map(|policy| Ask {
                policy,
                key: "k",
                cost: 1,
            })
            .collect();
        let outcome = match limiter.check(&asks) {
            Checking::Ready(outcome) => outcome,
            Checking::Pending(outcome) => outcome.await,
        };
        match outcome {
            Outcome::Decided(decision) => decision,
            Outcome::Fallback { error, .. } => panic!("{error}"),
            Outcome::Repeated { .. } | Outcome::Refused { .. } => panic!("it asks the store, always"),
        }
    };
    assert_eq!(enter().await.turn, None);
    let delay = |decision: &Decision| decision.turn.as_ref().map(|turn| turn.delay().as_secs().div_ceil(10));
    let second = enter().await;
    assert_eq!(delay(&second), Some(6), "the slowest queue counts");
    let third = enter().await;
    assert_eq!(delay(&third), Some(12));
    let refused = enter().await;
    assert!(matches!(refused.verdict, Verdict::Denied { by: 1, .. }), "{refused:?}");
    assert_eq!(refused.turn, None);
    wait_remaining(&store, &layers, [6, 0, 6]).await;
    limiter.leave(*third.turn.unwrap());
    wait_remaining(&store, &layers, [7, 1, 7]).await;
}

/// What is given back arrives a moment later.
async fn wait_remaining(store: &RedisStore, layers: &[Arc<Policy>], expected: [u64; 3]) {
    let mut found = Vec::new();
    for _ in 0..500 {
        found = remaining(store, layers).await;
        if found == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{expected:?} were to remain, not {found:?}");
}
