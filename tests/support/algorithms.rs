//! The five algorithms: how they are written in gateway.yaml, and what they must answer.
//!
//! The models here are written from the contract alone, over plain histories of what was admitted, and share nothing with the
//! gateway's arithmetic.

/// An algorithm of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindowLog,
    SlidingWindowCounter,
}

use Algorithm::{FixedWindow, LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket};

/// All of them.
pub(crate) const FIVE: [Algorithm; 5] = [
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindowLog,
    SlidingWindowCounter,
];

/// Sub-windows of the sliding window counter, by default.
const BUCKETS: u64 = 6;

impl Algorithm {
    /// A short name, for layers and paths.
    pub(crate) fn short(self) -> &'static str {
        match self {
            TokenBucket => "tb",
            LeakyBucket => "lb",
            FixedWindow => "fw",
            SlidingWindowLog => "sl",
            SlidingWindowCounter => "sc",
        }
    }

    /// Its parameters for a quota of `limit` in `window`, with a burst of the whole quota; windows begin with a request.
    pub(crate) fn parameters(self, limit: u64, window: &str) -> String {
        match self {
            TokenBucket => format!("algorithm: token_bucket, rate: {limit}/{window}, burst: {limit}"),
            LeakyBucket => {
                format!("algorithm: leaky_bucket, rate: {limit}/{window}, capacity: {limit}, delay: false")
            }
            FixedWindow => {
                format!("algorithm: fixed_window, limit: {limit}, window: {window}, align: first_request")
            }
            SlidingWindowLog => format!("algorithm: sliding_window_log, limit: {limit}, window: {window}"),
            SlidingWindowCounter => format!("algorithm: sliding_window_counter, limit: {limit}, window: {window}"),
        }
    }

    /// A layer named after the algorithm that applies under a path of that name, as in `/tb/anything`.
    pub(crate) fn layer(self, key: &str, limit: u64, window: &str) -> String {
        let (name, parameters) = (self.short(), self.parameters(limit, window));
        format!("{{name: {name}, key: \"{key}\", match: {{path: \"/{name}/**\"}}, {parameters}}}")
    }

    /// A path under which its layer applies.
    pub(crate) fn path(self) -> String {
        format!("/{}/x", self.short())
    }
}

/// What a key may use, for the models.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quota {
    pub(crate) algorithm: Algorithm,
    /// Of a window; of a bucket, its capacity.
    pub(crate) limit: u64,
    /// Units that come back in a window's time: the limit, but for a bucket of another capacity.
    pub(crate) refill: u64,
    pub(crate) window_us: u64,
    /// Units a request takes.
    pub(crate) cost: u64,
}

impl Quota {
    /// `limit` in `window_ms`, requests of one unit.
    pub(crate) fn new(algorithm: Algorithm, limit: u64, window_ms: u64) -> Self {
        Self {
            algorithm,
            limit,
            refill: limit,
            window_us: window_ms * 1000,
            cost: 1,
        }
    }

    /// How much is in use at `now_us` after requests were admitted at the moments in `history`. Rounded up: a request passes
    /// if the limit covers that and its cost. Not for the fixed window, which the judge follows itself.
    pub(crate) fn used(&self, history: &[u64], now_us: u64) -> u64 {
        let window_us = self.window_us;
        match self.algorithm {
            TokenBucket | LeakyBucket => self.bucket_used(history, now_us),
            FixedWindow => unreachable!("where a window began cannot be told from a history alone"),
            SlidingWindowLog => self.cost * history.iter().filter(|at| **at + window_us > now_us).count() as u64,
            SlidingWindowCounter => self.sub_windows_used(history, now_us),
        }
    }

    /// Each admitted request fills the bucket by its cost, which drains at refill / window.
    fn bucket_used(&self, history: &[u64], now_us: u64) -> u64 {
        // In units of 1 / window_us, so that a microsecond drains `refill` of them.
        let drained = |time_us: u64| u128::from(time_us) * u128::from(self.refill);
        let taken = u128::from(self.cost) * u128::from(self.window_us);
        let (mut level, mut settled): (u128, u64) = (0, 0);
        for at in history {
            level = level.saturating_sub(drained(at - settled)) + taken;
            settled = *at;
        }
        level = level.saturating_sub(drained(now_us - settled));
        u64::try_from(level.div_ceil(u128::from(self.window_us))).unwrap()
    }

    /// Sub-windows lie on the clock; the oldest, partly outside, weighs as much as it overlaps.
    fn sub_windows_used(&self, history: &[u64], now_us: u64) -> u64 {
        let window_us = self.window_us;
        let index = |at: u64| at / window_us * BUCKETS + at % window_us * BUCKETS / window_us;
        let current = index(now_us);
        let newer = self.cost * history.iter().filter(|at| index(**at) + BUCKETS > current).count() as u64;
        let oldest = self.cost * history.iter().filter(|at| index(**at) + BUCKETS == current).count() as u64;
        let into_current = now_us % window_us * BUCKETS % window_us;
        newer + oldest * (window_us - into_current) / window_us
    }
}
