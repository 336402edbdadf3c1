//! What was asked, kept while it waits.

use std::sync::Arc;

use smallvec::SmallVec;

use super::Ask;
use crate::{decision::INLINE_LAYERS, policy::Policy};

/// Asks that own what they name. One allocation holds the keys of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct OwnedAsks {
    /// One after the other.
    keys: String,
    asks: SmallVec<[OwnedAsk; 4]>,
}

#[derive(Clone, Debug)]
struct OwnedAsk {
    policy: Arc<Policy>,
    cost: u64,
    /// Where its key ends.
    end: usize,
}

impl OwnedAsks {
    /// Adds one.
    pub(crate) fn push(&mut self, ask: &Ask<'_>) {
        self.keys.push_str(ask.key);
        self.asks.push(OwnedAsk {
            policy: Arc::clone(ask.policy),
            cost: ask.cost,
            end: self.keys.len(),
        });
    }

    /// As they were asked.
    pub(crate) fn asks(&self) -> SmallVec<[Ask<'_>; INLINE_LAYERS]> {
        let mut start = 0;
        self.asks
            .iter()
            .map(|ask| {
                let key = &self.keys[start..ask.end];
                start = ask.end;
                Ask {
                    policy: &ask.policy,
                    key,
                    cost: ask.cost,
                }
            })
            .collect()
    }
}

impl<'a> FromIterator<&'a Ask<'a>> for OwnedAsks {
    fn from_iter<T: IntoIterator<Item = &'a Ask<'a>>>(asks: T) -> Self {
        let mut owned = Self::default();
        for ask in asks {
            owned.push(ask);
        }
        owned
    }
}
