//! Limits of concurrency, of which this process knows what it holds, whoever decided.

use std::sync::Arc;

use super::Fallback;
use crate::{
    algorithm::Counter,
    decision::Decision,
    held::{Held, Keeper},
    holdings::Holdings,
    store::Ask,
};

impl Fallback {
    /// What requests hold counts, whoever admitted them.
    pub(super) fn show_held(&self, asks: &[Ask<'_>], counters: &mut [Counter]) {
        for (ask, counter) in asks.iter().zip(counters) {
            if let Counter::Slots(slots) = counter {
                slots.held = self.holdings.slots(ask.policy, ask.key);
            }
        }
    }

    /// What was taken is held, and known before anybody else can ask.
    pub(super) fn hold(&self, asks: &[Ask<'_>], decision: &mut Decision) {
        for (ask, reading) in asks.iter().zip(&decision.readings) {
            if reading.taken > 0 && ask.policy.algorithm().holds() {
                self.holdings.take(ask.policy, ask.key, reading.taken);
            }
        }
        Held::claim(decision, asks, || Keeper::Process(Arc::clone(&self.holdings)));
    }

    /// What requests hold in this process.
    pub(crate) fn holdings(&self) -> &Arc<Holdings> {
        &self.holdings
    }
}

/// What is held is known elsewhere: no counter of it is kept.
pub(super) fn forget(counters: &mut [Counter]) {
    for counter in counters {
        if let Counter::Slots(slots) = counter {
            slots.held = 0;
        }
    }
}
