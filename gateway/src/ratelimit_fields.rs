//! Decision → `RateLimit-Policy`, `RateLimit`, the `X-RateLimit-*` trio; pure.
//!
//! A header costs an insert, a hash and a copy each, so the values are written into one buffer and cut out of it.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use limiter_core::{Decision, Policy, Reading, Timestamp, Verdict, Wait, decision::ceil_secs};
use smallvec::SmallVec;

use crate::config::{LegacyReset, Responses};

/// The lists of draft-ietf-httpapi-ratelimit-headers-11.
pub const RATELIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// See [`RATELIMIT_POLICY`].
pub const RATELIMIT: HeaderName = HeaderName::from_static("ratelimit");
/// Units of the quota.
pub const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
/// Whole units left.
pub const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
/// When there is more: [`LegacyReset`].
pub const RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// What a layer takes of the buffer, with a name of usual length.
const BYTES_A_LAYER: usize = 96;

/// A layer that is spoken of.
type Spoken<'a> = (&'a Policy, &'a Reading);

/// Adds the fields that tell a client how full its layers are.
///
/// On an answer that passed: every layer, the one nearest to exhaustion (smallest remaining/limit) first. On a refusal:
/// those that refused, in their order. The lists are appended to an upstream's own; the trio, which speaks of the nearest
/// to exhaustion or of the longest wait, is left alone where the upstream set any of it. Where waiting cannot help, nothing
/// is said about when there is more. Waits count from `asked`, and the upstream may have taken its time since. `policies[i]`
/// belongs to `decision.readings[i]`.
pub fn write(
    config: &Responses,
    policies: &[&Arc<Policy>],
    decision: &Decision,
    asked: Timestamp,
    now: Timestamp,
    headers: &mut HeaderMap,
) {
    let layers = policies.iter().map(|policy| &***policy).zip(&decision.readings);
    let denied = matches!(decision.verdict, Verdict::Denied { .. });
    let mut spoken: SmallVec<[Spoken<'_>; 8]> = layers.filter(|(_, reading)| !denied || !reading.fits).collect();
    let Some(first) = foremost(&spoken, denied) else {
        return;
    };
    let foremost = spoken[first];
    let elapsed = now.since(asked);
    let mut buffer = BytesMut::with_capacity(spoken.len() * BYTES_A_LAYER);
    if config.draft_11 {
        if !denied {
            spoken[..=first].rotate_right(1);
        }
        write_list(&mut buffer, &spoken, write_policy);
        append(headers, RATELIMIT_POLICY, &mut buffer);
        write_list(&mut buffer, &spoken, |to, layer| write_state(to, layer, elapsed));
        append(headers, RATELIMIT, &mut buffer);
    }
    if config.legacy && ![LIMIT, REMAINING, RESET].iter().any(|name| headers.contains_key(name)) {
        let reset = match config.legacy_reset {
            LegacyReset::Delta => secs_to_more(foremost.1, elapsed),
            LegacyReset::Epoch => moment_of_more(foremost.1, asked),
        };
        write_legacy(foremost, reset, &mut buffer, headers);
    }
}

/// The layer that the trio speaks of; the first of equals.
fn foremost(spoken: &[Spoken<'_>], denied: bool) -> Option<usize> {
    (0..spoken.len()).reduce(|best, next| {
        let ((policy, reading), (next_policy, next_reading)) = (spoken[best], spoken[next]);
        let replaces = if denied {
            next_reading.wait > reading.wait
        } else {
            // r'/q' < r/q, without division.
            let product =
                |remaining: u64, policy: &Policy| u128::from(remaining) * u128::from(policy.algorithm().limit());
            product(next_reading.remaining, policy) < product(reading.remaining, next_policy)
        };
        if replaces { next } else { best }
    })
}

/// A Structured Fields list (RFC 9651 §3.1) of what `item` writes of each layer.
fn write_list(to: &mut BytesMut, spoken: &[Spoken<'_>], item: impl Fn(&mut BytesMut, Spoken<'_>)) {
    for (index, layer) in spoken.iter().enumerate() {
        if index > 0 {
            to.put_slice(b", ");
        }
        item(to, *layer);
    }
}

/// `"user";q=100;w=60`, or `"uploads";q=20;qu="concurrent-requests"`, which has no window.
fn write_policy(to: &mut BytesMut, (policy, _): Spoken<'_>) {
    write_string(to, policy.name());
    to.put_slice(b";q=");
    write_number(to, policy.algorithm().limit());
    if policy.algorithm().holds() {
        to.put_slice(b";qu=\"concurrent-requests\"");
    } else {
        to.put_slice(b";w=");
        write_number(to, ceil_secs(policy.algorithm().window()));
    }
}

/// `"user";r=0;t=24`
fn write_state(to: &mut BytesMut, (policy, reading): Spoken<'_>, elapsed: Duration) {
    write_string(to, policy.name());
    to.put_slice(b";r=");
    write_number(to, reading.remaining);
    if let Some(secs) = secs_to_more(reading, elapsed) {
        to.put_slice(b";t=");
        write_number(to, secs);
    }
}

fn write_legacy((policy, reading): Spoken<'_>, reset: Option<u64>, buffer: &mut BytesMut, headers: &mut HeaderMap) {
    write_number(buffer, policy.algorithm().limit());
    append(headers, LIMIT, buffer);
    write_number(buffer, reading.remaining);
    append(headers, REMAINING, buffer);
    if let Some(reset) = reset {
        write_number(buffer, reset);
        append(headers, RESET, buffer);
    }
}

/// Whole seconds from now, rounded up; as `Retry-After` where the layer refuses. `None` where waiting cannot help.
fn secs_to_more(reading: &Reading, elapsed: Duration) -> Option<u64> {
    match reading.wait {
        wait if !reading.fits => wait.retry_after_secs(),
        Wait::For(wait) => Some(ceil_secs(wait.saturating_sub(elapsed))),
        Wait::Never => None,
    }
}

/// Whole seconds since the epoch, rounded up. `None` where waiting cannot help.
fn moment_of_more(reading: &Reading, asked: Timestamp) -> Option<u64> {
    match reading.wait {
        Wait::For(wait) => Some(asked.plus(wait).as_micros().div_ceil(1_000_000)),
        Wait::Never => None,
    }
}

/// A Structured Fields string (RFC 9651 §3.3.3), which has no characters outside printable ASCII.
fn write_string(to: &mut BytesMut, text: &str) {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    to.put_u8(b'"');
    if text.bytes().all(is_plain) {
        to.put_slice(text.as_bytes());
    } else {
        for byte in text.bytes() {
            match byte {
                b'"' | b'\\' => to.put_slice(&[b'\\', byte]),
                b' '..=b'~' => to.put_u8(byte),
                _ => to.put_u8(b'?'),
            }
        }
    }
    to.put_u8(b'"');
}

/// A Structured Fields integer (RFC 9651 §3.3.1), which has 15 digits at most.
fn write_number(to: &mut BytesMut, number: u64) {
    let number = number.min(999_999_999_999_999);
    to.put_slice(itoa::Buffer::new().format(number).as_bytes());
}

fn append(headers: &mut HeaderMap, name: HeaderName, value: &mut BytesMut) {
    let value = HeaderValue::from_maybe_shared(value.split().freeze());
    debug_assert!(value.is_ok(), "only printable ASCII is written");
    if let Ok(value) = value {
        headers.append(name, value);
    }
}

#[cfg(test)]
mod tests;
