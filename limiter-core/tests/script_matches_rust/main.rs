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
mod calendar;
mod edges;
mod expiry;
mod foreign;
mod random;
mod redis;
mod world;

use random::Kind;
use world::World;

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
fn concurrency() {
    compare(&[Kind::Concurrency]);
}

#[test]
fn all_mixed() {
    compare(&Kind::ALL);
}

/// Alterations of the script, at least one in each file, and whose comparison finds each out.
const ALTERATIONS: &[(Kind, &str, &str)] = &[
    // head.lua
    (Kind::SlidingWindowCounter, "rest * 16", "rest * 15"),
    (Kind::FixedWindow, "if not call('SET'", "if call('SET'"),
    // clock_given.lua
    (Kind::TokenBucket, "tonumber(ARGV[#ARGV])", "tonumber(ARGV[#ARGV]) + 1"),
    // bucket.lua
    (
        Kind::TokenBucket,
        "#state == 32 then\n        used",
        "#state == 24 then\n        used",
    ),
    (Kind::TokenBucket, "(now - since) * units", "(now - since) * units - 1"),
    (Kind::TokenBucket, "their_units >= 1", "their_units >= 2"),
    (Kind::LeakyBucket, "if left > 0 then whole = whole + 1 end", ""),
    (Kind::LeakyBucket, "elseif since <= now", "elseif since < now + 1000"),
    (Kind::TokenBucket, "taken == 0 and count or -count", "count"),
    (Kind::LeakyBucket, "empty_at ~= -taken", "empty_at > -taken + 1"),
    (Kind::TokenBucket, "(rest > 0 and 1 or 0)", "0"),
    (Kind::LeakyBucket, "period, 0), 2 ^ 53 - 1)", "period, 0), 2 ^ 54)"),
    // token_bucket.lua, leaky_bucket.lua
    (Kind::TokenBucket, "algorithms[1] = bucket", "algorithms[6] = bucket"),
    (Kind::LeakyBucket, "algorithms[2] = bucket", "algorithms[6] = bucket"),
    // warm_up.lua, and what bucket.lua has for it
    (Kind::TokenBucket, "(5 + steps) * warmed", "(6 + steps) * warmed"),
    (Kind::TokenBucket, "(steps + 1) / 2", "steps / 2"),
    (Kind::TokenBucket, "+ 15 * warm", "+ 14 * warm"),
    (Kind::TokenBucket, "algorithms[8]", "algorithms[9]"),
    (
        Kind::TokenBucket,
        "#state == 56 then\n        used",
        "#state == 57 then\n        used",
    ),
    (
        Kind::TokenBucket,
        "#state == 56 then\n      local",
        "#state == 57 then\n      local",
    ),
    (Kind::TokenBucket, "step * (time / 10)", "step * time"),
    (Kind::TokenBucket, "math.max(now - since, 0), true", "0, true"),
    (
        Kind::TokenBucket,
        "used, warmed, idle, is_changed = cold, 0, time",
        "used, warmed, idle, is_changed = capacity, 0, time",
    ),
    (Kind::TokenBucket, "if count > 0 then idle", "if count > 1 then idle"),
    (Kind::TokenBucket, "units * period, 0 end", "units * period end"),
    (
        Kind::TokenBucket,
        "their_time ~= time or since > now",
        "their_time ~= time",
    ),
    (
        Kind::TokenBucket,
        "idle >= 0 and idle <= time",
        "idle > 0 and idle <= time",
    ),
    (
        Kind::TokenBucket,
        "if idle == time and used <= cold then return",
        "if used == 0 then return",
    ),
    // fixed_window.lua
    (Kind::FixedWindow, "by_clock == 1", "by_clock == 0"),
    (
        Kind::FixedWindow,
        "now < their_start + their_length",
        "now <= their_start + their_length",
    ),
    (
        Kind::FixedWindow,
        "math.max(limit - count, 0)",
        "math.max(limit - count, 1)",
    ),
    (Kind::FixedWindow, "start <= taken", "start < taken"),
    (Kind::FixedWindow, "count + units, 2 ^ 53 - 1", "count + units, 2 ^ 54"),
    (Kind::FixedWindow, "if count == 0 then start = begin end", ""),
    (Kind::FixedWindow, "now < begin or now", "now"),
    (Kind::FixedWindow, "now >= last", "now < 0"),
    (Kind::FixedWindow, "if now < edge", "if now < last"),
    (Kind::FixedWindow, "last - begin, true", "last - begin, false"),
    // sliding_window_counter.lua
    (
        Kind::SlidingWindowCounter,
        "local newest, oldest = 4, buckets + 4",
        "local newest, oldest = 4, buckets + 5",
    ),
    (Kind::SlidingWindowCounter, "limit - newer", "limit + 1 - newer"),
    (
        Kind::SlidingWindowCounter,
        "their_window, their_buckets) - 1)",
        "their_window, their_buckets) - 0)",
    ),
    (Kind::SlidingWindowCounter, "2 ^ 52", "2 ^ 51"),
    (Kind::SlidingWindowCounter, "j >= newest and", "j > newest and"),
    // sliding_window_log.lua
    (Kind::SlidingWindowLog, "window - now) / 1000", "window - now) * 1000"),
    (Kind::SlidingWindowLog, "cost - limit - 1", "cost - limit - 2"),
    (Kind::SlidingWindowLog, "first + window <= now", "first + window < now"),
    (Kind::SlidingWindowLog, "#time == 8", "#time == 9"),
    (
        Kind::SlidingWindowLog,
        "math.min(push, 4000) do",
        "math.min(push, 3999) do",
    ),
    (Kind::SlidingWindowLog, "2 * limit - live", "3 * limit - live"),
    (Kind::SlidingWindowLog, "index >= run.first", "index > run.first"),
    (Kind::SlidingWindowLog, "-run.count, write", "-1, write"),
    (Kind::SlidingWindowLog, "run.len - run.count", "run.len"),
    (Kind::SlidingWindowLog, "log.ahead, now - 1", "log.ahead, now"),
    (Kind::SlidingWindowLog, "log.ahead, time - 1", "log.ahead, time"),
    // concurrency.lua
    (
        Kind::Concurrency,
        "since, stepped = now, true end",
        "stepped = true end",
    ),
    (Kind::Concurrency, "if stepped then", "if false then"),
    (
        Kind::Concurrency,
        "now < since + span and holder",
        "now <= since + span and holder",
    ),
    (
        Kind::Concurrency,
        "elseif now < since + span",
        "elseif now <= since + span",
    ),
    (Kind::Concurrency, "holder == caller", "holder ~= caller"),
    (Kind::Concurrency, "own, now, length)", "own, now, length + 1)"),
    (Kind::Concurrency, "if taken < 0 then return units end", ""),
    (Kind::Concurrency, "own - units, 0", "own - units, 1"),
    (Kind::Concurrency, "own + units, 2 ^ 53 - 1", "own + units, 2 ^ 54"),
    (Kind::Concurrency, "limit - theirs - own", "limit - own"),
    (Kind::Concurrency, "slots >= 1", "slots >= 2"),
    // decide.lua
    (
        Kind::FixedWindow,
        "(denied_at - first) / 2 + 1",
        "(denied_at - first) / 2 + 2",
    ),
    (Kind::FixedWindow, "free[i] - math.min(cost, free[i])", "free[i] - 1"),
    (
        Kind::FixedWindow,
        "(roles[i] or 0) > ALWAYS",
        "(roles[i] or 0) >= ALWAYS",
    ),
    (Kind::FixedWindow, "denied_at >= x", "denied_at > x"),
    (Kind::FixedWindow, "denied_at == x - 2", "denied_at >= x - 2"),
    (Kind::FixedWindow, "alone = false", "alone = true"),
    (Kind::FixedWindow, "denied_at == 0 and not lacks", "denied_at == 0"),
    (Kind::FixedWindow, "ends[policy] + 1", "ends[policy] + 2"),
    (
        Kind::FixedWindow,
        "rewrite[i] = units, units, true",
        "rewrite[i] = units, units, nil",
    ),
    (Kind::FixedWindow, "states[i] = states[i], was", "states[i] = was, was"),
    (Kind::FixedWindow, "ends[policy] < i", "ends[policy] <= i"),
    (Kind::TokenBucket, "if settled[i] ~= nil", "if false"),
];

/// The comparison can fail.
#[test]
fn an_altered_script_is_found_out() {
    // The same every time: an alteration that one run finds and another does not would be no test.
    let seed = 1;
    let script = world::script();
    let mut missed = Vec::new();
    for &(kind, from, to) in ALTERATIONS {
        assert_eq!(script.matches(from).count(), 1, "{from:?} is not once in the script");
        let mut world = World::new(&[kind], seed, &script.replace(from, to));
        if (0..STEPS_ALTERED).all(|_| world.step().is_ok()) {
            missed.push((from, to));
        }
    }
    assert!(missed.is_empty(), "not found out: {missed:?}");
}
