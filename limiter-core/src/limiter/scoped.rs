//! Layers that this process counts for itself ([`Scope::Instance`]), beside those that a store counts for all.
//!
//! Ours are asked first, for that costs nothing, and charged. Where one refuses, the store is not asked, but for what is to
//! be charged by refusals too. Else the others are asked as if they were alone; where one of them refuses, ours get back what
//! they were charged. Until that is known, ours may refuse another request early; they never let one pass too many. A
//! request that is given up meanwhile gets it back too.

use std::{mem, sync::Arc};

use smallvec::SmallVec;

use super::{
    Checking, Layers, Limiter, Outcome, claim,
    merge::{Charged, then, together},
};
use crate::{
    clock::Timestamp,
    decision::{Decision, INLINE_LAYERS, Verdict},
    policy::{Role, Scope},
    settlement::{Change, Settlement},
    store::{Ask, MemoryStore, OwnedAsks, Store},
    turn::Home,
};

type Asks<'a> = SmallVec<[Ask<'a>; INLINE_LAYERS]>;

/// As [`Limiter::check`], where some layers are those of `own`.
pub(super) fn check(limiter: &Limiter, own: &Arc<MemoryStore>, asks: &[Ask<'_>]) -> Checking {
    let is_ours = |at: &usize| asks[*at].policy.scope() == Scope::Instance;
    let (ours, shared): (Layers, Layers) = (0..asks.len()).partition(is_ours);
    if ours.is_empty() {
        return limiter.check_shared(asks);
    }
    let pick = |layers: &Layers| layers.iter().map(|&at| asks[at].clone()).collect::<Asks<'_>>();
    let our_asks = pick(&ours);
    let (mut decision, at) = own.decide_at(&our_asks);
    let home: Arc<dyn Store> = Arc::clone(own) as _;
    claim(&mut decision, &our_asks, Home::Store, &home);
    if shared.is_empty() {
        return Checking::Ready(Outcome::Decided(decision));
    }
    if let Verdict::Denied { by, .. } = decision.verdict {
        let is_charged = |at: &usize| *at < ours[by] && asks[*at].policy.role() == Role::ChargedAlways;
        let charged: Layers = shared.iter().copied().filter(is_charged).collect();
        if charged.is_empty() {
            let layers = ours;
            return Checking::Ready(Outcome::Refused { layers, decision });
        }
        let answer = limiter.check_shared(&pick(&charged));
        return then(answer, move |outcome| refused((ours, decision), &charged, outcome));
    }
    let taken = Taken {
        store: Arc::clone(own),
        asks: our_asks.iter().collect(),
        layers: ours,
        at,
        decision: Some(decision),
    };
    let answer = limiter.check_shared(&pick(&shared));
    then(answer, move |outcome| together(taken, &shared, outcome))
}

/// What our layers were charged, until it is known whether the others have room as well. Dropped, it goes back.
#[derive(Debug)]
struct Taken {
    store: Arc<MemoryStore>,
    asks: OwnedAsks,
    /// Indices of these among all that were asked.
    layers: Layers,
    /// When.
    at: Timestamp,
    /// Over these; there until one of the methods has taken it.
    decision: Option<Decision>,
}

impl Charged for Taken {
    fn layers(&self) -> &Layers {
        &self.layers
    }

    fn keep(&mut self) -> Decision {
        self.decision.take().unwrap_or_else(Decision::unlimited)
    }

    fn give_back(&mut self, by: usize) -> Decision {
        let mut decision = self.keep();
        let mut settlements = Vec::new();
        let asks = self.asks.asks();
        for ((ask, reading), layer) in asks.iter().zip(&mut decision.readings).zip(&self.layers) {
            let stays = ask.policy.role() == Role::ChargedAlways && *layer < by;
            if stays || reading.taken == 0 {
                continue;
            }
            let units = mem::take(&mut reading.taken);
            let algorithm = ask.policy.algorithm();
            // What is held goes back by itself, and places in a queue only where nobody stands behind.
            if !algorithm.holds() && !algorithm.has_turns() {
                let change = Change::GiveBack { units, at: self.at };
                settlements.push(Settlement::new(Arc::clone(ask.policy), ask.key, change));
                reading.remaining = (reading.remaining + units).min(algorithm.limit());
            }
        }
        if let Some(turn) = decision.turn.take() {
            settlements.extend(turn.into_claims().0);
        }
        (decision.receipt, decision.held) = (None, None);
        self.store.settle(settlements);
        decision
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        if self.decision.is_some() {
            self.give_back(0);
        }
    }
}

/// One of `ours` refuses; this is said of the layers before it that are charged by refusals too.
fn refused((ours, decision): (Layers, Decision), charged: &Layers, outcome: Outcome) -> Outcome {
    let (Outcome::Decided(mut theirs), Verdict::Denied { by, wait }) = (outcome, decision.verdict) else {
        let layers = ours;
        return Outcome::Refused { layers, decision };
    };
    theirs.verdict = match theirs.verdict {
        Verdict::Allowed => Verdict::Denied {
            by: charged.len() + by,
            wait,
        },
        Verdict::Denied { by, wait: theirs } => Verdict::Denied {
            by,
            wait: theirs.max(wait),
        },
    };
    theirs.readings.extend(decision.readings);
    // What it was charged stays charged, and it waits for nothing.
    (theirs.turn, theirs.receipt, theirs.held) = (None, None, None);
    Outcome::Refused {
        layers: charged.iter().copied().chain(ours).collect(),
        decision: theirs,
    }
}

#[cfg(test)]
mod tests;
