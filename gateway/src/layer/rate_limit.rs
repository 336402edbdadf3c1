//! Asks the limiter, before anything costs: before waiting, before a connection, before the body is read.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue};
use limiter_core::{
    Checking, FallbackDecision, Held, Outcome, Role, StoreError, Timestamp, Turn, Verdict, Wait, store::Ask,
};
use smallvec::SmallVec;

use crate::{
    bans::Watched,
    descriptor::{Descriptor, Facts, KeyError, LayerId},
    error::{BadRequest, Failure, LayerIds, RateLimited},
    exchange::{Asked, Owed},
    metrics::LimitOutcome,
    rejection::Rejection,
    snapshot::Snapshot,
    upstream::rewrite::X_GATEWAY_DEGRADED,
    worker::Worker,
};

/// A question that is under way.
#[derive(Debug, Default)]
pub(crate) struct Check {
    layers: LayerIds,
    /// The limiter's answer, and when it was asked; `None` where there was nothing to ask.
    checking: Option<(Checking, Timestamp)>,
    /// Its keys at the layers that ban.
    watched: Watched,
}

/// What the fields of an answer are written from. Empty where no layer applied, or none could be asked.
#[derive(Debug, Default)]
pub(crate) struct Passed {
    fact: Option<RateLimited>,
    degraded: Option<Degraded>,
    held: Option<Box<Held>>,
}

/// A request that a layer refused, and that goes to another upstream instead.
#[derive(Clone, Debug)]
pub(crate) struct Degraded {
    /// The layer.
    pub(crate) layer: u16,
    /// Its name.
    pub(crate) name: HeaderValue,
    /// An index into the upstreams of the configuration.
    pub(crate) upstream: usize,
}

impl Check {
    /// Asks. What `facts` borrows is free again when this returns.
    pub(crate) fn start(worker: &Worker, snapshot: &Snapshot, facts: &Facts<'_>) -> Result<Self, Failure> {
        if snapshot.layers.is_empty() {
            return Ok(Self::default());
        }
        let descriptor = &mut *worker.descriptor.borrow_mut();
        snapshot
            .layers
            .describe(facts, descriptor)
            .map_err(|error| match error {
                KeyError::Repeated { .. } => BadRequest::RepeatedKey.into(),
                KeyError::Missing { layer } => Failure::Forbidden { layer },
                KeyError::Cost { layer, problem } => Failure::BadCost { layer, problem },
                KeyError::Denied { layer } => {
                    count(snapshot, layer, LimitOutcome::Denied);
                    Failure::KeyDenied { layer }
                }
            })?;
        for &layer in descriptor.skipped() {
            count(snapshot, layer, LimitOutcome::Skipped);
        }
        let watched = watch(worker, snapshot, descriptor)?;
        Ok(Self {
            watched,
            ..Self::ask(worker, snapshot, descriptor)
        })
    }

    fn ask(worker: &Worker, snapshot: &Snapshot, descriptor: &Descriptor) -> Self {
        let applied = descriptor.applied();
        if applied.is_empty() {
            return Self::default();
        }
        let mut asks = SmallVec::<[Ask<'_>; 8]>::new();
        let mut layers = LayerIds::new();
        for applied in applied {
            asks.push(Ask {
                policy: snapshot.layers.policy(applied.layer),
                key: applied.key.as_str(),
                cost: applied.cost,
            });
            layers.push(applied.layer);
        }
        let at = worker.now();
        Self {
            layers,
            checking: Some((snapshot.limiter.check(&asks), at)),
            watched: Watched::default(),
        }
    }

    /// Waits for the answer, where it is not there yet. Layers that only watch, and would have refused, are added to `tried`;
    /// `owed` becomes what is to be settled afterwards, if anything is.
    ///
    /// # Errors
    /// A layer has no room, and nothing else to do with the request; or it refuses everything while its store is away.
    pub(crate) async fn finish(
        self,
        snapshot: &Arc<Snapshot>,
        tried: &mut Vec<LayerId>,
        owed: &mut Option<Box<Owed>>,
    ) -> Result<Passed, Failure> {
        let Some((checking, at)) = self.checking else {
            return Ok(Passed::default());
        };
        let is_settled = |layer: &LayerId| snapshot.layers.settling(*layer).is_some();
        let mut outcome = match checking {
            Checking::Ready(outcome) => outcome,
            Checking::Pending(outcome) if self.layers.iter().any(is_settled) => {
                Asked::new(outcome, &self.layers, snapshot).await
            }
            Checking::Pending(outcome) => outcome.await,
        };
        *owed = Owed::of(&mut outcome, &self.layers);
        let of = |indices: &[usize]| -> LayerIds {
            let layers = indices.iter().filter_map(|&at| self.layers.get(at));
            layers.copied().collect()
        };
        let (mut fact, shared) = match outcome {
            Outcome::Decided(decision) => {
                let layers = self.layers;
                (RateLimited { layers, decision, at }, usize::MAX)
            }
            Outcome::Repeated { layers, decision } => {
                let layers = of(&layers);
                let fact = RateLimited { layers, decision, at };
                for (layer, _) in fact.without_room() {
                    if let Some(metrics) = snapshot.metrics.limits.get(layer.index()) {
                        metrics.record_repeated();
                    }
                }
                (fact, usize::MAX)
            }
            Outcome::Refused { layers, decision } => {
                let layers = of(&layers);
                (RateLimited { layers, decision, at }, usize::MAX)
            }
            Outcome::Fallback { error, decision } => fallback(&self.layers, error, decision, at, snapshot)?,
        };
        if !record(&fact, snapshot, shared, tried) {
            keep_enforced(&mut fact, snapshot);
        }
        self.watched.count(&fact);
        verdict(fact, snapshot)
    }
}

/// The keys of the layers that ban, unless one of them is banned: then nobody else is asked.
fn watch(worker: &Worker, snapshot: &Snapshot, descriptor: &Descriptor) -> Result<Watched, Failure> {
    let Some(banning) = &snapshot.banning else {
        return Ok(Watched::default());
    };
    let (applied, layers) = (descriptor.applied(), &snapshot.layers);
    if let Some(fact) = banning.find(applied, layers, worker.now()) {
        for layer in &fact.layers {
            count(snapshot, layer.index(), LimitOutcome::Banned);
        }
        return Err(Failure::Banned(Box::new(fact)));
    }
    Ok(banning.watch(applied, layers))
}

/// What the failure policies of the layers say, since the store cannot answer; and how many of the layers, at the
/// beginning, the store decided.
fn fallback(
    asked: &LayerIds,
    error: StoreError,
    decision: FallbackDecision,
    at: Timestamp,
    snapshot: &Snapshot,
) -> Result<(RateLimited, usize), Failure> {
    match decision {
        FallbackDecision::Closed { by } => {
            let layer = asked.get(by).map_or(0, |layer| layer.index());
            count(snapshot, layer, LimitOutcome::FallbackDenied);
            Err(Failure::StoreAway { layer, error })
        }
        FallbackDecision::Local {
            layers: decided,
            shared,
            decision,
        } => {
            for (at, layer) in asked.iter().enumerate() {
                if !decided.contains(&at) && snapshot.layers.policy(*layer).role() != Role::Candidate {
                    count(snapshot, layer.index(), LimitOutcome::FallbackAllowed);
                }
            }
            let layers = decided.iter().filter_map(|&at| asked.get(at).copied()).collect();
            Ok((RateLimited { layers, decision, at }, shared))
        }
    }
}

/// What becomes of the request.
fn verdict(mut fact: RateLimited, snapshot: &Snapshot) -> Result<Passed, Failure> {
    let mut degraded = None;
    if let Verdict::Denied { .. } = fact.decision.verdict {
        degraded = self::degraded(&fact, snapshot);
        if degraded.is_none() {
            return Err(Failure::RateLimited(Box::new(fact)));
        }
    }
    Ok(Passed {
        held: fact.decision.held.take(),
        fact: (!fact.layers.is_empty()).then_some(fact),
        degraded,
    })
}

/// Where a refused request goes instead, if the layer that refuses says so.
fn degraded(fact: &RateLimited, snapshot: &Snapshot) -> Option<Degraded> {
    let layer = fact.refused_by()?;
    let Rejection::Degrade { upstream } = snapshot.rejection(layer)? else {
        return None;
    };
    Some(Degraded {
        layer,
        name: HeaderValue::from_str(snapshot.limit_name(layer.into())?).ok()?,
        upstream: *upstream,
    })
}

/// Counts what each layer said; whether all of them refuse, if they have no room. The first `shared` of them were asked in
/// the store, the others in the fallback.
fn record(fact: &RateLimited, snapshot: &Snapshot, shared: usize, tried: &mut Vec<LayerId>) -> bool {
    let mut all_enforced = true;
    for (at, (&layer, reading)) in fact.layers.iter().zip(&fact.decision.readings).enumerate() {
        let policy = snapshot.layers.policy(layer);
        let role = policy.role();
        all_enforced &= role.is_enforced();
        if role == Role::Candidate {
            if !reading.fits {
                count(snapshot, layer.index(), LimitOutcome::CandidateDenied);
                tried.push(layer);
            }
            continue;
        }
        let outcome = match (at < shared, reading.fits) {
            (_, false) if !role.is_enforced() => LimitOutcome::ShadowDenied,
            (true, true) => LimitOutcome::Allowed,
            (true, false) => LimitOutcome::Denied,
            (false, true) => LimitOutcome::FallbackAllowed,
            (false, false) => LimitOutcome::FallbackDenied,
        };
        if outcome == LimitOutcome::ShadowDenied {
            tried.push(layer);
        }
        if let Some(metrics) = snapshot.metrics.limits.get(layer.index()) {
            metrics.record_used(outcome, reading.remaining, policy.algorithm().limit());
        }
    }
    all_enforced
}

/// Drops what layers said that refuse nothing: nobody but the metrics is to know of them.
fn keep_enforced(fact: &mut RateLimited, snapshot: &Snapshot) {
    let is_enforced = |layer| snapshot.layers.policy(layer).role().is_enforced();
    let kept: SmallVec<[bool; 8]> = fact.layers.iter().map(|layer| is_enforced(*layer)).collect();
    if let Verdict::Denied { by, .. } = &mut fact.decision.verdict {
        *by = kept.iter().take(*by).filter(|kept| **kept).count();
    }
    let mut flags = kept.iter();
    fact.layers.retain(|_| flags.next().is_some_and(|kept| *kept));
    let mut flags = kept.iter();
    fact.decision
        .readings
        .retain(|_| flags.next().is_some_and(|kept| *kept));
}

fn count(snapshot: &Snapshot, layer: usize, outcome: LimitOutcome) {
    if let Some(metrics) = snapshot.metrics.limits.get(layer) {
        metrics.record(outcome);
    }
}

impl Passed {
    /// The turn that the request has to wait for, if it has one.
    pub(crate) fn take_turn(&mut self) -> Option<Box<Turn>> {
        self.fact.as_mut()?.decision.turn.take()
    }

    /// What the request holds of limits of concurrency, until it has ended.
    pub(crate) fn take_held(&mut self) -> Option<Box<Held>> {
        self.held.take()
    }

    /// Where the request goes instead of to its route's target.
    pub(crate) fn degraded(&self) -> Option<&Degraded> {
        self.degraded.as_ref()
    }

    /// The request was charged so much in a layer, and costs so much: what the layer said is taken to be of that.
    pub(crate) fn costs(&mut self, snapshot: &Snapshot, layer: LayerId, charged: u64, cost: u64) {
        let Some(fact) = &mut self.fact else { return };
        let readings = fact.layers.iter().zip(&mut fact.decision.readings);
        for (_, reading) in readings.filter(|(other, _)| **other == layer) {
            let limit = snapshot.layers.policy(layer).algorithm().limit();
            reading.remaining = (reading.remaining + charged).saturating_sub(cost).min(limit);
            if reading.remaining == limit {
                reading.wait = Wait::For(std::time::Duration::ZERO);
            }
        }
    }

    /// Tells the client how full its layers are, and which of them sent it elsewhere.
    pub(crate) fn write_fields(&self, worker: &Worker, snapshot: &Snapshot, headers: &mut HeaderMap) {
        if let Some(fact) = &self.fact {
            snapshot.write_ratelimit_fields(fact, worker.now(), &mut worker.fields.borrow_mut(), headers);
        }
        if let Some(degraded) = &self.degraded {
            headers.append(X_GATEWAY_DEGRADED.clone(), degraded.name.clone());
        }
    }
}
