//! Policies + store + fallback → decision.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use smallvec::SmallVec;

use crate::{
    decision::{Decision, INLINE_LAYERS},
    policy::OnFailure,
    store::{Answer, Ask, OwnedAsks, Store, StoreError},
};

/// Answers "may this pass?": asks the store, and applies each layer's failure policy where the store cannot answer.
#[derive(Clone, Debug)]
pub struct Limiter {
    store: Arc<dyn Store>,
    fallback: Arc<dyn Store>,
}

/// What the limiter says of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The store decided.
    Decided(Decision),
    /// The store could not answer; the layers' failure policies decided.
    Fallback {
        /// Why the store could not answer.
        error: StoreError,
        /// What the policies say.
        decision: FallbackDecision,
    },
}

/// What the failure policies of a request's layers say.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one: a box would allocate for every request"
)]
#[derive(Clone, Debug)]
pub enum FallbackDecision {
    /// The `local` layers decided, in memory; `open` layers let it pass.
    Local {
        /// For each reading of the decision, the index of its layer among those asked.
        layers: SmallVec<[usize; INLINE_LAYERS]>,
        /// Over the `local` layers only; the index in a refusal counts those.
        decision: Decision,
    },
    /// A `closed` layer (an index into the layers asked) refuses everything while its store is away.
    Closed {
        /// The first such layer, in order.
        by: usize,
    },
}

/// An outcome that is there, or will be.
#[expect(
    clippy::large_enum_variant,
    reason = "the large one is the common one: a box would allocate for every request"
)]
pub enum Checking {
    /// Decided without waiting.
    Ready(Outcome),
    /// On its way.
    Pending(Pin<Box<dyn Future<Output = Outcome> + Send>>),
}

impl fmt::Debug for Checking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(outcome) => f.debug_tuple("Ready").field(outcome).finish(),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

impl Limiter {
    /// A limiter over `store`; layers whose failure policy is `local` use `fallback` while it is away.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, fallback: Arc<dyn Store>) -> Self {
        Self { store, fallback }
    }

    /// Decides one request: its layers in order, as one step, all or nothing. A request without layers is allowed.
    #[must_use]
    pub fn check(&self, asks: &[Ask<'_>]) -> Checking {
        if asks.is_empty() {
            return Checking::Ready(Outcome::Decided(Decision::unlimited()));
        }
        match self.store.decide(asks) {
            Answer::Ready(Ok(decision)) => Checking::Ready(Outcome::Decided(decision)),
            Answer::Ready(Err(error)) => match Plan::of(asks) {
                Plan::Closed { by } => Checking::Ready(closed(error, by)),
                Plan::Local(kept) => match kept.decide(&*self.fallback) {
                    Answer::Ready(result) => Checking::Ready(local(error, kept.layers, result)),
                    Answer::Pending(result) => {
                        Checking::Pending(Box::pin(async move { local(error, kept.layers, result.await) }))
                    }
                },
            },
            Answer::Pending(result) => {
                // The keys are borrowed: what the fallback might need is kept now.
                let (plan, fallback) = (Plan::of(asks), Arc::clone(&self.fallback));
                Checking::Pending(Box::pin(async move {
                    match result.await {
                        Ok(decision) => Outcome::Decided(decision),
                        Err(error) => plan.carry_out(error, &*fallback).await,
                    }
                }))
            }
        }
    }
}

/// What is to happen if the store fails, known before it is asked.
enum Plan {
    /// One closed layer refuses all, so that no other layer is charged.
    Closed { by: usize },
    /// These layers are decided in the fallback store; all others pass.
    Local(Kept),
}

/// The `local` layers of a request, owned.
#[derive(Default)]
struct Kept {
    layers: SmallVec<[usize; INLINE_LAYERS]>,
    asks: OwnedAsks,
}

impl Plan {
    fn of(asks: &[Ask<'_>]) -> Self {
        if let Some(by) = asks.iter().position(|a| a.policy.on_failure() == OnFailure::Closed) {
            return Self::Closed { by };
        }
        let mut kept = Kept::default();
        for (layer, ask) in asks.iter().enumerate() {
            if ask.policy.on_failure() == OnFailure::Local {
                kept.layers.push(layer);
                kept.asks.push(ask);
            }
        }
        Self::Local(kept)
    }

    async fn carry_out(self, error: StoreError, fallback: &dyn Store) -> Outcome {
        match self {
            Self::Closed { by } => closed(error, by),
            Self::Local(kept) => {
                let result = match kept.decide(fallback) {
                    Answer::Ready(result) => result,
                    Answer::Pending(result) => result.await,
                };
                local(error, kept.layers, result)
            }
        }
    }
}

impl Kept {
    fn decide(&self, fallback: &dyn Store) -> Answer {
        if self.layers.is_empty() {
            return Answer::Ready(Ok(Decision::unlimited()));
        }
        fallback.decide(&self.asks.asks())
    }
}

fn closed(error: StoreError, by: usize) -> Outcome {
    let decision = FallbackDecision::Closed { by };
    Outcome::Fallback { error, decision }
}

fn local(error: StoreError, layers: SmallVec<[usize; INLINE_LAYERS]>, result: Result<Decision, StoreError>) -> Outcome {
    let decision = match result {
        Ok(decision) => FallbackDecision::Local { layers, decision },
        // Two stores failed. Nothing is left that could count, and `local` means that service goes on.
        Err(_) => FallbackDecision::Local {
            layers: SmallVec::new(),
            decision: Decision::unlimited(),
        },
    };
    Outcome::Fallback { error, decision }
}

#[cfg(test)]
mod tests;
