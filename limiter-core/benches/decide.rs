//! What a decision in memory costs: by the number of its layers, with one counter each and with a million in all.
//!
//! `cargo bench -p limiter-core`. With a million counters each decision meets keys that no cache holds.

use std::{cell::LazyCell, hint::black_box, sync::Arc, time::Duration};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use limiter_core::{
    Algorithm, Ask, MemoryStore, MonotonicClock, OnFailure, Policy, Rate,
    algorithm::{Align, Concurrency, FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket},
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Of all layers of a benchmark together.
const MANY_KEYS: usize = 1_000_000;

/// Layers, each with its own keys.
struct Layers {
    store: MemoryStore,
    policies: Vec<Arc<Policy>>,
    keys: Vec<String>,
}

impl Layers {
    /// `count` layers of one algorithm over `keys` keys each, every counter there from the start.
    fn new(count: usize, keys: usize, algorithm: &Algorithm) -> Self {
        let layers = Self {
            store: MemoryStore::new(Arc::new(MonotonicClock::new()), 2 * MANY_KEYS),
            policies: (0..count)
                .map(|i| Arc::new(Policy::new(format!("layer-{i}"), algorithm.clone(), OnFailure::Local)))
                .collect(),
            keys: (0..keys).map(|i| format!("client-{i}")).collect(),
        };
        for key in 0..keys {
            layers.decide(key);
        }
        layers
    }

    fn decide(&self, key: usize) {
        let asks: smallvec::SmallVec<[Ask<'_>; 8]> = self
            .policies
            .iter()
            .map(|policy| Ask {
                policy,
                key: &self.keys[key],
                cost: 1,
            })
            .collect();
        black_box(self.store.decide_now(black_box(&asks)));
    }
}

fn token_bucket(burst: u64) -> Algorithm {
    let rate = Rate {
        units: burst,
        per: HOUR,
    };
    TokenBucket::new(rate, burst).expect("valid").into()
}

fn layers(c: &mut Criterion) {
    for (name, burst) in [("allowed", 1_000_000), ("denied", 1)] {
        let mut group = c.benchmark_group(name);
        for (count, keys) in [(1, 1), (4, 1), (8, 1), (1, MANY_KEYS), (4, MANY_KEYS), (8, MANY_KEYS)] {
            let keys = (keys / count).max(1);
            // Made once, and only if this one is measured.
            let layers = LazyCell::new(|| Layers::new(count, keys, &token_bucket(burst)));
            let id = BenchmarkId::new(format!("{count} layers"), format!("{keys} keys each"));
            group.bench_function(id, |bencher| bencher.iter(|| layers.decide(fastrand::usize(..keys))));
        }
    }
}

fn algorithms(c: &mut Criterion) {
    const LIMIT: u64 = 100_000;
    let rate = Rate { units: 100, per: HOUR };
    let algorithms: [Algorithm; 6] = [
        TokenBucket::new(rate, LIMIT).expect("valid").into(),
        LeakyBucket::new(rate, LIMIT).expect("valid").into(),
        FixedWindow::new(LIMIT, HOUR, Align::Clock).expect("valid").into(),
        SlidingWindowCounter::new(LIMIT, HOUR, 6).expect("valid").into(),
        SlidingWindowLog::new(LIMIT, HOUR).expect("valid").into(),
        Concurrency::new(LIMIT, Duration::from_secs(1)).expect("valid").into(),
    ];
    let mut group = c.benchmark_group("one layer");
    for algorithm in algorithms {
        let layers = LazyCell::new(|| Layers::new(1, 1, &algorithm));
        group.bench_function(algorithm.name(), |bencher| bencher.iter(|| layers.decide(0)));
    }
}

criterion_group!(benches, layers, algorithms);
criterion_main!(benches);
