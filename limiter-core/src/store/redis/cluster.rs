//! Redis Cluster: every slot has its own server, and a request over several of them is reserved in parts.
//!
//! fred's own cluster client is not used: the loss of one server stops it as a whole, and a slot that is being moved
//! ends it. Here every primary is a [`Node`] with its own connections and breaker, [`watch`] keeps the map of the slots
//! up to date, and a call follows the redirections that it meets.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use arc_swap::ArcSwap;
use fred::util::redis_keyslot;
use smallvec::SmallVec;
use tracing::{info, warn};

use super::{
    config::Address,
    context::Context,
    node::{Node, Running},
};
use crate::{
    clock::Timestamp,
    decision::INLINE_LAYERS,
    settlement::Settlement,
    store::{Answer, Ask, Health, StoreError},
};

mod map;
mod reservation;
pub(super) mod watch;

use self::{
    map::{Layout, SlotMap},
    reservation::Reservation,
};

/// Servers that own no slot, and were named by a redirection, are kept for so many µs after their last use: one that
/// slots are moved to is named by nobody else before the first has arrived.
const KEEP_STRANGER: u64 = 60_000_000;

/// The servers of a cluster.
#[derive(Debug)]
pub(super) struct Cluster {
    context: Arc<Context>,
    map: ArcSwap<SlotMap>,
    strangers: Mutex<Vec<Stranger>>,
    me: Weak<Self>,
}

/// A server that was named by a redirection and is not in the map.
#[derive(Debug)]
struct Stranger {
    node: Arc<Running>,
    used: Timestamp,
}

/// The part of a request whose counters lie in the same slot.
struct Part<'a> {
    slot: u16,
    /// The server that owns it.
    node: Option<&'a Arc<Node>>,
    /// Indices of its layers among those of the request.
    layers: SmallVec<[usize; INLINE_LAYERS]>,
}

impl Cluster {
    /// A cluster of which nothing is known yet.
    pub(super) fn new(context: Arc<Context>) -> Arc<Self> {
        Arc::new_cyclic(|me| Self {
            context,
            map: ArcSwap::from_pointee(SlotMap::default()),
            strangers: Mutex::default(),
            me: Weak::clone(me),
        })
    }

    /// Decides a request. One whose counters lie in one slot is one step; any other is reserved slot by slot, all at
    /// once, and where one refuses what the others took is given back.
    pub(super) fn decide(&self, asks: &[Ask<'_>]) -> Answer {
        let map = self.map.load();
        let parts = self.parts(&map, asks);
        let ask = |part: &Part<'_>| match part.node {
            Some(node) => node.ask(part.layers.iter().map(|&layer| &asks[layer]), part.slot),
            None => Err(StoreError::Unavailable),
        };
        let mut answers: SmallVec<[_; INLINE_LAYERS]> = parts.iter().map(ask).collect();
        if answers.iter().all(Result::is_err) {
            return Answer::Ready(Err(StoreError::Unavailable));
        }
        if parts.len() == 1
            && let Some(Ok(answered)) = answers.pop()
        {
            return super::pending(answered, Arc::clone(&self.context));
        }
        let Some(cluster) = self.me.upgrade() else {
            return Answer::Ready(Err(StoreError::Unavailable));
        };
        let layers = parts.into_iter().map(|part| part.layers);
        Reservation::new(asks, layers.zip(answers)).answer(cluster)
    }

    /// The parts of a request.
    fn parts<'a>(&self, map: &'a SlotMap, asks: &[Ask<'_>]) -> SmallVec<[Part<'a>; INLINE_LAYERS]> {
        let mut parts = SmallVec::<[Part<'a>; INLINE_LAYERS]>::new();
        for (layer, ask) in asks.iter().enumerate() {
            let slot = self.slot(ask.policy.key_prefix(), ask.key);
            match parts.iter_mut().find(|part| part.slot == slot) {
                Some(part) => part.layers.push(layer),
                None => parts.push(Part {
                    slot,
                    node: map.owner(slot),
                    layers: SmallVec::from_slice(&[layer]),
                }),
            }
        }
        parts
    }

    /// Whether `node` owns `slot`.
    pub(super) fn owns(&self, node: &Node, slot: u16) -> bool {
        self.map
            .load()
            .owner(slot)
            .is_some_and(|owner| owner.address == node.address)
    }

    /// The slot of a counter.
    pub(super) fn slot(&self, policy: &str, key: &str) -> u16 {
        redis_keyslot([&*self.context.config.prefix, ":", policy, key].concat().as_bytes())
    }

    /// Hands settlements to the servers that own their slots.
    pub(super) fn settle(&self, settlements: impl IntoIterator<Item = Settlement>) {
        let map = self.map.load();
        let mut unowned = 0;
        let mut lists = vec![Vec::new(); map.nodes().len()];
        for settlement in settlements {
            let slot = self.slot(settlement.policy.key_prefix(), &settlement.key);
            match map.owner_index(slot) {
                Some(index) => lists[index].push((slot, settlement)),
                None => unowned += 1,
            }
        }
        for (node, list) in map.nodes().iter().zip(lists).filter(|(_, list)| !list.is_empty()) {
            node.settle(list);
        }
        if unowned > 0 {
            self.context.unsettled(unowned);
        }
    }

    /// The servers that own slots.
    pub(super) fn nodes(&self) -> Vec<Arc<Node>> {
        self.map
            .load()
            .nodes()
            .iter()
            .map(|running| Arc::clone(running.node()))
            .collect()
    }

    /// The server that owns the slot of the gateways' own key `name`.
    pub(super) fn owner_of(&self, name: &str) -> Option<Arc<Node>> {
        self.map.load().owner(redis_keyslot(name.as_bytes())).map(Arc::clone)
    }

    /// The server at `address`, which was named by a redirection.
    pub(super) fn node(&self, address: &Address) -> Option<Arc<Node>> {
        if let Some(node) = self.map.load().at(address) {
            return Some(Arc::clone(node));
        }
        let now = self.context.now();
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = strangers.iter_mut().find(|known| known.node.address == *address) {
            known.used = now;
            return Some(Arc::clone(known.node.node()));
        }
        let node = Running::start(address.clone(), &self.context, Weak::clone(&self.me)).ok()?;
        let found = Arc::clone(node.node());
        strangers.push(Stranger { node, used: now });
        Some(found)
    }

    /// The map may be out of date.
    pub(super) fn doubt(&self) {
        self.context.doubted.notify_one();
    }

    /// How the cluster is doing: as its worst server, but for a loss of some that others survive.
    pub(super) fn health(&self) -> Health {
        let map = self.map.load();
        let mut connected = 0;
        for node in map.nodes() {
            connected += usize::from(node.health() == Health::Connected);
        }
        match connected {
            0 => Health::Down,
            all if all == map.nodes().len() && map.is_complete() => Health::Connected,
            _ => Health::Degraded,
        }
    }

    /// Whether every slot has a server that is asked.
    pub(super) fn is_ready(&self) -> bool {
        let map = self.map.load();
        map.is_complete() && map.nodes().iter().all(|node| node.breaker.is_closed())
    }

    /// Takes over what a server said of the slots: servers that are known go on, new ones are started, and what waits
    /// at those that are gone goes to their successors.
    fn apply(&self, layout: &Layout) {
        let old = self.map.load_full();
        if old.is(layout) {
            return;
        }
        let (map, gone) = SlotMap::new(layout, &old, |address| self.start(address));
        // An outage of those that are gone ends with the first answer of those that are new.
        let was_told = gone.iter().filter(|node| node.breaker.announce_return()).count() > 0;
        let is_new = |node: &&Arc<Running>| old.at(&node.address).is_none();
        if let (true, Some(node)) = (was_told, map.nodes().iter().find(is_new)) {
            node.breaker.announce_loss();
        }
        for node in map.nodes() {
            node.set_probe_key(map.probe_key(node, &self.context.config.prefix));
        }
        let servers: Vec<String> = map.nodes().iter().map(|node| node.address.to_string()).collect();
        info!(
            servers = servers.join(" "),
            slots = map.covered(),
            "the redis cluster is divided among these"
        );
        self.map.store(Arc::new(map));
        self.context.changed.notify_waiters();
        for node in gone {
            self.settle(node.leave().into_iter().map(|(_, settlement)| settlement));
        }
    }

    /// The server at `address`, which may be known from redirections.
    fn start(&self, address: &Address) -> Option<Arc<Running>> {
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = strangers.iter().position(|known| known.node.address == *address) {
            return Some(strangers.swap_remove(at).node);
        }
        match Running::start(address.clone(), &self.context, Weak::clone(&self.me)) {
            Ok(node) => Some(node),
            Err(error) => {
                warn!(server = %address, %error, "a server of the cluster cannot be used");
                None
            }
        }
    }

    /// Ends the connections to servers that nobody named for long.
    fn forget_strangers(&self) {
        let now = self.context.now().as_micros();
        let mut strangers = self.strangers.lock().unwrap_or_else(PoisonError::into_inner);
        strangers.retain(|known| now.saturating_sub(known.used.as_micros()) < KEEP_STRANGER);
    }
}
