//! What was charged before it was known what a request costs.

use http::{HeaderMap, StatusCode};
use limiter_core::{FallbackDecision, Outcome, Receipt, Verdict};

use crate::{
    descriptor::{LayerId, settling::Reached},
    error::LayerIds,
    snapshot::Snapshot,
};

/// The charges of a request that are settled once its answer is there.
#[derive(Debug)]
pub(crate) struct Owed {
    receipt: Box<Receipt>,
    /// The layers that the receipt counts.
    layers: LayerIds,
    reached: Reached,
    is_refused: bool,
}

impl Owed {
    /// Takes it out of what the limiter says of `layers`, if there is any.
    pub(crate) fn of(outcome: &mut Outcome, layers: &LayerIds) -> Option<Box<Self>> {
        let (Outcome::Decided(decision)
        | Outcome::Fallback {
            decision: FallbackDecision::Local { decision, .. },
            ..
        }) = outcome
        else {
            return None;
        };
        let receipt = decision.receipt.take()?;
        let is_refused = decision.verdict != Verdict::Allowed;
        Some(Box::new(Self {
            receipt,
            layers: layers.clone(),
            reached: if is_refused { Reached::Perhaps } else { Reached::Nobody },
            is_refused,
        }))
    }

    /// The request has come so far. One that was refused counts as refused, wherever else it is sent.
    pub(crate) fn reached(&mut self, reached: Reached) {
        if !self.is_refused {
            self.reached = reached;
        }
    }

    /// Settles the charges, by the answer to the request; `None`: its client left before there was one. `told` is told of
    /// each layer what it was charged and what the request costs it.
    pub(crate) fn settle(
        self,
        snapshot: &Snapshot,
        answer: Option<(StatusCode, &HeaderMap)>,
        mut told: impl FnMut(LayerId, u64, u64),
    ) {
        let Self {
            receipt,
            layers,
            reached,
            ..
        } = self;
        snapshot.limiter.settle(*receipt, |layer, units| {
            let Some(layer) = layers.get(layer) else { return units };
            let Some(settling) = snapshot.layers.settling(*layer) else {
                return units;
            };
            let cost = settling.cost(units, reached, answer).unwrap_or_else(|(header, problem)| {
                let limit = snapshot.limit_name(layer.index()).unwrap_or_default();
                tracing::debug!(limit, %header, %problem, "an answer does not say what it cost: its estimate stays");
                units
            });
            told(*layer, units, cost);
            cost
        });
    }
}
