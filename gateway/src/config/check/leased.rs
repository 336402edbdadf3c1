//! `precision: leased` of a layer, and its `lease`.

use std::time::Duration;

use limiter_core::{
    Algorithm, LotSize, LotTerms, Policy, Scope,
    algorithm::{LEASE_DEFAULT, LEASE_MIN},
};

use super::{
    super::{
        Cost,
        place::Place,
        raw::{self, Scalar},
        units,
    },
    context::{Context, one_of},
};

/// The longest that units are in hand which nobody asks for: in use, a lot is renewed long before.
const TTL_MAX: Duration = Duration::from_secs(60);
/// The most units in hand, unless something else is written.
const SIZE: LotSize = LotSize::Percent(1);

/// Whether the layer says that its units are leased.
pub(super) fn is_leased(place: &Place<'_>, raw: &raw::Limit, cx: &mut Context<'_>) -> bool {
    let choices = [("exact", false), ("leased", true)];
    (cx.word(&place.key("precision"), &raw.precision, &choices)).unwrap_or_default()
}

/// What else a leased layer is.
pub(super) struct Around<'a> {
    pub(super) algorithm: &'a Algorithm,
    pub(super) cost: &'a Cost,
    pub(super) scope: Scope,
    /// Whether gateways share the store.
    pub(super) is_shared: bool,
}

/// The terms of a leased layer; `None` where there are none, or they are wrong.
pub(super) fn leased(
    item: &Place<'_>,
    raw: &raw::Limit,
    around: &Around<'_>,
    cx: &mut Context<'_>,
) -> Option<LotTerms> {
    let place = item.key("precision");
    if let Some(message) = unfit(raw, around) {
        cx.wrong(&place, format!("{message}: expected `exact`"));
        return None;
    }
    let terms = terms(&item.key("lease"), raw, around.algorithm, cx)?;
    if !around.is_shared {
        cx.warn(
            &place,
            "the store is this gateway's own memory, which costs no call: this has no effect",
        );
        return None;
    }
    Some(terms)
}

/// Tells of lots of a single unit.
pub(super) fn small(item: &Place<'_>, policy: &Policy, cx: &mut Context<'_>) {
    if policy.lots().is_some() && !policy.is_leased() {
        let message = format!(
            "a lot is one unit of the {} that pass at once, and nothing is gained: expected a `size` of at least 2 in `lease`, \
             or `exact`",
            policy.algorithm().limit()
        );
        cx.warn(&item.key("precision"), message);
    }
}

/// Why units of the layer cannot be leased.
fn unfit(raw: &raw::Limit, around: &Around<'_>) -> Option<&'static str> {
    let is = |field: &raw::Field<raw::Word>, word: &str| {
        let value = field.value().map(|value| raw::Leaf::scalar(value).to_string());
        value.is_some_and(|value| value == word)
    };
    let is_charged_whole = match raw.charge.value() {
        None => true,
        Some(raw::Short::Short(word)) => one_of(raw::Leaf::scalar(word), &[("allowed", ())]).is_ok(),
        Some(raw::Short::Long(_)) => false,
    };
    if let Some(message) = unfit_algorithm(around.algorithm) {
        return Some(message);
    }
    Some(match around.cost {
        _ if around.scope == Scope::Instance => "the layer is counted in this gateway's memory, which costs no call",
        _ if is(&raw.mode, "shadow") => "a shadow refuses nothing, and is to count exactly what it would",
        _ if raw.candidate.is_present() => "every request is counted by the candidate, in Redis",
        _ if !is_charged_whole => "only what is charged to admitted requests, for good, can be handed out",
        Cost::Response { .. } => "a cost from an answer is settled in Redis, request by request",
        _ => return None,
    })
}

fn unfit_algorithm(algorithm: &Algorithm) -> Option<&'static str> {
    Some(match algorithm {
        Algorithm::Concurrency(_) => "what is in flight is in the hands of a gateway anyway",
        Algorithm::SlidingWindowLog(_) => "a log knows the moment of each request, and leased units have none",
        Algorithm::TokenBucket(bucket) if !bucket.max_wait().is_zero() => {
            "who waits for a token has to have it from Redis"
        }
        Algorithm::LeakyBucket(bucket) if bucket.is_queue() => "turns in a queue are given by Redis, one by one",
        _ => return None,
    })
}

/// Whether units can be leased of an override's `algorithm`, if they are of its layer's `policy`.
pub(super) fn can_lease(item: &Place<'_>, policy: &Policy, algorithm: &Algorithm, cx: &mut Context<'_>) -> bool {
    let unfit = policy.lots().and_then(|_| unfit_algorithm(algorithm));
    if let Some(message) = unfit {
        cx.wrong(item, format!("the layer says `precision: leased`, and {message}"));
    }
    unfit.is_none()
}

fn terms(place: &Place<'_>, raw: &raw::Limit, algorithm: &Algorithm, cx: &mut Context<'_>) -> Option<LotTerms> {
    let default = LotTerms {
        size: SIZE,
        ttl: LEASE_DEFAULT,
    };
    let field = &raw.parameters.lease;
    if !field.is_present() {
        return Some(default);
    }
    let lease = cx.mapping(place, field)?;
    let limit = algorithm.limit();
    let size = match lease.size.is_present() {
        true => cx.read(&place.key("size"), &lease.size, |scalar| size(scalar, limit)),
        false => Some(default.size),
    };
    let ttl = match lease.ttl.is_present() {
        true => cx.read(&place.key("ttl"), &lease.ttl, ttl),
        false => Some(default.ttl),
    };
    Some(LotTerms { size: size?, ttl: ttl? })
}

/// A number, or a percentage.
fn size(scalar: &Scalar, limit: u64) -> Result<LotSize, String> {
    let Some(part) = scalar.to_string().strip_suffix('%').map(str::to_owned) else {
        return match units::positive(scalar).map_err(|message| format!("{message}, or a percentage such as `1%`"))? {
            units if units > limit => Err(format!("{units} is more than passes at once, expected at most {limit}")),
            units => Ok(LotSize::Units(units)),
        };
    };
    let is_plain = part.bytes().all(|byte| byte.is_ascii_digit()) && !part.starts_with('0');
    match part.parse() {
        Ok(part @ 1..=100) if is_plain => Ok(LotSize::Percent(part)),
        _ => Err(format!(
            "`{scalar}` is no percentage, expected `1%` to `100%`, or a number"
        )),
    }
}

fn ttl(scalar: &Scalar) -> Result<Duration, String> {
    let ttl = units::duration(scalar)?;
    match (LEASE_MIN..=TTL_MAX).contains(&ttl) {
        true => Ok(ttl),
        false => Err(format!("{scalar} is out of range, expected 100ms to 1m")),
    }
}
