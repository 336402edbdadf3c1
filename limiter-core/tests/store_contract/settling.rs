//! What a request was charged becomes what it costs, on every store.

use limiter_core::{Receipt, Role, test_util::RedisCluster};

use super::*;

impl World {
    pub(super) fn limiter(&self) -> Limiter {
        Limiter::new(Arc::clone(&self.store), Arc::clone(&self.store))
    }

    /// Waits until so many units are left: settlements leave in a call of their own.
    pub(super) async fn leaves(&self, policy: &Arc<Policy>, units: u64) {
        let mut last = 0;
        for _ in 0..500 {
            last = self.remaining(policy, "k").await;
            if last == units {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("{last} are left, not {units}: {policy:?} in {:?}", self.store);
    }
}

/// Asks for so many units of each, and gives the decision.
pub(super) async fn check(limiter: &Limiter, layers: &[(&Arc<Policy>, u64)]) -> Decision {
    let asks: Vec<_> = (layers.iter())
        .map(|&(policy, cost)| Ask { policy, key: "k", cost })
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
}

async fn charged(limiter: &Limiter, policy: &Arc<Policy>, cost: u64) -> Receipt {
    *check(limiter, &[(policy, cost)]).await.receipt.unwrap()
}

/// As every algorithm, of layers that are settled afterwards.
fn settled(limit: u64, window: Duration) -> Vec<Arc<Policy>> {
    let policies = every_algorithm(limit, window).into_iter();
    policies
        .map(|policy| Arc::new(Policy::clone(&policy).giving_back()))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_holds_the_sum_of_what_requests_cost() {
    for world in World::each().await {
        let limiter = world.limiter();
        for policy in settled(100, 10 * SECOND) {
            let (one, two, three) = (
                charged(&limiter, &policy, 10).await,
                charged(&limiter, &policy, 10).await,
                charged(&limiter, &policy, 10).await,
            );
            world.leaves(&policy, 70).await;
            limiter.settle(two, |_, units| units - 7);
            world.leaves(&policy, 77).await;
            limiter.settle(one, |_, _| 25);
            world.leaves(&policy, 62).await;
            limiter.settle(three, |_, _| 0);
            world.leaves(&policy, 72).await;
            // More than there is: nobody passes until it has come back.
            let last = charged(&limiter, &policy, 72).await;
            limiter.settle(last, |_, _| 99);
            world.leaves(&policy, 0).await;
            assert!(!world.passes(&policy, "k").await);
            world.clock.advance(10 * SECOND);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_taken_from_a_window_that_has_ended_stays_there() {
    let window = FixedWindow::new(10, 10 * SECOND, Align::Clock).unwrap();
    let log = SlidingWindowLog::new(10, 10 * SECOND).unwrap();
    for world in World::each().await {
        for policy in [policy("window", window.clone()), policy("log", log.clone())] {
            let policy = Arc::new(Policy::clone(&policy).giving_back());
            let limiter = world.limiter();
            let first = charged(&limiter, &policy, 5).await;
            world.clock.advance(10 * SECOND);
            let second = charged(&limiter, &policy, 5).await;
            limiter.settle(first, |_, _| 0);
            limiter.settle(second, |_, _| 4);
            world.leaves(&policy, 6).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_taken_is_on_the_receipt() {
    for world in World::each().await {
        let limiter = world.limiter();
        for (plain, policy) in every_algorithm(10, 10 * SECOND).iter().zip(settled(10, 10 * SECOND)) {
            let role = |role| Arc::new(Policy::clone(&policy).with_role(role));
            assert!(check(&limiter, &[(plain, 1)]).await.receipt.is_none(), "{plain:?}");
            assert!(check(&limiter, &[(&policy, 0)]).await.receipt.is_none(), "nothing was");
            assert!(check(&limiter, &[(&policy, 11)]).await.receipt.is_none(), "nor here");
            let shadow = role(Role::Shadow);
            assert!(check(&limiter, &[(&shadow, 2)]).await.receipt.is_some());
            assert!(check(&limiter, &[(&shadow, 9)]).await.receipt.is_none(), "no room");
            world.clock.advance(20 * SECOND);
        }
    }
}

/// It has a turn, and a receipt: both are given back, but not twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_leaves_before_its_turn_is_given_back_once() {
    let rate = Rate { units: 1, per: SECOND };
    let bucket = TokenBucket::new(rate, 10).unwrap().with_max_wait(100 * SECOND).unwrap();
    for world in World::each().await {
        let limiter = world.limiter();
        let policy = Arc::new(Policy::clone(&policy("waits", bucket.clone())).giving_back());
        for _ in 0..2 {
            charged(&limiter, &policy, 10).await;
        }
        let decision = check(&limiter, &[(&policy, 5)]).await;
        let turn = decision.turn.unwrap();
        assert!(!turn.delay().is_zero());
        limiter.leave(*turn);
        limiter.settle(*decision.receipt.unwrap(), |_, _| 0);
        world.clock.advance(11 * SECOND);
        world.leaves(&policy, 1).await;
    }
}

/// Each layer has a slot of its own, and so a server and a time of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_over_several_slots_is_settled_in_each() {
    let cluster = RedisCluster::start_without_replicas();
    let store = RedisStore::start(config_of(&cluster.url()), &tokio::runtime::Handle::current()).unwrap();
    connected(&store).await;
    let world = World {
        store: Arc::new(store),
        clock: Arc::new(ManualClock::new(START)),
        server: None,
    };
    let limiter = world.limiter();
    // A day, so that no window ends meanwhile.
    let policies = settled(100, 86_400 * SECOND);
    let layers: Vec<_> = policies.iter().map(|policy| (policy, 10)).collect();
    let receipt = *check(&limiter, &layers).await.receipt.unwrap();
    // Each has another cost: 7, 8, 9 and more.
    limiter.settle(receipt, |layer, units| units - 3 + layer as u64);
    for (layer, policy) in policies.iter().enumerate() {
        world.leaves(policy, 93 - layer as u64).await;
    }
    // One refuses: the others have taken nothing, and there is nothing to settle.
    let mut layers: Vec<_> = policies.iter().map(|policy| (policy, 10)).collect();
    layers[2].1 = 101;
    assert!(check(&limiter, &layers).await.receipt.is_none());
    for (layer, policy) in policies.iter().enumerate() {
        world.leaves(policy, 93 - layer as u64).await;
    }
}
