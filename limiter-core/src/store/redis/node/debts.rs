//! What a server is told afterwards: settlements, and what the fallback admitted in its place.

use std::{collections::VecDeque, sync::Arc};

use super::Node;
use crate::{
    fallback::{Debt, Fallback},
    settlement::{Change, Settlement},
    store::Health,
};

impl Node {
    /// Sends settlements with the next calls: at once where none is on its way, and when it is back where it is away.
    pub(in super::super) fn settle(self: &Arc<Self>, settlements: impl IntoIterator<Item = (u16, Settlement)>) {
        self.settle_later(settlements);
        self.flush();
    }

    /// Keeps settlements that were not made, for when it is back.
    pub(in super::super) fn settle_later(&self, settlements: impl IntoIterator<Item = (u16, Settlement)>) {
        let dropped = self.group.settle(settlements);
        if dropped > 0 {
            self.context.unsettled(dropped);
        }
    }

    /// Whether nothing is left to tell it. What is left is sent, if it is well.
    pub(in super::super) fn is_settled(self: &Arc<Self>) -> bool {
        self.repay_if_well();
        self.group.unsettled() == (0, false)
    }

    /// Settlements that wait.
    pub(in super::super) fn unsettled(&self) -> usize {
        self.group.unsettled().0
    }

    /// The settlements that wait, for the server that takes this one's place.
    pub(in super::super) fn leave(&self) -> VecDeque<(u16, Settlement)> {
        self.group.take_settlements()
    }

    /// Charges what the fallback admitted for calls that were late or lost, while this server decides others. At once: it
    /// lets pass what comes back, and so do the shares, until it knows of them.
    pub(in super::super) fn repay_late(self: &Arc<Self>) {
        // In a cluster the debts may be those of a server that is away, and looking through them is dear.
        let has_debts = |fallback: &Arc<Fallback>| fallback.debtors() > 0;
        if self.cluster.strong_count() == 0 && self.context.fallback.as_ref().is_some_and(has_debts) {
            self.repay_if_well();
        }
    }

    /// Charges what the fallback admitted, where the last call was answered: one that has just frozen would take the debts
    /// with it, since what may have been charged is never sent again.
    pub(in super::super) fn repay_if_well(self: &Arc<Self>) {
        if self.breaker.health() == Health::Connected {
            self.repay();
            self.flush();
        }
    }

    /// Charges what the fallback admitted while this server was away.
    pub(super) fn repay(&self) {
        let Some(fallback) = &self.context.fallback else {
            return;
        };
        let settlement =
            |debt: &Debt| Settlement::new(Arc::clone(debt.policy()), debt.key(), Change::Debit(debt.units()));
        match self.cluster.upgrade() {
            Some(cluster) => {
                let ours = |policy: &str, key: &str| cluster.owns(self, cluster.slot(policy, key));
                let debts = fallback.take_debts_of(ours);
                self.settle_later(
                    debts.map(|debt| (cluster.slot(debt.policy().key_prefix(), debt.key()), settlement(&debt))),
                );
            }
            None => self.settle_later(fallback.take_debts().map(|debt| (0, settlement(&debt)))),
        }
    }
}
