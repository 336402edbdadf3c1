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
    /// Those of one name may differ in their parameters, for some keys have their own.
    pub(super) policies: Vec<Arc<Policy>>,
    /// Of each policy, the position of the first whose counters have names of the same beginning.
    families: Vec<u16>,
    pub(super) keys: Vec<CounterKey>,
    /// Positions in `keys`, found by family and key.
    index: HashTable<u16>,
    hasher: RandomState,
    /// Layers of all requests, in order.
    pub(super) layers: Vec<LayerAsk>,
    /// Where each request's layers end.
    pub(super) ends: Vec<usize>,
    /// Positions in `keys`, and what happens to those before the first request.
    settlements: Vec<(u16, Change)>,
    /// Who calls: the holder of what is taken where units are held.
    holder: u64,
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

/// Whether a counter is in a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// It is at this position in `keys`.
    At(u16),
    /// It is not.
    Nowhere,
    /// It is, but counted by other parameters.
    Otherwise,
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
    /// A batch of nothing yet, of this holder.
    pub(crate) fn new(holder: u64) -> Self {
        let batch = Self::default();
        Self { holder, ..batch }
    }

    /// Requests in it.
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Adds a request of at least one layer, if it fits.
    ///
    /// Requests that name the same counter share it. Where they come from before and after a reload, with other
    /// parameters, they cannot: the script would load the counter twice, and one charge would be lost. Different counters
    /// of one policy's name may have different parameters.
    pub(crate) fn add(&mut self, asks: &[Ask<'_>]) -> Added {
        debug_assert!(!asks.is_empty(), "a request without layers is allowed, without asking");
        if asks.len() > LAYERS_MAX {
            return Added::TooManyLayers;
        }
        if self.len() == REQUESTS_MAX {
            return Added::NextBatch;
        }
        let found: SmallVec<[Found; INLINE_LAYERS]> = asks.iter().map(|ask| self.find(ask.policy, ask.key)).collect();
        let new = found.iter().filter(|found| **found == Found::Nowhere).count();
        if found.contains(&Found::Otherwise) || self.keys.len() + new > KEYS_MAX {
            return Added::NextBatch;
        }
        for (ask, found) in asks.iter().zip(found) {
            let key = self.at(found, ask.policy, ask.key);
            self.layers.push(LayerAsk { key, cost: ask.cost });
        }
        self.ends.push(self.layers.len());
        Added::Yes
    }

    /// Adds a settlement, if it fits. It is applied before all requests, after those that were added before it.
    pub(crate) fn settle(&mut self, settlement: &Settlement) -> Added {
        let Settlement {
            policy, key, change, ..
        } = settlement;
        let found = self.find(policy, key);
        let is_full = self.settlements.len() == KEYS_MAX || (found == Found::Nowhere && self.keys.len() == KEYS_MAX);
        if is_full || found == Found::Otherwise {
            return Added::NextBatch;
        }
        let key = self.at(found, policy, key);
        // Slots that go back, of a key that many requests share: it does not matter when each was taken.
        if let (Change::GiveBack { units, .. }, Some((last, Change::GiveBack { units: sum, .. }))) =
            (change, self.settlements.last_mut())
            && *last == key
            && policy.algorithm().holds()
        {
            *sum = sum.saturating_add(*units);
        } else {
            self.settlements.push((key, *change));
        }
        Added::Yes
    }

    /// The counters that are named, each once, in the order of [`Replay::counters`](super::Replay).
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = (&Arc<Policy>, &str)> {
        let policy = |key: &CounterKey| &self.policies[usize::from(key.policy)];
        self.keys.iter().map(move |key| (policy(key), &*key.key))
    }

    fn find(&self, policy: &Arc<Policy>, key: &str) -> Found {
        let own = self.find_policy(policy);
        let family = match own {
            Some(own) => Some(self.families[usize::from(own)]),
            None => self.find_family(policy),
        };
        let found = family.and_then(|family| {
            let is_it = |at: &u16| {
                let other = &self.keys[usize::from(*at)];
                self.families[usize::from(other.policy)] == family && *other.key == *key
            };
            self.index.find(self.hasher.hash_one((family, key)), is_it).copied()
        });
        match found {
            None => Found::Nowhere,
            Some(at) if own == Some(self.keys[usize::from(at)].policy) => Found::At(at),
            Some(_) => Found::Otherwise,
        }
    }

    /// The position of a policy with the same name, parameters and role.
    fn find_policy(&self, policy: &Arc<Policy>) -> Option<u16> {
        let is_itself = |other: &Arc<Policy>| Arc::ptr_eq(other, policy);
        let is_same = |other: &Arc<Policy>| {
            other.algorithm() == policy.algorithm()
                && other.role() == policy.role()
                && other.key_prefix() == policy.key_prefix()
        };
        let at = self.policies.iter().position(is_itself);
        at.or_else(|| self.policies.iter().position(is_same)).map(position)
    }

    /// The position of the first policy with the same name.
    fn find_family(&self, policy: &Policy) -> Option<u16> {
        let same_name = |other: &Arc<Policy>| other.key_prefix() == policy.key_prefix();
        self.policies.iter().position(same_name).map(position)
    }

    /// The position of a counter, which is added where it was found nowhere.
    fn at(&mut self, found: Found, policy: &Arc<Policy>, key: &str) -> u16 {
        match found {
            Found::At(at) => at,
            Found::Nowhere | Found::Otherwise => self.insert(policy, key),
        }
    }

    fn insert(&mut self, policy: &Arc<Policy>, key: &str) -> u16 {
        let policy = self.find_policy(policy).unwrap_or_else(|| {
            let own = position(self.policies.len());
            self.families.push(self.find_family(policy).unwrap_or(own));
            self.policies.push(Arc::clone(policy));
            own
        });
        let at = position(self.keys.len());
        let families = &self.families;
        let hash_of = |key: &CounterKey| {
            let family = families[usize::from(key.policy)];
            self.hasher.hash_one((family, &*key.key))
        };
        let key = CounterKey {
            policy,
            key: key.into(),
        };
        let hash = hash_of(&key);
        self.keys.push(key);
        let keys = &self.keys;
        self.index
            .insert_unique(hash, at, |at| hash_of(&keys[usize::from(*at)]));
        at
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
    ///
    /// `about` is what time it is at the server, as far as is known. Where windows of a calendar are in the batch, the
    /// script also does nothing outside of the window that this lies in, and of the next: that reply is
    /// [`Reply::Late`](super::Reply) too, whose time is a better one.
    pub(crate) fn arguments(&self, prefix: &str, not_after: Option<Timestamp>, about: Timestamp) -> Arguments {
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
            about,
            self.holder,
            self.policies.iter().map(|policy| &**policy).zip(keys_of),
        ));
        args.push(self.requests(&places));
        args.extend(
            self.policies
                .iter()
                .map(|policy| codec::time_to_live(policy.algorithm(), about)),
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
                // No room is above the largest exact number, so this cost is refused as well as any above it;
                // MessagePack in Redis reads the largest as negative.
                let policy = &self.policies[usize::from(self.keys[usize::from(layer.key)].policy)];
                let never = layer.cost > policy.algorithm().limit();
                numbers.push(if never { EXACT_MAX + 1 } else { layer.cost });
            }
            begin = end;
        }
        if !self.settlements.is_empty() {
            self.push_settlements(&mut numbers, places);
        }
        numbers.finish()
    }

    /// The settlements, one after the other: counter (from 1), units, and when they were taken, or 0 for a debit, or below
    /// 0 when the bucket is empty that is left by the last in its queue.
    fn push_settlements(&self, numbers: &mut codec::Numbers, places: &[u16]) {
        numbers.begin(3 * self.settlements.len());
        for (key, change) in &self.settlements {
            let (units, taken) = match change {
                Change::Debit(units) => (units, 0),
                Change::GiveBack { units, at } => (units, at.as_micros().max(1).cast_signed()),
                Change::LeaveQueue { units, empty_at } => (units, -empty_at.as_micros().max(1).cast_signed()),
                Change::Hold(units) => (units, -1),
            };
            numbers.push(u64::from(places[usize::from(*key)]) + 1);
            numbers.push((*units).min(EXACT_MAX));
            numbers.push_signed(taken);
        }
    }
}

/// A position below [`KEYS_MAX`].
fn position(index: usize) -> u16 {
    u16::try_from(index).unwrap_or(u16::MAX)
}
