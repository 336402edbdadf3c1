//! What other processes are told of bans, and told us: the side of it that knows no server.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;

use super::{
    BanEventKind, BanRule, Bans, LayerBans,
    record::Served,
    shard::{KEYS_MAX, Keys},
};
use crate::clock::Timestamp;

/// Bans of removed layers whose end is to be told, at most.
const LIFTS_MAX: usize = 100_000;

/// Bans that end everywhere because their layer is gone, and the wish to be heard.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    lifts: Mutex<Vec<(Arc<str>, Box<str>)>>,
    /// A layer is new: what others know of it was passed over so far.
    is_behind: AtomicBool,
    hurry: Notify,
}

/// What others do not know yet of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Unsent {
    /// Refusals, and when the first of them was.
    refusals: Option<(u64, Timestamp)>,
    /// Its ban.
    has_ban: bool,
    /// Whether it stands in the list of those keys.
    is_listed: bool,
}

/// Something that others are to know.
#[derive(Clone, Debug)]
pub(crate) struct News {
    pub(crate) limit: Arc<str>,
    /// The layer's rule; `None` of a layer that is gone.
    pub(crate) rule: Option<Arc<BanRule>>,
    pub(crate) key: Box<str>,
    pub(crate) what: What,
}

/// What others are to know of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It was refused so often; all of these since a moment.
    Refused(u64, Timestamp),
    /// It was banned, on a rung (from 0), at a moment.
    Banned(u32, Timestamp),
    /// Its ban is over, and forgotten.
    Lifted,
}

impl Keys {
    /// It was refused, and perhaps banned for it: to be sent.
    pub(super) fn note(&mut self, key: &str, is_banned: bool, now: Timestamp) {
        let Some(entry) = self.entries.get_mut(key) else { return };
        let unsent = &mut entry.unsent;
        if is_banned {
            // What led to it is in it.
            unsent.refusals = None;
            unsent.has_ban = true;
        } else {
            let (count, since) = unsent.refusals.unwrap_or((0, now));
            unsent.refusals = Some((count + 1, since));
        }
        if !unsent.is_listed && self.unsent.len() < KEYS_MAX {
            unsent.is_listed = true;
            self.unsent.push(key.into());
        }
    }
}

impl LayerBans {
    /// Takes what is unsent, at most so much. Bans come before refusals of the same key.
    fn take_unsent(&self, at_most: usize, to: &mut Vec<News>) {
        let Some(rule) = self.rule() else { return };
        for shard in &self.shards {
            let mut shard = shard.lock();
            let keys = shard.keys_mut();
            while to.len() < at_most
                && let Some(key) = keys.unsent.pop()
            {
                let Some(entry) = keys.entries.get_mut(&key) else {
                    continue;
                };
                let unsent = std::mem::take(&mut entry.unsent);
                let what = match (unsent, entry.record.ban) {
                    (Unsent { has_ban: true, .. }, Some(Served { until, rung, length })) => {
                        let began = Timestamp::from_micros(until.as_micros().saturating_sub(micros(length)));
                        What::Banned(rung, began)
                    }
                    (Unsent { refusals, .. }, _) => match refusals {
                        Some((count, since)) => What::Refused(count, since),
                        None => continue,
                    },
                };
                to.push(News {
                    limit: Arc::clone(&self.name),
                    rule: Some(Arc::clone(&rule)),
                    key,
                    what,
                });
            }
        }
    }

    /// News that did not arrive.
    fn put_back(&self, news: &News) {
        let mut shard = self.shard(&news.key).lock();
        let keys = shard.keys_mut();
        let Some(entry) = keys.entries.get_mut(&news.key) else {
            return;
        };
        let unsent = &mut entry.unsent;
        match news.what {
            What::Refused(count, since) => {
                let (more, later) = unsent.refusals.unwrap_or((0, since));
                unsent.refusals = Some((count + more, since.min(later)));
            }
            What::Banned(..) => unsent.has_ban = true,
            What::Lifted => return,
        }
        if !unsent.is_listed && keys.unsent.len() < KEYS_MAX {
            unsent.is_listed = true;
            keys.unsent.push(news.key.clone());
        }
    }

    /// All bans in force are unsent.
    fn share_all(&self, now: Timestamp) {
        for shard in self.shards.iter().filter(|shard| shard.bans_anybody()) {
            let mut shard = shard.lock();
            let keys = shard.keys_mut();
            let in_force = keys
                .entries
                .iter_mut()
                .filter(|(_, entry)| entry.record.left(now).is_some());
            for (key, entry) in in_force {
                entry.unsent.has_ban = true;
                if !entry.unsent.is_listed && keys.unsent.len() < KEYS_MAX {
                    entry.unsent.is_listed = true;
                    keys.unsent.push(key.clone());
                }
            }
        }
    }

    /// Others know this of a key: its ban, in force or over; `None`: it was lifted, or is forgotten.
    fn learn(&self, key: &str, ban: Option<Served>, now: Timestamp) {
        let Some(rule) = self.rule() else { return };
        let mut shard = self.shard(key).lock();
        let Some(ban) = ban else {
            let known = shard.get(key);
            let is_lifted = known.is_some_and(|entry| entry.record.left(now).is_some() && !entry.unsent.has_ban);
            if is_lifted {
                shard.remove(key);
                self.hub.tell(&self.name, key, BanEventKind::Lifted);
            }
            return;
        };
        let is_known = shard.get(key).is_some();
        let entry = shard.entry(key, &rule, now);
        // What is longer here is not known there yet; and where it is over there, clocks differ a little.
        let is_longer = |own: Served| own.until > ban.until && (entry.unsent.has_ban || ban.until <= now);
        if entry.record.left(now).is_some() && entry.record.ban.is_some_and(is_longer) {
            return;
        }
        entry.record.ban = Some(ban);
        if ban.until > now {
            entry.record.tally.clear();
            entry.unsent.refusals = None;
            self.begin(&mut shard, key, now);
        } else if !is_known && entry.record.forget_at(&rule) <= now {
            shard.remove(key);
        }
    }
}

impl Bans {
    /// Whether there is somebody to be told of what happens here.
    pub(crate) fn set_shared(&self, is_shared: bool) {
        self.hub.is_shared.store(is_shared, Ordering::Relaxed);
        if is_shared {
            self.share_all();
        }
    }

    /// Whether there is anything to tell or to ask.
    pub(crate) fn has_business(&self) -> bool {
        !self.layers.lock().unwrap_or_else(PoisonError::into_inner).is_empty() || !self.hub.outbox.lifts().is_empty()
    }

    /// Whether what others know has to be asked for from the beginning.
    pub(crate) fn take_behind(&self) -> bool {
        self.hub.outbox.is_behind.swap(false, Ordering::Relaxed)
    }

    /// Waits until there is something that others should know at once.
    pub(crate) async fn hurried(&self) {
        self.hub.outbox.hurry.notified().await;
    }

    /// Takes what others are to know, at most so much.
    pub(crate) fn take_news(&self, at_most: usize) -> Vec<News> {
        let mut news = Vec::new();
        {
            let mut lifts = self.hub.outbox.lifts();
            let from = lifts.len().saturating_sub(at_most);
            news.extend(lifts.drain(from..).map(|(limit, key)| News {
                limit,
                rule: None,
                key,
                what: What::Lifted,
            }));
        }
        for layer in self.all() {
            layer.take_unsent(at_most, &mut news);
        }
        news
    }

    /// News that did not arrive. `is_harmless`: nobody has heard them, so refusals can be told again.
    pub(crate) fn put_back(&self, news: &[News], is_harmless: bool) {
        for news in news {
            match (news.what, self.find(&news.limit)) {
                (What::Lifted, _) => self.hub.outbox.lift(&news.limit, &news.key),
                (What::Refused(..), _) if !is_harmless => {}
                (_, Some(layer)) => layer.put_back(news),
                (_, None) => {}
            }
        }
    }

    /// All bans in force are to be told: others may have lost them.
    pub(crate) fn share_all(&self) {
        let now = self.now();
        self.all().iter().for_each(|layer| layer.share_all(now));
    }

    /// Others know these of keys of layers, by their names.
    pub(crate) fn learn<'a>(&self, told: impl IntoIterator<Item = (String, &'a str, Option<Served>)>) {
        let now = self.now();
        let layers: HashMap<_, _> = (self.all().into_iter())
            .map(|layer| (Arc::clone(&layer.name), layer))
            .collect();
        for (limit, key, ban) in told {
            if let Some(layer) = layers.get(&*limit) {
                layer.learn(key, ban, now);
            }
        }
    }

    /// What time it is.
    pub(crate) fn time(&self) -> Timestamp {
        self.now()
    }
}

impl Outbox {
    fn lifts(&self) -> std::sync::MutexGuard<'_, Vec<(Arc<str>, Box<str>)>> {
        self.lifts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lift(&self, limit: &Arc<str>, key: &str) {
        let mut lifts = self.lifts();
        if lifts.len() < LIFTS_MAX {
            lifts.push((Arc::clone(limit), key.into()));
        }
    }

    /// The ban of a layer that is gone.
    pub(super) fn lift_elsewhere(&self, limit: &Arc<str>, key: &str) {
        self.lift(limit, key);
    }

    /// The layers are others.
    pub(super) fn changed(&self, is_new: bool) {
        if is_new {
            self.is_behind.store(true, Ordering::Relaxed);
        }
        self.hurry();
    }

    /// Lets others know at once.
    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }
}

/// Of times that rules have, which are far below 2^53 µs.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
