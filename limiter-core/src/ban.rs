//! Bans: a key that a layer refused too often is refused outright for a time, before any layer is asked.
//!
//! [`Bans`] has a table for each layer that bans ([`LayerBans`]): who is banned, and who was refused how often. A look
//! into it asks no store. What is counted, and for how long somebody is banned, is the arithmetic of `record`. With a
//! store in Redis, [`BanSharing`](crate::BanSharing) tells the other processes, and learns of theirs; without one, or
//! while it is away, the table decides alone.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::clock::{Clock, Timestamp};

pub(crate) mod record;
mod rule;
mod shard;
#[cfg(feature = "redis")]
pub(crate) mod shared;
mod table;

pub use rule::{BanRule, BanRuleError};
pub use table::LayerBans;

/// Events that wait to be taken, at most: whoever does not take them must not fill the memory.
const EVENTS_MAX: usize = 1_000;

/// Who is banned, of all layers of a process that ban. It outlives configurations.
#[derive(Debug)]
pub struct Bans {
    hub: Arc<Hub>,
    layers: Mutex<HashMap<Arc<str>, Arc<LayerBans>>>,
}

/// What the tables of all layers share.
#[derive(Debug)]
pub(crate) struct Hub {
    clock: Arc<dyn Clock>,
    events: Mutex<Events>,
    #[cfg(feature = "redis")]
    outbox: shared::Outbox,
}

/// A ban that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The name of the layer.
    pub limit: Arc<str>,
    /// Whose it is, as keys are printed.
    pub key: Box<str>,
    /// When it ends.
    pub until: Timestamp,
    /// So long from now.
    pub left: Duration,
}

/// Something happened to a ban.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BanEvent {
    /// The name of the layer.
    pub limit: Arc<str>,
    /// Whose ban.
    pub key: Box<str>,
    /// What.
    pub kind: BanEventKind,
}

/// What happens to bans.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BanEventKind {
    /// It began, here or in another process.
    Began {
        /// So long it lasts from now.
        left: Duration,
        /// Which rung of the ladder that is, from 1.
        rung: u32,
    },
    /// Its time was over.
    Ended,
    /// Somebody ended it before its time.
    Lifted,
}

/// What happened since somebody asked.
#[derive(Debug, Default)]
pub struct Events {
    /// In order.
    pub list: Vec<BanEvent>,
    /// So many more there were, for which there was no room.
    pub dropped: u64,
}

impl Bans {
    /// Nobody is banned. `clock` is the one that all times go by.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            hub: Arc::new(Hub {
                clock,
                events: Mutex::default(),
                #[cfg(feature = "redis")]
                outbox: shared::Outbox::default(),
            }),
            layers: Mutex::default(),
        }
    }

    /// The table of the layer of this name: the one that is there, or an empty one, which counts nothing before
    /// [`Bans::apply`] gives it a rule.
    #[must_use]
    pub fn layer(&self, name: &Arc<str>) -> Arc<LayerBans> {
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || Arc::new(LayerBans::new(Arc::clone(name), Arc::clone(&self.hub)));
        Arc::clone(layers.entry(Arc::clone(name)).or_insert_with(made))
    }

    /// From now on these layers ban, by these rules. Whoever is banned by one of them stays so; the bans of all others
    /// end.
    pub fn apply<'a>(&self, rules: impl IntoIterator<Item = (&'a Arc<str>, &'a Arc<BanRule>)>) {
        let rules: HashMap<_, _> = rules.into_iter().collect();
        for (name, rule) in &rules {
            self.layer(name).set_rule(Arc::clone(rule));
        }
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        layers.retain(|name, layer| {
            let stays = rules.contains_key(name);
            if !stays {
                layer.end();
            }
            stays
        });
        #[cfg(feature = "redis")]
        self.hub.outbox.hurry();
    }

    /// Ends a ban of this process, with its tally and rung. Whether there was one.
    pub fn lift(&self, limit: &str, key: &str) -> bool {
        let layer = self.find(limit);
        layer.is_some_and(|layer| layer.lift(key, self.now()))
    }

    /// All bans that are in force, ordered by layer and key.
    #[must_use]
    pub fn list(&self) -> Vec<Ban> {
        let now = self.now();
        let mut all: Vec<_> = self.all().iter().flat_map(|layer| layer.list(now)).collect();
        all.sort_by(|a, b| (&a.limit, &a.key).cmp(&(&b.limit, &b.key)));
        all
    }

    /// Forgets what is over. To be called every second or so, whatever traffic there is.
    pub fn sweep(&self) {
        let now = self.now();
        self.all().iter().for_each(|layer| layer.sweep(now));
    }

    /// What happened since this was called last.
    #[must_use]
    pub fn take_events(&self) -> Events {
        std::mem::take(&mut *self.hub.events.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn now(&self) -> Timestamp {
        self.hub.clock.now()
    }

    fn find(&self, limit: &str) -> Option<Arc<LayerBans>> {
        let layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        layers.get(limit).map(Arc::clone)
    }

    fn all(&self) -> Vec<Arc<LayerBans>> {
        let layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        layers.values().map(Arc::clone).collect()
    }
}

impl Hub {
    fn tell(&self, limit: &Arc<str>, key: &str, kind: BanEventKind) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if events.list.len() < EVENTS_MAX {
            events.list.push(BanEvent {
                limit: Arc::clone(limit),
                key: key.into(),
                kind,
            });
        } else {
            events.dropped += 1;
        }
    }
}

impl fmt::Display for BanEventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Began { .. } => "began",
            Self::Ended => "ended",
            Self::Lifted => "lifted",
        })
    }
}

#[cfg(test)]
mod tests;
