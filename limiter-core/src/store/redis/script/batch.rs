//! Gathers requests, and settlements, into one call.

use std::{collections::hash_map::RandomState, hash::BuildHasher, sync::Arc};

use bytes::Bytes;
use hashbrown::HashTable;
use smallvec::SmallVec;

use super::codec;
use crate::{
    algorithm::EXACT_MAX,
    clock::Timestamp,
    decision::INLINE_LAYERS,
    policy::Policy,
    settlement::{Change, Settlement},
    store::Ask,
};

/// Requests a call: beyond 64, larger batches gain little.
pub(crate) const REQUESTS_MAX: usize = 128;

/// Counters a call: what a call costs the server is mostly its counters, about 3 µs each; other calls wait meanwhile.
pub(crate) const KEYS_MAX: usize = 256;

/// Layers a request: the answer names the layer that refused in one byte.
pub(crate) const LAYERS_MAX: usize = 255;

/// Settlements that are applied in one call, and then requests that are decided, one after the other, each over all its
/// layers.
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
    /// Positions in `keys`, and what happens to those before the first request.
    settlements: Vec<(u16, Change)>,
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

/// What became of a request or settlement.
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
    /// A batch of nothing yet.
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
            let key = found.unwrap_or_else(|| self.insert(ask.policy, ask.key));
            self.layers.push(LayerAsk { key, cost: ask.cost });
        }
        self.ends.push(self.layers.len());
        Added::Yes
    }

    /// Adds a settlement, if it fits. It is applied before all requests, after those that were added before it.
    pub(crate) fn settle(&mut self, settlement: &Settlement) -> Added {
        let Settlement { policy, key, change } = settlement;
        let Ok(found) = self.find_policy(policy) else {
            return Added::NextBatch;
        };
        let found = found.and_then(|policy| self.find_key(policy, key));
        if self.settlements.len() == KEYS_MAX || (found.is_none() && self.keys.len() == KEYS_MAX) {
            return Added::NextBatch;
        }
        let key = found.unwrap_or_else(|| self.insert(policy, key));
        self.settlements.push((key, *change));
        Added::Yes
    }

    /// The counters that are named, each once, in the order of [`Replay::counters`](super::Replay).
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = (&Arc<Policy>, &str)> {
        let policy = |key: &CounterKey| &self.policies[usize::from(key.policy)];
        self.keys.iter().map(move |key| (policy(key), &*key.key))
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

    fn insert(&mut self, policy: &Arc<Policy>, key: &str) -> u16 {
        let policy = self.find_policy(policy).ok().flatten().unwrap_or_else(|| {
            self.policies.push(Arc::clone(policy));
            position(self.policies.len() - 1)
        });
        let index = position(self.keys.len());
        let hash_of = |key: &CounterKey| self.hasher.hash_one((key.policy, &*key.key));
        let key = CounterKey {
            policy,
            key: key.into(),
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

    /// The requests, one after the other, and the settlements, if there are any. Of a request: number of layers, then counter (from 1) and cost of each.
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
        if !self.settlements.is_empty() {
            self.push_settlements(&mut numbers, places);
        }
        numbers.finish()
    }

    /// The settlements, one after the other: counter (from 1), units, and when they were taken, or 0 for a debit.
    fn push_settlements(&self, numbers: &mut codec::Numbers, places: &[u16]) {
        numbers.begin(3 * self.settlements.len());
        for (key, change) in &self.settlements {
            let (units, taken) = match change {
                Change::Debit(units) => (units, 0),
                Change::GiveBack { units, at } => (units, at.as_micros().max(1)),
            };
            numbers.push(u64::from(places[usize::from(*key)]) + 1);
            numbers.push((*units).min(EXACT_MAX));
            numbers.push(taken);
        }
    }
}

/// A position below [`KEYS_MAX`].
fn position(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}
