//! Gateways with two versions of a policy, as in a rollout, take turns on a counter: that mints nothing.
//!
//! **The promise.** Whoever asks, when and for how much: what the two versions admit together would also have been
//! admitted by one version that has the more generous of each parameter, and that alone decided all of it. Going back
//! and forth between them adds nothing. Per algorithm that means, with `max` the greater limit:
//!
//! - buckets: a bucket of the greater capacity that drains at the greater rate never overflows;
//! - sliding window log: at most `max` in any span of the shorter window;
//! - concurrency, where nothing is given back: at most `max` in any span of the shorter lease;
//! - sliding window counter: at most `max` in any span in which both count every unit in full, which is the window
//!   without one sub-window;
//! - fixed window: at most `max` between two edges, an edge of either being one. Windows that begin with a request: at
//!   most twice `max` in any span below the shorter window, as of one version alone. One of each kind: at most four times,
//!   as of both side by side, since their edges are not the same.
//!
//! The bounds are kept here from what was admitted, in the plainest way, and share nothing with the algorithms. Each call
//! goes to the script in Redis and to the reference in Rust, whose answers have to be the same.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use fastrand::Rng;
use limiter_core::{
    Algorithm, Ask, OnFailure, Policy, Rate, Timestamp, Verdict,
    algorithm::{Align, Concurrency, FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket},
    test_util::script::{Answered, Batch, Model, script_text},
};

use crate::{
    STEPS,
    random::Kind,
    redis::{Redis, Value},
    seed,
};

/// Calls that one pair of versions decides.
const TURNS: u32 = 100;

/// A time to live that never ends a key: the time of the test is not that of the server.
const FOREVER_MS: &str = "1000000000000";

/// One version of a policy, and what it means.
struct Version {
    policy: Arc<Policy>,
    limit: u64,
    window_us: u64,
    /// Units that come back in a window's time.
    refill: u64,
    align: Align,
    /// The span in which every unit counts in full.
    exact_us: u64,
}

impl Version {
    fn random(kind: Kind, rng: &mut Rng) -> Self {
        let limit = rng.u64(1..40);
        let window_us = *rng
            .choice(&[1_000, 999_983, 1_000_000, 7_000_000, 10_000_000, 60_000_000])
            .unwrap();
        // That is a lease then, which has a bound.
        let window_us = if kind == Kind::Concurrency {
            window_us.max(100_000)
        } else {
            window_us
        };
        let (window, refill) = (Duration::from_micros(window_us), rng.u64(1..100));
        let align = if rng.bool() { Align::Clock } else { Align::FirstRequest };
        let buckets = rng.u32(2..=60);
        let rate = Rate {
            units: refill,
            per: window,
        };
        let algorithm: Algorithm = match kind {
            // One that warms up in time admits less.
            Kind::TokenBucket if rng.u8(0..4) == 0 => TokenBucket::new(rate, limit)
                .and_then(|bucket| bucket.with_warm_up(window / 2, 1))
                .unwrap()
                .into(),
            Kind::TokenBucket => TokenBucket::new(rate, limit).unwrap().into(),
            Kind::LeakyBucket => LeakyBucket::new(rate, limit).unwrap().into(),
            Kind::FixedWindow => FixedWindow::new(limit, window, align).unwrap().into(),
            Kind::SlidingWindowCounter => SlidingWindowCounter::new(limit, window, buckets).unwrap().into(),
            Kind::SlidingWindowLog => SlidingWindowLog::new(limit, window).unwrap().into(),
            Kind::Concurrency => Concurrency::new(limit, window).unwrap().into(),
        };
        Self {
            policy: Arc::new(Policy::new("p", algorithm, OnFailure::Open)),
            limit,
            window_us,
            refill,
            align,
            exact_us: window_us - window_us.div_ceil(u64::from(buckets)),
        }
    }
}

/// What a pair of versions may admit.
struct Bound {
    kind: Kind,
    pair: [Version; 2],
    /// When how many were admitted.
    admitted: VecDeque<(u64, u64)>,
    /// Of the bucket with the greater of each parameter: what is in it, in parts of which a unit has `per`, and when.
    level: (u128, u64),
}

impl Bound {
    fn new(kind: Kind, pair: [Version; 2]) -> Self {
        Self {
            kind,
            pair,
            admitted: VecDeque::new(),
            level: (0, 0),
        }
    }

    fn greater(&self, of: impl Fn(&Version) -> u64) -> u64 {
        self.pair.iter().map(of).max().unwrap()
    }

    fn lesser(&self, of: impl Fn(&Version) -> u64) -> u64 {
        self.pair.iter().map(of).min().unwrap()
    }

    /// Units admitted since `from`, that moment included.
    fn since(&self, from: u64) -> u64 {
        let recent = self.admitted.iter().rev().take_while(|(at, _)| *at >= from);
        recent.map(|(_, units)| units).sum()
    }

    /// Takes what was admitted, and says how much of what may be is in use then, and how much that is.
    fn admit(&mut self, now: u64, units: u64) -> (u64, u64) {
        self.admitted.push_back((now, units));
        let max = self.greater(|version| version.limit);
        match self.kind {
            Kind::TokenBucket | Kind::LeakyBucket => (self.fill(now, units), max),
            Kind::SlidingWindowLog | Kind::Concurrency => {
                (self.since(now + 1 - self.lesser(|version| version.window_us)), max)
            }
            Kind::SlidingWindowCounter => (self.since(now + 1 - self.lesser(|version| version.exact_us)), max),
            Kind::FixedWindow => {
                let begin = now + 1 - self.lesser(|version| version.window_us);
                match [self.pair[0].align, self.pair[1].align] {
                    [Align::Clock, Align::Clock] => {
                        (self.since(self.greater(|version| now - now % version.window_us)), max)
                    }
                    [Align::FirstRequest, Align::FirstRequest] => (self.since(begin), 2 * max),
                    _ => (self.since(begin), 4 * max),
                }
            }
        }
    }

    /// Whole units in the bucket with the greater of each parameter, rounded up.
    fn fill(&mut self, now: u64, units: u64) -> u64 {
        let [a, b] = &self.pair;
        let is_faster = u128::from(a.refill) * u128::from(b.window_us) > u128::from(b.refill) * u128::from(a.window_us);
        let (refill, per) = if is_faster {
            (a.refill, a.window_us)
        } else {
            (b.refill, b.window_us)
        };
        let (level, at) = self.level;
        let drained = u128::from(now - at) * u128::from(refill);
        let level = level.saturating_sub(drained) + u128::from(units) * u128::from(per);
        self.level = (level, now);
        u64::try_from(level.div_ceil(u128::from(per))).unwrap()
    }
}

/// The script and the reference.
struct Both {
    model: Model,
    redis: Redis,
    sha1: Vec<u8>,
}

impl Both {
    fn start() -> Self {
        let mut redis = Redis::start();
        let Value::Bytes(sha1) = redis.command(&[b"SCRIPT", b"LOAD", script_text(true).as_bytes()]) else {
            panic!("the script does not load");
        };
        Self {
            model: Model::default(),
            redis,
            sha1,
        }
    }

    /// Whether it was admitted, by both.
    fn decide(&mut self, ask: Ask<'_>, now: u64) -> bool {
        let (mut batch, asks) = (Batch::default(), [ask]);
        assert!(batch.add(&asks));
        let (keys, mut args) = batch.arguments("t", None);
        args[2..].fill(FOREVER_MS.into());
        args.push(now.to_string().into());
        let mut command: Vec<&[u8]> = vec![b"EVALSHA", &self.sha1, b"1"];
        command.extend(keys.iter().chain(&args).map(|bytes| &bytes[..]));
        let Value::Bytes(reply) = self.redis.command(&command) else {
            panic!("the script failed")
        };
        let Ok(Answered::Decided(_, decisions, 0)) = batch.replay(&reply) else {
            panic!("script and replay disagree")
        };
        let expected = self.model.decide(&asks, Timestamp::from_micros(now));
        assert_eq!(decisions, [expected], "script and reference disagree");
        decisions[0].verdict == Verdict::Allowed
    }
}

fn alternate(kind: Kind) {
    let seed = seed();
    let (mut rng, mut both) = (Rng::with_seed(seed), Both::start());
    let mut now = 1_796_040_000_000_000;
    let (mut refused, mut full, mut pairs) = (0, 0, 0);
    for pair in 0..STEPS / TURNS {
        let versions = [Version::random(kind, &mut rng), Version::random(kind, &mut rng)];
        let (mut bound, key) = (Bound::new(kind, versions), pair.to_string());
        let mut is_reached = false;
        for turn in 0..TURNS {
            let version = &bound.pair[usize::from(rng.bool())];
            // A little at a time, so that the limits are met; and sometimes about a window.
            now += match rng.u8(0..10) {
                0..4 => 0,
                4..8 => rng.u64(0..=2 * version.window_us / version.limit.max(version.refill)),
                8 => version.window_us - now % version.window_us - rng.u64(0..2),
                _ => rng.u64(0..=version.window_us),
            };
            let ask = Ask {
                policy: &version.policy,
                key: &key,
                cost: 1,
            };
            let free = both.model.free(&ask, Timestamp::from_micros(now));
            // All that is free, or one more.
            let cost = match rng.u8(0..4) {
                0 => free.max(1),
                1 => free + 1,
                _ => 1,
            };
            if both.decide(Ask { cost, ..ask }, now) {
                let (used, most) = bound.admit(now, cost);
                let [a, b] = [&bound.pair[0].policy, &bound.pair[1].policy];
                assert!(
                    used <= most,
                    "SCRIPT_SEED={seed}, pair {pair}, turn {turn}: {used} of {most} by {a:?} and {b:?}"
                );
                is_reached |= used == most;
            } else {
                refused += 1;
            }
        }
        full += u32::from(is_reached);
        pairs += 1;
    }
    // Else the bound is no bound: it is met by most pairs, but where a fixed window's is one for the worst case.
    let often = if kind == Kind::FixedWindow {
        pairs / 8
    } else {
        pairs / 2
    };
    assert!(
        refused > 1_000 && full > often,
        "{refused} refused, the bound was met by {full} of {pairs} pairs"
    );
}

#[test]
fn token_buckets_that_alternate_mint_nothing() {
    alternate(Kind::TokenBucket);
}

#[test]
fn leaky_buckets_that_alternate_mint_nothing() {
    alternate(Kind::LeakyBucket);
}

#[test]
fn fixed_windows_that_alternate_mint_nothing() {
    alternate(Kind::FixedWindow);
}

#[test]
fn sliding_window_counters_that_alternate_mint_nothing() {
    alternate(Kind::SlidingWindowCounter);
}

#[test]
fn sliding_window_logs_that_alternate_mint_nothing() {
    alternate(Kind::SlidingWindowLog);
}

#[test]
fn leases_that_alternate_mint_nothing() {
    alternate(Kind::Concurrency);
}
