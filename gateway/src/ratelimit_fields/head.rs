//! Heads of answers that tell of one layer alone, which most refusals do: made once, but for their numbers.
//!
//! A field that is added is hashed, and its map may have to grow; a map that is cloned has all of that behind it.

use http::{HeaderMap, HeaderName, HeaderValue, header::RETRY_AFTER};
use limiter_core::{Reading, Timestamp};

use super::{Fields, RATELIMIT, REMAINING, RESET, Spelled, cut, write_state};
use crate::config::Responses;

/// Heads that a worker remembers.
const HEADS: usize = 16;

/// What the head of a refusal tells.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Who refuses.
    pub policy: &'a Spelled,
    /// What it says.
    pub reading: &'a Reading,
    /// In whole seconds.
    pub retry_after: u64,
    /// When it was asked.
    pub asked: Timestamp,
    /// The present.
    pub now: Timestamp,
}

/// Heads that are known.
#[derive(Debug, Default)]
pub(super) struct Heads {
    known: Vec<Head>,
    /// The one that makes room next.
    hand: usize,
}

#[derive(Debug)]
struct Head {
    policy: u64,
    head: HeaderMap,
    /// What each of its values is.
    values: Box<[Value]>,
}

#[derive(Clone, Copy, Debug)]
enum Value {
    /// The same in every answer, or its writer's to replace.
    Fixed,
    RetryAfter,
    RateLimit,
    Remaining,
    Reset,
}

impl Value {
    fn of(name: &HeaderName) -> Self {
        match name {
            name if name == RETRY_AFTER => Self::RetryAfter,
            name if name == RATELIMIT => Self::RateLimit,
            name if name == REMAINING => Self::Remaining,
            name if name == RESET => Self::Reset,
            _ => Self::Fixed,
        }
    }
}

impl Fields {
    /// The head that was [kept](Self::keep_head) of a refusal by this policy, with what is `told` of the present one in its
    /// place. All other values are as they were.
    pub fn head(&mut self, config: &Responses, told: &Told<'_>) -> Option<HeaderMap> {
        self.make_room(1);
        let at = self.heads.known.iter().position(|head| head.policy == told.policy.id)?;
        let mut head = self.heads.known[at].head.clone();
        let elapsed = told.now.since(told.asked);
        for (slot, value) in head.values_mut().enumerate() {
            let new = match self.heads.known[at].values[slot] {
                Value::Fixed => continue,
                Value::RetryAfter => self.number(told.retry_after),
                Value::Remaining => self.number(told.reading.remaining),
                Value::Reset => self.reset(config, told.reading, told.asked, elapsed),
                Value::RateLimit => {
                    write_state(&mut self.buffer, (told.policy, told.reading), elapsed);
                    cut(&mut self.buffer)
                }
            };
            *value = new?;
        }
        Some(head)
    }

    /// Keeps the head of an answer that tells of a refusal by this policy alone. A name that is there more than once would
    /// not be kept apart.
    pub fn keep_head(&mut self, policy: &Spelled, head: &HeaderMap) {
        let values: Box<[Value]> = head.keys().map(Value::of).collect();
        let mut head = head.clone();
        for (value, kept) in values.iter().zip(head.values_mut()) {
            if !matches!(value, Value::Fixed) {
                // Those of the answer would keep the buffer that they were cut from.
                *kept = HeaderValue::from_static("0");
            }
        }
        let head = Head {
            policy: policy.id,
            head,
            values,
        };
        let heads = &mut self.heads;
        if heads.known.len() < HEADS {
            heads.known.push(head);
        } else {
            heads.hand = (heads.hand + 1) % HEADS;
            heads.known[heads.hand] = head;
        }
    }
}
