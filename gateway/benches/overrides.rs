//! What thousands of overrides cost a decision in memory, from the request's headers to the answer.
//!
//! `cargo bench -p gateway --bench overrides`. Ten thousand of them add up to 11 ns to some 290 in memory (0 to 4 %): one
//! look-up in a table that the nearest cache does not hold. Beside what a request costs, or a decision over Redis, that is
//! nothing.

use std::{fmt::Write as _, hint::black_box, sync::Arc, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use gateway::{
    config,
    descriptor::{Descriptor, Facts, Layers},
};
use http::{HeaderMap, HeaderValue, Method};
use limiter_core::{Checking, Limiter, MemoryStore, MonotonicClock, Store, store::Ask};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const OVERRIDES: usize = 10_000;
const KEYS: usize = 1_000;

/// A layer by user or by address, with an override for each of `values`.
fn layers(key: &str, values: impl Iterator<Item = String>) -> Layers {
    let mut text =
        format!("limits:\n  - {{name: l, key: \"{key}\", algorithm: token_bucket, rate: 9000000/s, overrides: [");
    for (at, value) in values.enumerate() {
        let burst = 9_000_000 + at % 10;
        write!(text, "{{values: \"{value}\", burst: {burst}}},\n    ").expect("a text takes all");
    }
    text.push_str("]}\n");
    let config = config::parse("gateway.yaml", &text).expect("it is valid");
    Layers::new(&config.limits, &config.client_ip, None)
}

struct Requests {
    headers: Vec<HeaderMap>,
    limiter: Limiter,
    descriptor: Descriptor,
    next: usize,
}

impl Requests {
    /// Of users that are called so.
    fn of(name: impl Fn(usize) -> String) -> Self {
        let headers = |at| {
            let value = HeaderValue::try_from(name(at)).expect("visible");
            HeaderMap::from_iter([(http::HeaderName::from_static("x-user-id"), value)])
        };
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(Arc::new(MonotonicClock::new()), 100_000));
        Self {
            headers: (0..KEYS).map(headers).collect(),
            limiter: Limiter::new(Arc::clone(&store), store),
            descriptor: Descriptor::default(),
            next: 0,
        }
    }

    fn decide(&mut self, layers: &Layers) {
        let at = self.next;
        self.next = (at + 1) % KEYS;
        let [_, _, high, low] = u32::try_from(at).unwrap_or_default().to_be_bytes();
        let facts = Facts {
            method: &Method::GET,
            host: "a.example",
            path: "/",
            query: None,
            headers: &self.headers[at],
            client: [10, 0, high, low].into(),
            route: "orders",
        };
        layers
            .describe(&facts, &mut self.descriptor)
            .expect("nobody is refused");
        let [applied] = self.descriptor.applied() else { return };
        let ask = Ask {
            policy: layers.policy(applied.layer),
            key: applied.key.as_str(),
            cost: applied.cost,
        };
        let checking = self.limiter.check(&[ask]);
        assert!(matches!(black_box(checking), Checking::Ready(_)));
    }
}

fn overrides(criterion: &mut Criterion) {
    let by_user = "header:x-user-id";
    let none = || std::iter::empty::<String>();
    let all = 0..OVERRIDES;
    let cases = [
        ("none", layers(by_user, none()), false),
        (
            "exact, listed",
            layers(by_user, all.clone().map(|n| format!("user-{n}"))),
            false,
        ),
        (
            "exact, not listed",
            layers(by_user, all.clone().map(|n| format!("user-{n}"))),
            true,
        ),
        (
            "prefix, listed",
            layers(by_user, all.clone().map(|n| format!("user-{n}*"))),
            false,
        ),
        (
            "prefix, not listed",
            layers(by_user, all.clone().map(|n| format!("user-{n}*"))),
            true,
        ),
        ("address, none", layers("ip", none()), false),
        (
            "address, in a range",
            layers("ip", all.map(|n| format!("10.{}.{}.0/25", n / 256, n % 256))),
            false,
        ),
    ];
    let mut group = criterion.benchmark_group("overrides");
    group.measurement_time(Duration::from_secs(3));
    for (name, layers, is_other) in &cases {
        let mut requests = Requests::of(|n| format!("{}-{n}", if *is_other { "else" } else { "user" }));
        group.bench_function(*name, |bencher| bencher.iter(|| requests.decide(layers)));
    }
    group.finish();
}

criterion_group!(benches, overrides);
criterion_main!(benches);
