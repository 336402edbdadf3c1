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
    shard::{Entry, KEYS_MAX, Keys},
};
use crate::clock::Timestamp;

/// Bans of removed layers whose end is to be told, at most.
const LIFTS_MAX: usize = 100_000;

/// Bans that end everywhere because their layer is gone, and the wish to be heard.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// Whether there is somebody to be told: then what happens here is kept until it is.
    is_shared: AtomicBool,
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
    /// Whether it stands in the list of keys that were refused, and in that of the banned.
    is_listed: [bool; 2],
}

/// Keys of which something is unsent, in the order of [`Unsent::is_listed`]: each at most as many as there may be; some may
/// be gone.
#[derive(Debug, Default)]
pub(super) struct Lists([Vec<Box<str>>; 2]);

/// The lists.
const REFUSED: usize = 0;
const BANNED: usize = 1;

impl Lists {
    fn add(&mut self, unsent: &mut Unsent, list: usize, key: &str) {
        if !unsent.is_listed[list] && self.0[list].len() < KEYS_MAX {
            unsent.is_listed[list] = true;
            self.0[list].push(key.into());
        }
    }
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
            self.unsent.add(unsent, BANNED, key);
        } else {
            let (count, since) = unsent.refusals.unwrap_or((0, now));
            unsent.refusals = Some((count + 1, since));
            self.unsent.add(unsent, REFUSED, key);
        }
    }
}

impl Entry {
    fn take_unsent(&mut self, list: usize) -> Option<What> {
        if list == REFUSED {
            let (count, since) = self.unsent.refusals.take()?;
            return Some(What::Refused(count, since));
        }
        let has_ban = std::mem::take(&mut self.unsent.has_ban);
        let Served { until, rung, length } = self.record.ban.filter(|_| has_ban)?;
        let began = until.as_micros().saturating_sub(micros(length));
        Some(What::Banned(rung, Timestamp::from_micros(began)))
    }
}

impl LayerBans {
    /// Takes what is unsent of a list, at most so much. Begins anywhere, so that no key waits for ever in a flood.
    fn take_unsent(&self, list: usize, at_most: usize, to: &mut Vec<News>) {
        let Some(rule) = self.rule() else { return };
        let first = fastrand::usize(..self.shards.len());
        for at in 0..self.shards.len() {
            let mut shard = self.shards[(first + at) % self.shards.len()].lock();
            let keys = shard.keys_mut();
            while to.len() < at_most
                && let Some(key) = keys.unsent.0[list].pop()
            {
                let Some(entry) = keys.entries.get_mut(&*key) else {
                    continue;
                };
                entry.unsent.is_listed[list] = false;
                if let Some(what) = entry.take_unsent(list) {
                    to.push(News {
                        limit: Arc::clone(&self.name),
                        rule: Some(Arc::clone(&rule)),
                        key,
                        what,
                    });
                }
            }
        }
    }

    /// News that did not arrive.
    fn put_back(&self, news: &News) {
        let mut shard = self.shard(&news.key).lock();
        let keys = shard.keys_mut();
        let Some(entry) = keys.entries.get_mut(&*news.key) else {
            return;
        };
        let unsent = &mut entry.unsent;
        match news.what {
            What::Refused(count, since) => {
                let (more, later) = unsent.refusals.unwrap_or((0, since));
                unsent.refusals = Some((count + more, since.min(later)));
                keys.unsent.add(unsent, REFUSED, &news.key);
            }
            What::Banned(..) => {
                unsent.has_ban = true;
                keys.unsent.add(unsent, BANNED, &news.key);
            }
            What::Lifted => {}
        }
    }

    /// All bans in force are unsent.
    fn share_all(&self, now: Timestamp) {
        for shard in self.shards.iter().filter(|shard| shard.bans_anybody()) {
            let mut shard = shard.lock();
            let Keys { entries, unsent } = shard.keys_mut();
            for (key, entry) in entries.iter_mut().filter(|(_, entry)| entry.record.left(now).is_some()) {
                entry.unsent.has_ban = true;
                unsent.add(&mut entry.unsent, BANNED, key);
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
        self.hub.outbox.is_shared.store(is_shared, Ordering::Relaxed);
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
        let layers = self.all();
        for list in [BANNED, REFUSED] {
            layers
                .iter()
                .for_each(|layer| layer.take_unsent(list, at_most, &mut news));
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

    /// A ban that ends everywhere.
    pub(super) fn lift(&self, limit: &Arc<str>, key: &str) {
        let mut lifts = self.lifts();
        if lifts.len() < LIFTS_MAX {
            lifts.push((Arc::clone(limit), key.into()));
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Relaxed)
    }

    /// A layer is new.
    pub(super) fn fall_behind(&self) {
        self.is_behind.store(true, Ordering::Relaxed);
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
