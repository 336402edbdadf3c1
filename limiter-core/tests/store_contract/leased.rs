//! Policies that are taken in lots, of several gateways over one server and over a cluster.

use std::sync::atomic::{AtomicUsize, Ordering};

use limiter_core::{LotSize, LotTerms, test_util::RedisCluster};

use super::*;

const DAY: Duration = Duration::from_secs(86_400);
const LIMIT: u64 = 600;

/// A gateway: its store, and what asks it.
struct Gateway {
    store: Arc<RedisStore>,
    limiter: Limiter,
}

impl Gateway {
    async fn start(url: &str) -> Self {
        let store = Arc::new(RedisStore::start(config_of(url), &tokio::runtime::Handle::current()).unwrap());
        connected(&store).await;
        let fallback = Arc::new(Fallback::new(100));
        let limiter = Limiter::new(Arc::clone(&store) as _, fallback).with_lots(Arc::clone(store.lots()));
        Self { store, limiter }
    }

    async fn decide(&self, policies: &[Arc<Policy>]) -> Decision {
        let asks: Vec<_> = policies.iter().flat_map(one).collect();
        let outcome = match self.limiter.check(&asks) {
            Checking::Ready(outcome) => outcome,
            Checking::Pending(outcome) => outcome.await,
        };
        match outcome {
            Outcome::Decided(decision) => decision,
            other => panic!("{other:?}"),
        }
    }
}

/// One of each algorithm that knows lots, of this limit a day, with names that end so.
fn leased(name: &str) -> Vec<Arc<Policy>> {
    let terms = LotTerms {
        size: LotSize::Percent(10),
        ttl: Duration::from_millis(200),
    };
    let all = every_algorithm(LIMIT, DAY).into_iter();
    let known = all.filter(|policy| policy.algorithm().knows_lots());
    let named = |policy: Arc<Policy>| {
        let name = format!("{}-{name}", policy.name());
        Policy::new(name, policy.algorithm().clone(), OnFailure::Closed)
    };
    known.map(|policy| Arc::new(named(policy).leased(terms))).collect()
}

/// Asks `count` times from each of 12 tasks over both gateways; says how many passed.
async fn admitted(gateways: &[Arc<Gateway>; 2], policies: &[Arc<Policy>], count: usize) -> usize {
    let passed = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..12)
        .map(|i| {
            let (gateway, passed) = (Arc::clone(&gateways[i % 2]), Arc::clone(&passed));
            let policies = policies.to_vec();
            tokio::spawn(async move {
                for _ in 0..count {
                    let decision = gateway.decide(&policies).await;
                    passed.fetch_add(usize::from(decision.verdict == Verdict::Allowed), Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    passed.load(Ordering::Relaxed)
}

/// Two gateways share `url`: all that a limit allows passes, and no more, whether it is asked alone or beside an exact one.
async fn all_passes_and_no_more(url: &str) {
    let gateways = [Arc::new(Gateway::start(url).await), Arc::new(Gateway::start(url).await)];
    let wide = policy("wide", FixedWindow::new(100_000, DAY, Align::Clock).unwrap());
    let alone = leased("alone").into_iter().map(|leased| vec![leased]);
    let beside = (leased("beside").into_iter()).map(|leased| vec![Arc::clone(&wide), leased]);
    for layers in alone.chain(beside) {
        let mut passed = admitted(&gateways, &layers, 60).await;
        // What is in hand comes back, and passes elsewhere, by lots of which something may be left again: until each of the
        // gateways has refused for longer than a lot is in hand.
        let mut refused = 0;
        while refused < 200 {
            match gateways[refused % 2].decide(&layers).await.verdict {
                Verdict::Allowed => (passed, refused) = (passed + 1, 0),
                Verdict::Denied { .. } => {
                    refused += 1;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        assert_eq!(passed as u64, LIMIT, "{layers:?}");
    }
    for gateway in &gateways {
        assert_eq!(gateway.store.settled(5 * SECOND).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_share_a_server_let_pass_what_one_would() {
    let server = RedisServer::start();
    all_passes_and_no_more(&server.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_share_a_cluster_let_pass_what_one_would() {
    let cluster = RedisCluster::start_without_replicas();
    all_passes_and_no_more(&cluster.url()).await;
}
