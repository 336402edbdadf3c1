//! Policies + store + fallback → decision.

use std::{fmt, future::Future, pin::Pin, sync::Arc};

use smallvec::SmallVec;

#[cfg(feature = "redis")]
use crate::lots::Lots;
use crate::{
    clock::{Clock, Timestamp},
    decision::{Decision, INLINE_LAYERS, Verdict},
    held::{Held, Keeper},
    policy::Scope,
    receipt::Receipt,
    refusals::RefusalCache,
    settlement::Settlement,
    store::{Answer, Ask, MemoryStore, OwnedAsks, Store, StoreError},
    turn::{Home, Turn},
};

mod fallen;
#[cfg(feature = "redis")]
mod leased;
mod merge;
mod scoped;

use fallen::{Fallen, Plan};

/// Answers "may this pass?": asks the store, and applies each layer's failure policy where the store cannot answer.
#[derive(Clone, Debug)]
pub struct Limiter {
    store: Arc<dyn Store>,
    fallback: Arc<dyn Store>,
    refusals: Option<Arc<RefusalCache>>,
    /// Counters that are this process's alone.
    own: Option<Arc<MemoryStore>>,
    #[cfg(feature = "redis")]
    lots: Option<Arc<Lots>>,
}

/// What the limiter says of a request.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The store decided.
    Decided(Decision),
    /// The store was not asked: it has just refused the same, and would do so again.
    Repeated {
        /// For each reading of the decision, the index of its layer among those asked.
        layers: SmallVec<[usize; INLINE_LAYERS]>,
        /// Over these layers, of which some refuse; the index in it counts them.
        decision: Decision,
    },
    /// The store was not asked: a layer that this process counts for itself refuses.
    Refused {
        /// For each reading of the decision, the index of its layer among those asked.
        layers: SmallVec<[usize; INLINE_LAYERS]>,
        /// A refusal by these layers; the index in it counts them.
        decision: Decision,
    },
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
        layers: SmallVec<[usize; INLINE_LAYERS]>,
        /// So many of these, at the beginning, were decided by the store: a store of several servers may have lost some.
        shared: usize,
        /// Over these layers only; the index in a refusal counts them.
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
        Self {
            store,
            fallback,
            refusals: None,
            own: None,
            #[cfg(feature = "redis")]
            lots: None,
        }
    }

    /// The same, with a memory for what its store refuses: until the wait that was told is over, and for a second at most,
    /// the same counter refuses as much again without asking. Not for a store that takes back what it charged: one of several
    /// servers.
    #[must_use]
    pub fn repeating_refusals(self, clock: Arc<dyn Clock>) -> Self {
        Self {
            refusals: Some(Arc::new(RefusalCache::new(clock))),
            ..self
        }
    }

    /// The same, with a store for the layers whose [scope](crate::Scope) is this process. Without, they are asked like all
    /// others.
    #[must_use]
    pub fn with_own(self, own: Arc<MemoryStore>) -> Self {
        let own = Some(own);
        Self { own, ..self }
    }

    /// The same, which keeps the lots of policies that are [leased](crate::Policy::leased): those of the store. Without, each
    /// of their requests asks it.
    #[cfg(feature = "redis")]
    #[must_use]
    pub fn with_lots(self, lots: Arc<Lots>) -> Self {
        let lots = Some(lots);
        Self { lots, ..self }
    }

    /// Decides one request: its layers in order, as one step, all or nothing. A request without layers is allowed.
    #[must_use]
    pub fn check(&self, asks: &[Ask<'_>]) -> Checking {
        match &self.own {
            None => self.check_shared(asks),
            Some(own) => scoped::check(self, own, asks),
        }
    }

    fn check_shared(&self, asks: &[Ask<'_>]) -> Checking {
        #[cfg(feature = "redis")]
        if let Some(lots) = &self.lots {
            return leased::check(self, lots, asks);
        }
        self.check_store(asks)
    }

    fn check_store(&self, asks: &[Ask<'_>]) -> Checking {
        if asks.is_empty() {
            return Checking::Ready(Outcome::Decided(Decision::unlimited()));
        }
        let asked = self.refusals.as_ref().map_or(Timestamp::MAX, |refusals| refusals.now());
        if let Some(refusals) = &self.refusals
            && let Some((layers, decision)) = refusals.repeat(asks, asked)
        {
            return Checking::Ready(Outcome::Repeated { layers, decision });
        }
        let mut held = None;
        if let Some((layers, decision)) = self.fallback.hold_back(asks, &mut held) {
            return Checking::Ready(Outcome::Fallback {
                error: StoreError::Unavailable,
                decision: FallbackDecision::Local {
                    layers,
                    shared: 0,
                    decision,
                },
            });
        }
        match self.store.decide(asks) {
            Answer::Ready(Ok(mut decision)) => {
                self.learn(asks, &decision, asked);
                claim(&mut decision, asks, Home::Store, &self.store);
                Receipt::merge(&mut decision.receipt, held);
                Checking::Ready(Outcome::Decided(decision))
            }
            Answer::Ready(Err(error)) => self.fall_back(asks, error),
            Answer::Pending(result) => {
                let holds = asks.iter().any(|ask| ask.policy.algorithm().holds());
                // The keys are borrowed: what the fallback might need is kept now.
                let (limiter, asks) = (self.clone(), asks.iter().collect::<OwnedAsks>());
                Checking::Pending(Box::pin(async move {
                    match result.await {
                        Ok(mut decision) => {
                            if decision.verdict != Verdict::Allowed {
                                limiter.learn(&asks.asks(), &decision, asked);
                            }
                            if decision.turn.is_some() || decision.receipt.is_some() || holds {
                                claim(&mut decision, &asks.asks(), Home::Store, &limiter.store);
                            }
                            Receipt::merge(&mut decision.receipt, held);
                            Outcome::Decided(decision)
                        }
                        Err(error) => match limiter.fall_back(&asks.asks(), error) {
                            Checking::Ready(outcome) => outcome,
                            Checking::Pending(outcome) => outcome.await,
                        },
                    }
                }))
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn refusals(&self) -> Option<&Arc<RefusalCache>> {
        self.refusals.as_ref()
    }

    fn learn(&self, asks: &[Ask<'_>], decision: &Decision, asked: Timestamp) {
        if let Some(refusals) = &self.refusals {
            refusals.learn(asks, decision, asked);
        }
    }

    /// A request that was to wait for its turn leaves before it has come. Its units go back to each queue in which
    /// nobody stands behind it; to the others nothing does, for whoever is behind has a turn already. What it was charged in layers that give back is
    /// on its receipt.
    pub fn leave(&self, turn: Turn) {
        let (shared, local) = turn.into_claims();
        self.settle_at_home(shared);
        if !local.is_empty() {
            self.fallback.settle(local);
        }
    }

    /// Settles where it was decided, if not by the fallback.
    fn settle_at_home(&self, settlements: Vec<Settlement>) {
        let (ours, shared): (Vec<_>, Vec<_>) = match &self.own {
            None => (Vec::new(), settlements),
            Some(_) => (settlements.into_iter()).partition(|settlement| settlement.policy.scope() == Scope::Instance),
        };
        if let Some(own) = &self.own
            && !ours.is_empty()
        {
            own.settle(ours);
        }
        if !shared.is_empty() {
            self.store.settle(shared);
        }
    }

    /// What an admitted request costs is known: makes each charge of `receipt` what `cost` says, which is given the layer
    /// (an index into those asked) and the units that it was charged, once for each.
    ///
    /// What was charged too little is charged whatever is free. What was charged too much is given back, but only to where
    /// it was taken from (a window that has ended takes nothing), and never above full.
    pub fn settle(&self, receipt: Receipt, cost: impl FnMut(usize, u64) -> u64) {
        let (mut shared, mut local, mut shares) = (Vec::new(), Vec::new(), Vec::new());
        for correction in receipt.corrections(cost) {
            match correction.home {
                Home::Store => shared.push(correction.settlement),
                Home::Fallback => local.push((correction.at, correction.settlement)),
                Home::Share => shares.push(correction.settlement),
            }
        }
        if !shares.is_empty() {
            self.fallback.settle(shares);
        }
        if !local.is_empty() {
            shared.append(&mut self.fallback.settle_charged(local));
        }
        self.settle_at_home(shared);
    }

    /// The store could not answer, or not for all layers.
    fn fall_back(&self, asks: &[Ask<'_>], error: StoreError) -> Checking {
        let fallen = Fallen::new(error, asks);
        match fallen.plan(asks) {
            Plan::Decided(decision) => Checking::Ready(fallen.outcome(&*self.store, decision)),
            Plan::Local(layers) => {
                let local: SmallVec<[Ask<'_>; INLINE_LAYERS]> =
                    layers.iter().map(|&layer| asks[layer].clone()).collect();
                match self.fallback.decide(&local) {
                    Answer::Ready(mut result) => {
                        if let Ok(decision) = &mut result {
                            claim(decision, &local, Home::Fallback, &self.fallback);
                        }
                        let decision = fallen.together(layers, result);
                        Checking::Ready(fallen.outcome(&*self.store, decision))
                    }
                    Answer::Pending(result) => {
                        let (store, fallback) = (Arc::clone(&self.store), Arc::clone(&self.fallback));
                        let local = local.iter().collect::<OwnedAsks>();
                        Checking::Pending(Box::pin(async move {
                            let mut result = result.await;
                            if let Ok(decision) = &mut result {
                                claim(decision, &local.asks(), Home::Fallback, &fallback);
                            }
                            let decision = fallen.together(layers, result);
                            fallen.outcome(&*store, decision)
                        }))
                    }
                }
            }
        }
    }
}

/// Keeps what is needed to leave the queues of a request's layers again, to settle what it was charged, and to give slots
/// back to `store`, which is that `home`.
fn claim(decision: &mut Decision, asks: &[Ask<'_>], home: Home, store: &Arc<dyn Store>) {
    Held::claim(decision, asks, || Keeper::Store(Arc::clone(store)));
    if let Some(receipt) = &mut decision.receipt {
        receipt.claim(asks, home);
    }
    if let Some(turn) = &mut decision.turn {
        turn.claim(asks, home);
    }
}

/// Indices of layers among those asked.
type Layers = SmallVec<[usize; INLINE_LAYERS]>;

#[cfg(test)]
mod tests;
