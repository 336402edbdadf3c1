//! Parameters and costs by chance: common ones mostly, and those at the bounds.

use std::time::Duration;

use fastrand::Rng;
use limiter_core::{
    Algorithm, AlgorithmError, Rate,
    algorithm::{
        Align, BUCKETS_MAX, COUNTER_LIMIT_MAX, Calendar, Concurrency, EXACT_MAX, FixedWindow, LEASE_MAX, LEASE_MIN,
        LeakyBucket, SlidingWindowCounter, SlidingWindowLog, TokenBucket, Zone,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindowCounter,
    SlidingWindowLog,
    Concurrency,
}

impl Kind {
    pub(crate) const ALL: [Self; 6] = [
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::FixedWindow,
        Self::SlidingWindowCounter,
        Self::SlidingWindowLog,
        Self::Concurrency,
    ];
}

/// An algorithm of a kind.
pub(crate) fn algorithm(kind: Kind, rng: &mut Rng) -> Algorithm {
    match kind {
        Kind::TokenBucket => {
            let (rate, burst) = rate(rng);
            let bucket = TokenBucket::new(rate, burst).unwrap();
            match rng.u8(0..3) {
                0 => bucket.clone().with_max_wait(window(rng)).unwrap_or(bucket).into(),
                1 => warming(bucket, rng).into(),
                _ => bucket.into(),
            }
        }
        Kind::LeakyBucket => {
            let (rate, capacity) = rate(rng);
            match rng.u8(0..3) {
                0 => LeakyBucket::queue(rate, capacity, window(rng)).unwrap().into(),
                _ => LeakyBucket::new(rate, capacity).unwrap().into(),
            }
        }
        // Plain windows and those of a calendar take each other's place.
        Kind::FixedWindow if rng.u8(0..3) == 0 => FixedWindow::of_calendar(limit(rng, EXACT_MAX), calendar(rng))
            .unwrap()
            .into(),
        Kind::FixedWindow => {
            let align = if rng.bool() { Align::Clock } else { Align::FirstRequest };
            FixedWindow::new(limit(rng, EXACT_MAX), window(rng), align)
                .unwrap()
                .into()
        }
        Kind::SlidingWindowCounter => {
            let buckets = *rng.choice(&[1, 2, 6, 6, 7, 10, 59, BUCKETS_MAX]).unwrap();
            let window = window(rng).min(Duration::from_secs(1_700 * 86_400));
            SlidingWindowCounter::new(limit(rng, COUNTER_LIMIT_MAX), window, buckets)
                .unwrap()
                .into()
        }
        Kind::Concurrency => Concurrency::new(limit(rng, EXACT_MAX), window(rng).clamp(LEASE_MIN, LEASE_MAX))
            .unwrap()
            .into(),
        Kind::SlidingWindowLog => {
            let limit = if rng.u8(..) < 20 {
                rng.u64(4_000..9_000)
            } else {
                rng.u64(1..40)
            };
            Algorithm::SlidingWindowLog(SlidingWindowLog::new(limit, window(rng)).unwrap())
        }
    }
}

/// The bucket, or the largest that can be counted so, with a time to warm up.
fn warming(bucket: TokenBucket, rng: &mut Rng) -> TokenBucket {
    let (time, at_once) = (window(rng), if rng.bool() { 1 } else { rng.u64(1..=bucket.burst()) });
    match bucket.clone().with_warm_up(time, at_once) {
        Ok(warming) => warming,
        Err(AlgorithmError::TooLarge { max, .. }) if max > 0 => TokenBucket::new(bucket.rate(), max)
            .and_then(|bucket| bucket.with_warm_up(time, at_once))
            .unwrap(),
        Err(_) => bucket,
    }
}

/// Small ones mostly, and the largest.
fn limit(rng: &mut Rng, max: u64) -> u64 {
    match rng.u8(0..8) {
        0 => max - rng.u64(0..3),
        1 => rng.u64(1..=max),
        2 => rng.u64(1..100_000),
        _ => rng.u64(1..60),
    }
}

fn window(rng: &mut Rng) -> Duration {
    let choices = [
        1_000,
        1_001,
        10_000,
        1_000_000,
        1_500_000,
        60_000_000,
        3_600_000_000,
        86_400_000_000,
    ];
    match rng.u8(0..10) {
        0 => Duration::from_micros(rng.u64(1_000..3_000 * 86_400_000_000)),
        1 => Duration::from_secs(3_000 * 86_400),
        _ => Duration::from_micros(*rng.choice(&choices).unwrap()),
    }
}

fn calendar(rng: &mut Rng) -> Calendar {
    let zones = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "Pacific/Apia",
    ];
    let zone = Zone::named(rng.choice(zones).unwrap()).unwrap();
    match rng.u8(0..8) {
        0 => Calendar::month(zone),
        1 => Calendar::days(zone, 3_000).unwrap(),
        2 => Calendar::days(zone, 7).unwrap(),
        _ => Calendar::days(zone, 1).unwrap(),
    }
}

/// A rate, and a capacity that can be counted at it.
fn rate(rng: &mut Rng) -> (Rate, u64) {
    let units = match rng.u8(0..8) {
        0 => rng.u64(1..=EXACT_MAX),
        1 => EXACT_MAX,
        2..5 => rng.u64(1..2_000),
        _ => *rng.choice(&[1, 3, 5, 7, 10, 60, 100, 1_000, 99_991]).unwrap(),
    };
    let per = window(rng);
    // The largest capacity is told by the refusal of one that is too large.
    let max = match TokenBucket::new(Rate { units, per }, EXACT_MAX) {
        Ok(_) => EXACT_MAX,
        Err(AlgorithmError::TooLarge { max, .. }) => max,
        Err(error) => panic!("{units} per {per:?}: {error}"),
    };
    (Rate { units, per }, limit(rng, max).min(max))
}

/// Nothing, all, more than all, and little mostly.
pub(crate) fn cost(rng: &mut Rng, limit: u64) -> u64 {
    match rng.u8(0..32) {
        0 => 0,
        1 => limit,
        2 => limit + 1,
        3 => u64::MAX,
        4..8 => rng.u64(0..=limit / 2),
        8..12 => rng.u64(0..=limit / 8),
        12..16 => rng.u64(1..4),
        _ => 1,
    }
}
