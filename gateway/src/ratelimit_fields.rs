//! Decision → `RateLimit-Policy`, `RateLimit`, the `X-RateLimit-*` trio; pure.
//!
//! A header costs an insert, a hash and a copy each, so the values are written into one buffer and cut out of it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use bytes::{BufMut as _, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use limiter_core::{Decision, Policy, Reading, Timestamp, Verdict, Wait, decision::ceil_secs};
use smallvec::SmallVec;

use crate::config::{LegacyReset, Responses};

mod head;
mod number;

use head::Heads;
pub use head::Told;

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

/// Of all these, on one answer.
const FIELDS: usize = 5;

/// What a layer takes of the buffer, with a name of usual length.
const BYTES_A_LAYER: usize = 64;

/// Bytes of a buffer: for some dozen answers.
const BUFFER: usize = 4096;

/// Lists of policies that a worker remembers: one for each set of layers that requests meet, and each of them that may be
/// the nearest to exhaustion.
const LISTS: usize = 16;

/// A policy as the fields spell it, made once.
#[derive(Debug)]
pub struct Spelled {
    /// Told apart by these: no two of a process are the same.
    id: u64,
    /// What its item of `RateLimit` begins with, `"user";r=`, and behind that its item of `RateLimit-Policy`,
    /// `"user";q=100;w=60`; or `"uploads";q=20;qu="concurrent-requests"`, which has no window.
    text: Box<[u8]>,
    /// Where the second begins.
    policy: usize,
    limit: u64,
}

impl Spelled {
    /// How `policy` is spelled.
    #[must_use]
    pub fn new(policy: &Policy) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (algorithm, mut text) = (policy.algorithm(), BytesMut::new());
        write_string(&mut text, policy.name());
        let name = text.clone();
        text.put_slice(b";r=");
        let at = text.len();
        text.put_slice(&name);
        text.put_slice(b";q=");
        number::write(&mut text, algorithm.limit());
        if algorithm.holds() {
            text.put_slice(b";qu=\"concurrent-requests\"");
        } else {
            text.put_slice(b";w=");
            number::write(&mut text, ceil_secs(algorithm.window()));
        }
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            text: text[..].into(),
            policy: at,
            limit: algorithm.limit(),
        }
    }
}

/// A layer that is spoken of.
type Spoken<'a> = (&'a Spelled, &'a Reading);

/// Writes the fields, on one worker.
#[derive(Debug, Default)]
pub struct Fields {
    /// What values are cut from.
    buffer: BytesMut,
    lists: Vec<List>,
    /// Of the lists, the one that makes room next.
    hand: usize,
    /// What was said last of when there is more: many are told the same second.
    reset: Option<(u64, HeaderValue)>,
    heads: Heads,
}

/// What is always said of some policies, in this order.
#[derive(Debug)]
struct List {
    ids: SmallVec<[u64; 4]>,
    policies: HeaderValue,
    /// Of the first.
    limit: HeaderValue,
}

impl List {
    fn is_of(&self, spoken: &[Spoken<'_>]) -> bool {
        let ids = spoken.iter().map(|(policy, _)| policy.id);
        self.ids.len() == spoken.len() && self.ids.iter().zip(ids).all(|(own, id)| *own == id)
    }
}

impl Fields {
    /// Adds the fields that tell a client how full its layers are.
    ///
    /// On an answer that passed: every layer, the one nearest to exhaustion (smallest remaining/limit) first. On a refusal:
    /// those that refused, in their order. The lists are appended to an upstream's own; the trio, which speaks of the
    /// nearest to exhaustion or of the longest wait, is left alone where the upstream set any of it. Where waiting cannot
    /// help, nothing is said about when there is more. Waits count from `asked`, and the upstream may have taken its time
    /// since. Each of the `policies` belongs to the reading at its place.
    pub fn write<'a>(
        &mut self,
        config: &Responses,
        policies: impl Iterator<Item = &'a Spelled>,
        decision: &'a Decision,
        asked: Timestamp,
        now: Timestamp,
        headers: &mut HeaderMap,
    ) {
        let denied = matches!(decision.verdict, Verdict::Denied { .. });
        let layers = policies.zip(&decision.readings);
        let mut spoken: SmallVec<[Spoken<'_>; 8]> = layers.filter(|(_, reading)| !denied || !reading.fits).collect();
        let Some(first) = foremost(&spoken, denied) else {
            return;
        };
        let foremost = spoken[first];
        let elapsed = now.since(asked);
        self.make_room(spoken.len());
        if !denied {
            spoken[..=first].rotate_right(1);
        }
        let list = self.list(&spoken);
        headers.reserve(FIELDS);
        if config.draft_11 {
            append(
                headers,
                RATELIMIT_POLICY,
                self.lists.get(list).map(|list| list.policies.clone()),
            );
            write_list(&mut self.buffer, &spoken, |to, layer| write_state(to, layer, elapsed));
            append(headers, RATELIMIT, cut(&mut self.buffer));
        }
        if config.legacy && !headers.keys().any(is_legacy) {
            let limit = match self.lists.get(list) {
                Some(list) if !denied => Some(list.limit.clone()),
                _ => self.number(foremost.0.limit),
            };
            append(headers, LIMIT, limit);
            append(headers, REMAINING, self.number(foremost.1.remaining));
            append(headers, RESET, self.reset(config, foremost.1, asked, elapsed));
        }
    }

    /// Which of the lists is that of these policies. Whoever meets the same layers is told the same.
    fn list(&mut self, spoken: &[Spoken<'_>]) -> usize {
        if let Some(at) = self.lists.iter().position(|list| list.is_of(spoken)) {
            return at;
        }
        write_list(&mut self.buffer, spoken, |to, (policy, _)| {
            to.put_slice(&policy.text[policy.policy..]);
        });
        // Values that live longer than the answers that the buffer is for.
        let own = |text: &[u8]| HeaderValue::from_bytes(text).ok();
        let policies = own(&self.buffer.split());
        number::write(&mut self.buffer, spoken.first().map_or(0, |(policy, _)| policy.limit));
        let limit = own(&self.buffer.split());
        let (Some(policies), Some(limit)) = (policies, limit) else {
            return usize::MAX;
        };
        let ids = spoken.iter().map(|(policy, _)| policy.id).collect();
        let list = List { ids, policies, limit };
        if self.lists.len() < LISTS {
            self.lists.push(list);
            return self.lists.len() - 1;
        }
        self.hand = (self.hand + 1) % LISTS;
        self.lists[self.hand] = list;
        self.hand
    }

    /// The last of the trio. `None` where waiting cannot help.
    fn reset(
        &mut self,
        config: &Responses,
        reading: &Reading,
        asked: Timestamp,
        elapsed: Duration,
    ) -> Option<HeaderValue> {
        let reset = match config.legacy_reset {
            LegacyReset::Delta => secs_to_more(reading, elapsed),
            LegacyReset::Epoch => moment_of_more(reading, asked),
        }?;
        if let Some((last, value)) = &self.reset
            && *last == reset
        {
            return Some(value.clone());
        }
        let value = self.number(reset)?;
        self.reset = Some((reset, value.clone()));
        Some(value)
    }

    /// For what is said of so many layers.
    fn make_room(&mut self, layers: usize) {
        if self.buffer.capacity() < (layers + 1) * BYTES_A_LAYER {
            self.buffer = BytesMut::with_capacity(BUFFER);
        }
    }

    fn number(&mut self, number: u64) -> Option<HeaderValue> {
        number::small(number).or_else(|| {
            number::write(&mut self.buffer, number);
            cut(&mut self.buffer)
        })
    }
}

/// Whether it is one of the trio.
fn is_legacy(name: &HeaderName) -> bool {
    let rest = name.as_str().strip_prefix("x-ratelimit-");
    rest.is_some_and(|rest| matches!(rest, "limit" | "remaining" | "reset"))
}

/// The layer that the trio speaks of; the first of equals.
fn foremost(spoken: &[Spoken<'_>], denied: bool) -> Option<usize> {
    (0..spoken.len()).reduce(|best, next| {
        let ((policy, reading), (next_policy, next_reading)) = (spoken[best], spoken[next]);
        let replaces = if denied {
            next_reading.wait > reading.wait
        } else {
            // r'/q' < r/q, without division.
            let product = |remaining: u64, policy: &Spelled| u128::from(remaining) * u128::from(policy.limit);
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

/// `"user";r=0;t=24`
fn write_state(to: &mut BytesMut, (policy, reading): Spoken<'_>, elapsed: Duration) {
    to.put_slice(&policy.text[..policy.policy]);
    number::write(to, reading.remaining);
    if let Some(secs) = secs_to_more(reading, elapsed) {
        to.put_slice(b";t=");
        number::write(to, secs);
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

/// What was written last, as a value.
fn cut(buffer: &mut BytesMut) -> Option<HeaderValue> {
    let value = HeaderValue::from_maybe_shared(buffer.split().freeze());
    debug_assert!(value.is_ok(), "only printable ASCII is written");
    value.ok()
}

fn append(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        headers.append(name, value);
    }
}

#[cfg(test)]
mod tests;
