//! Who is banned by the layers of a configuration, and who is refused by those that ban.
//!
//! Asked before the limiter: the tables are in memory, so that a flood of banned requests reaches no store.

use std::{sync::Arc, time::Duration};

use limiter_core::{BanRule, Decision, LayerBans, Reading, Timestamp, Verdict, Wait};
use smallvec::SmallVec;

use crate::{
    config,
    descriptor::{Applied, LayerId, Layers},
    error::{LayerIds, RateLimited},
};

mod tables;

pub(crate) use tables::Tables;

/// The layers of a configuration that ban.
#[derive(Debug)]
pub(crate) struct Banning {
    /// By the index of the layer.
    layers: Box<[Option<Arc<LayerBans>>]>,
}

/// The keys of a request at the layers that ban: refusals are known only when the request's own are gone.
#[derive(Debug, Default)]
pub(crate) struct Watched(SmallVec<[WatchedKey; 1]>);

#[derive(Debug)]
struct WatchedKey {
    /// The index of the layer.
    layer: usize,
    table: Arc<LayerBans>,
    key: Box<str>,
}

/// The rule by which a layer bans: one that refuses nothing bans nobody.
fn rule(layer: &config::Layer) -> Option<&Arc<BanRule>> {
    layer.ban.as_ref().filter(|_| layer.policy.role().is_enforced())
}

impl Banning {
    /// `None` where no layer bans: then nothing of all this costs anything.
    pub(crate) fn new(limits: &[config::Layer], tables: &Tables) -> Option<Self> {
        let table = |layer| rule(layer).map(|_| tables.bans.layer(layer.policy.name()));
        let layers: Box<[_]> = limits.iter().map(table).collect();
        layers.iter().any(Option::is_some).then_some(Self { layers })
    }

    /// The layers that have banned the request, if any has. Each says how long; the longest time is that of the answer.
    pub(crate) fn find(&self, applied: &[Applied], layers: &Layers, now: Timestamp) -> Option<RateLimited> {
        let mut found = SmallVec::<[(LayerId, Duration); 8]>::new();
        for applied in applied {
            if let Some(table) = self.table(applied.layer, layers)
                && let Some(left) = table.left(applied.key.as_str(), now)
            {
                found.push((applied.layer, left));
            }
        }
        let wait = Wait::For(found.iter().map(|(_, left)| *left).max()?);
        let reading = |left| Reading {
            fits: false,
            remaining: 0,
            taken: 0,
            wait: Wait::For(left),
        };
        Some(RateLimited {
            layers: found.iter().map(|(layer, _)| *layer).collect::<LayerIds>(),
            decision: Decision {
                verdict: Verdict::Denied { by: 0, wait },
                readings: found.iter().map(|(_, left)| reading(*left)).collect(),
                turn: None,
                receipt: None,
                held: None,
            },
            at: now,
        })
    }

    /// The keys that a refusal would count for.
    pub(crate) fn watch(&self, applied: &[Applied], layers: &Layers) -> Watched {
        let watched = |applied: &Applied| {
            Some(WatchedKey {
                layer: applied.layer.index(),
                table: Arc::clone(self.table(applied.layer, layers)?),
                key: applied.key.as_str().into(),
            })
        };
        Watched(applied.iter().filter_map(watched).collect())
    }

    /// The table of a layer as a request meets it; its candidate has none.
    fn table(&self, layer: LayerId, layers: &Layers) -> Option<&Arc<LayerBans>> {
        let table = self.layers.get(layer.index())?.as_ref()?;
        layers.policy(layer).role().is_enforced().then_some(table)
    }
}

impl Watched {
    /// Counts the refusals of a decision over enforced layers: each one's that had no room.
    pub(crate) fn count(&self, fact: &RateLimited) {
        if self.0.is_empty() {
            return;
        }
        for (layer, reading) in fact.layers.iter().zip(&fact.decision.readings) {
            if reading.fits {
                continue;
            }
            if let Some(watched) = self.0.iter().find(|watched| watched.layer == layer.index()) {
                watched.table.refused(&watched.key);
            }
        }
    }
}
