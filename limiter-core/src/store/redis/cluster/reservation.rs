//! A request whose counters lie in several slots.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{super::node::Decided, Cluster};
use crate::{
    clock::Timestamp,
    decision::{Decision, INLINE_LAYERS, Reading, Verdict, Wait},
    settlement::{Change, Settlement},
    store::{Answer, Ask, OwnedAsks, Partly, StoreError},
};

/// Indices of layers among those of the request.
type Layers = SmallVec<[usize; INLINE_LAYERS]>;

/// The parts of a request, on their way.
///
/// Each is decided on its own. Where one refuses, what the others took is given back: never above full, and only into the
/// window that it was taken from. So no more is admitted than is allowed, to within what a bucket refills in a round
/// trip; between the two, another request may be refused early. What a part took whose answer was lost stays taken.
#[derive(Debug)]
pub(super) struct Reservation {
    request: OwnedAsks,
    parts: Vec<(Layers, Answered)>,
}

/// Where the answer to a part will come from.
type Answered = Result<oneshot::Receiver<Decided>, StoreError>;

impl Reservation {
    /// The reservation of a request, in these parts.
    pub(super) fn new(asks: &[Ask<'_>], parts: impl Iterator<Item = (Layers, Answered)>) -> Self {
        Self {
            request: asks.iter().collect(),
            parts: parts.collect(),
        }
    }

    /// The answer to the whole. A task sees to it, so that what was taken is given back even if the client leaves.
    pub(super) fn answer(self, cluster: Arc<Cluster>) -> Answer {
        let (answer, answered) = oneshot::channel();
        let runtime = cluster.context.runtime.clone();
        runtime.spawn(async move {
            let result = self.decide(&cluster).await;
            // Nobody waits for it any more: charged all the same, as any request that had left.
            drop(answer.send(result));
        });
        Answer::Pending(Box::pin(async move {
            answered.await.unwrap_or(Err(StoreError::Unavailable))
        }))
    }

    async fn decide(self, cluster: &Cluster) -> Result<Decision, StoreError> {
        let asks = self.request.asks();
        let mut whole = Whole::default();
        for (layers, answered) in self.parts {
            match answered {
                Ok(answered) => whole.add(layers, answered.await.unwrap_or(Err(StoreError::Unavailable))),
                Err(error) => whole.add(layers, Err(error)),
            }
        }
        whole.readings.sort_unstable_by_key(|(layer, _)| *layer);
        let mut taken = whole.taken(&asks);
        if whole.wait.is_some() {
            cluster.settle(std::mem::take(&mut taken));
        }
        whole.result(taken)
    }
}

/// The answers of the parts, put together.
#[derive(Default)]
struct Whole {
    /// Of the layers that were decided.
    readings: SmallVec<[(usize, Reading); INLINE_LAYERS]>,
    /// The longest wait of all layers without room; `None` where all have room.
    wait: Option<Wait>,
    /// What was charged, and when by the clock of its server.
    charged: Vec<(Layers, Timestamp)>,
    /// Why the other layers were not decided.
    error: Option<StoreError>,
}

impl Whole {
    fn add(&mut self, layers: Layers, decided: Decided) {
        let (decision, at) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        self.readings.extend(layers.iter().copied().zip(decision.readings));
        match decision.verdict {
            Verdict::Allowed => self.charged.push((layers, at)),
            Verdict::Denied { wait, .. } => self.wait = self.wait.max(Some(wait)),
        }
    }

    /// What was charged, to be given back; of a refusal the readings say so already.
    fn taken(&mut self, asks: &[Ask<'_>]) -> Vec<Settlement> {
        let mut taken = Vec::new();
        for (layers, at) in std::mem::take(&mut self.charged) {
            for layer in layers {
                let Some(ask) = asks.get(layer).filter(|ask| ask.cost > 0) else {
                    continue;
                };
                taken.push(Settlement {
                    policy: Arc::clone(ask.policy),
                    key: ask.key.into(),
                    change: Change::GiveBack { units: ask.cost, at },
                });
                let reading = self.readings.iter_mut().find(|(other, _)| *other == layer);
                if let (Some((_, reading)), true) = (reading, self.wait.is_some()) {
                    reading.remaining = (reading.remaining + ask.cost).min(ask.policy.algorithm().limit());
                }
            }
        }
        taken
    }

    /// The decision over all layers, or over those that were decided.
    fn result(self, taken: Vec<Settlement>) -> Result<Decision, StoreError> {
        let by = self.readings.iter().position(|(_, reading)| !reading.fits);
        let verdict = match self.wait {
            None => Verdict::Allowed,
            Some(wait) => Verdict::Denied {
                by: by.unwrap_or_default(),
                wait,
            },
        };
        let (layers, readings): (Layers, _) = self.readings.into_iter().unzip();
        let decision = Decision { verdict, readings };
        match self.error {
            None => Ok(decision),
            Some(error) if layers.is_empty() => Err(error),
            Some(error) => Err(StoreError::Partly(Arc::new(Partly {
                layers,
                decision,
                taken,
                error,
            }))),
        }
    }
}
