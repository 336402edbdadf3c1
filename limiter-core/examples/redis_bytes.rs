//! What one counter of each algorithm takes of Redis's memory.
//!
//! `cargo run -p limiter-core --example redis_bytes` starts a redis-server of its own, fills one counter of each, under a
//! name of 30 characters, and prints a table in Markdown. `MEMORY USAGE` counts the name, the value and the entry in the
//! key space; what holds a time to live is on top of it, and is measured as `used_memory` over many counters.

use std::{error::Error, sync::Arc, time::Duration};

use limiter_core::{
    Algorithm, AlgorithmError, Answer, Ask, OnFailure, Policy, Rate, RedisConfig, RedisStore, Store as _,
    algorithm::{Align, FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket},
    test_util::{RedisReply, RedisServer},
};

const HOUR: Duration = Duration::from_secs(3_600);

/// Counters of which the mean is taken.
const MANY: u64 = 10_000;

/// Requests on their way at a time.
const AT_ONCE: usize = 128;

fn main() -> Result<(), Box<dyn Error>> {
    let server = RedisServer::start();
    let runtime = tokio::runtime::Runtime::new()?;
    let config = RedisConfig {
        timeout: Duration::from_secs(10),
        prefix: "gw".to_owned(),
        ..RedisConfig::from_url(&server.url())?
    };
    let store = RedisStore::start(config, runtime.handle())?;
    if !runtime.block_on(store.wait_connected(Duration::from_secs(10))) {
        return Err("redis-server does not answer".into());
    }
    println!("| | `MEMORY USAGE` of one | mean of {MANY} in use, with the time to live |");
    println!("|---|---|---|");
    for (title, algorithm, units) in counters()? {
        // A log of 10,000 is its own mean.
        let many = if units > 1_000 { 100 } else { MANY };
        let policy = Arc::new(Policy::new("per-user", algorithm, OnFailure::Closed));
        assert_eq!(server.command(&["FLUSHALL"]), RedisReply::Text("OK".to_owned()));
        let before = used_memory(&server)?;
        runtime.block_on(fill(&store, &policy, many, units))?;
        let mean = (used_memory(&server)? - before) / many;
        let name = format!("gw:{}{}", policy.key_prefix(), key(&policy, 0));
        let one = server.command(&["MEMORY", "USAGE", &name, "SAMPLES", "0"]);
        let one = one.int().ok_or("no such key")?;
        println!("| {title} | {one} | {mean} |");
    }
    Ok(())
}

/// What is shown, and how many units of it are taken, one by one.
fn counters() -> Result<[(&'static str, Algorithm, u64); 8], AlgorithmError> {
    let rate = Rate {
        units: 1_000,
        per: HOUR,
    };
    Ok([
        ("token bucket", TokenBucket::new(rate, 1_000)?.into(), 1),
        ("leaky bucket", LeakyBucket::new(rate, 1_000)?.into(), 1),
        ("fixed window", FixedWindow::new(1_000, HOUR, Align::Clock)?.into(), 1),
        (
            "sliding window counter, 6 buckets",
            SlidingWindowCounter::new(1_000, HOUR, 6)?.into(),
            1,
        ),
        (
            "sliding window counter, 60 buckets",
            SlidingWindowCounter::new(1_000, HOUR, 60)?.into(),
            1,
        ),
        (
            "sliding window log, 10 units",
            SlidingWindowLog::new(10, HOUR)?.into(),
            10,
        ),
        (
            "sliding window log, 200 units",
            SlidingWindowLog::new(200, HOUR)?.into(),
            200,
        ),
        (
            "sliding window log, 10,000 units",
            SlidingWindowLog::new(10_000, HOUR)?.into(),
            10_000,
        ),
    ])
}

/// A key such that the whole name has 30 characters.
fn key(policy: &Policy, number: u64) -> String {
    let width = 30 - "gw:".len() - policy.key_prefix().len();
    format!("{number:0width$}")
}

/// Takes `units` units of each of `many` counters, each in ten requests.
async fn fill(store: &RedisStore, policy: &Arc<Policy>, many: u64, units: u64) -> Result<(), Box<dyn Error>> {
    let steps = units.min(10);
    for _ in 0..steps {
        let mut answers = Vec::with_capacity(AT_ONCE);
        for number in 0..many {
            let (key, cost) = (key(policy, number), units / steps);
            answers.push(store.decide(&[Ask {
                policy,
                key: &key,
                cost,
            }]));
            if answers.len() == AT_ONCE || number + 1 == many {
                for answer in answers.drain(..) {
                    match answer {
                        Answer::Ready(result) => result?,
                        Answer::Pending(result) => result.await?,
                    };
                }
            }
        }
    }
    Ok(())
}

fn used_memory(server: &RedisServer) -> Result<u64, Box<dyn Error>> {
    let RedisReply::Text(info) = server.command(&["INFO", "memory"]) else {
        return Err("no INFO".into());
    };
    let line = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
    Ok(line.ok_or("no used_memory")?.trim().parse()?)
}
