//! What the fallback needs beyond decisions: counters by their fingerprints, one at a time.

use std::sync::Arc;

use super::{Aligned, Fingerprint, MemoryStore, lock, shard::Entry};
use crate::{
    algorithm::{Algorithm, Counter},
    clock::Timestamp,
};

impl MemoryStore {
    /// An empty store by the same clock.
    pub(crate) fn sibling(&self, max_keys: usize) -> Self {
        Self::new(Arc::clone(&self.clock), max_keys)
    }

    /// Looks at a counter under its lock; `None` where there is none, or it has expired.
    pub(crate) fn read<R>(&self, fingerprint: Fingerprint, read: impl FnOnce(Option<&Counter>, Timestamp) -> R) -> R {
        let shard = lock(self.shard_of(fingerprint));
        let now = self.clock.now();
        let counter = shard.find(fingerprint).and_then(|slot| shard.peek(slot, now));
        read(counter, now)
    }

    /// Puts what `write` makes of a stored counter, expired or not, in its place. A new one that says nothing is not
    /// stored.
    pub(crate) fn write(
        &self,
        fingerprint: Fingerprint,
        algorithm: &Algorithm,
        write: impl FnOnce(Option<Counter>) -> Counter,
    ) {
        let mut shard = lock(self.shard_of(fingerprint));
        let slot = shard.find(fingerprint);
        let stored = slot.and_then(|slot| shard.take(slot, Timestamp::from_micros(0)));
        let counter = write(stored);
        match slot {
            Some(slot) => shard.put_back(slot, counter, algorithm),
            None => {
                let entry = Entry::new(fingerprint, counter, algorithm);
                if entry.says_something() {
                    shard.insert(entry, self.clock.now());
                }
            }
        }
    }

    fn shard_of(&self, fingerprint: Fingerprint) -> &Aligned {
        &self.shards[fingerprint.shard(self.shards.len())]
    }
}
