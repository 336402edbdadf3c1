//! What this process holds of limits of concurrency, whoever decided: a server, or the fallback while it was away.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
};

use crate::policy::Policy;

/// The slots of the requests that run in this process. One serves for as long as the process runs.
#[derive(Debug)]
pub(crate) struct Holdings {
    /// What this process is called among those that share a server.
    name: u128,
    book: Mutex<HashMap<Box<str>, Holding>>,
    tellers: RwLock<Vec<Weak<dyn Teller>>>,
}

/// Slots of one counter, at least one.
#[derive(Clone, Debug)]
pub(crate) struct Holding {
    /// Its policy, as it was when slots were taken last.
    pub(crate) policy: Arc<Policy>,
    pub(crate) key: Box<str>,
    pub(crate) slots: u64,
}

/// A store that has to tell its servers of what is given back.
pub(crate) trait Teller: fmt::Debug + Send + Sync {
    /// `units` of a counter were given back; so many are `left`.
    fn released(&self, policy: &Arc<Policy>, key: &str, units: u64, left: u64);
}

impl Default for Holdings {
    fn default() -> Self {
        Self {
            // 128 bits: no two gateways meet.
            name: fastrand::u128(..),
            book: Mutex::default(),
            tellers: RwLock::default(),
        }
    }
}

impl Holdings {
    /// What this process is called.
    pub(crate) fn name(&self) -> u128 {
        self.name
    }

    /// From now on `teller` is told of what is given back, for as long as it lives.
    pub(crate) fn tell(&self, teller: Weak<dyn Teller>) {
        let mut tellers = self.tellers.write().unwrap_or_else(PoisonError::into_inner);
        tellers.retain(|teller| teller.strong_count() > 0);
        tellers.push(teller);
    }

    /// A request has taken slots.
    pub(crate) fn take(&self, policy: &Arc<Policy>, key: &str, units: u64) {
        let mut book = self.book();
        let holding = book.entry(name(policy, key)).or_insert_with(|| Holding {
            policy: Arc::clone(policy),
            key: key.into(),
            slots: 0,
        });
        holding.slots = holding.slots.saturating_add(units);
        if !Arc::ptr_eq(&holding.policy, policy) {
            holding.policy = Arc::clone(policy);
        }
    }

    /// It has given them back.
    pub(crate) fn release(&self, policy: &Arc<Policy>, key: &str, units: u64) {
        let left = self.take_off(&name(policy, key), units);
        let tellers: Vec<_> = {
            let tellers = self.tellers.read().unwrap_or_else(PoisonError::into_inner);
            tellers.iter().filter_map(Weak::upgrade).collect()
        };
        for teller in tellers {
            teller.released(policy, key, units, left);
        }
    }

    fn take_off(&self, name: &str, units: u64) -> u64 {
        let mut book = self.book();
        let Some(holding) = book.get_mut(name) else {
            return 0;
        };
        holding.slots = holding.slots.saturating_sub(units);
        let left = holding.slots;
        if left == 0 {
            book.remove(name);
        }
        left
    }

    /// Slots held of a counter.
    pub(crate) fn slots(&self, policy: &Policy, key: &str) -> u64 {
        self.book().get(&*name(policy, key)).map_or(0, |holding| holding.slots)
    }

    /// All that is held, by the names of the counters.
    pub(crate) fn all(&self) -> Vec<(Box<str>, Holding)> {
        let book = self.book();
        book.iter()
            .map(|(name, holding)| (name.clone(), holding.clone()))
            .collect()
    }

    /// Every change is complete before anything could panic.
    fn book(&self) -> MutexGuard<'_, HashMap<Box<str>, Holding>> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a counter, without the store's own prefix.
pub(crate) fn name(policy: &Policy, key: &str) -> Box<str> {
    [policy.key_prefix(), key].concat().into()
}
