//! What a server is told of the slots that are held.

use std::sync::Arc;

use super::Node;
use crate::settlement::Settlement;

impl Node {
    /// The next call is to be alone, and says what is held; or need not be any more.
    pub(in super::super) fn want_alone(self: &Arc<Self>, is_wanted: bool) {
        self.group.want_alone(is_wanted);
        self.flush();
    }

    /// What is held of counters that are here.
    pub(super) fn assertions(&self) -> Vec<(u16, Settlement)> {
        let slot = |settlement: &Settlement| match self.cluster.upgrade() {
            Some(cluster) => cluster.slot(settlement.policy.key_prefix(), &settlement.key),
            None => 0,
        };
        let leases = &self.context.leases;
        let all = leases.assertions(self.context.now(), |policy, key| self.has(policy, key));
        all.into_iter()
            .map(|settlement| (slot(&settlement), settlement))
            .collect()
    }

    /// Whether a counter is here.
    pub(in super::super) fn has(&self, policy: &str, key: &str) -> bool {
        match self.cluster.upgrade() {
            Some(cluster) => cluster.owns(self, cluster.slot(policy, key)),
            None => true,
        }
    }
}
