//! A part of the keys of a layer that bans, under one lock; bounded.

use std::{
    hash::RandomState,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use hashbrown::HashMap;

use super::{BanRule, record::Record};
use crate::clock::Timestamp;

/// Keys at most.
pub(super) const KEYS_MAX: usize = 6_250;
/// So many go at once where there is no room: a look at all of them for each that comes would be dear.
const EVICTED: usize = KEYS_MAX / 16;

/// Gateways know of a moment to within this.
const APART: Duration = Duration::from_millis(100);

/// Keys, and how many of them are banned: to be read without the lock.
#[derive(Debug, Default)]
pub(super) struct Shard {
    banned: AtomicUsize,
    keys: Mutex<Keys>,
}

/// What is known of the keys.
#[derive(Debug, Default)]
pub(super) struct Keys {
    pub(super) entries: HashMap<String, Entry, RandomState>,
    #[cfg(feature = "redis")]
    pub(super) unsent: super::shared::Lists,
}

/// What is known of one key.
#[derive(Debug, Default)]
pub(super) struct Entry {
    pub(super) record: Record,
    /// It counts as banned, until then: its end is still to be told.
    pub(super) banned_until: Option<Timestamp>,
    #[cfg(feature = "redis")]
    pub(super) unsent: super::shared::Unsent,
}

/// A ban, beside what was told of the key before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// It was not banned.
    First,
    /// It was, and that ban has ended, which nobody was told yet.
    Next,
    /// It is the same ban, or a longer one in its place.
    GoesOn,
}

/// The lock, which counts the banned when it is let go.
pub(super) struct Locked<'a> {
    banned: &'a AtomicUsize,
    keys: MutexGuard<'a, Keys>,
}

impl Shard {
    /// Whether anybody is banned, as far as is known without waiting.
    pub(super) fn bans_anybody(&self) -> bool {
        self.banned.load(Ordering::Relaxed) > 0
    }

    pub(super) fn lock(&self) -> Locked<'_> {
        Locked {
            banned: &self.banned,
            keys: self.keys.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

impl Locked<'_> {
    pub(super) fn keys(&self) -> &Keys {
        &self.keys
    }

    #[cfg(feature = "redis")]
    pub(super) fn keys_mut(&mut self) -> &mut Keys {
        &mut self.keys
    }

    pub(super) fn get(&self, key: &str) -> Option<&Entry> {
        self.keys.entries.get(key)
    }

    /// The entry of a key, made where there is none.
    pub(super) fn entry(&mut self, key: &str, rule: &BanRule, now: Timestamp) -> &mut Entry {
        if self.keys.entries.len() >= KEYS_MAX && !self.keys.entries.contains_key(key) {
            self.evict(rule, now);
        }
        self.keys.entries.entry_ref(key).or_default()
    }

    /// Counts a key that is banned from `began` to `until`.
    pub(super) fn begin(&mut self, key: &str, began: Timestamp, until: Timestamp) -> Begun {
        let Some(entry) = self.keys.entries.get_mut(key) else {
            return Begun::GoesOn;
        };
        match entry.banned_until.replace(until) {
            None => {
                self.banned.fetch_add(1, Ordering::Relaxed);
                Begun::First
            }
            Some(before) if until > before && began.plus(APART) >= before => Begun::Next,
            Some(_) => Begun::GoesOn,
        }
    }

    /// Takes a key out.
    pub(super) fn remove(&mut self, key: &str) -> Option<Entry> {
        let entry = self.keys.entries.remove(key)?;
        if entry.banned_until.is_some() {
            self.banned.fetch_sub(1, Ordering::Relaxed);
        }
        Some(entry)
    }

    /// Forgets what says nothing any more. Gives the keys whose bans have ended.
    pub(super) fn sweep(&mut self, rule: &BanRule, now: Timestamp) -> Vec<Box<str>> {
        let mut ended = Vec::new();
        self.keys.entries.retain(|key, entry| {
            if entry.banned_until.is_some() && entry.record.left(now).is_none() {
                entry.banned_until = None;
                ended.push(key.as_str().into());
            }
            entry.record.forget_at(rule) > now
        });
        self.banned.fetch_sub(ended.len(), Ordering::Relaxed);
        // A flood leaves no memory behind.
        let len = self.keys.entries.len();
        if self.keys.entries.capacity() > 4 * len.max(64) {
            self.keys.entries.shrink_to(2 * len);
        }
        ended
    }

    /// Makes room: those go first of which nothing counts any more, then those that were refused least, then who is only
    /// remembered for the ladder, and last of all the bans that end first.
    fn evict(&mut self, rule: &BanRule, now: Timestamp) {
        let rank = |entry: &Entry| match (&entry.record.ban, &entry.record.tally) {
            _ if entry.record.forget_at(rule) <= now => (0, 0),
            (Some(ban), _) if ban.until > now => (3, ban.until.as_micros()),
            (Some(_), _) => (2, entry.record.forget_at(rule).as_micros()),
            (None, tally) => (1, tally.iter().map(|(_, count)| count).sum()),
        };
        let mut ranks: Vec<_> = self.keys.entries.values().map(rank).collect();
        let at = EVICTED.min(ranks.len().saturating_sub(1));
        let (_, last, _) = ranks.select_nth_unstable(at);
        let last = *last;
        let mut left = EVICTED;
        let banned = self.banned;
        self.keys.entries.retain(|_, entry| {
            let goes = left > 0 && rank(entry) <= last;
            left -= usize::from(goes);
            if goes && entry.banned_until.is_some() {
                banned.fetch_sub(1, Ordering::Relaxed);
            }
            !goes
        });
    }
}
