//! Which server owns which slot.

use std::{collections::HashMap, sync::Arc};

use fred::{interfaces::Resp3Frame, util::redis_keyslot};

use super::super::{
    config::Address,
    frame::{integer, items, text},
    node::{Node, Running},
};

/// Slots of a cluster.
const SLOTS: usize = 16_384;
/// Stands for: nobody owns it.
const NOBODY: u16 = u16::MAX;

/// What a server says of the slots: their ranges, both ends included, and who owns them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout(Vec<(u16, u16, Address)>);

impl Layout {
    /// Reads the reply to `CLUSTER SLOTS`, that `asked` gave. `None` where it is none, or knows no slot.
    pub(super) fn read(reply: &Resp3Frame, asked: &Address) -> Option<Self> {
        let mut ranges = Vec::new();
        for range in items(reply)? {
            let [first, last, primary, ..] = items(range)? else {
                return None;
            };
            let [host, port, ..] = items(primary)? else {
                return None;
            };
            // No host, or a question mark: the one that was asked.
            let host = text(host)
                .filter(|host| !matches!(*host, "" | "?"))
                .unwrap_or(&asked.host);
            let address = Address {
                host: host.to_owned(),
                port: u16::try_from(integer(port)?).ok()?,
            };
            let slot = |frame| {
                u16::try_from(integer(frame)?)
                    .ok()
                    .filter(|slot| usize::from(*slot) < SLOTS)
            };
            ranges.push((slot(first)?, slot(last)?, address));
        }
        ranges.sort();
        (!ranges.is_empty()).then_some(Self(ranges))
    }
}

/// Who owns every slot.
#[derive(Debug)]
pub(super) struct SlotMap {
    layout: Layout,
    nodes: Vec<Arc<Running>>,
    /// Index into `nodes` for every slot, or [`NOBODY`].
    owners: Box<[u16]>,
}

impl Default for SlotMap {
    /// Nobody owns anything.
    fn default() -> Self {
        Self {
            layout: Layout::default(),
            nodes: Vec::new(),
            owners: vec![NOBODY; SLOTS].into(),
        }
    }
}

impl SlotMap {
    /// The map of `layout`. Servers of the `old` one are taken over, others are had from `start`. Also gives those of
    /// the old map that own nothing any more.
    pub(super) fn new(
        layout: &Layout,
        old: &Self,
        start: impl Fn(&Address) -> Option<Arc<Running>>,
    ) -> (Self, Vec<Arc<Running>>) {
        let mut map = Self {
            layout: layout.clone(),
            ..Self::default()
        };
        let mut known = HashMap::new();
        for (first, last, address) in &layout.0 {
            let index = *known.entry(address).or_insert_with(|| {
                let node = old.running(address).map(Arc::clone).or_else(|| start(address));
                node.map_or(NOBODY, |node| {
                    map.nodes.push(node);
                    u16::try_from(map.nodes.len() - 1).unwrap_or(NOBODY)
                })
            });
            if let Some(slots) = map.owners.get_mut(usize::from(*first)..=usize::from(*last)) {
                slots.fill(index);
            }
        }
        let is_gone = |node: &&Arc<Running>| map.running(&node.address).is_none();
        let gone = old.nodes.iter().filter(is_gone).map(Arc::clone).collect();
        (map, gone)
    }

    /// Whether it was made of this layout.
    pub(super) fn is(&self, layout: &Layout) -> bool {
        self.layout == *layout
    }

    pub(super) fn nodes(&self) -> &[Arc<Running>] {
        &self.nodes
    }

    pub(super) fn owner_index(&self, slot: u16) -> Option<usize> {
        let owner = *self.owners.get(usize::from(slot))?;
        (owner != NOBODY).then_some(usize::from(owner))
    }

    pub(super) fn owner(&self, slot: u16) -> Option<&Arc<Node>> {
        self.nodes.get(self.owner_index(slot)?).map(|running| running.node())
    }

    pub(super) fn at(&self, address: &Address) -> Option<&Arc<Node>> {
        self.running(address).map(|running| running.node())
    }

    fn running(&self, address: &Address) -> Option<&Arc<Running>> {
        self.nodes.iter().find(|node| node.address == *address)
    }

    /// Slots that somebody owns.
    pub(super) fn covered(&self) -> usize {
        self.owners.iter().filter(|owner| **owner != NOBODY).count()
    }

    /// Whether every slot has an owner.
    pub(super) fn is_complete(&self) -> bool {
        self.covered() == SLOTS
    }

    /// A key that lies in a slot of `node`.
    pub(super) fn probe_key(&self, node: &Node, prefix: &str) -> Option<String> {
        // Each attempt meets any slot with the same chance: this many miss a server of 1 % of the slots once in 2^72.
        (0..5_000)
            .map(|attempt| format!("{prefix}:~probe:{attempt}"))
            .find(|key| {
                self.owner(redis_keyslot(key.as_bytes()))
                    .is_some_and(|owner| owner.address == node.address)
            })
    }
}
