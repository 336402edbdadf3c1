//! Refusals that are repeated from memory: a flood costs the store nothing.
//!
//! A counter that had no room for so many units has none for as many until the wait that the store told is over: whatever
//! happens meanwhile only makes it longer. So nothing is refused that the store would let pass, as long as time passes
//! here as it does there, to within a thousandth. What else may happen there has to be found out: a clock is set forward, a
//! key is deleted by hand. So a refusal is remembered for 50 ms at first, for twice as long each time that the store was asked
//! in vain, and never for more than a second.
//!
//! More units than were refused would be refused as well, but have to wait longer, by how much only the store can tell.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use hashbrown::HashTable;
use smallvec::SmallVec;

use crate::{
    clock::{Clock, Timestamp},
    decision::{Decision, INLINE_LAYERS, Reading, Verdict, Wait},
    fingerprint::Fingerprint,
    policy::Role,
    store::Ask,
};

/// A refusal is repeated for so long at first, and twice as long each time that the store says it again.
const FIRST: Duration = Duration::from_millis(50);
/// A refusal is repeated for so long at most.
const LONGEST: Duration = Duration::from_secs(1);
/// Clocks run apart by less than this part of the time.
const DRIFT: u32 = 1_000;
/// A power of two, as [`Fingerprint::shard`] wants.
const SHARDS: usize = 64;
/// Refusals kept, at most, of 40 bytes each. Further ones are not remembered.
const REFUSALS_MAX: usize = 65_536;

/// Refusals of the last second.
#[derive(Debug)]
pub(crate) struct RefusalCache {
    clock: Arc<dyn Clock>,
    shards: Box<[Mutex<HashTable<Refusal>>]>,
    /// The latest end of any, in µs: before the first, and after a while without, nothing is looked up.
    latest: AtomicU64,
}

/// What a store said of one counter.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// A counter, and the units that did not fit.
    units: Fingerprint,
    /// So long it is repeated, if the wait is not shorter.
    span: Duration,
    /// Until then they cannot fit.
    until: Timestamp,
    /// From then on they fit, if nobody is charged before.
    fits_at: Timestamp,
    remaining: u64,
}

impl RefusalCache {
    /// Remembers none yet.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            latest: AtomicU64::new(0),
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The layers that are known to refuse the request (indices into those asked), and what they say. `None` where none
    /// is, and where a layer counts what others refuse.
    pub(crate) fn repeat(
        &self,
        asks: &[Ask<'_>],
        now: Timestamp,
    ) -> Option<(SmallVec<[usize; INLINE_LAYERS]>, Decision)> {
        if now.as_micros() >= self.latest.load(Ordering::Relaxed) || asks.iter().any(|ask| counts_refused(ask)) {
            return None;
        }
        let mut layers = SmallVec::new();
        let mut readings = SmallVec::new();
        let mut longest = Wait::For(Duration::ZERO);
        for (at, ask) in asks.iter().enumerate() {
            let units = ask.policy.fingerprint_of(ask.key, ask.cost);
            let known = (self.shard(units).find(units.hash(), |known| known.units == units)).copied();
            if let Some(known) = known
                && known.until > now
            {
                let wait = Wait::For(known.fits_at.since(now));
                longest = longest.max(wait);
                layers.push(at);
                readings.push(Reading {
                    fits: false,
                    remaining: known.remaining,
                    taken: 0,
                    wait,
                });
            }
        }
        let decision = Decision {
            verdict: Verdict::Denied { by: 0, wait: longest },
            readings,
            turn: None,
            receipt: None,
            held: None,
        };
        (!layers.is_empty()).then_some((layers, decision))
    }

    /// Remembers what of `decision` can be repeated. The store was asked at `asked`, and has answered by now.
    pub(crate) fn learn(&self, asks: &[Ask<'_>], decision: &Decision, asked: Timestamp) {
        if decision.verdict == Verdict::Allowed {
            return;
        }
        let now = self.clock.now();
        for (ask, reading) in asks.iter().zip(&decision.readings) {
            if let Wait::For(wait) = reading.wait
                && !reading.fits
                && ask.policy.refuses_for_good()
            {
                // It was decided in between: at the earliest, and at the latest.
                let sure = wait.saturating_sub(wait / DRIFT);
                self.keep(asked, |span| Refusal {
                    units: ask.policy.fingerprint_of(ask.key, ask.cost),
                    span,
                    until: asked.plus(sure.min(span)),
                    fits_at: now.plus(wait),
                    remaining: reading.remaining,
                });
            }
        }
    }

    /// Keeps a refusal that was asked for at `asked`, which is made for a span.
    fn keep(&self, asked: Timestamp, refusal: impl Fn(Duration) -> Refusal) {
        let first = refusal(FIRST);
        let units = first.units;
        let mut shard = self.shard(units);
        let kept = match shard.find_mut(units.hash(), |known| known.units == units) {
            // Asked for together with the one that is known.
            Some(known) if known.until > asked => return,
            Some(known) => {
                let is_again = known.until.plus(known.span) > asked;
                *known = if is_again {
                    refusal((known.span * 2).min(LONGEST))
                } else {
                    first
                };
                *known
            }
            None => {
                if shard.len() >= REFUSALS_MAX / SHARDS {
                    let now = self.clock.now();
                    shard.retain(|known| known.until > now);
                }
                if shard.len() >= REFUSALS_MAX / SHARDS {
                    return;
                }
                shard.insert_unique(units.hash(), first, |known| known.units.hash());
                first
            }
        };
        drop(shard);
        self.latest.fetch_max(kept.until.as_micros(), Ordering::Relaxed);
    }

    fn shard(&self, units: Fingerprint) -> MutexGuard<'_, HashTable<Refusal>> {
        // Every change is complete before anything could panic.
        (self.shards[units.shard(SHARDS)].lock()).unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether the layer counts a request that another refuses, or says what it would have done with it.
fn counts_refused(ask: &Ask<'_>) -> bool {
    ask.policy.role() != Role::Enforced
}

#[cfg(test)]
mod tests;
