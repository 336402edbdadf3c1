use std::{
    collections::HashMap,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    algorithm::{
        Algorithm, Align, FixedWindow, LeakyBucket, Rate, SlidingWindowCounter, SlidingWindowLog, TokenBucket,
    },
    decision::{Verdict, Wait},
    policy::{OnFailure, Policy},
    test_util::ManualClock,
};

mod held;
mod settling;

const SECOND: Duration = Duration::from_secs(1);
const DAY: Duration = Duration::from_secs(86_400);
/// Noon on some day, so that no window of a day ends soon.
const NOON: Timestamp = Timestamp::from_micros((20_000 * 86_400 + 43_200) * 1_000_000);

fn store(max_keys: usize) -> (Arc<ManualClock>, MemoryStore) {
    let clock = Arc::new(ManualClock::new(NOON));
    (Arc::clone(&clock), MemoryStore::new(clock, max_keys))
}

fn policy(name: &str, algorithm: Algorithm) -> Arc<Policy> {
    Arc::new(Policy::new(name, algorithm, OnFailure::Local))
}

fn bucket(units: u64, per: Duration, burst: u64) -> Algorithm {
    TokenBucket::new(Rate { units, per }, burst).unwrap().into()
}

/// Each algorithm, with a quota of `limit` in `window`.
fn algorithms(limit: u64, window: Duration) -> [Algorithm; 5] {
    let rate = Rate {
        units: limit,
        per: window,
    };
    [
        TokenBucket::new(rate, limit).unwrap().into(),
        LeakyBucket::new(rate, limit).unwrap().into(),
        FixedWindow::new(limit, window, Align::FirstRequest).unwrap().into(),
        SlidingWindowCounter::new(limit, window, 6).unwrap().into(),
        SlidingWindowLog::new(limit, window).unwrap().into(),
    ]
}

fn ask<'a>(policy: &'a Arc<Policy>, key: &'a str, cost: u64) -> Ask<'a> {
    Ask { policy, key, cost }
}

fn passes(store: &MemoryStore, policy: &Arc<Policy>, key: &str) -> bool {
    store.decide_now(&[ask(policy, key, 1)]).verdict == Verdict::Allowed
}

/// How many of `requests` pass that `threads` make at the same time.
fn crowd(threads: usize, requests: usize, passes: impl Fn(usize) -> bool + Sync) -> usize {
    let (next, passed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let requests =
                    std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed)).take_while(|i| *i < requests);
                passed.fetch_add(requests.filter(|i| passes(*i)).count(), Ordering::Relaxed);
            });
        }
    });
    passed.into_inner()
}

#[test]
fn exactly_the_quota_passes_under_threads() {
    for algorithm in algorithms(500, DAY) {
        let (_, store) = store(1_000);
        let policy = policy("user", algorithm);
        assert_eq!(crowd(8, 5_000, |_| passes(&store, &policy, "alice")), 500, "{policy:?}");
    }
}

#[test]
fn four_layers_under_threads_charge_all_or_nothing() {
    for algorithm in algorithms(500, DAY) {
        // Several shards, so that locks are taken in turn.
        let (_, store) = store(100_000);
        let wide = ["global", "route", "ip"].map(|name| policy(name, algorithms(4_000, DAY)[0].clone()));
        let binding = policy("user", algorithm);
        let passed = crowd(8, 5_000, |i| {
            // In any order of layers.
            let mut asks = [
                ask(&wide[0], "*", 1),
                ask(&wide[1], "orders", 1),
                ask(&binding, "alice", 1),
                ask(&wide[2], "::1", 1),
            ];
            asks.rotate_left(i % 4);
            store.decide_now(&asks).verdict == Verdict::Allowed
        });
        assert_eq!(passed, 500);
        for (policy, key) in wide.iter().zip(["*", "orders", "::1"]) {
            let left = store.decide_now(&[ask(policy, key, 0)]).readings[0].remaining;
            assert_eq!(left, 3_500, "{}", policy.name());
        }
    }
}

/// A clock of which every reading is a microsecond later.
#[derive(Debug)]
struct TickingClock(AtomicU64);

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

#[test]
fn time_never_goes_back_between_decisions_over_a_counter() {
    // A unit each 100 readings of the clock. If a decision were made at an earlier time than the one before it, the
    // time between them would refill twice.
    let clock = Arc::new(TickingClock(AtomicU64::new(NOON.as_micros())));
    let store = MemoryStore::new(clock, 1_000);
    let policy = policy("user", bucket(1, Duration::from_micros(100), 1));
    assert_eq!(crowd(8, 100_000, |_| passes(&store, &policy, "alice")), 1_000);
}

#[test]
fn a_refused_request_charges_nothing_and_creates_nothing() {
    let (_, store) = store(1_000);
    let full = policy("full", bucket(1, DAY, 1));
    assert!(passes(&store, &full, "alice"));
    let others: Vec<_> = (algorithms(10, DAY).into_iter().zip(["a", "b", "c", "d", "e"]))
        .map(|(algorithm, name)| policy(name, algorithm))
        .collect();
    for other in &others {
        store.decide_now(&[ask(other, "alice", 3)]);
    }
    let before = store.len();
    for at in 0..=others.len() {
        for key in ["alice", "bob"] {
            let mut asks: Vec<_> = others.iter().map(|policy| ask(policy, key, 1)).collect();
            asks.insert(at, ask(&full, "alice", 1));
            let decision = store.decide_now(&asks);
            assert!(matches!(decision.verdict, Verdict::Denied { by, wait: Wait::For(_) } if by == at));
        }
    }
    assert_eq!(store.len(), before);
    for other in &others {
        assert_eq!(store.decide_now(&[ask(other, "alice", 0)]).readings[0].remaining, 7);
        assert_eq!(store.decide_now(&[ask(other, "bob", 0)]).readings[0].remaining, 10);
    }
    assert_eq!(store.len(), before, "a cost of 0 creates nothing either");
}

#[test]
fn a_window_begins_with_the_first_charge_and_not_with_a_refusal() {
    let (clock, store) = store(1_000);
    let full = policy("full", bucket(1, DAY, 1));
    assert!(passes(&store, &full, "alice"));
    let window = policy(
        "window",
        FixedWindow::new(2, 10 * SECOND, Align::FirstRequest).unwrap().into(),
    );
    assert!(passes(&store, &window, "alice"));
    clock.set(NOON.plus(12 * SECOND));
    let refused = store.decide_now(&[ask(&window, "alice", 1), ask(&full, "alice", 1)]);
    assert_eq!(refused.readings[0].remaining, 2);
    clock.set(NOON.plus(15 * SECOND));
    let decision = store.decide_now(&[ask(&window, "alice", 1)]);
    assert_eq!(decision.readings[0].wait, Wait::For(10 * SECOND));
}

#[test]
fn what_was_used_stays_used_under_new_parameters() {
    let (_, store) = store(1_000);
    for (old, new) in algorithms(10, DAY).into_iter().zip(algorithms(20, DAY / 2)) {
        let (old, new) = (policy("user", old), policy("user", new));
        store.decide_now(&[ask(&old, "alice", 4)]);
        assert_eq!(
            store.decide_now(&[ask(&new, "alice", 0)]).readings[0].remaining,
            16,
            "{new:?}"
        );
    }
}

#[test]
fn a_store_is_bounded_and_keeps_those_who_used_up_their_limit() {
    for max_keys in [100, 20_000] {
        let (_, store) = store(max_keys);
        let policy = policy("user", bucket(10, DAY, 10));
        store.decide_now(&[ask(&policy, "abuser", 10)]);
        for i in 0..10 * max_keys {
            assert!(passes(&store, &policy, &i.to_string()));
            assert!(store.evictions() > 0 || i < max_keys);
        }
        assert!(store.len() <= max_keys);
        assert!(store.len() >= max_keys * 9 / 10);
        assert_eq!(store.evictions(), (10 * max_keys + 1 - store.len()) as u64);
        assert!(!passes(&store, &policy, "abuser"));
    }
}

#[test]
fn a_changed_bound_keeps_the_counters_that_it_has_room_for() {
    // One shard, and several.
    for max_keys in [200, 20_000] {
        let (_, store) = store(max_keys);
        let policy = policy("user", bucket(10, DAY, 10));
        store.decide_now(&[ask(&policy, "abuser", 10)]);
        let fill = |keys: std::ops::Range<usize>| {
            assert!(keys.into_iter().all(|i| passes(&store, &policy, &i.to_string())));
        };
        fill(0..2 * max_keys);
        store.set_max_keys(max_keys / 10);
        assert!(store.len() <= max_keys / 10, "{} are left", store.len());
        assert!(!passes(&store, &policy, "abuser"), "who says most is kept");
        fill(2 * max_keys..3 * max_keys);
        assert!(store.len() <= max_keys / 10, "it bounds what comes later");

        let evicted = store.evictions();
        store.set_max_keys(10 * max_keys);
        fill(3 * max_keys..4 * max_keys);
        assert_eq!(store.evictions(), evicted, "there is room for all");
        assert!(store.len() > max_keys);
        assert!(!passes(&store, &policy, "abuser"));

        store.set_max_keys(0);
        assert_eq!(store.len(), store.shards.len(), "one a shard");
    }
}

#[test]
fn an_expired_counter_is_evicted_before_all_others() {
    let (clock, store) = store(8);
    let (short, long) = (
        policy("short", bucket(10, SECOND, 10)),
        policy("long", bucket(10, DAY, 10)),
    );
    for i in 0..4 {
        store.decide_now(&[ask(&short, &i.to_string(), 10)]);
        store.decide_now(&[ask(&long, &i.to_string(), 1)]);
    }
    clock.set(NOON.plus(SECOND));
    for i in 4..8 {
        assert!(passes(&store, &long, &i.to_string()));
    }
    assert_eq!(store.evictions(), 0);
    for i in 0..8 {
        assert_eq!(
            store.decide_now(&[ask(&long, &i.to_string(), 0)]).readings[0].remaining,
            9
        );
    }
}

#[test]
fn insertions_sweep_what_has_expired() {
    let (clock, store) = store(100_000);
    let policy = policy("user", bucket(10, SECOND, 10));
    for i in 0..10_000 {
        assert!(passes(&store, &policy, &i.to_string()));
    }
    clock.set(NOON.plus(SECOND));
    for i in 10_000..30_000 {
        assert!(passes(&store, &policy, &i.to_string()));
    }
    assert_eq!(store.len(), 20_000);
}

#[test]
fn a_sweep_removes_what_has_expired_and_gives_memory_back() {
    let (clock, store) = store(100_000);
    let (short, long) = (
        policy("short", bucket(10, SECOND, 10)),
        policy("long", bucket(10, DAY, 10)),
    );
    for i in 0..20_000 {
        assert!(passes(&store, &short, &i.to_string()));
    }
    assert!(passes(&store, &long, "alice"));
    let flooded = store.memory_bytes();
    assert_eq!(store.sweep(100_000), 0);
    clock.set(NOON.plus(SECOND));
    let first = store.sweep(1_000);
    assert!((900..=1_100).contains(&first), "swept {first}");
    while store.sweep(10_000) > 0 {}
    assert_eq!(store.len(), 1);
    assert_eq!(store.evictions(), 0);
    assert!(
        store.memory_bytes() < flooded / 4,
        "{} of {flooded} bytes",
        store.memory_bytes()
    );
    assert_eq!(store.decide_now(&[ask(&long, "alice", 0)]).readings[0].remaining, 9);
}

#[test]
fn a_key_takes_little_memory() {
    // Between the sizes at which memory grows, and at the bound.
    for (keys, max_keys) in [
        (70_000, 1_000_000),
        (100_000, 1_000_000),
        (130_000, 1_000_000),
        (100_000, 100_000),
    ] {
        let (_, store) = store(max_keys);
        let policy = policy("user", bucket(10, DAY, 10));
        for i in 0..keys {
            assert!(passes(&store, &policy, &i.to_string()));
        }
        let each = store.memory_bytes() / store.len();
        assert!(each < 150, "{each} bytes a key");
    }
}

/// The same as the store, without bounds or shards.
#[derive(Default)]
struct Model(HashMap<(String, String), Counter>);

impl Model {
    fn decide(&mut self, asks: &[Ask<'_>], now: Timestamp) -> Decision {
        let name = |ask: &Ask<'_>| (ask.policy.key_prefix().to_owned(), ask.key.to_owned());
        let stored: Vec<_> = (asks.iter())
            .map(|ask| {
                self.0
                    .get(&name(ask))
                    .filter(|one| ask.policy.algorithm().expires_at(one) > now)
            })
            .collect();
        let mut counters: Vec<_> = (asks.iter().zip(&stored))
            .map(|(ask, stored)| ask.policy.algorithm().load(stored.cloned(), now))
            .collect();
        let layers: Vec<_> = (asks.iter())
            .map(|ask| Layer {
                algorithm: ask.policy.algorithm(),
                role: ask.policy.role(),
                cost: ask.cost,
                gives_back: ask.policy.gives_back(),
            })
            .collect();
        let decision = decide(&layers, &mut counters, now);
        let stored: Vec<_> = stored.iter().map(Option::is_some).collect();
        for (((ask, counter), stored), reading) in asks.iter().zip(counters).zip(stored).zip(&decision.readings) {
            if stored || reading.taken > 0 {
                self.0.insert(name(ask), counter);
            }
        }
        decision
    }
}

/// A request: for each algorithm the key and the cost, or nothing; and the time since the last one, in ms.
type Step = ([Option<(u8, u64)>; 5], u64);

fn step() -> impl Strategy<Value = Step> {
    let layer = prop::option::weighted(0.6, (0..3_u8, 0..4_u64));
    (prop::array::uniform5(layer), prop_oneof![0..400_u64, 0..12_000_u64])
}

proptest! {
    #[test]
    fn a_store_decides_as_a_map_would(
        steps in vec(step(), 1..100),
        reload_at in 0..100_usize,
        // One shard, or many.
        max_keys in prop::sample::select(vec![1_000_usize, 100_000]),
    ) {
        let (clock, store) = store(max_keys);
        let mut model = Model::default();
        let policies = [algorithms(5, 10 * SECOND), algorithms(8, 7 * SECOND)]
            .map(|set| set.map(|algorithm| policy("any", algorithm)));
        let mut now = NOON;
        for (i, (layers, elapsed_ms)) in steps.iter().enumerate() {
            now = now.plus(Duration::from_millis(*elapsed_ms));
            clock.set(now);
            let keys = ["a", "b", "c"];
            let asks: Vec<_> = policies[usize::from(i >= reload_at)].iter().zip(layers)
                .filter_map(|(policy, layer)| layer.map(|(key, cost)| ask(policy, keys[usize::from(key)], cost)))
                .collect();
            prop_assert_eq!(store.decide_now(&asks), model.decide(&asks, now), "step {}", i);
        }
    }
}
