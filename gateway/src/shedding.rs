//! Adaptive protection: an upstream is sent as many requests at once as it answers without a queue, and the rest is shed,
//! those of the lowest priority first.
//!
//! Asked before the limits, and charged to nobody. What is in flight is counted, and its latency taken, from sending to the
//! head of the answer: the two have to be of the same stretch for one to tell of the other, and a body that a client takes
//! its time to read is no work of the upstream's any more.
//!
//! Whether there is room is asked first, and the room is taken when the limits have spoken: else a flood that they refuse
//! would take it from those whom they let pass. So what is being decided at the same moment may come on top.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use limiter_core::{Clock, MonotonicClock, Timestamp};

use crate::{
    config::{AdaptiveConcurrency, Config, Target},
    metrics::{Metrics, Sheds},
    rejection::Rejection,
};

mod gate;
mod gradient;
#[cfg(test)]
mod tests;

use gate::{End, Gate};
use gradient::Bounds;

/// Thousandths of the limit that routes of the lowest priority leave to the others.
const SPARED: u64 = 200;

/// What has been found out about each upstream, by its name, for as long as a snapshot makes use of it.
#[derive(Debug, Default)]
pub(crate) struct Gates(Mutex<BTreeMap<Arc<str>, Weak<Gate>>>);

/// Who sheds, of one configuration.
#[derive(Debug)]
pub(crate) struct Shedding {
    /// By the index of the upstream; `None`: it does not.
    upstreams: Vec<Option<Guarded>>,
}

#[derive(Debug)]
struct Guarded {
    name: Arc<str>,
    gate: Arc<Gate>,
    bounds: Bounds,
    /// By the index of the route: the thousandths of the limit that it leaves to routes of a higher priority.
    spared: Vec<u64>,
    sheds: Arc<Sheds>,
}

/// The upstream has no room for a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("upstream {upstream} has no room")]
pub(crate) struct NoRoom {
    /// Its name.
    pub(crate) upstream: Arc<str>,
}

/// A request at an upstream that sheds. Dropped before it was told how it ended: the client has left.
#[derive(Debug)]
pub(crate) struct Slot<'a> {
    gate: &'a Gate,
    clock: &'a MonotonicClock,
    sent: Timestamp,
    end: Option<End>,
}

impl Gates {
    fn of(&self, name: &Arc<str>, bounds: Bounds, now: Timestamp) -> Arc<Gate> {
        let mut gates = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        gates.retain(|_, gate| gate.strong_count() > 0);
        if let Some(gate) = gates.get(name).and_then(Weak::upgrade) {
            return gate;
        }
        let gate = Arc::new(Gate::new(bounds, now));
        gates.insert(Arc::clone(name), Arc::downgrade(&gate));
        gate
    }
}

impl Shedding {
    /// With what `gates` know already. Nothing that is running changes before [`Shedding::apply`].
    pub(crate) fn new(config: &Config, gates: &Gates, metrics: &Metrics, now: Timestamp) -> Self {
        let upstreams = config.upstreams.iter().enumerate().map(|(at, upstream)| {
            let AdaptiveConcurrency { min, max } = upstream.adaptive_concurrency?;
            let bounds = Bounds { min, max };
            Some(Guarded {
                name: Arc::clone(&upstream.name),
                gate: gates.of(&upstream.name, bounds, now),
                bounds,
                spared: spared(at, config),
                sheds: metrics.sheds(&upstream.name),
            })
        });
        Self {
            upstreams: upstreams.collect(),
        }
    }

    /// The bounds of this configuration hold from now on.
    pub(crate) fn apply(&self) {
        for guarded in self.upstreams.iter().flatten() {
            guarded.gate.set_bounds(guarded.bounds);
        }
    }

    /// The limits that are in force, by the names of the upstreams.
    pub(crate) fn limits(&self) -> Vec<(Arc<str>, u64)> {
        let guarded = self.upstreams.iter().flatten();
        guarded
            .map(|guarded| (Arc::clone(&guarded.name), guarded.gate.limit()))
            .collect()
    }

    /// Whether `upstream` has room for a request of `route`. Takes nothing; who has none is counted as shed.
    pub(crate) fn ask(&self, upstream: usize, route: usize, clock: &MonotonicClock) -> Result<(), NoRoom> {
        let Some(guarded) = self.guarded(upstream) else {
            return Ok(());
        };
        let spared = guarded.spared.get(route).copied().unwrap_or_default();
        if guarded.gate.has_room(spared, clock.now()) {
            return Ok(());
        }
        guarded.sheds.record();
        Err(NoRoom {
            upstream: Arc::clone(&guarded.name),
        })
    }

    /// A request is sent to `upstream`; `None` where nobody counts.
    pub(crate) fn enter<'a>(&'a self, upstream: usize, sent: Timestamp, clock: &'a MonotonicClock) -> Option<Slot<'a>> {
        let gate = &*self.guarded(upstream)?.gate;
        gate.enter();
        Some(Slot {
            gate,
            clock,
            sent,
            end: None,
        })
    }

    fn guarded(&self, upstream: usize) -> Option<&Guarded> {
        self.upstreams.get(upstream)?.as_ref()
    }
}

impl Slot<'_> {
    /// The head of an answer is there, or did not come in time.
    pub(crate) fn answered(mut self, now: Timestamp) {
        self.end = Some(End::Answered(now.since(self.sent)));
    }

    /// It ended in a way that says nothing of how long the upstream takes: it was not reached, or refused.
    pub(crate) fn untold(mut self) {
        self.end = Some(End::Untold);
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let now = self.clock.now();
        let end = self.end.unwrap_or(End::Left(now.since(self.sent)));
        self.gate.leave(end, now);
    }
}

/// For each route, the thousandths of the limit of `upstream` that it leaves to others: none at the highest priority of all
/// that may lead there, [`SPARED`] at the lowest, and equal steps between.
fn spared(upstream: usize, config: &Config) -> Vec<u64> {
    let is_refuge = |rejection: &Option<Rejection>| matches!(rejection, Some(Rejection::Degrade { upstream: to }) if *to == upstream);
    let takes_all =
        is_refuge(&config.responses.rejection) || config.limits.iter().any(|layer| is_refuge(&layer.rejection));
    let leads_there = |target: &Target| takes_all || matches!(target, Target::Upstream(to) if *to == upstream);
    let routes = config.routes.iter().filter(|route| leads_there(&route.target));
    let mut priorities: Vec<_> = routes.map(|route| route.priority).collect();
    priorities.sort_unstable();
    priorities.dedup();
    let steps = priorities.len().saturating_sub(1).max(1) as u64;
    let spared = |priority| {
        let above = priorities.iter().filter(|other| **other > priority).count() as u64;
        SPARED * above.min(steps) / steps
    };
    config.routes.iter().map(|route| spared(route.priority)).collect()
}
