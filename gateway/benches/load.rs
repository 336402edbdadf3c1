//! What a reload of a large file costs: 10,000 routes and 5,000 limits.
//!
//! `cargo bench -p gateway --bench load`. Both steps together are to stay under 300 ms.

use std::{fmt::Write as _, hint::black_box, sync::Arc, time::Duration};

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gateway::{
    config,
    snapshot::{Shared, Snapshot},
};

/// The program's: most of a load is small pieces of memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const FILE: &str = "gateway.yaml";
const ROUTES: usize = 10_000;
const LIMITS: usize = 5_000;

/// A file as people write it. Every layer has a route of its own, so that none is found by chance.
fn text() -> String {
    let mut text = String::from("upstreams:\n  app:\n    endpoints: http://127.0.0.1:8000\nroutes:\n");
    for n in 0..ROUTES {
        let name = format!("  - name: route-{n}\n");
        let path = format!("    path: /v1/service-{}/resource-{n}/{{id}}\n", n % 100);
        write!(text, "{name}{path}    methods: [GET, POST]\n    upstream: app\n").expect("a text takes all");
    }
    text.push_str("limits:\n");
    for n in 0..LIMITS {
        let head = format!("  - name: limit-{n}\n    key: [route, \"header:x-user-id\"]\n");
        let path = format!("/v1/service-{}/resource-{n}/**", n % 100);
        let quota = "    algorithm: token_bucket\n    rate: 100/s\n    burst: 200\n";
        write!(text, "{head}    match: {{path: {path}, methods: POST}}\n{quota}").expect("a text takes all");
    }
    text
}

fn load(criterion: &mut Criterion) {
    let text = text();
    let parse = || config::parse(FILE, black_box(&text)).expect("it is valid");
    let parsed = parse();
    assert_eq!((parsed.routes.len(), parsed.limits.len()), (ROUTES, LIMITS));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .build()
        .expect("a runtime");
    let shared = Shared::new(runtime.handle().clone(), runtime.handle().clone());

    let mut group = criterion.benchmark_group("load");
    group.sample_size(20).measurement_time(Duration::from_secs(10));
    group.bench_function("check", |bencher| bencher.iter_with_large_drop(parse));
    group.bench_function("build", |bencher| {
        let build = |config| Snapshot::build(1, config, &shared).expect("it can be built");
        bencher.iter_batched(|| Arc::new(parsed.clone()), build, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group!(benches, load);
criterion_main!(benches);
