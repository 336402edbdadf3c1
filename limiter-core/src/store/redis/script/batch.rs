//! Gathers requests into one call.

use std::{collections::hash_map::RandomState, hash::BuildHasher, sync::Arc};

use bytes::Bytes;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::codec;
use crate::{algorithm::EXACT_MAX, clock::Timestamp, decision::INLINE_LAYERS, policy::Policy, store::Ask};

/// Requests a call: beyond 64, larger batches gain little.
pub(crate) const REQUESTS_MAX: usize = 128;

/// Counters a call: what a call costs the server is mostly its counters, about 3 µs each; other calls wait meanwhile.
pub(crate) const KEYS_MAX: usize = 256;

/// Layers a request: the answer names the layer that refused in one byte.
pub(crate) const LAYERS_MAX: usize = 255;

/// Requests that are decided in one call, one after the other, each over all its layers.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(super) policies: Vec<Arc<Policy>>,
    pub(super) keys: Vec<CounterKey>,
    /// Positions in `keys`, found by policy and key.
    index: HashTable<u16>,
    hasher: RandomState,
    /// Layers of all requests, in order.
    pub(super) layers: Vec<LayerAsk>,
    /// Where each request's layers end.
    pub(super) ends: Vec<usize>,
}

/// A counter, as named by its policy and the key within it.
#[derive(Debug)]
pub(super) struct CounterKey {
    pub(super) policy: u16,
    key: Box<str>,
}

/// One layer of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct LayerAsk {
    /// Position in `keys`.
    pub(super) key: u16,
    pub(super) cost: u64,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// It is the next in this batch.
    Yes,
    /// It has no place in this batch, which is as it was: it opens the next.
    NextBatch,
    /// It has more layers than any batch can take (255).
    TooManyLayers,
}

/// What a call is given.
#[derive(Clone, Debug)]
pub(crate) struct Arguments {
    /// `KEYS`.
    pub(crate) keys: Vec<Bytes>,
    /// `ARGV`.
    pub(crate) args: Vec<Bytes>,
}

impl Batch {
    /// A batch of no request yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Requests in it.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a request of at least one layer, if it fits.
    ///
    /// Requests that name the same counter share it. Where they come from before and after a reload, with other
    /// parameters, they cannot: the script would load the counter twice, and one charge would be lost.
    pub(crate) fn add(&mut self, asks: &[Ask<'_>]) -> Added {
        debug_assert!(!asks.is_empty(), "a request without layers is allowed, without asking");
        if asks.len() > LAYERS_MAX {
            return Added::TooManyLayers;
        }
        if self.len() == REQUESTS_MAX {
            return Added::NextBatch;
        }
        let mut found: SmallVec<[Option<u16>; INLINE_LAYERS]> = SmallVec::new();
        for ask in asks {
            let Ok(policy) = self.find_policy(ask.policy) else {
                return Added::NextBatch;
            };
            found.push(policy.and_then(|policy| self.find_key(policy, ask.key)));
        }
        if self.keys.len() + found.iter().filter(|key| key.is_none()).count() > KEYS_MAX {
            return Added::NextBatch;
        }
        for (ask, found) in asks.iter().zip(found) {
            let key = found.unwrap_or_else(|| self.insert(ask));
            self.layers.push(LayerAsk { key, cost: ask.cost });
        }
        self.ends.push(self.layers.len());
        Added::Yes
    }

    /// The position of a policy with the same name and parameters; an error, if its parameters differ.
    fn find_policy(&self, policy: &Arc<Policy>) -> Result<Option<u16>, ()> {
        let same_name = |other: &Arc<Policy>| Arc::ptr_eq(other, policy) || other.key_prefix() == policy.key_prefix();
        match (0..).zip(&self.policies).find(|(_, other)| same_name(other)) {
            None => Ok(None),
            Some((index, other)) if other.algorithm() == policy.algorithm() => Ok(Some(index)),
            Some(_) => Err(()),
        }
    }

    fn find_key(&self, policy: u16, key: &str) -> Option<u16> {
        let hash = self.hasher.hash_one((policy, key));
        let is_it = |index: &u16| {
            let other = &self.keys[usize::from(*index)];
            other.policy == policy && *other.key == *key
        };
        self.index.find(hash, is_it).copied()
    }

    fn insert(&mut self, ask: &Ask<'_>) -> u16 {
        let policy = self.find_policy(ask.policy).ok().flatten().unwrap_or_else(|| {
            self.policies.push(Arc::clone(ask.policy));
            position(self.policies.len() - 1)
        });
        let index = position(self.keys.len());
        let hash_of = |key: &CounterKey| self.hasher.hash_one((key.policy, &*key.key));
        let key = CounterKey {
            policy,
            key: ask.key.into(),
        };
        let hash = hash_of(&key);
        self.keys.push(key);
        let keys = &self.keys;
        self.index
            .insert_unique(hash, index, |index| hash_of(&keys[usize::from(*index)]));
        index
    }

    /// Where each counter stands in the call: there, they are ordered by policy.
    pub(super) fn places(&self) -> Vec<u16> {
        let mut next = vec![0_u16; self.policies.len() + 1];
        for key in &self.keys {
            next[usize::from(key.policy) + 1] += 1;
        }
        for policy in 1..next.len() {
            next[policy] += next[policy - 1];
        }
        (self.keys.iter())
            .map(|key| {
                let place = &mut next[usize::from(key.policy)];
                *place += 1;
                *place - 1
            })
            .collect()
    }

    /// What to call the script with. `prefix` begins every key. After `not_after`, in the server's time, the script
    /// does nothing.
    pub(crate) fn arguments(&self, prefix: &str, not_after: Option<Timestamp>) -> Arguments {
        let places = self.places();
        let mut keys = vec![Bytes::new(); self.keys.len()];
        let mut keys_of = vec![0_u16; self.policies.len()];
        for (key, place) in self.keys.iter().zip(&places) {
            let policy = usize::from(key.policy);
            let name = [prefix, ":", self.policies[policy].key_prefix(), &*key.key].concat();
            keys[usize::from(*place)] = name.into();
            keys_of[policy] += 1;
        }
        let mut args = Vec::with_capacity(2 + self.policies.len());
        args.push(codec::policies(
            not_after,
            self.policies.iter().map(|policy| policy.algorithm()).zip(keys_of),
        ));
        args.push(self.requests(&places));
        args.extend(
            self.policies
                .iter()
                .map(|policy| codec::time_to_live(policy.algorithm())),
        );
        Arguments { keys, args }
    }

    /// The requests, one after the other: number of layers, then counter (from 1) and cost of each.
    fn requests(&self, places: &[u16]) -> Bytes {
        let mut numbers = codec::Numbers::with_len(self.ends.len() + 2 * self.layers.len());
        let mut begin = 0;
        for &end in &self.ends {
            numbers.push((end - begin) as u64);
            for layer in &self.layers[begin..end] {
                numbers.push(u64::from(places[usize::from(layer.key)]) + 1);
                // No capacity is above the largest exact number, so this cost is refused as well as any above it;
                // MessagePack in Redis reads the largest as negative.
                numbers.push(layer.cost.min(EXACT_MAX + 1));
            }
            begin = end;
        }
        numbers.finish()
    }
}

/// A position below [`KEYS_MAX`].
fn position(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}
