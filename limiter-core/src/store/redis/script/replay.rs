//! Repeats what the script decided, from the counters as it found them.

use smallvec::SmallVec;

use super::{Batch, codec};
use crate::{
    algorithm::{Algorithm, Counter, Log},
    clock::Timestamp,
    decide::{Layer, decide},
    decision::{Decision, INLINE_LAYERS, Verdict, Wait},
    policy::Role,
    store::StoreError,
};

/// What a reply says.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// The call came after its `not_after`: nothing was read or written. The server's time is this.
    Late(Timestamp),
    /// Every request was decided.
    Decided(Replay),
}

/// The decisions of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Replay {
    /// The server's time when it decided.
    pub(crate) now: Timestamp,
    /// One for each request, in the order in which they were added.
    pub(crate) decisions: Vec<Decision>,
    /// Decisions on which script and replay disagree: a bug. The script's verdict stands, for that is what was charged.
    pub(crate) drift: usize,
    /// Values that were no state of their algorithm, and that the script wrote over.
    pub(crate) replaced: usize,
    /// The counters after the last decision, settled to `now`, in the order of [`Batch::keys`]. That of a log is a
    /// summary.
    pub(crate) counters: Vec<Counter>,
}

impl Batch {
    /// Reads the script's reply to this batch, and repeats its decisions.
    ///
    /// # Errors
    /// [`StoreError::Protocol`], where this is no reply to this batch.
    pub(crate) fn replay(&self, reply: &[u8]) -> Result<Reply, StoreError> {
        let mut states = codec::strings(reply).ok_or(StoreError::Protocol("not an array of strings"))?;
        let mut replaced = 0;
        if states.len() == self.keys.len() + 2 {
            let count = states.pop().flatten().ok_or(StoreError::Protocol("no count"))?;
            replaced = usize::try_from(Tail(count).double()?).unwrap_or(usize::MAX);
        }
        let tail = states.pop().flatten().ok_or(StoreError::Protocol("no time"))?;
        let mut tail = Tail(tail);
        let now = Timestamp::from_micros(tail.double()?);
        if states.is_empty() && tail.0.is_empty() {
            return Ok(Reply::Late(now));
        }
        if states.len() != self.keys.len() {
            return Err(StoreError::Protocol("not one state a counter"));
        }
        let (verdicts, times) =
            (tail.0.split_at_checked(self.len())).ok_or(StoreError::Protocol("too few verdicts"))?;
        tail = Tail(times);

        let mut counters: Vec<Counter> = (self.keys.iter().zip(self.places()))
            .map(|(key, place)| {
                let algorithm = self.policies[usize::from(key.policy)].algorithm();
                let stored = states[usize::from(place)].and_then(|state| codec::counter(algorithm, state));
                algorithm.load(stored, now)
            })
            .collect();
        let mut replay = Replay {
            now,
            decisions: Vec::with_capacity(self.len()),
            drift: 0,
            replaced,
            counters: Vec::new(),
        };
        let mut begin = 0;
        for (&end, &verdict) in self.ends.iter().zip(verdicts) {
            let decision = self.repeat(begin..end, &mut counters, verdict, &mut tail, now)?;
            begin = end;
            replay.drift += usize::from(!agrees(&decision, verdict));
            replay.decisions.push(overruled(decision, verdict)?);
        }
        if tail.0.is_empty() {
            replay.counters = counters;
            Ok(Reply::Decided(replay))
        } else {
            Err(StoreError::Protocol("more than was asked"))
        }
    }

    /// Decides one request again.
    fn repeat(
        &self,
        layers: std::ops::Range<usize>,
        counters: &mut [Counter],
        verdict: u8,
        times: &mut Tail<'_>,
        now: Timestamp,
    ) -> Result<Decision, StoreError> {
        let asks = &self.layers[layers];
        let layers: SmallVec<[Layer<'_>; INLINE_LAYERS]> = (asks.iter())
            .map(|ask| {
                let policy = &self.policies[usize::from(self.keys[usize::from(ask.key)].policy)];
                Layer {
                    algorithm: policy.algorithm(),
                    role: policy.role(),
                    cost: ask.cost,
                    gives_back: policy.gives_back(),
                }
            })
            .collect();
        let mut taken: SmallVec<[Counter; INLINE_LAYERS]> = asks
            .iter()
            .map(|ask| std::mem::take(&mut counters[usize::from(ask.key)]))
            .collect();
        if verdict > 0 || layers.iter().any(|layer| !layer.role.is_enforced()) {
            for (at, (layer, counter)) in layers.iter().zip(&mut taken).enumerate() {
                learn(layer, counter, at < usize::from(verdict), times)?;
            }
        }
        let decision = decide(&layers, &mut taken, now);
        for (ask, counter) in asks.iter().zip(taken) {
            counters[usize::from(ask.key)] = counter;
        }
        Ok(decision)
    }
}

/// Every log without room that has to wait for a unit not told of yet is told that one's time.
/// `asked`: no layer before it refused.
fn learn(layer: &Layer<'_>, counter: &mut Counter, asked: bool, times: &mut Tail<'_>) -> Result<(), StoreError> {
    let free = layer.algorithm.free(counter);
    if layer.demand() <= free || layer.cost > layer.algorithm.limit() {
        return Ok(());
    }
    if let (Algorithm::SlidingWindowLog(algorithm), Counter::Log(log)) = (layer.algorithm, counter)
        && let Some(index) = algorithm.awaited(log, layer.cost)
        // It is charged the rest for being refused, and has to wait for that too.
        && let index = if asked && layer.role == Role::ChargedAlways { index + free } else { index }
        && let Log::Summary(summary) = &mut **log
        && summary.lacks(index)
    {
        summary.learn(index, times.double()?);
    }
    Ok(())
}

fn agrees(decision: &Decision, verdict: u8) -> bool {
    match decision.verdict {
        Verdict::Allowed => verdict == 0,
        Verdict::Denied { by, .. } => by + 1 == usize::from(verdict),
    }
}

/// The decision with the script's verdict, which stands.
fn overruled(mut decision: Decision, verdict: u8) -> Result<Decision, StoreError> {
    if !agrees(&decision, verdict) {
        decision.turn = None;
        decision.verdict = match usize::from(verdict).checked_sub(1) {
            None => Verdict::Allowed,
            Some(by) => {
                let reading = decision
                    .readings
                    .get_mut(by)
                    .ok_or(StoreError::Protocol("no such layer"))?;
                reading.fits = false;
                let wait = reading.wait.max(Wait::For(std::time::Duration::ZERO));
                Verdict::Denied { by, wait }
            }
        };
    }
    Ok(decision)
}

/// Doubles that follow each other.
struct Tail<'a>(&'a [u8]);

impl Tail<'_> {
    fn double(&mut self) -> Result<u64, StoreError> {
        let (double, rest) = self
            .0
            .split_first_chunk()
            .ok_or(StoreError::Protocol("a number is missing"))?;
        self.0 = rest;
        Ok(codec::double(*double))
    }
}
