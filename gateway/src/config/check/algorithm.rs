//! `algorithm` of a layer, and its parameters.

use std::time::Duration;

use limiter_core::{
    Algorithm, AlgorithmError, Rate,
    algorithm::{
        Concurrency, LEASE_DEFAULT, LEASE_MAX, LEASE_MIN, LeakyBucket, SlidingWindowCounter, SlidingWindowLog,
        TokenBucket,
    },
};

use super::{
    super::{
        place::Place,
        raw::{self, Field, Parameters, Scalar},
        suggest, units,
    },
    context::{Context, within},
    fixed_window::fixed_window,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    TokenBucket,
    LeakyBucket,
    FixedWindow,
    SlidingWindowLog,
    SlidingWindowCounter,
    Concurrency,
}

/// The algorithms, their names, and the keys that are theirs.
const KINDS: &[(&str, Kind, &[&str])] = &[
    (
        "token_bucket",
        Kind::TokenBucket,
        &["rate", "burst", "max_wait", "warm_up"],
    ),
    (
        "leaky_bucket",
        Kind::LeakyBucket,
        &["rate", "capacity", "delay", "max_delay"],
    ),
    (
        "fixed_window",
        Kind::FixedWindow,
        &["limit", "window", "align", "timezone"],
    ),
    ("sliding_window_log", Kind::SlidingWindowLog, &["limit", "window"]),
    (
        "sliding_window_counter",
        Kind::SlidingWindowCounter,
        &["limit", "window", "buckets"],
    ),
    ("concurrency", Kind::Concurrency, &["limit", "lease"]),
];

/// The longest that a queue lets a request wait, unless something else is written.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// The algorithm `word` with the parameters `raw` of the mapping at `item`, for requests that cost `most` at most
/// (`None`: whatever they say); `None` where it cannot be made of them.
pub(super) fn algorithm(
    item: &Place<'_>,
    word: &Field<raw::Word>,
    raw: &Parameters,
    most: Option<u64>,
    cx: &mut Context<'_>,
) -> Option<Algorithm> {
    let choices: Vec<_> = KINDS.iter().map(|(name, kind, _)| (*name, *kind)).collect();
    if !word.is_present() {
        let names: Vec<_> = KINDS.iter().map(|(name, ..)| *name).collect();
        cx.missing(item, "algorithm", &suggest::list(&names));
    }
    let kind = cx.word(&item.key("algorithm"), word, &choices)?;
    foreign_parameters(kind, item, raw, cx);
    let made = match kind {
        Kind::TokenBucket => token_bucket(item, raw, most, cx)?,
        Kind::LeakyBucket => leaky_bucket(item, raw, cx)?,
        Kind::FixedWindow => fixed_window(item, raw, cx)?,
        Kind::SlidingWindowLog => sliding_window_log(item, raw, cx)?,
        Kind::SlidingWindowCounter => sliding_window_counter(item, raw, cx)?,
        Kind::Concurrency => concurrency(item, raw, cx)?,
    };
    made.map_err(|error| inexact(&error, item, raw, cx)).ok()
}

/// Tells of parameters that belong to another algorithm.
fn foreign_parameters(kind: Kind, item: &Place<'_>, raw: &Parameters, cx: &mut Context<'_>) {
    let Some((name, _, own)) = KINDS.iter().find(|(_, other, _)| *other == kind) else {
        return;
    };
    for parameter in raw.written() {
        let place = item.key(parameter);
        if !own.contains(&parameter) {
            let owners = KINDS.iter().filter(|(.., own)| own.contains(&parameter));
            let owners: Vec<_> = owners.map(|(name, ..)| *name).collect();
            let leased = match parameter {
                "lease" => ", or to a layer that says `precision: leased`",
                _ => "",
            };
            let message = format!(
                "unknown key for `{name}`, expected {}; `{parameter}` belongs to {}{leased}",
                suggest::list(own),
                suggest::list(&owners)
            );
            cx.wrong_key(&place, message);
        }
    }
}

pub(super) type Made = Result<Algorithm, AlgorithmError>;

fn token_bucket(item: &Place<'_>, raw: &Parameters, most: Option<u64>, cx: &mut Context<'_>) -> Option<Made> {
    let rate = cx.required(item, "rate", &raw.rate, units::rate);
    let burst = optional(item, "burst", &raw.burst, cx);
    let max_wait = cx.read(&item.key("max_wait"), &raw.max_wait, units::duration);
    let max_wait = max_wait.unwrap_or_default();
    let warm_up = warm_up(item, raw, (max_wait, most), cx);
    let rate = rate?;
    let (burst, warm_up) = (burst?.unwrap_or(rate.units), warm_up?);
    let bucket = TokenBucket::new(rate, burst).and_then(|bucket| match warm_up {
        Some((time, at_once)) => bucket.with_warm_up(time, at_once),
        None => bucket.with_max_wait(max_wait),
    });
    Some(bucket.map(Algorithm::from))
}

/// How long a bucket takes to warm up, and what it holds when it is cold, if it has to; `None` where that is wrong.
fn warm_up(
    item: &Place<'_>,
    raw: &Parameters,
    (max_wait, most): (Duration, Option<u64>),
    cx: &mut Context<'_>,
) -> Option<Option<(Duration, u64)>> {
    if !raw.warm_up.is_present() {
        return Some(None);
    }
    let place = item.key("warm_up");
    let time = cx.read(&place, &raw.warm_up, units::positive_duration)?;
    match most {
        _ if !max_wait.is_zero() => cx.wrong(&place, "excludes `max_wait`: nobody waits for a bucket to warm up"),
        // Else it would have to hold all of its burst.
        None => cx.wrong(
            &place,
            "needs a `max` of the `cost`: a cold bucket holds what one request can cost",
        ),
        Some(most) => return Some(Some((time, most))),
    }
    None
}

fn leaky_bucket(item: &Place<'_>, raw: &Parameters, cx: &mut Context<'_>) -> Option<Made> {
    let rate = cx.required(item, "rate", &raw.rate, units::rate);
    let capacity = optional(item, "capacity", &raw.capacity, cx);
    let waits = cx.read(&item.key("delay"), &raw.delay, units::flag).unwrap_or(true);
    let longest = item.key("max_delay");
    let max_delay = cx.read(&longest, &raw.max_delay, units::duration);
    let rate = rate?;
    let capacity = capacity?.unwrap_or_else(|| second_s_worth(rate));
    if !waits {
        if max_delay.is_some() {
            cx.warn(&longest, "nothing waits with `delay: false`: this has no effect");
        }
        return Some(LeakyBucket::new(rate, capacity).map(Algorithm::from));
    }
    let queue = LeakyBucket::queue(rate, capacity, max_delay.unwrap_or(MAX_DELAY));
    if let Ok(queue) = &queue
        && queue.capacity() < capacity
    {
        let place = if max_delay.is_some() {
            longest
        } else {
            item.key("capacity")
        };
        let message = format!(
            "only {} of a capacity of {capacity} have a turn within `max_delay`: the others are refused",
            queue.capacity()
        );
        cx.warn(&place, message);
    }
    Some(queue.map(Algorithm::from))
}

/// What `rate` gives in a second, rounded down, at least 1.
fn second_s_worth(rate: Rate) -> u64 {
    let per_second = u128::from(rate.units) * Duration::from_secs(1).as_nanos() / rate.per.as_nanos().max(1);
    u64::try_from(per_second).unwrap_or(units::MAX_WHOLE).max(1)
}

fn sliding_window_log(item: &Place<'_>, raw: &Parameters, cx: &mut Context<'_>) -> Option<Made> {
    let (limit, window) = (limit(item, raw, cx), window(item, raw, cx));
    Some(SlidingWindowLog::new(limit?, window?).map(Algorithm::from))
}

fn sliding_window_counter(item: &Place<'_>, raw: &Parameters, cx: &mut Context<'_>) -> Option<Made> {
    let (limit, window) = (limit(item, raw, cx), window(item, raw, cx));
    let buckets = cx.read(&item.key("buckets"), &raw.buckets, within(1, 60));
    let buckets = buckets.and_then(|buckets| u32::try_from(buckets).ok()).unwrap_or(6);
    Some(SlidingWindowCounter::new(limit?, window?, buckets).map(Algorithm::from))
}

fn concurrency(item: &Place<'_>, raw: &Parameters, cx: &mut Context<'_>) -> Option<Made> {
    let limit = limit(item, raw, cx);
    let place = item.key("lease");
    let lease = cx.mapping(&place, &raw.lease);
    if lease.is_some_and(|raw| raw.size.is_present()) {
        cx.wrong_key(&place.key("size"), "`size` belongs to `precision: leased`");
    }
    let lease = lease.and_then(|raw| cx.read(&place.key("ttl"), &raw.ttl, lease_ttl));
    Some(Concurrency::new(limit?, lease.unwrap_or(LEASE_DEFAULT)).map(Algorithm::from))
}

fn lease_ttl(scalar: &Scalar) -> Result<Duration, String> {
    let ttl = units::duration(scalar)?;
    match (LEASE_MIN..=LEASE_MAX).contains(&ttl) {
        true => Ok(ttl),
        false => Err(format!("{scalar} is out of range, expected 100ms to 1h")),
    }
}

pub(super) fn limit(item: &Place<'_>, raw: &Parameters, cx: &mut Context<'_>) -> Option<u64> {
    cx.required(item, "limit", &raw.limit, units::positive)
}

fn window(item: &Place<'_>, raw: &Parameters, cx: &mut Context<'_>) -> Option<Duration> {
    cx.required(item, "window", &raw.window, units::positive_duration)
}

/// A number that need not be there: `Some(None)` where it is not, `None` where it is wrong.
fn optional(item: &Place<'_>, key: &str, field: &Field<raw::Whole>, cx: &mut Context<'_>) -> Option<Option<u64>> {
    if !field.is_present() {
        return Some(None);
    }
    cx.read(&item.key(key), field, units::positive).map(Some)
}

/// Tells what the limiter cannot compute exactly, at the parameter that it names.
fn inexact(error: &AlgorithmError, item: &Place<'_>, raw: &Parameters, cx: &mut Context<'_>) {
    let (AlgorithmError::Zero { parameter }
    | AlgorithmError::TooLarge { parameter, .. }
    | AlgorithmError::TooShort { parameter, .. }
    | AlgorithmError::TooLong { parameter, .. }
    | AlgorithmError::Exclusive { parameter, .. }) = error;
    let place = item.key(parameter);
    let place = if raw.written().contains(parameter) {
        &place
    } else {
        item
    };
    cx.wrong(place, format!("cannot be counted exactly: {error}"));
}
