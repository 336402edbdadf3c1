//! `cost` and `charge` of a layer: how many units, and which requests stay charged.

use http::{HeaderName, StatusCode};
use limiter_core::{Algorithm, Policy, Role};

use super::{
    super::{
        Cost,
        place::Place,
        raw::{self, Field, Scalar, Short},
        units,
    },
    context::{Context, one_of, within},
    matching::header_name,
};

/// Units a request takes: 1 where nothing is written, `None` where it is wrong.
pub(super) fn cost(
    place: &Place<'_>,
    field: &Field<Short<raw::CostText, raw::Cost>>,
    cx: &mut Context<'_>,
) -> Option<Cost> {
    if !field.is_present() {
        return Some(Cost::Fixed(1));
    }
    match cx.shape(place, field)? {
        Short::Short(leaf) => cx.scalar(place, leaf, short_cost),
        Short::Long(raw) => {
            cx.unknown_keys(place, raw);
            long_cost(place, raw, cx)
        }
    }
}

fn short_cost(scalar: &Scalar) -> Result<Cost, String> {
    match scalar {
        Scalar::Text(text) if let Some(name) = text.strip_prefix("header:") => Ok(Cost::Header {
            name: header_name(name)?,
            default: 1,
            max: None,
        }),
        Scalar::Text(text) if !text.starts_with(|c: char| c.is_ascii_digit()) => {
            Err(format!("`{text}` is no cost, expected a whole number or `header:NAME`"))
        }
        _ => units::whole(scalar).map(Cost::Fixed),
    }
}

fn long_cost(place: &Place<'_>, raw: &raw::Cost, cx: &mut Context<'_>) -> Option<Cost> {
    let name = |key: &str, field, cx: &mut Context<'_>| cx.read(&place.key(key), field, header);
    match (raw.header.is_present(), raw.response_header.is_present()) {
        (true, false) => {
            foreign("estimate", raw.estimate.is_present(), "response_header", place, cx);
            let (default, max) = (place.key("default"), place.key("max"));
            let default = number(&default, &raw.default, 1, units::whole, cx);
            let max_is_written = raw.max.is_present();
            let read = |scalar: &Scalar| units::positive(scalar).map(Some);
            let max_cost = number(&max, &raw.max, None, read, cx);
            let name = name("header", &raw.header, cx);
            if let (Some(default), Some(Some(most))) = (default, max_cost)
                && default > most
                && max_is_written
            {
                cx.wrong(
                    &max,
                    format!("{most} is below the default of {default}, expected at least that"),
                );
                return None;
            }
            Some(Cost::Header {
                name: name?,
                default: default?,
                max: max_cost?,
            })
        }
        (false, true) => {
            foreign("default", raw.default.is_present(), "header", place, cx);
            foreign("max", raw.max.is_present(), "header", place, cx);
            let estimate = number(&place.key("estimate"), &raw.estimate, 1, units::positive, cx);
            let name = name("response_header", &raw.response_header, cx);
            Some(Cost::Response {
                name: name?,
                estimate: estimate?,
            })
        }
        (true, true) => {
            cx.wrong(
                place,
                "names two headers, expected either `header` or `response_header`",
            );
            None
        }
        (false, false) => {
            cx.missing_both(place, ["header", "response_header"]);
            None
        }
    }
}

/// Tells of a key that has a meaning only beside `owner`.
fn foreign(key: &str, is_present: bool, owner: &str, place: &Place<'_>, cx: &mut Context<'_>) {
    if is_present {
        cx.wrong_key(&place.key(key), format!("`{key}` belongs to `{owner}`"));
    }
}

/// A number that need not be there; `None` where it is wrong.
fn number<R>(
    place: &Place<'_>,
    field: &Field<raw::Whole>,
    default: R,
    read: impl FnOnce(&Scalar) -> Result<R, String>,
    cx: &mut Context<'_>,
) -> Option<R> {
    if field.is_present() {
        cx.read(place, field, read)
    } else {
        Some(default)
    }
}

fn header(scalar: &Scalar) -> Result<HeaderName, String> {
    header_name(units::text(scalar)?)
}

/// Tells of a cost that never fits.
pub(super) fn fits(place: &Place<'_>, cost: &Cost, algorithm: &Algorithm, cx: &mut Context<'_>) {
    let (known, limit) = (cost.known(), algorithm.limit());
    if known > limit {
        let message = format!("{known} never fits, expected at most {limit}, which is all that passes at once");
        let place = match cost {
            Cost::Fixed(_) => place,
            Cost::Header { .. } => &place.key("default"),
            Cost::Response { .. } => &place.key("estimate"),
        };
        cx.wrong(place, message);
    }
}

/// What the layer's word counts for and when it is charged, and the answers that leave it charged (none: all); `None`
/// where that is wrong.
pub(super) fn charge(place: &Place<'_>, raw: &raw::Limit, cx: &mut Context<'_>) -> Option<(Role, Vec<StatusCode>)> {
    let modes = [("enforce", Role::Enforced), ("shadow", Role::Shadow)];
    let mode = cx.word(&place.key("mode"), &raw.mode, &modes).unwrap_or_default();
    let place = place.key("charge");
    let charge = match cx.shape(&place, &raw.charge) {
        None if raw.charge.is_present() => return None,
        None => return Some((mode, Vec::new())),
        Some(Short::Long(charge)) => return Some((mode, statuses(&place, charge, cx)?)),
        Some(Short::Short(word)) => {
            let choices = [("allowed", Role::Enforced), ("all", Role::ChargedAlways)];
            cx.scalar(&place, word, |scalar| one_of(scalar, &choices))?
        }
    };
    if mode == Role::Shadow && charge == Role::ChargedAlways {
        cx.wrong(
            &place,
            "a shadow refuses nothing that it could be charged for, expected `allowed`",
        );
        return None;
    }
    let role = if mode == Role::Shadow { mode } else { charge };
    Some((role, Vec::new()))
}

fn statuses(item: &Place<'_>, raw: &raw::Charge, cx: &mut Context<'_>) -> Option<Vec<StatusCode>> {
    cx.unknown_keys(item, raw);
    let place = item.key("status");
    if !raw.status.is_present() {
        cx.missing(item, "status", "a status, or a list");
    }
    let statuses = cx.read_each(&place, &raw.status, "at least one status", status);
    (!statuses.is_empty()).then_some(statuses)
}

fn status(scalar: &Scalar) -> Result<StatusCode, String> {
    let code = within(200, 599)(scalar)?;
    let status = u16::try_from(code)
        .ok()
        .and_then(|code| StatusCode::from_u16(code).ok());
    status.ok_or_else(|| format!("{code} is no status"))
}

/// Tells at `place` of an algorithm that the policy's charges cannot be settled in. Whether there is none.
pub(super) fn can_give_back(place: &Place<'_>, policy: &Policy, algorithm: &Algorithm, cx: &mut Context<'_>) -> bool {
    let is_queue = matches!(algorithm, Algorithm::LeakyBucket(bucket) if bucket.is_queue());
    if is_queue && policy.gives_back() {
        let message = "units of a queue cannot be given back, since those who wait have their turns: expected `delay: false`, \
                       another algorithm, or neither `charge: {status: …}` nor a cost from a response header";
        cx.wrong(place, message);
        return false;
    }
    if algorithm.holds() && policy.gives_back() {
        let message = "what is in flight is given back when it ends: expected another algorithm, or neither \
                       `charge: {status: …}` nor a cost from a response header";
        cx.wrong(place, message);
        return false;
    }
    true
}

/// Tells of a layer that charges what is refused and cannot.
pub(super) fn can_charge_all(place: &Place<'_>, role: Role, algorithm: &Algorithm, cx: &mut Context<'_>) {
    if role == Role::ChargedAlways && algorithm.holds() {
        let message = "a request that is refused holds nothing that it could be charged for, expected `allowed`";
        cx.wrong(place, message);
    }
}
