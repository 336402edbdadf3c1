//! One outcome of two: some layers of a request have been charged here already, the others are asked elsewhere.
//!
//! Where one of the others refuses, ours get back what they were charged.

use std::mem;

use super::{Checking, FallbackDecision, Layers, Outcome};
use crate::{
    decision::{Decision, Verdict},
    held::Held,
    receipt::Receipt,
    turn::Turn,
};

/// What our layers were charged, until it is known whether the others have room as well. Dropped, it goes back.
pub(super) trait Charged {
    /// Indices of our layers among all that were asked.
    fn layers(&self) -> &Layers;

    /// The request passes: gives the decision over our layers.
    fn keep(&mut self) -> Decision;

    /// The request is refused, by the layer `by` of all that were asked: gives back what only admitted ones are charged.
    fn give_back(&mut self, by: usize) -> Decision;
}

/// What `outcome` makes of an answer, once it is there.
pub(super) fn then(answer: Checking, outcome: impl FnOnce(Outcome) -> Outcome + Send + 'static) -> Checking {
    match answer {
        Checking::Ready(answer) => Checking::Ready(outcome(answer)),
        Checking::Pending(answer) => Checking::Pending(Box::pin(async move { outcome(answer.await) })),
    }
}

/// Our layers have room; this is said of the others, `shared`.
pub(super) fn together(mut taken: impl Charged, shared: &Layers, outcome: Outcome) -> Outcome {
    let to_all = |layers: Layers| layers.iter().map(|&at| shared[at]).collect::<Layers>();
    match outcome {
        Outcome::Decided(decision) => Outcome::Decided(merged(&mut taken, shared, decision)),
        Outcome::Repeated { layers, decision } => {
            let (layers, decision) = ours_first(&mut taken, shared, (to_all(layers), decision));
            Outcome::Repeated { layers, decision }
        }
        Outcome::Refused { layers, decision } => Outcome::Refused { layers, decision },
        Outcome::Fallback { error, decision } => {
            let decision = match decision {
                FallbackDecision::Closed { by } => {
                    let by = shared[by];
                    taken.give_back(by);
                    FallbackDecision::Closed { by }
                }
                FallbackDecision::Local {
                    layers,
                    shared: by_store,
                    decision,
                } => {
                    let (layers, decision) = ours_first(&mut taken, shared, (to_all(layers), decision));
                    FallbackDecision::Local {
                        layers,
                        shared: taken.layers().len() + by_store,
                        decision,
                    }
                }
            };
            Outcome::Fallback { error, decision }
        }
    }
}

/// One decision over all layers, in order.
fn merged(taken: &mut impl Charged, shared: &Layers, mut theirs: Decision) -> Decision {
    let mut ours = match &mut theirs.verdict {
        Verdict::Allowed => taken.keep(),
        Verdict::Denied { by, .. } => {
            *by = shared[*by];
            taken.give_back(*by)
        }
    };
    let (mut our_layers, mut their_readings) = (taken.layers().iter().peekable(), theirs.readings.drain(..));
    let mut our_readings = ours.readings.drain(..);
    let readings = (0..taken.layers().len() + shared.len()).filter_map(|at| match our_layers.next_if_eq(&&at) {
        Some(_) => our_readings.next(),
        None => their_readings.next(),
    });
    let readings = readings.collect();
    drop((our_readings, their_readings));
    join(&mut theirs, ours, taken.layers(), shared);
    theirs.readings = readings;
    theirs
}

/// A decision over ours, and over those of the others that had a say, and these layers.
fn ours_first(
    taken: &mut impl Charged,
    shared: &Layers,
    (layers, mut theirs): (Layers, Decision),
) -> (Layers, Decision) {
    let mut ours = match &mut theirs.verdict {
        Verdict::Allowed => taken.keep(),
        Verdict::Denied { by, .. } => {
            let ours = taken.give_back(layers[*by]);
            *by += taken.layers().len();
            ours
        }
    };
    let mut readings = mem::take(&mut ours.readings);
    readings.append(&mut theirs.readings);
    join(&mut theirs, ours, taken.layers(), shared);
    theirs.readings = readings;
    (taken.layers().iter().copied().chain(layers).collect(), theirs)
}

/// Adds to `theirs` what a request has of `ours` afterwards. From now on, indices are those of all layers.
fn join(theirs: &mut Decision, ours: Decision, our_layers: &Layers, their_layers: &Layers) {
    let receipt = theirs.receipt.take();
    Receipt::join(&mut theirs.receipt, receipt, their_layers);
    Receipt::join(&mut theirs.receipt, ours.receipt, our_layers);
    Turn::merge(&mut theirs.turn, ours.turn);
    Held::join(&mut theirs.held, ours.held);
}
