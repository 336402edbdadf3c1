//! A request whose counters lie in several slots.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{super::node::Decided, Cluster};
use crate::{
    clock::Timestamp,
    decision::{Decision, INLINE_LAYERS, Reading, Verdict, Wait},
    settlement::{Change, Settlement},
    store::{Answer, Ask, OwnedAsks, StoreError},
};

/// Indices of layers among those of the request.
type Layers = SmallVec<[usize; INLINE_LAYERS]>;

/// The parts of a request, on their way.
///
/// Each is decided on its own. Where one refuses or fails, what the others took is given back: never above full, and
/// only into the window that it was taken from. So no more is admitted than is allowed; between the two, another
/// request may be refused early. What a part took whose answer was lost stays taken.
#[derive(Debug)]
pub(super) struct Reservation {
    request: OwnedAsks,
    parts: Vec<(Layers, Result<oneshot::Receiver<Decided>, StoreError>)>,
}

impl Reservation {
    pub(super) fn new(asks: &[Ask<'_>]) -> Self {
        Self {
            request: asks.iter().collect(),
            parts: Vec::new(),
        }
    }

    /// Adds a part: its layers, and where its answer will come from.
    pub(super) fn add(&mut self, layers: Layers, answered: Result<oneshot::Receiver<Decided>, StoreError>) {
        self.parts.push((layers, answered));
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
        let mut whole = Whole::new(asks.len());
        for (layers, answered) in self.parts {
            let decided = match answered {
                Ok(answered) => answered.await.unwrap_or(Err(StoreError::Unavailable)),
                Err(error) => Err(error),
            };
            whole.add(layers, decided);
        }
        if whole.error.is_none() && whole.denied.is_none() {
            return Ok(whole.into_decision());
        }
        let taken = whole.give_back(&asks);
        cluster.settle(taken);
        match whole.error.take() {
            Some(error) => Err(error),
            None => Ok(whole.into_decision()),
        }
    }
}

/// The answers of the parts, put together.
struct Whole {
    readings: SmallVec<[Reading; INLINE_LAYERS]>,
    /// The first layer without room, and the longest wait of all such.
    denied: Option<(usize, Wait)>,
    error: Option<StoreError>,
    /// What was charged, and when by the clock of its server.
    taken: Vec<(Layers, Timestamp)>,
}

impl Whole {
    fn new(layers: usize) -> Self {
        let unknown = Reading {
            fits: true,
            remaining: 0,
            wait: Wait::For(Duration::ZERO),
        };
        Self {
            readings: smallvec::smallvec![unknown; layers],
            denied: None,
            error: None,
            taken: Vec::new(),
        }
    }

    fn add(&mut self, layers: Layers, decided: Decided) {
        let (decision, at) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        for (&layer, reading) in layers.iter().zip(decision.readings) {
            if let Some(place) = self.readings.get_mut(layer) {
                *place = reading;
            }
        }
        match decision.verdict {
            Verdict::Allowed => self.taken.push((layers, at)),
            Verdict::Denied { by, wait } => {
                let by = layers.get(by).copied().unwrap_or_default();
                self.denied = Some(match self.denied {
                    Some((first, longest)) => (first.min(by), longest.max(wait)),
                    None => (by, wait),
                });
            }
        }
    }

    /// What was charged, to be given back; the readings say so.
    fn give_back(&mut self, asks: &[Ask<'_>]) -> Vec<Settlement> {
        let mut settlements = Vec::new();
        for (layers, at) in std::mem::take(&mut self.taken) {
            for layer in layers {
                let (Some(ask), Some(reading)) = (asks.get(layer), self.readings.get_mut(layer)) else {
                    continue;
                };
                if ask.cost > 0 {
                    reading.remaining = (reading.remaining + ask.cost).min(ask.policy.algorithm().limit());
                    settlements.push(Settlement {
                        policy: Arc::clone(ask.policy),
                        key: ask.key.into(),
                        change: Change::GiveBack { units: ask.cost, at },
                    });
                }
            }
        }
        settlements
    }

    fn into_decision(self) -> Decision {
        let verdict = match self.denied {
            Some((by, wait)) => Verdict::Denied { by, wait },
            None => Verdict::Allowed,
        };
        Decision {
            verdict,
            readings: self.readings,
        }
    }
}
