//! The layers that a request meets, in memory that is used again.

use std::{fmt, sync::Arc};

use limiter_core::Key;

use super::{Applied, Layer, LayerId};
use crate::jwt::{Claims, Tokens};

/// A reusable list of the layers that a request meets: its memory is kept between requests.
#[derive(Debug, Default)]
pub struct Descriptor {
    /// The first `len` are of the current request; the others keep their memory for later ones.
    applied: Vec<Applied>,
    pub(super) len: usize,
    pub(super) skipped: Vec<usize>,
    scratch: Scratch,
}

/// What the keys of one request are made in.
#[derive(Default)]
pub(super) struct Scratch {
    /// The client's address as keys have it; empty until a key of this request needs it.
    pub(super) ip: String,
    /// A value that is not in the request as it is counted.
    pub(super) value: Vec<u8>,
    /// Of the request's verified token; `None` until a key needs it.
    pub(super) claims: Option<Option<Arc<Claims>>>,
    /// Tokens of requests before.
    pub(super) tokens: Tokens,
}

impl fmt::Debug for Scratch {
    /// Values may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

impl Descriptor {
    /// The layers that apply, in order.
    #[must_use]
    pub fn applied(&self) -> &[Applied] {
        self.applied.get(..self.len).unwrap_or_default()
    }

    /// The layers that would apply, but for a missing key and `on_missing_key: skip`, or a key that is `unlimited`.
    #[must_use]
    pub fn skipped(&self) -> &[usize] {
        &self.skipped
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.skipped.clear();
        self.scratch.ip.clear();
        self.scratch.claims = None;
    }

    /// Adds the candidate of the layer that was added last, with the same key.
    pub(super) fn add_candidate(&mut self, layer: &Layer) {
        self.next();
        let Some((last, [candidate, ..])) = self.applied.split_at_mut_checked(self.len) else {
            return;
        };
        if let Some(live) = last.last() {
            let policy = u32::try_from(layer.policies.len() - 1).unwrap_or_default();
            candidate.layer = LayerId { policy, ..live.layer };
            candidate.key.clone_from(&live.key);
            candidate.cost = live.cost;
            self.len += 1;
        }
    }

    /// The entry behind the last, with an empty key.
    pub(super) fn next(&mut self) -> (&mut Applied, &mut Scratch) {
        if self.applied.len() == self.len {
            self.applied.push(Applied {
                layer: LayerId::default(),
                key: Key::new(),
                cost: 0,
            });
        }
        let next = &mut self.applied[self.len];
        next.key.clear();
        (next, &mut self.scratch)
    }
}
