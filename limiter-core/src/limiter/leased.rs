//! Layers whose units are taken in [lots](crate::LotTerms), beside those that ask the store for each request.
//!
//! What is in hand is taken first, for that costs nothing. Where all layers have enough of it, the request is decided.
//! Else the others are asked as if they were alone, those among them whose lot has too little for what the request costs;
//! and in the same call the next lots are taken, of which this request has nothing. Where one refuses, what was in hand
//! goes back. A request that is given up meanwhile gives it back too.

use std::sync::Arc;

use smallvec::SmallVec;

use super::{
    Checking, Layers, Limiter, Outcome,
    merge::{Charged, then, together},
};
use crate::{
    decision::{Decision, INLINE_LAYERS, Readings},
    fingerprint::Fingerprint,
    lots::{Handed, Lots},
    receipt::Receipt,
    settlement::Settlement,
    store::{Answer, Ask, OwnedAsks, Store},
};

type PerLayer<T> = SmallVec<[T; INLINE_LAYERS]>;

/// As [`Limiter::check`], where some layers are taken in lots.
pub(super) fn check(limiter: &Limiter, lots: &Arc<Lots>, asks: &[Ask<'_>]) -> Checking {
    if !asks.iter().any(|ask| ask.policy.is_leased()) {
        return limiter.check_store(asks);
    }
    let now = lots.now();
    let (mut handed, mut readings) = (PerLayer::new(), Readings::with_capacity(asks.len()));
    for ask in asks {
        let units = if fits(ask) { lots.take(ask, now) } else { None };
        if let Some(units) = &units {
            readings.push(units.reading);
            if units.wanted > 0 {
                fetch(limiter, lots, ask, units.wanted);
            }
        }
        handed.push(units);
    }
    if readings.len() < asks.len() {
        return ask(limiter, lots, asks, &handed);
    }
    let decision = Decision {
        readings,
        ..Decision::unlimited()
    };
    Checking::Ready(Outcome::Decided(decision))
}

/// Whether there may be enough in hand for it.
fn fits(ask: &Ask<'_>) -> bool {
    ask.policy.is_leased() && ask.cost <= ask.policy.lot_max()
}

/// Asks the store about the layers of which nothing was `handed` out.
fn ask(limiter: &Limiter, lots: &Arc<Lots>, asks: &[Ask<'_>], handed: &[Option<Handed>]) -> Checking {
    let (ours, shared): (Layers, Layers) = (0..asks.len()).partition(|&at| handed[at].is_some());
    let taken = Taken {
        store: Arc::clone(&limiter.store),
        lots: Arc::clone(lots),
        asks: ours.iter().map(|&at| &asks[at]).collect(),
        layers: ours,
        handed: handed.iter().flatten().copied().collect(),
        is_open: true,
    };
    let now = lots.now();
    let asked: PerLayer<Ask<'_>> = shared.iter().map(|&at| asks[at].clone()).collect();
    // Their places among those that are asked.
    let mut missed = PerLayer::<(usize, Fingerprint)>::new();
    let (mut wanted, mut ended) = (PerLayer::<(usize, u64)>::new(), Vec::new());
    for (at, ask) in asked.iter().enumerate().filter(|(_, ask)| fits(ask)) {
        let miss = lots.miss(ask, now);
        missed.push((at, miss.counter));
        ended.extend(miss.ended);
        if miss.wanted > 0 {
            wanted.push((at, miss.wanted));
        }
    }
    give_to(&*limiter.store, ended);
    let answer = limiter.check_store(&asked);
    let is_asked = !matches!(answer, Checking::Ready(Outcome::Repeated { .. }));
    for (at, units) in wanted {
        if is_asked {
            // After the request, and in the same call.
            fetch(limiter, lots, &asked[at], units);
        } else {
            // In a flood that another layer refuses nobody has a use for it.
            drop(lots.fetch(&asked[at], units));
        }
    }
    let leased: Layers = (0..asked.len()).filter(|&at| asked[at].policy.is_leased()).collect();
    let lots = Arc::clone(lots);
    then(answer, move |mut outcome| {
        learn(&lots, &missed, &outcome);
        if let Outcome::Decided(decision) = &mut outcome {
            // A request is charged for good: only lots give back.
            Receipt::forget(&mut decision.receipt, |layer| leased.contains(&layer));
        }
        together(taken, &shared, outcome)
    })
}

/// What the store says of the layers that their lots had too little for.
fn learn(lots: &Lots, missed: &[(usize, Fingerprint)], outcome: &Outcome) {
    if let Outcome::Decided(decision) = outcome {
        for (at, counter) in missed {
            if let Some(reading) = decision.readings.get(*at) {
                lots.learn(*counter, reading);
            }
        }
    }
}

/// Takes a lot of `units`, for requests that come later.
fn fetch(limiter: &Limiter, lots: &Arc<Lots>, ask: &Ask<'_>, units: u64) {
    let fetch = lots.fetch(ask, units);
    // After an outage it is not all free that seems so.
    if limiter.fallback.hold_back(&[fetch.ask()], &mut None).is_some() {
        return;
    }
    match limiter.store.decide(&[fetch.ask()]) {
        Answer::Ready(result) => give_to(&*limiter.store, fetch.came(result)),
        Answer::Pending(result) => {
            let (store, runtime) = (Arc::clone(&limiter.store), lots.runtime().clone());
            runtime.spawn(async move {
                let result = result.await;
                give_to(&*store, fetch.came(result));
            });
        }
    }
}

fn give_to(store: &dyn Store, settlements: Vec<Settlement>) {
    if !settlements.is_empty() {
        store.settle(settlements);
    }
}

/// What a request has of what is in hand, until it is known whether the other layers have room as well. Dropped, it goes
/// back.
#[derive(Debug)]
struct Taken {
    store: Arc<dyn Store>,
    lots: Arc<Lots>,
    asks: OwnedAsks,
    /// Indices of these among all that were asked.
    layers: Layers,
    handed: PerLayer<Handed>,
    /// Whether it is not known yet.
    is_open: bool,
}

impl Charged for Taken {
    fn layers(&self) -> &Layers {
        &self.layers
    }

    fn keep(&mut self) -> Decision {
        self.is_open = false;
        Decision {
            readings: self.handed.iter().map(|handed| handed.reading).collect(),
            ..Decision::unlimited()
        }
    }

    fn give_back(&mut self, _by: usize) -> Decision {
        let mut decision = self.keep();
        let now = self.lots.now();
        let mut settlements = Vec::new();
        let handed = self.asks.asks().into_iter().zip(&self.handed);
        for ((ask, handed), reading) in handed.zip(&mut decision.readings) {
            settlements.extend(self.lots.put_back(&ask, handed, now));
            reading.taken = 0;
            reading.remaining = (reading.remaining + handed.units).min(ask.policy.algorithm().limit());
        }
        give_to(&*self.store, settlements);
        decision
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.is_open {
            self.give_back(0);
        }
    }
}

#[cfg(test)]
mod tests;
