//! One shard of the counters: found by fingerprint, sampled by slot, bounded.

use hashbrown::HashTable;

use super::fingerprint::Fingerprint;
use crate::{
    algorithm::{Algorithm, Counter},
    clock::Timestamp,
};

/// Counters looked at to find the one to evict. Of so many, the best is among the cheapest 16 % of all with a
/// probability of 94 %.
const EVICTION_SAMPLE: usize = 16;

/// Counters looked at by each insertion, so that more can be swept than are inserted.
const SWEEP_PER_INSERT: usize = 2;

/// Counters that are not worth giving memory back for.
const MIN_CAPACITY: usize = 64;

/// Counters side by side in a slab, so that any can be picked by its slot, and an index from fingerprint to slot.
#[derive(Debug)]
pub(super) struct Shard {
    entries: Vec<Entry>,
    index: HashTable<u32>,
    /// The most entries held.
    max: usize,
    /// The slot that the sweep looks at next.
    hand: usize,
    evictions: u64,
}

/// A counter at rest.
#[derive(Debug)]
pub(super) struct Entry {
    fingerprint: Fingerprint,
    /// Absent only while a decision has it, under the shard's lock.
    counter: Option<Counter>,
    /// From here on it says nothing.
    expires_at: Timestamp,
    /// Its share of the limit in use when it was stored.
    used_share: f32,
}

/// Where a counter was found; good until the next insertion or sweep.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot(u32);

impl Shard {
    /// A shard of at most `max` counters, at least 1.
    pub(super) fn new(max: usize) -> Self {
        let mut shard = Self {
            entries: Vec::new(),
            index: HashTable::new(),
            max: 1,
            hand: 0,
            evictions: 0,
        };
        shard.set_max(max);
        shard
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Counters that were evicted although they said something.
    pub(super) fn evictions(&self) -> u64 {
        self.evictions
    }

    pub(super) fn find(&self, fingerprint: Fingerprint) -> Option<Slot> {
        self.index
            .find(fingerprint.hash(), |slot| {
                self.entries[*slot as usize].fingerprint == fingerprint
            })
            .map(|slot| Slot(*slot))
    }

    /// Takes the counter out of its slot, to be put back before the lock is released. Nothing where it has expired:
    /// it would say the same.
    pub(super) fn take(&mut self, slot: Slot, now: Timestamp) -> Option<Counter> {
        let entry = &mut self.entries[slot.0 as usize];
        if entry.expires_at <= now {
            return None;
        }
        entry.counter.take()
    }

    /// Puts something into a slot.
    pub(super) fn replace(&mut self, slot: Slot, entry: Entry) {
        self.entries[slot.0 as usize] = entry;
    }

    /// From now on, at most `max` counters, at least 1. Those above it stay until [`Shard::trim`] or insertions meet
    /// them.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max.clamp(1, u32::MAX as usize);
    }

    /// Evicts at most `count` counters of those above the bound. Whether there are more.
    pub(super) fn trim(&mut self, count: usize, now: Timestamp) -> bool {
        let above = self.entries.len().saturating_sub(self.max);
        for _ in 0..above.min(count) {
            self.evict(now);
        }
        above > count
    }

    /// Stores a new counter. Sweeps a little; where the shard is full, evicts one.
    pub(super) fn insert(&mut self, entry: Entry, now: Timestamp) {
        self.sweep(SWEEP_PER_INSERT, now);
        if self.entries.len() >= self.max {
            self.evict(now);
        }
        self.grow();
        let Ok(slot) = u32::try_from(self.entries.len()) else {
            return;
        };
        let hash = entry.fingerprint.hash();
        self.entries.push(entry);
        let entries = &self.entries;
        self.index
            .insert_unique(hash, slot, |slot| entries[*slot as usize].fingerprint.hash());
    }

    /// Looks at the next `count` counters and removes those that have expired; says how many.
    pub(super) fn sweep(&mut self, count: usize, now: Timestamp) -> usize {
        let before = self.entries.len();
        for _ in 0..count.min(before) {
            if self.hand >= self.entries.len() {
                self.hand = 0;
            }
            match self.entries.get(self.hand) {
                // The last entry moves here: the hand stays, to look at it next.
                Some(entry) if entry.expires_at <= now => self.remove(self.hand),
                Some(_) => self.hand += 1,
                None => break,
            }
        }
        before - self.entries.len()
    }

    /// Gives memory back once three quarters of it are unused: after a flood its cost is gone.
    pub(super) fn shrink(&mut self) {
        let wanted = (self.entries.len() * 2).max(MIN_CAPACITY);
        if self.entries.capacity() / 2 > wanted {
            self.entries.shrink_to(wanted);
            let entries = &self.entries;
            self.index
                .shrink_to(wanted, |slot| entries[*slot as usize].fingerprint.hash());
        }
    }

    /// Bytes held, without what boxed counters hold.
    #[cfg(test)]
    pub(super) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.index.allocation_size()
    }

    /// Grows by half, never beyond the bound: doubling would leave up to half of the memory unused.
    fn grow(&mut self) {
        let len = self.entries.len();
        if len == self.entries.capacity() {
            let more = (len / 2).max(MIN_CAPACITY).min(self.max.saturating_sub(len));
            self.entries.reserve_exact(more);
        }
    }

    /// Removes one of a random sample: one that has expired, else the one whose loss gives least away.
    ///
    /// A random sample, and not the oldest: a flood of new keys would push out everybody who was there before it, above
    /// all those who have used up their limit.
    fn evict(&mut self, now: Timestamp) {
        let mut victim = fastrand::usize(..self.entries.len());
        for _ in 1..EVICTION_SAMPLE {
            let other = fastrand::usize(..self.entries.len());
            if self.entries[other].is_cheaper_than(&self.entries[victim], now) {
                victim = other;
            }
        }
        if self.entries[victim].expires_at > now {
            self.evictions += 1;
        }
        self.remove(victim);
    }

    fn remove(&mut self, slot: usize) {
        let hash = self.entries[slot].fingerprint.hash();
        if let Ok(found) = self.index.find_entry(hash, |other| *other as usize == slot) {
            found.remove();
        }
        self.entries.swap_remove(slot);
        let moved_from = self.entries.len();
        if let (Some(moved), Ok(to)) = (self.entries.get(slot), u32::try_from(slot)) {
            let hash = moved.fingerprint.hash();
            if let Some(found) = self.index.find_mut(hash, |other| *other as usize == moved_from) {
                *found = to;
            }
        }
    }
}

impl Entry {
    pub(super) fn new(fingerprint: Fingerprint, counter: Counter, algorithm: &Algorithm) -> Self {
        Self {
            fingerprint,
            expires_at: algorithm.expires_at(&counter),
            used_share: algorithm.used_share(&counter),
            counter: Some(counter),
        }
    }

    fn is_cheaper_than(&self, other: &Self, now: Timestamp) -> bool {
        let rank = |entry: &Self| {
            let expired = entry.expires_at <= now;
            (if expired { -1.0 } else { entry.used_share }, entry.expires_at)
        };
        let (share, expires_at) = rank(self);
        let (other_share, other_expires_at) = rank(other);
        share
            .total_cmp(&other_share)
            .then(expires_at.cmp(&other_expires_at))
            .is_lt()
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::HashSet, time::Duration};

    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::{
        algorithm::{FixedWindow, TokenBucket},
        store::memory::fingerprint::Secret,
    };

    const MAX: usize = 20;

    #[derive(Clone, Debug)]
    enum Step {
        Charge { key: u8, window_s: u64 },
        Sweep(usize),
        Wait { secs: u64 },
        Shrink,
        SetMax(usize),
        Trim(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            8 => (0..60_u8, 1..100_u64).prop_map(|(key, window_s)| Step::Charge { key, window_s }),
            1 => (0..30_usize).prop_map(Step::Sweep),
            2 => (0..60_u64).prop_map(|secs| Step::Wait { secs }),
            1 => Just(Step::Shrink),
            1 => (0..=MAX).prop_map(Step::SetMax),
            1 => (0..10_usize).prop_map(Step::Trim),
        ]
    }

    fn charged(fingerprint: Fingerprint, window_s: u64, now: Timestamp) -> Entry {
        let algorithm = FixedWindow::new(10, Duration::from_secs(window_s), crate::algorithm::Align::FirstRequest);
        let algorithm = Algorithm::from(algorithm.unwrap());
        let mut counter = algorithm.load(None, now);
        algorithm.save(&mut counter, 1, now);
        Entry::new(fingerprint, counter, &algorithm)
    }

    /// Each entry is found at its slot, and nothing else is.
    fn assert_consistent(shard: &Shard) {
        assert_eq!(shard.index.len(), shard.entries.len());
        for (slot, entry) in shard.entries.iter().enumerate() {
            assert_eq!(shard.find(entry.fingerprint).map(|slot| slot.0 as usize), Some(slot));
        }
    }

    proptest! {
        #[test]
        fn index_and_entries_agree(steps in vec(step(), 1..300)) {
            let (mut shard, secret) = (Shard::new(MAX), Secret::random());
            let mut now = Timestamp::from_micros(1_000_000);
            let (mut alive, mut lowest) = (HashSet::new(), MAX);
            for step in steps {
                match step {
                    Step::Charge { key, window_s } => {
                        let fingerprint = secret.fingerprint("any:fw:", &key.to_string());
                        let entry = charged(fingerprint, window_s, now);
                        match shard.find(fingerprint) {
                            Some(slot) => shard.replace(slot, entry),
                            None => shard.insert(entry, now),
                        }
                        prop_assert!(shard.find(fingerprint).is_some());
                        alive.insert(key);
                    }
                    Step::Sweep(count) => {
                        let before = shard.len();
                        prop_assert_eq!(shard.sweep(count, now), before - shard.len());
                    }
                    Step::Wait { secs } => now = now.plus(Duration::from_secs(secs)),
                    Step::Shrink => shard.shrink(),
                    Step::SetMax(max) => {
                        shard.set_max(max);
                        lowest = lowest.min(max);
                    }
                    Step::Trim(count) => {
                        let above = shard.len().saturating_sub(shard.max);
                        prop_assert_eq!(shard.trim(count, now), above > count);
                        prop_assert_eq!(shard.len().saturating_sub(shard.max), above.saturating_sub(count));
                    }
                }
                assert_consistent(&shard);
                prop_assert!(shard.len() <= MAX);
            }
            if alive.len() <= lowest {
                prop_assert_eq!(shard.evictions(), 0);
            }
            // Twice: what a removal moves may be looked at again.
            shard.sweep(2 * shard.len(), now);
            shard.sweep(shard.len(), now);
            prop_assert!(shard.entries.iter().all(|entry| entry.expires_at > now));
        }
    }

    #[test]
    fn a_sample_finds_one_of_the_cheapest() {
        let rate = crate::Rate {
            units: 1,
            per: Duration::from_secs(86_400),
        };
        let algorithm = Algorithm::from(TokenBucket::new(rate, 1_000).unwrap());
        let (mut shard, secret) = (Shard::new(1_000), Secret::random());
        let now = Timestamp::from_micros(1_000_000);
        for used in 0..1_000_u32 {
            let mut counter = algorithm.load(None, now);
            algorithm.save(&mut counter, u64::from(used) + 1, now);
            let fingerprint = secret.fingerprint("any:tb:", &used.to_string());
            shard.insert(Entry::new(fingerprint, counter, &algorithm), now);
        }
        for _ in 0..100 {
            shard.evict(now);
        }
        // The chance that a sample of 16 holds none of the cheaper half is 2^-16.
        let dear = shard.entries.iter().filter(|entry| entry.used_share > 0.75).count();
        assert_eq!(dear, 250);
    }
}
