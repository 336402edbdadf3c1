//! Lots: units of shared counters that this process has in hand, and hands out by itself.
//!
//! The store was charged for a whole lot before the first unit of it is used, and what is left goes back. So at any time
//! no more was let pass than the store was charged for. A unit is used after it was charged, but no later than the lot
//! [ends](Algorithm::lot_life): in any window, at most as much passes beyond the limit as was in hand when it began.
//!
//! A counter has one lot. Who finds too little in it asks the store for what it costs, as if there were no lots; and if
//! the counter is in use, the next lot is taken in the same call. It is also taken, in the background, when little is left.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use hashbrown::HashTable;
use tokio::{runtime::Handle, sync::Notify};

mod lot;
#[cfg(test)]
mod tests;

use self::lot::{Grant, Lot};
use crate::{
    algorithm::Algorithm,
    clock::{Clock, Timestamp},
    decision::{Decision, Reading, Verdict, Wait},
    fingerprint::Fingerprint,
    policy::Policy,
    settlement::{Change, Settlement},
    store::{Ask, StoreError},
};

/// A power of two, as [`Fingerprint::shard`] wants.
const SHARDS: usize = 64;
/// Counters with a lot, or in use without one, at most: about 200 bytes each. Requests of others ask the store.
const LOTS_MAX: usize = 65_536;
/// How long a part of the table that is full of lots in hand is taken to be so.
const FULL: Duration = Duration::from_millis(50);

/// The lots of one store.
#[derive(Debug)]
pub struct Lots {
    clock: Arc<dyn Clock>,
    runtime: Handle,
    shards: Box<[Mutex<Shard>]>,
    /// Lots in all shards.
    len: AtomicUsize,
    /// There is one again.
    begun: Notify,
    /// None is taken any more.
    is_closed: AtomicBool,
}

/// A part of the table.
#[derive(Debug)]
struct Shard {
    lots: HashTable<Lot>,
    /// Until then it is not looked again for what could make room.
    full_until: Timestamp,
}

/// Units out of a lot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handed {
    pub(crate) reading: Reading,
    pub(crate) units: u64,
    /// When they were charged, by the clock that the counter goes by.
    at: Timestamp,
    /// When their lot ends, by ours.
    until: Timestamp,
    /// So many are to be taken next; 0: none yet.
    pub(crate) wanted: u64,
}

/// What becomes of a request that its lot had too little for.
#[derive(Debug)]
pub(crate) struct Missed {
    /// What stands for the counter.
    pub(crate) counter: Fingerprint,
    /// So many are to be taken; 0: none.
    pub(crate) wanted: u64,
    /// What was left of a lot that has ended.
    pub(crate) ended: Option<Settlement>,
}

/// A lot that is on its way. Dropped, it did not come.
#[derive(Debug)]
pub(crate) struct Fetch {
    lots: Arc<Lots>,
    counter: Fingerprint,
    policy: Arc<Policy>,
    key: Box<str>,
    units: u64,
    /// When it was asked for, by our clock.
    asked: Timestamp,
    /// It has come.
    is_settled: bool,
}

impl Lots {
    /// No lots yet. They are waited for in tasks of `runtime`.
    pub(crate) fn new(clock: Arc<dyn Clock>, runtime: Handle) -> Self {
        Self {
            clock,
            runtime,
            shards: (0..SHARDS).map(|_| Mutex::new(Shard::new())).collect(),
            len: AtomicUsize::new(0),
            begun: Notify::new(),
            is_closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Takes what a request costs out of the lot, if there is enough in it.
    pub(crate) fn take(&self, ask: &Ask<'_>, now: Timestamp) -> Option<Handed> {
        let counter = ask.policy.fingerprint(ask.key);
        let mut shard = self.shard(counter);
        let lot = shard.find(counter)?;
        let mut handed = lot.take(ask, now)?;
        if self.is_closed.load(Ordering::Relaxed) {
            handed.wanted = 0;
        }
        Some(handed)
    }

    /// Puts back what was handed out for a request that does not pass. Gives what the store is to have, since its lot has
    /// ended or is full.
    pub(crate) fn put_back(&self, ask: &Ask<'_>, handed: &Handed, now: Timestamp) -> Option<Settlement> {
        if handed.units == 0 {
            return None;
        }
        let counter = ask.policy.fingerprint(ask.key);
        let mut shard = self.shard(counter);
        if let Some(lot) = shard.find(counter)
            && handed.until > now
            && lot.put_back(ask.policy, handed.units)
        {
            return None;
        }
        let (units, at) = (handed.units, handed.at);
        let change = Change::GiveBack { units, at };
        Some(Settlement::new(Arc::clone(ask.policy), ask.key, change))
    }

    /// The lot has too little for a request: it asks the store. Says what is to be taken besides, now that the counter is
    /// known to be in use.
    pub(crate) fn miss(&self, ask: &Ask<'_>, now: Timestamp) -> Missed {
        let counter = ask.policy.fingerprint(ask.key);
        let (mut wanted, mut ended) = (0, None);
        let mut shard = self.shard(counter);
        match shard.find(counter) {
            Some(lot) => (wanted, ended) = lot.miss(ask, now),
            None => self.insert(&mut shard, Lot::new(counter, ask, now), now),
        }
        if wanted > 0 && self.is_closed.load(Ordering::Relaxed) {
            wanted = 0;
        }
        Missed { counter, wanted, ended }
    }

    /// The store has answered a request that the lot had too little for.
    pub(crate) fn learn(&self, counter: Fingerprint, reading: &Reading) {
        let now = self.now();
        if let Some(lot) = self.shard(counter).find(counter) {
            lot.learn(reading, now);
        }
    }

    /// Begins to take a lot of `units` of the counter of `ask`.
    pub(crate) fn fetch(self: &Arc<Self>, ask: &Ask<'_>, units: u64) -> Fetch {
        Fetch {
            lots: Arc::clone(self),
            counter: ask.policy.fingerprint(ask.key),
            policy: Arc::clone(ask.policy),
            key: ask.key.into(),
            units,
            asked: self.now(),
            is_settled: false,
        }
    }

    /// Where a lot is waited for.
    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    /// Waits until there is any.
    pub(crate) async fn wait(&self) {
        // What is told between the two is kept.
        while self.len.load(Ordering::Relaxed) == 0 {
            self.begun.notified().await;
        }
    }

    /// What is left of lots that have ended. Counters that are no longer in use are forgotten.
    pub(crate) fn sweep(&self) -> Vec<Settlement> {
        self.end(|lot, now| lot.end(now))
    }

    /// All that is in hand, which is so no longer.
    pub(crate) fn take_all(&self) -> Vec<Settlement> {
        self.end(|lot, _| lot.give_up())
    }

    /// From now on nothing is taken any more, and nothing is in hand but what is given here.
    pub(crate) fn close(&self) -> Vec<Settlement> {
        self.is_closed.store(true, Ordering::Relaxed);
        self.take_all()
    }

    /// Units of all counters that are in hand.
    #[cfg(test)]
    pub(crate) fn in_hand(&self) -> u64 {
        let units = |shard: &Mutex<Shard>| lock(shard).lots.iter().map(Lot::units).sum::<u64>();
        self.shards.iter().map(units).sum()
    }

    /// Units of one counter that are in hand.
    #[cfg(test)]
    fn in_hand_of(&self, policy: &Arc<Policy>, key: &str) -> u64 {
        let counter = policy.fingerprint(key);
        self.shard(counter).find(counter).map_or(0, |lot| lot.units())
    }

    fn end(&self, mut end: impl FnMut(&mut Lot, Timestamp) -> Option<Settlement>) -> Vec<Settlement> {
        let mut settlements = Vec::new();
        if self.len.load(Ordering::Relaxed) == 0 {
            return settlements;
        }
        for shard in &self.shards {
            let mut shard = lock(shard);
            // Under the lock: nothing of a later time is in it.
            let now = self.now();
            let before = shard.lots.len();
            shard.lots.retain(|lot| {
                settlements.extend(end(lot, now));
                lot.is_in_use(now)
            });
            self.len.fetch_sub(before - shard.lots.len(), Ordering::Relaxed);
        }
        settlements
    }

    fn insert(&self, shard: &mut Shard, lot: Lot, now: Timestamp) {
        if shard.lots.len() >= LOTS_MAX / SHARDS {
            if now < shard.full_until {
                return;
            }
            self.len.fetch_sub(shard.make_room(now), Ordering::Relaxed);
        }
        if shard.lots.len() < LOTS_MAX / SHARDS {
            (shard.lots).insert_unique(lot.counter().hash(), lot, |lot| lot.counter().hash());
            if self.len.fetch_add(1, Ordering::Relaxed) == 0 {
                self.begun.notify_one();
            }
        }
    }

    fn shard(&self, counter: Fingerprint) -> MutexGuard<'_, Shard> {
        lock(&self.shards[counter.shard(SHARDS)])
    }
}

impl Shard {
    fn new() -> Self {
        Self {
            lots: HashTable::new(),
            full_until: Timestamp::from_micros(0),
        }
    }

    fn find(&mut self, counter: Fingerprint) -> Option<&mut Lot> {
        self.lots.find_mut(counter.hash(), |lot| lot.is_of(counter))
    }

    /// Forgets counters of which nothing is in hand; says how many. Where there are none, it is full for a while.
    fn make_room(&mut self, now: Timestamp) -> usize {
        let before = self.lots.len();
        self.lots.retain(|lot| lot.is_taken());
        let forgotten = before - self.lots.len();
        if forgotten == 0 {
            self.full_until = now.plus(FULL);
        }
        forgotten
    }
}

impl Fetch {
    /// What the store is asked.
    pub(crate) fn ask(&self) -> Ask<'_> {
        Ask {
            policy: &self.policy,
            key: &self.key,
            cost: self.units,
        }
    }

    /// The store has answered. Gives what it is to have back, since nobody can use it any more.
    pub(crate) fn came(mut self, result: Result<Decision, StoreError>) -> Vec<Settlement> {
        let Ok(decision) = result else { return Vec::new() };
        let Some(reading) = decision.readings.first() else {
            return Vec::new();
        };
        if decision.verdict != Verdict::Allowed {
            self.lots.learn(self.counter, reading);
            return Vec::new();
        }
        // Without a receipt nothing can be given back: what is not used then stays charged.
        let Some(at) = (decision.receipt.as_ref()).and_then(|receipt| receipt.charged_at(0)) else {
            return Vec::new();
        };
        let grant = self.grant(at, reading);
        self.is_settled = true;
        let mut shard = self.lots.shard(self.counter);
        let now = self.lots.now();
        match shard.find(self.counter) {
            Some(lot) if !self.lots.is_closed.load(Ordering::Relaxed) => lot.grant(&self.policy, grant, reading, now),
            _ => vec![grant.returned(&self.policy, &self.key)],
        }
    }

    /// What was charged `at` that moment of the counter's clock, after which the counter says this.
    fn grant(&self, at: Timestamp, reading: &Reading) -> Grant {
        let algorithm = self.policy.algorithm();
        let ttl = self.policy.lots().map_or(Duration::ZERO, |terms| terms.ttl);
        let life = algorithm.lot_life(at, more_in(reading));
        Grant {
            units: self.units,
            at,
            // It was charged later than it was asked for: this is never too late.
            until: self.asked.plus(life.min(ttl)),
            outlives: life > ttl || !matches!(algorithm, Algorithm::FixedWindow(_)),
        }
    }
}

impl Drop for Fetch {
    fn drop(&mut self) {
        if self.is_settled {
            return;
        }
        let mut shard = self.lots.shard(self.counter);
        if let Some(lot) = shard.find(self.counter) {
            lot.failed();
        }
    }
}

/// How long until more is free, as far as that is known.
fn more_in(reading: &Reading) -> Duration {
    match reading.wait {
        Wait::For(wait) => wait,
        Wait::Never => Duration::ZERO,
    }
}

/// Every change is complete before anything could panic.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
