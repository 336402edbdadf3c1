//! The keys of one layer that bans.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use super::{
    Ban, BanEventKind, BanRule, Hub,
    shard::{Begun, Locked, Shard},
};
use crate::clock::Timestamp;

/// A power of two.
const SHARDS: usize = 16;

/// Who is banned by one layer, and who was refused how often.
///
/// It knows 100,000 keys at most. Where there are more, those go first that were refused least; who is banned goes last.
#[derive(Debug)]
pub struct LayerBans {
    pub(super) name: Arc<str>,
    pub(super) hub: Arc<Hub>,
    /// `None` before it has one.
    rule: RwLock<Option<Arc<BanRule>>>,
    hasher: RandomState,
    pub(super) shards: [Shard; SHARDS],
}

impl LayerBans {
    pub(super) fn new(name: Arc<str>, hub: Arc<Hub>) -> Self {
        Self {
            name,
            hub,
            rule: RwLock::default(),
            hasher: RandomState::new(),
            shards: Default::default(),
        }
    }

    /// How long this key is banned yet. `None`: it is not. While nobody is banned, that costs a look at a number.
    #[must_use]
    pub fn left(&self, key: &str, now: Timestamp) -> Option<Duration> {
        let shard = self.shard(key);
        if !shard.bans_anybody() {
            return None;
        }
        shard.lock().get(key)?.record.left(now)
    }

    /// The layer refused this key just now; that may ban it. During a ban nothing is counted.
    pub fn refused(&self, key: &str) {
        let Some(rule) = self.rule() else { return };
        let now = self.hub.clock.now();
        let mut shard = self.shard(key).lock();
        let entry = shard.entry(key, &rule, now);
        if entry.record.left(now).is_some() {
            return;
        }
        let is_banned = entry.record.refused(&rule, 1, now, now);
        #[cfg(feature = "redis")]
        if self.hub.outbox.is_shared() {
            shard.keys_mut().note(key, is_banned, now);
        }
        if is_banned {
            self.begin(&mut shard, key, now);
            drop(shard);
            #[cfg(feature = "redis")]
            self.hub.outbox.hurry();
        }
    }

    /// Tells of a ban, unless it goes on.
    pub(super) fn begin(&self, shard: &mut Locked<'_>, key: &str, now: Timestamp) {
        let record = shard.get(key).map(|entry| &entry.record);
        let ban = record.and_then(|record| record.left(now).zip(record.ban));
        let Some((left, ban)) = ban else { return };
        let begun = shard.begin(key, ban.began(), ban.until);
        if begun == Begun::Next {
            self.hub.tell(&self.name, key, BanEventKind::Ended);
        }
        if begun != Begun::GoesOn {
            let rung = ban.rung + 1;
            self.hub.tell(&self.name, key, BanEventKind::Began { left, rung });
        }
    }

    /// Forgets the key wholly. Whether it was banned.
    pub(super) fn lift(&self, key: &str, now: Timestamp) -> bool {
        let removed = self.shard(key).lock().remove(key);
        let was_banned = removed.is_some_and(|entry| entry.record.left(now).is_some());
        if was_banned {
            self.hub.tell(&self.name, key, BanEventKind::Lifted);
        }
        was_banned
    }

    pub(super) fn list(&self, now: Timestamp) -> Vec<Ban> {
        let mut all = Vec::new();
        for shard in self.shards.iter().filter(|shard| shard.bans_anybody()) {
            for (key, entry) in &shard.lock().keys().entries {
                if let Some(left) = entry.record.left(now) {
                    all.push(Ban {
                        limit: Arc::clone(&self.name),
                        key: key.as_str().into(),
                        until: now.plus(left),
                        left,
                    });
                }
            }
        }
        all
    }

    pub(super) fn sweep(&self, now: Timestamp) {
        let Some(rule) = self.rule() else { return };
        for shard in &self.shards {
            for key in shard.lock().sweep(&rule, now) {
                self.hub.tell(&self.name, &key, BanEventKind::Ended);
            }
        }
    }

    /// The layer is gone, and with it all its bans, here and elsewhere.
    pub(super) fn end(&self) {
        let now = self.hub.clock.now();
        self.rule.write().unwrap_or_else(PoisonError::into_inner).take();
        for shard in &self.shards {
            let mut shard = shard.lock();
            let keys: Vec<_> = shard.keys().entries.keys().cloned().collect();
            for key in keys {
                let Some(entry) = shard.remove(&key) else { continue };
                if entry.record.left(now).is_some() {
                    self.hub.tell(&self.name, &key, BanEventKind::Lifted);
                }
                #[cfg(feature = "redis")]
                if self.hub.outbox.is_shared() && entry.record.ban.is_some() {
                    self.hub.outbox.lift(&self.name, &key);
                }
            }
        }
    }

    /// Gives it a rule in place of the one that it had.
    pub(super) fn set_rule(&self, rule: Arc<BanRule>) {
        let old = self.rule.write().unwrap_or_else(PoisonError::into_inner).replace(rule);
        #[cfg(feature = "redis")]
        if old.is_none() {
            self.hub.outbox.fall_behind();
        }
        drop(old);
    }

    pub(super) fn rule(&self) -> Option<Arc<BanRule>> {
        self.rule.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn shard(&self, key: &str) -> &Shard {
        // The remainder is below SHARDS.
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }
}
