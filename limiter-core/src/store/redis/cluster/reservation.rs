//! A request whose counters lie in several slots.

use std::sync::Arc;

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::{
    super::node::{Decided, Moment},
    Cluster,
};
use crate::{
    clock::Timestamp,
    decide::Refusals,
    decision::{Decision, INLINE_LAYERS, Reading, Verdict, Wait},
    held::Held,
    receipt::Receipt,
    settlement::{Change, Settlement},
    store::{Answer, Ask, OwnedAsks, Partly, StoreError},
    turn::Turn,
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
        let mut whole = Whole::new(cluster.context.now());
        for (layers, answered) in self.parts {
            match answered {
                Ok(answered) => whole.add(layers, answered.await.unwrap_or(Err(StoreError::Unavailable))),
                Err(error) => whole.add(layers, Err(error)),
            }
        }
        whole.readings.sort_unstable_by_key(|(layer, _)| *layer);
        whole.settle_turn(cluster.context.now());
        let mut taken = whole.taken(&asks);
        if whole.wait.is_some() {
            cluster.settle(std::mem::take(&mut taken));
        }
        whole.result(&asks, taken)
    }
}

/// The answers of the parts, put together.
struct Whole {
    /// When this began, by our clock.
    began: Timestamp,
    /// The turn of the parts that have one, counted from then. Layers are those of the request.
    turn: Option<Box<Turn>>,
    /// The receipts of all parts. Layers are those of the request.
    receipt: Option<Box<Receipt>>,
    /// The slots that the parts took.
    held: Option<Box<Held>>,
    /// Of the layers that were decided.
    readings: SmallVec<[(usize, Reading); INLINE_LAYERS]>,
    /// The longest wait of all layers without room; `None` where all have room.
    wait: Option<Wait>,
    /// When the layers of each part were decided, by the clock of their server.
    at: Vec<(Layers, Timestamp)>,
    /// Why the other layers were not decided.
    error: Option<StoreError>,
}

impl Whole {
    fn new(began: Timestamp) -> Self {
        Self {
            began,
            turn: None,
            receipt: None,
            held: None,
            readings: SmallVec::new(),
            wait: None,
            at: Vec::new(),
            error: None,
        }
    }

    fn add(&mut self, layers: Layers, decided: Decided) {
        let (mut decision, Moment { server: at, ours }) = match decided {
            Ok(decided) => decided,
            Err(error) => {
                self.error.get_or_insert(error);
                return;
            }
        };
        if let Some(turn) = &mut decision.turn {
            turn.postpone(ours.since(self.began));
        }
        Turn::join(&mut self.turn, decision.turn, &layers);
        Receipt::join(&mut self.receipt, decision.receipt, &layers);
        Held::join(&mut self.held, decision.held);
        self.readings.extend(layers.iter().copied().zip(decision.readings));
        self.at.push((layers, at));
        if let Verdict::Denied { wait, .. } = decision.verdict {
            self.wait = self.wait.max(Some(wait));
        }
    }

    /// All parts are there, `now`: a turn counts from here.
    fn settle_turn(&mut self, now: Timestamp) {
        if self.wait.is_some() {
            self.turn = None;
            self.held = None;
        }
        if let Some(turn) = &mut self.turn {
            turn.pass(now.since(self.began));
        }
    }

    /// What was charged and is not to be kept, now that it is known which layers refuse: all that a refused request
    /// was charged, but for what [`Role`](crate::Role) says. Where none refuses, what is to be given back if another
    /// store's layer does.
    fn taken(&mut self, asks: &[Ask<'_>]) -> Vec<Settlement> {
        let fits = |layer: usize| {
            let reading = self.readings.iter().find(|(other, _)| *other == layer);
            reading.is_none_or(|(_, reading)| reading.fits)
        };
        let refusals = Refusals::of(
            asks.iter()
                .enumerate()
                .map(|(layer, ask)| (ask.policy.role(), fits(layer))),
        );
        let mut taken = Vec::new();
        for (layer, reading) in &mut self.readings {
            let (Some(ask), Some((_, at))) = (
                asks.get(*layer),
                self.at.iter().find(|(layers, _)| layers.contains(layer)),
            ) else {
                continue;
            };
            let kept = match refusals.first {
                None => 0,
                Some(_) => refusals.charge(*layer, ask.policy.role(), ask.cost, reading.remaining + reading.taken),
            };
            let units = reading.taken.saturating_sub(kept);
            if units == 0 {
                continue;
            }
            // Slots go back as they are let go of.
            if !ask.policy.algorithm().holds() {
                let change = Change::GiveBack { units, at: *at };
                taken.push(Settlement::new(Arc::clone(ask.policy), ask.key, change));
            }
            if refusals.first.is_some() {
                reading.remaining = (reading.remaining + units).min(ask.policy.algorithm().limit());
                reading.taken = kept;
                Receipt::keep(&mut self.receipt, *layer, kept);
            }
        }
        taken
    }

    /// The decision over all layers, or over those that were decided.
    fn result(self, asks: &[Ask<'_>], taken: Vec<Settlement>) -> Result<Decision, StoreError> {
        let refuses = |layer: usize| asks.get(layer).is_some_and(|ask| ask.policy.role().is_enforced());
        let by = (self.readings.iter()).position(|(layer, reading)| !reading.fits && refuses(*layer));
        let verdict = match self.wait {
            None => Verdict::Allowed,
            Some(wait) => Verdict::Denied {
                by: by.unwrap_or_default(),
                wait,
            },
        };
        let (layers, readings): (Layers, _) = self.readings.into_iter().unzip();
        let decision = Decision {
            verdict,
            readings,
            turn: self.turn,
            receipt: self.receipt,
            held: self.held,
        };
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
