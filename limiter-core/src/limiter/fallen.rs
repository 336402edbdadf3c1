//! What becomes of a request that the store cannot decide, or not for all of its layers: the layers' failure policies.

use std::sync::Arc;

use super::{FallbackDecision, Layers, Outcome};
use crate::{
    decision::{Decision, Verdict},
    held::Held,
    policy::OnFailure,
    receipt::Receipt,
    store::{Ask, Partly, Store, StoreError},
    turn::{Home, Turn},
};

/// A request that the store could not decide as a whole.
pub(super) struct Fallen {
    error: StoreError,
    /// What it decided all the same.
    partly: Option<Arc<Partly>>,
    /// The turn that it gave.
    turn: Option<Box<Turn>>,
    /// What it charged.
    receipt: Option<Box<Receipt>>,
}

/// What the failure policies want.
pub(super) enum Plan {
    /// Nobody else is to be asked.
    Decided(FallbackDecision),
    /// These layers are decided in the fallback store.
    Local(Layers),
}

impl Fallen {
    pub(super) fn new(error: StoreError, asks: &[Ask<'_>]) -> Self {
        match error {
            StoreError::Partly(partly) => {
                let (mut turn, mut receipt) = (partly.decision.turn.clone(), partly.decision.receipt.clone());
                if let Some(turn) = &mut turn {
                    turn.claim(asks, Home::Store);
                }
                if let Some(receipt) = &mut receipt {
                    receipt.claim(asks, Home::Store);
                }
                Self {
                    error: partly.error.clone(),
                    partly: Some(partly),
                    turn,
                    receipt,
                }
            }
            error => Self {
                error,
                partly: None,
                turn: None,
                receipt: None,
            },
        }
    }

    pub(super) fn plan(&self, asks: &[Ask<'_>]) -> Plan {
        let decided = self.partly.as_ref().map_or(&[][..], |partly| &partly.layers);
        let refused = (self.partly.as_ref()).is_some_and(|partly| partly.decision.verdict != Verdict::Allowed);
        if refused {
            return Plan::Decided(self.together(Layers::new(), Ok(Decision::unlimited())));
        }
        let open = || (0..asks.len()).filter(|layer| !decided.contains(layer));
        // What refuses nothing does not do so without its store either.
        let on_failure = |layer: usize| match asks[layer].policy.on_failure() {
            OnFailure::Closed if !asks[layer].policy.role().is_enforced() => OnFailure::Open,
            on_failure => on_failure,
        };
        // One closed layer refuses all, so that no other layer is charged.
        if let Some(by) = open().find(|&layer| on_failure(layer) == OnFailure::Closed) {
            return Plan::Decided(FallbackDecision::Closed { by });
        }
        let local: Layers = open().filter(|&layer| on_failure(layer) == OnFailure::Local).collect();
        if local.is_empty() {
            return Plan::Decided(self.together(local, Ok(Decision::unlimited())));
        }
        Plan::Local(local)
    }

    /// What the store decided, and what the fallback decided of the layers `local`.
    pub(super) fn together(&self, local: Layers, result: Result<Decision, StoreError>) -> FallbackDecision {
        let (mut layers, mut decision) = match &self.partly {
            Some(partly) => (partly.layers.clone(), partly.decision.clone()),
            None => (Layers::new(), Decision::unlimited()),
        };
        let shared = layers.len();
        decision.turn.clone_from(&self.turn);
        decision.receipt.clone_from(&self.receipt);
        // Where two stores failed nothing is left that could count, and `local` means that service goes on.
        if let Ok(result) = result {
            decision.readings.extend(result.readings);
            Held::join(&mut decision.held, result.held);
            if let Verdict::Denied { by, wait } = result.verdict {
                let by = shared + by;
                decision.verdict = Verdict::Denied { by, wait };
                // The store's charges are given back as a whole.
                (decision.turn, decision.receipt, decision.held) = (None, None, None);
            } else {
                Turn::merge(&mut decision.turn, result.turn);
            }
            Receipt::join(&mut decision.receipt, result.receipt, &local);
            layers.extend(local);
        }
        FallbackDecision::Local {
            layers,
            shared,
            decision,
        }
    }

    /// The outcome. What the store charged is given back where the request is refused after all.
    pub(super) fn outcome(self, store: &dyn Store, decision: FallbackDecision) -> Outcome {
        let passes =
            matches!(&decision, FallbackDecision::Local { decision, .. } if decision.verdict == Verdict::Allowed);
        if let (Some(partly), false) = (&self.partly, passes)
            && !partly.taken.is_empty()
        {
            store.settle(partly.taken.clone());
        }
        Outcome::Fallback {
            error: self.error,
            decision,
        }
    }
}
