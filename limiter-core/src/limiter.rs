//! Policies + store + fallback → decision.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use crate::{
    decision::Decision,
    store::{Ask, Store, StoreError},
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
#[derive(Clone, Debug)]
pub enum FallbackDecision {
    /// The `local` layers decided, in memory; `open` layers let it pass.
    Local {
        /// For each reading of the decision, the index of its layer among those asked.
        layers: smallvec::SmallVec<[usize; crate::decision::INLINE_LAYERS]>,
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

    /// Decides one request: its layers in order, as one step, all or nothing.
    #[must_use]
    pub fn check(&self, asks: &[Ask<'_>]) -> Checking {
        let _ = (asks, &self.store, &self.fallback);
        unimplemented!()
    }
}
