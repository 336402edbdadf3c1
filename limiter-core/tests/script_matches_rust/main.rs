//! The script in Redis and the reference in Rust give the same answers and keep the same state.
//!
//! Random calls go to a real redis-server and to the reference, and everything is compared: each request's verdict,
//! what remains and how long to wait at every layer, and what is stored afterwards. The time is given, so it can jump
//! and step back; parameters change between calls, as in a reload.
//!
//! `SCRIPT_SEED=number` repeats a run; without it, every run is another.

#![expect(
    clippy::unwrap_used,
    reason = "the setting for tests does not reach helpers outside test functions"
)]

mod alternation;
mod edges;
mod expiry;
mod foreign;
mod redis;
mod world;

use world::{Kind, World};

/// Calls compared for each algorithm alone, and for all of them mixed.
const STEPS: u32 = 10_000;

/// Calls within which an altered script has to be found out.
const STEPS_ALTERED: u32 = 3_000;

fn seed() -> u64 {
    match std::env::var("SCRIPT_SEED") {
        Ok(seed) => seed.parse().expect("SCRIPT_SEED is a number"),
        Err(_) => fastrand::u64(..),
    }
}

fn compare(kinds: &[Kind]) {
    let seed = seed();
    let mut world = World::new(kinds, seed, &world::script());
    for step in 0..STEPS {
        if let Err(difference) = world.step() {
            panic!("SCRIPT_SEED={seed}, step {step}: {difference}");
        }
    }
    world.assert_saw_everything();
}

#[test]
fn token_bucket() {
    compare(&[Kind::TokenBucket]);
}

#[test]
fn leaky_bucket() {
    compare(&[Kind::LeakyBucket]);
}

#[test]
fn fixed_window() {
    compare(&[Kind::FixedWindow]);
}

#[test]
fn sliding_window_counter() {
    compare(&[Kind::SlidingWindowCounter]);
}

#[test]
fn sliding_window_log() {
    compare(&[Kind::SlidingWindowLog]);
}

#[test]
fn all_mixed() {
    compare(&Kind::ALL);
}

/// The comparison can fail: it finds every one of these, at least one in each file.
#[test]
fn an_altered_script_is_found_out() {
    use Kind::{FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket};
    let alterations = [
        // head.lua
        (SlidingWindowCounter, "rest * 16", "rest * 15"),
        (FixedWindow, "if not call('SET'", "if call('SET'"),
        // clock_given.lua
        (TokenBucket, "tonumber(ARGV[#ARGV])", "tonumber(ARGV[#ARGV]) + 1"),
        // bucket.lua
        (TokenBucket, "#state == 32", "#state == 24"),
        (TokenBucket, "(now - since) * units", "(now - since) * units - 1"),
        (TokenBucket, "their_units >= 1", "their_units >= 2"),
        (LeakyBucket, "if left > 0 then whole = whole + 1 end", ""),
        (LeakyBucket, "elseif since <= now", "elseif since < now + 1000"),
        (TokenBucket, "taken == 0 and count or -count", "count"),
        (LeakyBucket, "period, 0), 2 ^ 53 - 1)", "period, 0), 2 ^ 54)"),
        // token_bucket.lua, leaky_bucket.lua
        (TokenBucket, "algorithms[1] = bucket", "algorithms[6] = bucket"),
        (LeakyBucket, "algorithms[2] = bucket", "algorithms[6] = bucket"),
        // fixed_window.lua
        (FixedWindow, "by_clock == 1", "by_clock == 0"),
        (
            FixedWindow,
            "now < their_start + their_length",
            "now <= their_start + their_length",
        ),
        (FixedWindow, "math.max(limit - count, 0)", "math.max(limit - count, 1)"),
        (FixedWindow, "start <= taken", "start < taken"),
        (FixedWindow, "count + units, 2 ^ 53 - 1", "count + units, 2 ^ 54"),
        (FixedWindow, "if count == 0 then start = begin end", ""),
        // sliding_window_counter.lua
        (
            SlidingWindowCounter,
            "local newest, oldest = 4, buckets + 4",
            "local newest, oldest = 4, buckets + 5",
        ),
        (SlidingWindowCounter, "limit - newer", "limit + 1 - newer"),
        (
            SlidingWindowCounter,
            "their_window, their_buckets) - 1)",
            "their_window, their_buckets) - 0)",
        ),
        (SlidingWindowCounter, "2 ^ 52", "2 ^ 51"),
        (SlidingWindowCounter, "j >= newest and", "j > newest and"),
        // sliding_window_log.lua
        (SlidingWindowLog, "window - now) / 1000", "window - now) * 1000"),
        (SlidingWindowLog, "cost - limit - 1", "cost - limit - 2"),
        (SlidingWindowLog, "first + window <= now", "first + window < now"),
        (SlidingWindowLog, "#time == 8", "#time == 9"),
        (SlidingWindowLog, "math.min(push, 4000) do", "math.min(push, 3999) do"),
        (SlidingWindowLog, "2 * limit - live", "3 * limit - live"),
        (SlidingWindowLog, "index >= run.first", "index > run.first"),
        (SlidingWindowLog, "-run.count, write", "-1, write"),
        (SlidingWindowLog, "run.len - run.count", "run.len"),
        (SlidingWindowLog, "log.ahead, now - 1", "log.ahead, now"),
        (SlidingWindowLog, "log.ahead, time - 1", "log.ahead, time"),
        // decide.lua
        (FixedWindow, "(x - first) / 2 + 1", "(x - first) / 2 + 2"),
        (FixedWindow, "free[i] - cost", "free[i] - 1"),
        (FixedWindow, "ends[policy] + 1", "ends[policy] + 2"),
        (
            FixedWindow,
            "rewrite[i] = units, units, true",
            "rewrite[i] = units, units, nil",
        ),
        (FixedWindow, "states[i] = states[i], was", "states[i] = was, was"),
        (FixedWindow, "ends[policy] < i", "ends[policy] <= i"),
        (TokenBucket, "if settled[i] ~= nil", "if false"),
    ];
    // The same every time: an alteration that one run finds and another does not would be no test.
    let seed = 1;
    let script = world::script();
    let mut missed = Vec::new();
    for (kind, from, to) in alterations {
        assert_eq!(script.matches(from).count(), 1, "{from:?} is not once in the script");
        let mut world = World::new(&[kind], seed, &script.replace(from, to));
        if (0..STEPS_ALTERED).all(|_| world.step().is_ok()) {
            missed.push((from, to));
        }
    }
    assert!(missed.is_empty(), "not found out: {missed:?}");
}
