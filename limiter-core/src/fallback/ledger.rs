//! What was admitted while the server was away, until it can be told.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use tracing::warn;

use super::counters::excess;
use crate::{
    algorithm::{Algorithm, Counter},
    clock::Timestamp,
    fingerprint::Fingerprint,
    policy::Policy,
    settlement::Change,
};

/// Keys in the ledger at most: about 250 bytes each, and the key's text.
pub(super) const ACCOUNTS_MAX: usize = 100_000;

/// An account for each counter that was charged here.
#[derive(Debug)]
pub(super) struct Ledger {
    max: usize,
    book: Mutex<Book>,
}

#[derive(Debug, Default)]
struct Book {
    accounts: HashMap<Fingerprint, Account>,
    /// Charges that found no place.
    unrecorded: u64,
    /// Whether that was logged, since the book was empty.
    told: bool,
    /// Whether there were charges that no account tells of, and none will.
    has_gaps: bool,
}

/// What is known of one counter that was charged.
#[derive(Debug)]
pub(super) struct Account {
    /// Its policy, as it was when it was charged last.
    pub(super) policy: Weak<Policy>,
    pub(super) key_prefix: Box<str>,
    pub(super) key: Box<str>,
    /// The counter before the first charge. None of a log, whose units are told apart by their times.
    pub(super) seed: Option<Counter>,
    /// When it was first charged.
    pub(super) began: Timestamp,
    /// When it was charged last.
    pub(super) last: Timestamp,
    /// From here on nothing of it counts.
    pub(super) expires_at: Timestamp,
    /// All units charged.
    pub(super) admitted: u64,
}

/// One charge.
#[derive(Debug)]
pub(super) struct Charge<'a> {
    pub(super) fingerprint: Fingerprint,
    pub(super) policy: &'a Arc<Policy>,
    pub(super) key: &'a str,
    pub(super) units: u64,
    pub(super) seed: Option<Counter>,
    pub(super) expires_at: Timestamp,
}

impl Ledger {
    /// A ledger of at most `max` accounts.
    pub(super) fn new(max: usize) -> Self {
        let book = Mutex::default();
        Self { max, book }
    }

    /// Writes down what a request was charged.
    pub(super) fn charge<'a>(&self, charges: impl Iterator<Item = Charge<'a>>, now: Timestamp) {
        let mut tell = false;
        let mut book = self.book();
        for charge in charges {
            tell |= book.charge(charge, self.max, now);
        }
        drop(book);
        if tell {
            let keys = self.max;
            warn!(
                keys,
                "too many keys were admitted without redis: what passes for further ones will not be charged there"
            );
        }
    }

    /// A charge made at `at` becomes another: its counter, which lives until `expires_at`, was changed so. Whether that is
    /// all; else the server has been told of the charge.
    pub(super) fn correct(
        &self,
        name: Fingerprint,
        at: Timestamp,
        change: Change,
        expires_at: Timestamp,
        now: Timestamp,
    ) -> bool {
        let mut book = self.book();
        let gives_back = matches!(change, Change::GiveBack { .. });
        let has_gaps = book.has_gaps;
        match book.accounts.get_mut(&name) {
            Some(account) if account.began <= at => account.correct(change, expires_at, now),
            // Nobody may have been told of it, and what was not taken is not given back.
            _ => return gives_back && has_gaps,
        }
        true
    }

    /// The names of the accounts that are wanted, by the prefix of their policy and the key.
    pub(super) fn names(&self, is_wanted: impl Fn(&str, &str) -> bool) -> Vec<Fingerprint> {
        let book = self.book();
        let wanted = (book.accounts.iter()).filter(|(_, account)| is_wanted(&account.key_prefix, &account.key));
        wanted.map(|(name, _)| *name).collect()
    }

    /// Closes an account.
    pub(super) fn take(&self, name: Fingerprint) -> Option<Account> {
        let mut book = self.book();
        let account = book.accounts.remove(&name);
        if book.accounts.is_empty() {
            // Gives its memory back.
            book.accounts = HashMap::new();
            book.told = false;
        }
        account
    }

    /// Forgets accounts of which nothing counts any more, once there is little place left for others.
    pub(super) fn sweep(&self, now: Timestamp) {
        let mut book = self.book();
        if book.accounts.len() > self.max / 4 * 3 {
            book.accounts.retain(|_, account| account.expires_at > now);
            book.has_gaps = true;
        }
    }

    pub(super) fn len(&self) -> usize {
        self.book().accounts.len()
    }

    /// Charges so far that found no place.
    pub(super) fn unrecorded(&self) -> u64 {
        self.book().unrecorded
    }

    /// A panic under the lock loses at worst one charge.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Whether it is to be told that there is no place.
    fn charge(&mut self, charge: Charge<'_>, max: usize, now: Timestamp) -> bool {
        let len = self.accounts.len();
        let account = match self.accounts.entry(charge.fingerprint) {
            Entry::Occupied(account) => account.into_mut(),
            Entry::Vacant(vacant) if len < max => vacant.insert(Account {
                policy: Weak::new(),
                key_prefix: charge.policy.key_prefix().into(),
                key: charge.key.into(),
                seed: charge.seed,
                began: now,
                last: now,
                expires_at: now,
                admitted: 0,
            }),
            Entry::Vacant(_) => {
                self.unrecorded += 1;
                self.has_gaps = true;
                return !std::mem::replace(&mut self.told, true);
            }
        };
        if !std::ptr::eq(account.policy.as_ptr(), Arc::as_ptr(charge.policy)) {
            account.policy = Arc::downgrade(charge.policy);
        }
        account.last = now;
        account.expires_at = charge.expires_at;
        account.admitted = account.admitted.saturating_add(charge.units);
        false
    }
}

impl Account {
    /// One of its charges becomes another.
    fn correct(&mut self, change: Change, expires_at: Timestamp, now: Timestamp) {
        match change {
            Change::Debit(units) => {
                self.admitted = self.admitted.saturating_add(units);
                self.last = self.last.max(now);
            }
            Change::GiveBack { units, .. } | Change::LeaveQueue { units, .. } => {
                self.admitted = self.admitted.saturating_sub(units);
            }
            // Of what is held there is no account.
            Change::Hold(_) => {}
        }
        self.expires_at = self.expires_at.max(expires_at);
    }

    /// The units that still count at `now` and that the server does not know of, where `stored` is the counter of the
    /// share, if it was not evicted. At most what was admitted.
    ///
    /// Not simply what was admitted: most of that may have drained, and it drained together with what was used before,
    /// so that the two cannot be counted apart.
    pub(super) fn owed(&self, share: &Algorithm, stored: Option<&Counter>, now: Timestamp) -> u64 {
        if self.expires_at <= now {
            return 0;
        }
        let seed = self.seed.clone().map(|seed| share.load(Some(seed), now));
        let own = match stored {
            Some(own) => share.load(Some(own.clone()), now),
            None => self.rebuilt(share, now),
        };
        // Where the server's clock stepped back, what was taken ahead of it counts as taken now.
        excess(&own, seed.as_ref(), self.began.min(now)).min(self.admitted)
    }

    /// The counter as if all had been taken with the last charge: it says too much rather than too little.
    fn rebuilt(&self, share: &Algorithm, now: Timestamp) -> Counter {
        let mut own = share.load(self.seed.clone(), self.last);
        share.settle(&mut own, Change::Debit(self.admitted), self.last);
        share.load(Some(own), now)
    }
}
