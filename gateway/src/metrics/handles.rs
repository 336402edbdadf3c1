//! What is counted for one route, limit or upstream: resolved once a snapshot, held where it is counted.

use std::{
    array,
    collections::BTreeMap,
    sync::{Mutex, PoisonError, atomic::AtomicU64},
    time::Duration,
};

use http::StatusCode;
use limiter_core::StoreObserver;

use super::cells::{Histogram, Sharded, Summed, count};

/// Upper bounds of durations, in µs: 0.5 ms to 10 s.
pub(super) const DURATION_US: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// µs in a second.
pub(super) const US: f64 = 1e6;

/// Statuses that have a cell of their own; the others are counted under a lock.
const COMMON: [u16; 24] = [
    200, 201, 202, 204, 206, 301, 302, 303, 304, 307, 308, 400, 401, 403, 404, 405, 409, 413, 422, 429, 500, 502, 503,
    504,
];

/// Requests and their duration, of a route or an upstream.
#[derive(Debug)]
pub struct Traffic {
    shards: Sharded<TrafficCells>,
    rare: Mutex<BTreeMap<u16, u64>>,
    /// Reported even where it was never seen, so that the family exists from the start.
    usual: u16,
}

#[derive(Debug)]
struct TrafficCells {
    codes: [AtomicU64; COMMON.len()],
    duration: Histogram<{ DURATION_US.len() + 1 }>,
}

impl Default for TrafficCells {
    fn default() -> Self {
        Self {
            codes: array::from_fn(|_| AtomicU64::new(0)),
            duration: Histogram::default(),
        }
    }
}

impl Traffic {
    pub(super) fn new(usual: StatusCode) -> Self {
        Self {
            shards: Sharded::default(),
            rare: Mutex::default(),
            usual: usual.as_u16(),
        }
    }

    /// Counts one request that was answered with `status`, `took` after it began.
    pub fn record(&self, status: StatusCode, took: Duration) {
        let (cells, code) = (self.shards.own(), status.as_u16());
        match COMMON.binary_search(&code).ok().and_then(|at| cells.codes.get(at)) {
            Some(cell) => count(cell),
            None => {
                *self
                    .rare
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .entry(code)
                    .or_default() += 1
            }
        }
        cells.duration.observe(&DURATION_US, micros(took));
    }

    /// Requests by status, those that were seen and the usual one.
    pub(super) fn codes(&self) -> BTreeMap<u16, u64> {
        let mut codes = self.rare.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (at, code) in COMMON.iter().enumerate() {
            let seen = self.shards.sum(|cells| &cells.codes[at]);
            if seen > 0 {
                codes.insert(*code, seen);
            }
        }
        codes.entry(self.usual).or_default();
        codes
    }

    pub(super) fn durations(&self) -> Summed {
        Summed::read(&self.shards, &DURATION_US, US, |cells| &cells.duration)
    }
}

pub(super) fn micros(took: Duration) -> u64 {
    u64::try_from(took.as_micros()).unwrap_or(u64::MAX)
}

/// Requests that an upstream had no room for.
#[derive(Debug, Default)]
pub struct Sheds(Sharded<AtomicU64>);

impl Sheds {
    /// Counts one.
    pub fn record(&self) {
        count(self.0.own());
    }

    pub(super) fn get(&self) -> u64 {
        self.0.sum(|cell| cell)
    }
}

/// What a layer said of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitOutcome {
    /// It had room, and the request passed or was refused by another layer.
    Allowed,
    /// It had no room.
    Denied,
    /// The key is banned: nobody was asked.
    Banned,
    /// It had no room, and is a shadow: it would have refused.
    ShadowDenied,
    /// Its candidate had no room, and would have refused in its place.
    CandidateDenied,
    /// A part of its key was missing, and it says `skip`.
    Skipped,
    /// Its store was away: its failure policy let the request pass.
    FallbackAllowed,
    /// Its store was away: its failure policy refused.
    FallbackDenied,
}

impl LimitOutcome {
    pub(super) const ALL: [Self; 8] = [
        Self::Allowed,
        Self::Denied,
        Self::Banned,
        Self::ShadowDenied,
        Self::CandidateDenied,
        Self::Skipped,
        Self::FallbackAllowed,
        Self::FallbackDenied,
    ];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Banned => "banned",
            Self::ShadowDenied => "shadow_denied",
            Self::CandidateDenied => "candidate_denied",
            Self::Skipped => "skipped",
            Self::FallbackAllowed => "fallback_allowed",
            Self::FallbackDenied => "fallback_denied",
        }
    }
}

/// Upper bounds of the share of a quota that is in use, in millionths.
const RATIO_PPM: [u64; 8] = [100_000, 250_000, 500_000, 750_000, 900_000, 950_000, 990_000, 1_000_000];

/// Millionths in one.
const PPM: f64 = 1e6;

/// The share of `limit` that is in use where `remaining` units are left, in millionths, rounded down.
fn used_ppm(remaining: u64, limit: u64) -> u64 {
    let (used, limit) = (limit.saturating_sub(remaining), limit.max(1));
    match used.checked_mul(1_000_000) {
        Some(used) => used / limit,
        None => u64::try_from(u128::from(used) * 1_000_000 / u128::from(limit)).unwrap_or(u64::MAX),
    }
}

/// Decisions of one limit.
#[derive(Debug, Default)]
pub struct LimitMetrics {
    shards: Sharded<LimitCells>,
}

#[derive(Debug, Default)]
struct LimitCells {
    outcomes: [AtomicU64; LimitOutcome::ALL.len()],
    /// Of the refusals, those for which no store was asked.
    repeated: AtomicU64,
    used: Histogram<{ RATIO_PPM.len() + 1 }>,
}

impl LimitMetrics {
    /// Counts a decision.
    pub fn record(&self, outcome: LimitOutcome) {
        if let Some(cell) = self.shards.own().outcomes.get(outcome as usize) {
            count(cell);
        }
    }

    /// Counts a refusal that was repeated from memory; [`LimitMetrics::record`] counts it as well.
    pub fn record_repeated(&self) {
        count(&self.shards.own().repeated);
    }

    /// Counts a decision, and how full the limit was after it: `remaining` units of `limit` are left.
    pub fn record_used(&self, outcome: LimitOutcome, remaining: u64, limit: u64) {
        let cells = self.shards.own();
        if let Some(cell) = cells.outcomes.get(outcome as usize) {
            count(cell);
        }
        cells.used.observe(&RATIO_PPM, used_ppm(remaining, limit));
    }

    /// Decisions so far, by the word for what was said. A candidate's are not the layer's.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let of_layer = LimitOutcome::ALL.into_iter();
        let of_layer = of_layer.filter(|outcome| *outcome != LimitOutcome::CandidateDenied);
        of_layer.map(|outcome| (outcome.as_str(), self.outcome(outcome)))
    }

    /// Requests so far that its candidate would have refused.
    #[must_use]
    pub fn candidate_denied(&self) -> u64 {
        self.outcome(LimitOutcome::CandidateDenied)
    }

    pub(super) fn outcome(&self, outcome: LimitOutcome) -> u64 {
        self.shards.sum(|cells| &cells.outcomes[outcome as usize])
    }

    pub(super) fn repeated(&self) -> u64 {
        self.shards.sum(|cells| &cells.repeated)
    }

    pub(super) fn used(&self) -> Summed {
        Summed::read(&self.shards, &RATIO_PPM, PPM, |cells| &cells.used)
    }
}

/// Upper bounds of the requests in one call of the store.
const BATCH: [u64; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// Upper bounds of the duration of a call of the store, in µs: 0.1 ms to 250 ms.
const CALL_US: [u64; 10] = [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 250_000];

/// What [`StoreObserver::failed`] tells: [`limiter_core::StoreError::kind`], and `drift`.
pub(super) const ERROR_KINDS: [&str; 9] = [
    "timeout",
    "unavailable",
    "server",
    "protocol",
    "config",
    "drift",
    "replaced",
    "unsettled",
    "evicted",
];

/// Calls of the shared store; observes one.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    shards: Sharded<StoreCells>,
}

#[derive(Debug, Default)]
struct StoreCells {
    duration: Histogram<{ CALL_US.len() + 1 }>,
    batch: Histogram<{ BATCH.len() + 1 }>,
    errors: [AtomicU64; ERROR_KINDS.len()],
}

impl StoreObserver for StoreMetrics {
    fn answered(&self, took: Duration, requests: usize) {
        let cells = self.shards.own();
        cells.duration.observe(&CALL_US, micros(took));
        cells.batch.observe(&BATCH, u64::try_from(requests).unwrap_or(u64::MAX));
    }

    fn failed(&self, kind: &'static str) {
        let cells = self.shards.own();
        let at = ERROR_KINDS.iter().position(|own| *own == kind);
        if let Some(cell) = at.and_then(|at| cells.errors.get(at)) {
            count(cell);
        }
    }
}

impl StoreMetrics {
    pub(super) fn errors(&self, kind: usize) -> u64 {
        self.shards.sum(|cells| &cells.errors[kind])
    }

    pub(super) fn durations(&self) -> Summed {
        Summed::read(&self.shards, &CALL_US, US, |cells| &cells.duration)
    }

    pub(super) fn batches(&self) -> Summed {
        Summed::read(&self.shards, &BATCH, 1.0, |cells| &cells.batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_statuses_can_be_searched() {
        assert!(COMMON.is_sorted());
    }

    #[test]
    fn statuses_common_and_rare() {
        let traffic = Traffic::new(StatusCode::OK);
        assert_eq!(traffic.codes(), BTreeMap::from([(200, 0)]));
        for code in [429, 429, 418, 599, 418, 418] {
            traffic.record(StatusCode::from_u16(code).unwrap(), Duration::from_millis(1));
        }
        assert_eq!(
            traffic.codes(),
            BTreeMap::from([(200, 0), (418, 3), (429, 2), (599, 1)])
        );
        let durations = traffic.durations();
        assert_eq!((durations.count, durations.sum), (6, 0.006));
        assert_eq!(durations.buckets[1], (0.001, 6));
    }

    #[test]
    fn shares_in_use() {
        let limit = LimitMetrics::default();
        for (remaining, of) in [(10, 10), (5, 10), (0, 10), (1, u64::MAX), (20, 10), (0, 0)] {
            limit.record_used(LimitOutcome::Allowed, remaining, of);
        }
        let used = limit.used();
        let at = |bound: f64| used.buckets.iter().find(|(own, _)| *own == bound).unwrap().1;
        assert_eq!(
            (at(0.1), at(0.5), at(0.99), at(1.0), at(f64::INFINITY)),
            (3, 1, 0, 2, 0)
        );
    }

    #[test]
    fn outcomes_and_errors() {
        let limit = LimitMetrics::default();
        for outcome in LimitOutcome::ALL {
            limit.record(outcome);
            assert_eq!(limit.outcome(outcome), 1);
        }
        let store = StoreMetrics::default();
        store.failed("server");
        store.failed("drift");
        store.failed("no such kind");
        store.answered(Duration::from_micros(250), 3);
        assert_eq!(store.durations().buckets[1], (0.00025, 1));
        assert_eq!(store.batches().buckets[2], (4.0, 1));
        assert_eq!([0, 1, 2, 3, 4, 5].map(|kind| store.errors(kind)), [0, 0, 1, 0, 0, 1]);
    }
}
