//! One shard of the counters: found by fingerprint, sampled by slot, bounded.

use hashbrown::HashTable;

use crate::{
    algorithm::{Algorithm, Counter},
    clock::Timestamp,
    fingerprint::Fingerprint,
};

/// Counters looked at to find the one to evict. Of so many, the best is among the cheapest 16 % of all with a
/// probability of 94 %.
const EVICTION_SAMPLE: usize = 16;

/// Counters looked at by each insertion, so that more can be swept than are inserted.
const SWEEP_PER_INSERT: usize = 2;

/// Counters that are not worth giving memory back for.
const MIN_CAPACITY: usize = 64;

/// Memory grows by this part of what there is.
const GROWTH: usize = 4;

/// Counters side by side in a slab, so that any can be picked by its slot, and an index from fingerprint to slot.
#[derive(Debug)]
pub(super) struct Shard {
    entries: Vec<Entry>,
    index: HashTable<u32>,
    /// The most entries held.
    max: usize,
    /// Entries that there is room for at first.
    first: usize,
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
    /// Whether requests that run hold some of it: then it is never evicted, for nothing else knows of them.
    is_held: bool,
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
            first: MIN_CAPACITY,
            hand: 0,
            evictions: 0,
        };
        shard.set_max(max);
        shard
    }

    /// The one at `at` of `count` shards: each grows a little later than the one before. Else all would at about the same
    /// number of counters, and have unused memory, and copies under way, at the same time.
    pub(super) fn staggered(self, at: usize, count: usize) -> Self {
        let first = MIN_CAPACITY + MIN_CAPACITY / GROWTH * at / count;
        Self { first, ..self }
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

    /// The counter in a slot; nothing where it has expired.
    #[cfg(feature = "redis")]
    pub(super) fn peek(&self, slot: Slot, now: Timestamp) -> Option<&Counter> {
        let entry = &self.entries[slot.0 as usize];
        if entry.expires_at <= now {
            return None;
        }
        entry.counter.as_ref()
    }

    /// Puts the counter of a slot in its place.
    pub(super) fn put_back(&mut self, slot: Slot, counter: Counter, algorithm: &Algorithm) {
        self.entries[slot.0 as usize].put(counter, algorithm);
    }

    /// From now on, at most `max` counters, at least 1. Those above it stay until [`Shard::trim`] or insertions meet
    /// them.
    pub(super) fn set_max(&mut self, max: usize) {
        self.max = max.clamp(1, u32::MAX as usize);
    }

    /// Evicts at most `count` counters of those above the bound. Whether there are more.
    pub(super) fn trim(&mut self, count: usize, now: Timestamp) -> bool {
        let above = self.entries.len().saturating_sub(self.max);
        let evicted = (0..above.min(count)).take_while(|_| self.evict(now)).count();
        evicted == count && above > count
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

    /// Grows by a quarter, never beyond the bound: doubling would leave up to half of the memory unused.
    fn grow(&mut self) {
        let len = self.entries.len();
        if len == self.entries.capacity() {
            let more = if len == 0 { self.first } else { len.div_ceil(GROWTH) };
            self.entries.reserve_exact(more.min(self.max.saturating_sub(len)));
        }
    }

    /// Removes one of a random sample: one that has expired, else the one whose loss gives least away. Whether one could
    /// be removed: counters that are held go beyond the bound, for there are no more of them than requests that run.
    ///
    /// A random sample, and not the oldest: a flood of new keys would push out everybody who was there before it, above
    /// all those who have used up their limit.
    fn evict(&mut self, now: Timestamp) -> bool {
        let len = self.entries.len();
        // Of few, all are looked at.
        let pick = |at| {
            if len > EVICTION_SAMPLE {
                fastrand::usize(..len)
            } else {
                at % len
            }
        };
        let mut victim = pick(0);
        for other in (1..EVICTION_SAMPLE).map(pick) {
            if self.entries[other].is_cheaper_than(&self.entries[victim], now) {
                victim = other;
            }
        }
        if self.entries[victim].is_held {
            return false;
        }
        if self.entries[victim].expires_at > now {
            self.evictions += 1;
        }
        self.remove(victim);
        true
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
            is_held: is_held(&counter),
            counter: Some(counter),
        }
    }

    fn put(&mut self, counter: Counter, algorithm: &Algorithm) {
        self.expires_at = algorithm.expires_at(&counter);
        self.used_share = algorithm.used_share(&counter);
        self.is_held = is_held(&counter);
        self.counter = Some(counter);
    }

    /// Whether some of the limit is used.
    #[cfg(feature = "redis")]
    pub(super) fn says_something(&self) -> bool {
        self.used_share > 0.0
    }

    fn is_cheaper_than(&self, other: &Self, now: Timestamp) -> bool {
        let rank = |entry: &Self| {
            let expired = entry.expires_at <= now;
            let share = if expired { -1.0 } else { entry.used_share };
            (if entry.is_held { f32::INFINITY } else { share }, entry.expires_at)
        };
        let (share, expires_at) = rank(self);
        let (other_share, other_expires_at) = rank(other);
        share
            .total_cmp(&other_share)
            .then(expires_at.cmp(&other_expires_at))
            .is_lt()
    }
}

/// Whether requests that run hold some of it.
fn is_held(counter: &Counter) -> bool {
    matches!(counter, Counter::Slots(slots) if slots.held > 0)
}

#[cfg(test)]
mod tests;
