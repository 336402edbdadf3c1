//! Counters in this process: sharded, bounded, and without a string for each.

use std::{
    fmt, mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;

mod shard;
#[cfg(feature = "redis")]
mod single;
#[cfg(test)]
mod tests;

use self::shard::{Entry, Shard, Slot};
use super::{Answer, Ask, Health, Store, are_distinct};
use crate::{
    algorithm::{Algorithm, Counter},
    clock::{Clock, Timestamp},
    decide::{Layer, decide},
    decision::Decision,
    fingerprint::Fingerprint,
    settlement::{Change, Settlement},
};

/// Shards of a large store. A set of them is a word of bits.
const MAX_SHARDS: usize = 64;

/// Counters a shard has at least, where there are several, so that chance fills all of them about equally.
const MIN_SHARD_LEN: usize = 1024;

/// Counters evicted under one lock, where the bound is lowered: no decision waits longer than for these.
const TRIM: usize = 256;

/// A value for each layer: on the stack, as long as it lives in one function.
type PerLayer<T> = SmallVec<[T; 8]>;

/// Counters in this process.
///
/// A decision is one step over all its layers: no other decision over one of its counters comes in between. There are
/// at most `max_keys` counters. Beyond that a new one takes the place of another, which is forgotten: one that has
/// expired, else one that has used little of its limit, so that a flood of new keys does not free those who have used
/// up theirs.
pub struct MemoryStore {
    clock: Arc<dyn Clock>,
    shards: Box<[Aligned]>,
}

/// On cache lines of its own (two: processors fetch them in pairs), so that one shard's lock does not slow another's.
#[derive(Debug)]
#[repr(align(128))]
struct Aligned(Mutex<Shard>);

impl MemoryStore {
    /// A store of at most `max_keys` counters, at least 1. It takes memory as counters come: about 100 bytes for each,
    /// more for those of a sliding window.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, max_keys: usize) -> Self {
        let count = (max_keys / MIN_SHARD_LEN).clamp(1, MAX_SHARDS);
        let count = 1 << count.ilog2();
        let shard = |at| Aligned(Mutex::new(Shard::new(max_keys / count).staggered(at, count)));
        Self {
            clock,
            shards: (0..count).map(shard).collect(),
        }
    }

    /// From now on, at most `max_keys` counters, but at least one a shard. What is above that goes at once, as it would
    /// for new counters: what has expired, else what has used little of its limit. All others are kept.
    ///
    /// The store stays divided as it was made: up to 64 shards, of 1,024 counters or more. One that was made small and
    /// is told to become large works, but its few locks are shared by all threads.
    pub fn set_max_keys(&self, max_keys: usize) {
        for shard in &self.shards {
            lock(shard).set_max(max_keys / self.shards.len());
            while lock(shard).trim(TRIM, self.clock.now()) {}
            lock(shard).shrink();
        }
    }

    /// Counters held now, expired ones that are not swept yet among them.
    #[must_use]
    pub fn len(&self) -> usize {
        self.shards().map(|shard| shard.len()).sum()
    }

    /// Whether it holds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counters forgotten so far although they had not expired, because there were `max_keys`.
    #[must_use]
    pub fn evictions(&self) -> u64 {
        self.shards().map(|shard| shard.evictions()).sum()
    }

    /// Looks at about `max` counters, going round, and removes those that have expired; says how many. Gives memory
    /// back after a flood.
    ///
    /// Insertions sweep too, so this is needed only where traffic may cease: call it now and then, say once a second
    /// with a tenth of `max_keys`. Each shard is locked for its part only.
    pub fn sweep(&self, max: usize) -> usize {
        let part = max.div_ceil(self.shards.len());
        self.shards()
            .map(|mut shard| {
                let swept = shard.sweep(part, self.clock.now());
                shard.shrink();
                swept
            })
            .sum()
    }

    /// Each shard, locked, one after the other.
    fn shards(&self) -> impl Iterator<Item = MutexGuard<'_, Shard>> {
        self.shards.iter().map(lock)
    }

    /// Decides a request as [`Store::decide`] does: this store always answers, and at once.
    pub fn decide_now(&self, asks: &[Ask<'_>]) -> Decision {
        self.decide_at(asks).0
    }

    /// As [`MemoryStore::decide_now`]; and when it was charged.
    pub(crate) fn decide_at(&self, asks: &[Ask<'_>]) -> (Decision, Timestamp) {
        debug_assert!(are_distinct(asks), "two asks name the same counter: {asks:?}");
        let (mut layers, mut fingerprints) = (PerLayer::new(), PerLayer::new());
        for ask in asks {
            layers.push(Layer {
                algorithm: ask.policy.algorithm(),
                role: ask.policy.role(),
                cost: ask.cost,
                gives_back: ask.policy.gives_back(),
            });
            fingerprints.push(ask.policy.fingerprint(ask.key));
        }
        let mut at = Timestamp::from_micros(0);
        let decision = self.decide_by(&layers, &fingerprints, |counters, now| {
            at = now;
            decide(&layers, counters, now)
        });
        (decision, at)
    }

    /// Decides a request by `decide`, which gets its layers' counters, settled, and may change them even where it
    /// refuses. No other decision over one of them comes in between.
    pub(crate) fn decide_by(
        &self,
        layers: &[Layer<'_>],
        fingerprints: &[Fingerprint],
        decide: impl FnOnce(&mut [Counter], Timestamp) -> Decision,
    ) -> Decision {
        let mut places = PerLayer::new();
        for fingerprint in fingerprints {
            places.push(Place::new(*fingerprint));
        }
        let mut shards = Locked::new(&self.shards, &mut places);
        // Read under the locks: else a decision that came later could be here first, and time would go back.
        let now = self.clock.now();

        let mut counters = PerLayer::new();
        for (layer, place) in layers.iter().zip(&mut places) {
            let stored = place.take(shards.of(place.shard), now);
            counters.push(layer.algorithm.load(stored, now));
        }
        let decision = decide(&mut counters, now);
        put(&mut shards, layers, &places, &mut counters, &decision, now);
        decision
    }

    /// Settles one counter. One of which nothing is left is not kept.
    pub(crate) fn settle_one(&self, fingerprint: Fingerprint, algorithm: &Algorithm, change: Change) {
        self.settle_and(fingerprint, algorithm, change, |_, _| ());
    }

    /// As [`MemoryStore::settle_one`], and tells `then` of the counter, before anybody else sees it.
    pub(crate) fn settle_and<R>(
        &self,
        fingerprint: Fingerprint,
        algorithm: &Algorithm,
        change: Change,
        then: impl FnOnce(&Counter, Timestamp) -> R,
    ) -> R {
        let mut place = Place::new(fingerprint);
        let mut shard = lock(&self.shards[place.fingerprint.shard(self.shards.len())]);
        let now = self.clock.now();
        let mut counter = algorithm.load(place.take(&mut shard, now), now);
        algorithm.settle(&mut counter, change, now);
        let told = then(&counter, now);
        let says_something = algorithm.expires_at(&counter) > now;
        match place.slot {
            Some(slot) => shard.put_back(slot, counter, algorithm),
            None if says_something => shard.insert(Entry::new(place.fingerprint, counter, algorithm), now),
            None => {}
        }
        told
    }

    #[cfg(test)]
    fn memory_bytes(&self) -> usize {
        self.shards().map(|shard| shard.memory_bytes()).sum()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("clock", &self.clock)
            .field("shards", &self.shards.len())
            .finish_non_exhaustive()
    }
}

impl Store for MemoryStore {
    fn decide(&self, asks: &[Ask<'_>]) -> Answer {
        Answer::Ready(Ok(self.decide_now(asks)))
    }

    fn settle(&self, settlements: Vec<Settlement>) {
        for Settlement {
            policy, key, change, ..
        } in settlements
        {
            self.settle_one(policy.fingerprint(&key), policy.algorithm(), change);
        }
    }

    fn health(&self) -> Health {
        Health::Connected
    }
}

/// A panic under the lock loses at worst the counters of one decision: no reason to refuse all others from then on.
fn lock(shard: &Aligned) -> MutexGuard<'_, Shard> {
    shard.0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The shards of one decision, locked, in ascending order.
struct Locked<'a>(PerLayer<MutexGuard<'a, Shard>>);

impl<'a> Locked<'a> {
    /// Locks every shard needed once, in ascending order, so that two decisions never wait for each other. The places learn
    /// which of these is theirs.
    fn new(shards: &'a [Aligned], places: &mut [Place]) -> Self {
        let mut rest: u64 = 0;
        for place in &mut *places {
            place.shard = place.fingerprint.shard(shards.len());
            rest |= 1 << place.shard;
        }
        let (mut guards, mut order) = (PerLayer::new(), [0_u8; MAX_SHARDS]);
        while rest != 0 {
            let shard = rest.trailing_zeros() as usize;
            // There are no more guards than shards.
            order[shard] = guards.len() as u8;
            guards.push(lock(&shards[shard]));
            rest &= rest - 1;
        }
        for place in places {
            place.shard = order[place.shard].into();
        }
        Self(guards)
    }

    fn of(&mut self, shard: usize) -> &mut Shard {
        &mut self.0[shard]
    }
}

/// Where a counter of a decision lives.
struct Place {
    fingerprint: Fingerprint,
    /// Its shard, among those that are locked.
    shard: usize,
    /// Its entry, if it has one.
    slot: Option<Slot>,
    /// Whether the entry said something.
    stored: bool,
}

impl Place {
    fn new(fingerprint: Fingerprint) -> Self {
        Self {
            fingerprint,
            shard: 0,
            slot: None,
            stored: false,
        }
    }

    /// Finds the counter and takes it out.
    fn take(&mut self, shard: &mut Shard, now: Timestamp) -> Option<Counter> {
        self.slot = shard.find(self.fingerprint);
        let counter = shard.take(self.slot?, now);
        self.stored = counter.is_some();
        counter
    }
}

/// Puts the counters of a decision into their places. Those that were there go back even if nothing was charged: time,
/// or their parameters, may have moved on. New ones are stored only if they were charged.
fn put(
    shards: &mut Locked<'_>,
    layers: &[Layer<'_>],
    places: &[Place],
    counters: &mut [Counter],
    decision: &Decision,
    now: Timestamp,
) {
    let mut new = PerLayer::<usize>::new();
    for (at, (layer, place)) in layers.iter().zip(places).enumerate() {
        let is_kept = place.stored || decision.readings.get(at).is_some_and(|reading| reading.taken > 0);
        match place.slot {
            _ if !is_kept => {}
            Some(slot) => {
                let counter = mem::take(&mut counters[at]);
                shards.of(place.shard).put_back(slot, counter, layer.algorithm);
            }
            // Once the others are in their places, because an insertion moves entries.
            None => new.push(at),
        }
    }
    for at in new {
        let entry = Entry::new(
            places[at].fingerprint,
            mem::take(&mut counters[at]),
            layers[at].algorithm,
        );
        shards.of(places[at].shard).insert(entry, now);
    }
}
