//! Asks the limiter, before anything costs: before waiting, before a connection, before the body is read.

use http::HeaderMap;
use limiter_core::{Checking, Decision, FallbackDecision, Limiter, Outcome, Policy, Verdict, store::Ask};
use smallvec::SmallVec;
use std::sync::Arc;

use crate::{
    descriptor::{Descriptor, Facts, KeyError, Layers},
    error::{BadRequest, Failure, LayerIds, RateLimited},
    ratelimit_fields,
    snapshot::Snapshot,
    worker::Worker,
};

/// A question that is under way.
#[derive(Debug)]
pub(crate) struct Check {
    layers: LayerIds,
    checking: Option<Checking>,
}

/// What the fields of an answer are written from. Empty where no layer applied, or none could be asked.
#[derive(Debug, Default)]
pub(crate) struct Passed(Option<RateLimited>);

impl Check {
    /// Asks. What `facts` borrows is free again when this returns.
    pub(crate) fn start(worker: &Worker, snapshot: &Snapshot, facts: &Facts<'_>) -> Result<Self, Failure> {
        if snapshot.layers.is_empty() {
            return Ok(Self {
                layers: LayerIds::new(),
                checking: None,
            });
        }
        let descriptor = &mut *worker.descriptor.borrow_mut();
        snapshot
            .layers
            .describe(facts, descriptor)
            .map_err(|error| match error {
                KeyError::Repeated { .. } => BadRequest::RepeatedKey.into(),
                KeyError::Missing { layer } => Failure::Forbidden { layer },
            })?;
        Ok(Self::ask(&snapshot.limiter, &snapshot.layers, descriptor))
    }

    fn ask(limiter: &Limiter, layers: &Layers, descriptor: &Descriptor) -> Self {
        let applied = descriptor.applied();
        if applied.is_empty() {
            return Self {
                layers: LayerIds::new(),
                checking: None,
            };
        }
        let asks: SmallVec<[Ask<'_>; 8]> = applied
            .iter()
            .map(|applied| Ask {
                policy: layers.policy(applied.layer),
                key: applied.key.as_str(),
                cost: applied.cost,
            })
            .collect();
        let checking = Some(limiter.check(&asks));
        Self {
            layers: applied.iter().map(|applied| to_id(applied.layer)).collect(),
            checking,
        }
    }

    /// Waits for the answer, where it is not there yet.
    ///
    /// # Errors
    /// A layer has no room, or refuses everything while its store is away.
    pub(crate) async fn finish(self) -> Result<Passed, Failure> {
        let outcome = match self.checking {
            None => return Ok(Passed(None)),
            Some(Checking::Ready(outcome)) => outcome,
            Some(Checking::Pending(outcome)) => outcome.await,
        };
        match outcome {
            Outcome::Decided(decision) => decided(self.layers, decision),
            Outcome::Fallback { error, decision } => match decision {
                FallbackDecision::Closed { by } => {
                    let layer = self.layers.get(by).map_or(0, |&layer| usize::from(layer));
                    Err(Failure::StoreAway { layer, error })
                }
                FallbackDecision::Local { layers, decision } => {
                    let local = layers.iter().filter_map(|&at| self.layers.get(at).copied()).collect();
                    decided(local, decision)
                }
            },
        }
    }
}

fn decided(layers: LayerIds, decision: Decision) -> Result<Passed, Failure> {
    let is_denied = matches!(decision.verdict, Verdict::Denied { .. });
    let fact = RateLimited { layers, decision };
    if is_denied {
        Err(Failure::RateLimited(Box::new(fact)))
    } else {
        Ok(Passed(Some(fact)))
    }
}

/// Layers are counted in `u16`: a configuration with more is refused long before by its size.
fn to_id(layer: usize) -> u16 {
    u16::try_from(layer).unwrap_or(u16::MAX)
}

impl Passed {
    /// Tells the client how full its layers are.
    pub(crate) fn write_fields(&self, worker: &Worker, snapshot: &Snapshot, headers: &mut HeaderMap) {
        if let Some(fact) = &self.0 {
            write_fields(fact, worker, snapshot, headers);
        }
    }
}

/// The `RateLimit` fields of a decision.
pub(crate) fn write_fields(fact: &RateLimited, worker: &Worker, snapshot: &Snapshot, headers: &mut HeaderMap) {
    let responses = &snapshot.config.responses;
    if !responses.draft_11 && !responses.legacy {
        return;
    }
    let policies = policies(fact, snapshot);
    ratelimit_fields::write(responses, &policies, &fact.decision, worker.now(), headers);
}

/// The policies of a decision, in its order.
pub(crate) fn policies<'a>(fact: &RateLimited, snapshot: &'a Snapshot) -> SmallVec<[&'a Arc<Policy>; 8]> {
    fact.layers
        .iter()
        .map(|&layer| snapshot.layers.policy(usize::from(layer)))
        .collect()
}
