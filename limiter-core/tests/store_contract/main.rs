//! What every store promises: one list of scenarios, run on the memory store, on the Redis store, and on the fallback of a
//! gateway that is alone.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics, in its helpers too")]

use std::{sync::Arc, time::Duration};

use limiter_core::{
    Algorithm, Answer, Ask, Checking, Clock, Decision, Fallback, Health, Limiter, MemoryStore, OnFailure, Outcome,
    Policy, Rate, RedisConfig, RedisOptions, RedisStore, Store, StoreError, Timestamp, Verdict, Wait,
    algorithm::{Align, Calendar, FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket, Zone},
    test_util::{ManualClock, RedisReply, RedisServer},
};

mod leased;
mod outages;
mod redis_only;
mod relay;
mod scenarios;
mod settling;
mod slots;
mod topologies;

/// The start of a window of 10 s, in 2026.
const START: Timestamp = Timestamp::from_micros(1_796_040_000_000_000);
const SECOND: Duration = Duration::from_secs(1);
const MICRO: Duration = Duration::from_micros(1);

/// A store, its clock, and what keeps it alive.
struct World {
    store: Arc<dyn Store>,
    clock: Arc<ManualClock>,
    server: Option<RedisServer>,
}

impl World {
    fn memory() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        Self {
            store: Arc::new(MemoryStore::new(Arc::<ManualClock>::clone(&clock), 10_000)),
            clock,
            server: None,
        }
    }

    async fn redis() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        let server = RedisServer::start();
        let runtime = tokio::runtime::Handle::current();
        let options = RedisOptions {
            clock: Some(Arc::<ManualClock>::clone(&clock)),
            ..RedisOptions::default()
        };
        let store = RedisStore::start_with(config(&server), &runtime, options).unwrap();
        connected(&store).await;
        Self {
            store: Arc::new(store),
            clock,
            server: Some(server),
        }
    }

    /// Of one gateway, whose share is all of a quota.
    fn fallback() -> Self {
        let clock = Arc::new(ManualClock::new(START));
        Self {
            store: Arc::new(Fallback::with_clock(10_000, Arc::<ManualClock>::clone(&clock))),
            clock,
            server: None,
        }
    }

    /// All kinds, for a scenario that is run on each.
    async fn each() -> [Self; 3] {
        [Self::memory(), Self::redis().await, Self::fallback()]
    }

    async fn decide(&self, layers: &[(&Arc<Policy>, &str, u64)]) -> Decision {
        decide(&*self.store, layers).await.unwrap()
    }

    /// Whether one unit passes.
    async fn passes(&self, policy: &Arc<Policy>, key: &str) -> bool {
        self.decide(&[(policy, key, 1)]).await.verdict == Verdict::Allowed
    }

    /// Of `offered` units, one by one, how many pass.
    async fn passing(&self, policy: &Arc<Policy>, key: &str, offered: usize) -> usize {
        let mut passed = 0;
        for _ in 0..offered {
            passed += usize::from(self.passes(policy, key).await);
        }
        passed
    }

    /// Units left, without taking any.
    async fn remaining(&self, policy: &Arc<Policy>, key: &str) -> u64 {
        self.decide(&[(policy, key, 0)]).await.readings[0].remaining
    }
}

async fn decide(store: &dyn Store, layers: &[(&Arc<Policy>, &str, u64)]) -> Result<Decision, StoreError> {
    let ask = |&(policy, key, cost)| Ask { policy, key, cost };
    let answer = store.decide(&layers.iter().map(ask).collect::<Vec<_>>());
    match answer {
        Answer::Ready(result) => result,
        Answer::Pending(result) => result.await,
    }
}

/// One unit of the counter `k`.
fn one(policy: &Arc<Policy>) -> [Ask<'_>; 1] {
    let (key, cost) = ("k", 1);
    [Ask { policy, key, cost }]
}

fn config(server: &RedisServer) -> RedisConfig {
    config_of(&server.url())
}

fn config_of(url: &str) -> RedisConfig {
    RedisConfig {
        // Long enough for a busy machine. Deadlines are tested apart.
        timeout: 2 * SECOND,
        prefix: "test".to_owned(),
        ..RedisConfig::from_url(url).unwrap()
    }
}

async fn connected(store: &RedisStore) {
    eventually("the store is connected", || store.health() == Health::Connected).await;
}

/// Waits for a state, up to a bound.
async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(10 * SECOND, wait).await.is_ok(), "never: {what}");
}

fn policy(name: &str, algorithm: impl Into<Algorithm>) -> Arc<Policy> {
    Arc::new(Policy::new(name, algorithm, OnFailure::Closed))
}

/// A policy of every algorithm: `limit` at one moment, back within `window`.
fn every_algorithm(limit: u64, window: Duration) -> Vec<Arc<Policy>> {
    let rate = Rate {
        units: limit,
        per: window,
    };
    vec![
        policy("token-bucket", TokenBucket::new(rate, limit).unwrap()),
        policy("leaky-bucket", LeakyBucket::new(rate, limit).unwrap()),
        policy("fixed-clock", FixedWindow::new(limit, window, Align::Clock).unwrap()),
        policy(
            "fixed-first",
            FixedWindow::new(limit, window, Align::FirstRequest).unwrap(),
        ),
        policy("log", SlidingWindowLog::new(limit, window).unwrap()),
        policy("counter", SlidingWindowCounter::new(limit, window, 5).unwrap()),
    ]
}
