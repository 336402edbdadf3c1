//! What the comparison of script and reference needs to see. Not part of the library.

use std::collections::HashMap;

use bytes::Bytes;

use super::{Added, Reply, Script, ScriptClock};
use crate::{
    algorithm::{Algorithm, Counter, Log},
    clock::Timestamp,
    decide::{Layer, decide},
    decision::{Decision, Verdict},
    store::{Ask, StoreError},
};

/// The text of the script; with `given_clock`, the one whose time is its last argument.
#[must_use]
pub fn script_text(given_clock: bool) -> String {
    let clock = if given_clock {
        ScriptClock::Given
    } else {
        ScriptClock::Server
    };
    Script::new(clock).text().to_owned()
}

/// Requests for one call.
#[derive(Debug, Default)]
pub struct Batch(super::Batch);

/// What a call answered.
#[derive(Debug)]
pub enum Answered {
    /// Too late: nothing was done.
    Late(Timestamp),
    /// The time, the decisions, and on how many of them script and replay disagree.
    Decided(Timestamp, Vec<Decision>, usize),
}

impl Batch {
    /// Adds a request; `false` if it has no place.
    pub fn add(&mut self, asks: &[Ask<'_>]) -> bool {
        self.0.add(asks) == Added::Yes
    }

    /// `KEYS` and `ARGV`.
    #[must_use]
    pub fn arguments(&self, prefix: &str, not_after: Option<Timestamp>) -> (Vec<Bytes>, Vec<Bytes>) {
        let arguments = self.0.arguments(prefix, not_after);
        (arguments.keys, arguments.args)
    }

    /// Reads the answer.
    ///
    /// # Errors
    /// Where it is none to this batch.
    pub fn replay(&self, reply: &[u8]) -> Result<Answered, StoreError> {
        Ok(match self.0.replay(reply)? {
            Reply::Late(now) => Answered::Late(now),
            Reply::Decided(replay) => Answered::Decided(replay.now, replay.decisions, replay.drift),
        })
    }
}

/// The reference: counters, and the arithmetic in Rust, one request after the other.
#[derive(Debug, Default)]
pub struct Model {
    counters: HashMap<String, Counter>,
}

/// What Redis would hold under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// No such key.
    Nothing,
    /// Doubles, in one string.
    Numbers(Vec<u64>),
    /// Doubles, a list of them.
    Times(Vec<u64>),
}

impl Model {
    /// Decides one request.
    pub fn decide(&mut self, asks: &[Ask<'_>], now: Timestamp) -> Decision {
        let names: Vec<String> = asks.iter().map(|ask| name(ask)).collect();
        let layers: Vec<Layer<'_>> = (asks.iter())
            .map(|ask| Layer {
                algorithm: ask.policy.algorithm(),
                cost: ask.cost,
            })
            .collect();
        let stored: Vec<Option<Counter>> = names.iter().map(|name| self.counters.get(name).cloned()).collect();
        let mut counters: Vec<Counter> = layers
            .iter()
            .zip(&stored)
            .map(|(layer, stored)| layer.algorithm.load(stored.clone(), now))
            .collect();
        let outdated: Vec<bool> = (layers.iter().zip(&stored).zip(&counters))
            .map(|((layer, stored), loaded)| {
                stored
                    .as_ref()
                    .is_some_and(|stored| outdated(layer, stored, loaded, now))
            })
            .collect();
        let decision = decide(&layers, &mut counters, now);
        for (index, (name, counter)) in names.into_iter().zip(counters).enumerate() {
            if outdated[index] || (decision.verdict == Verdict::Allowed && layers[index].cost > 0) {
                self.counters.insert(name, counter);
            }
        }
        decision
    }

    /// Whole units free of the counter that `ask` names.
    #[must_use]
    pub fn free(&self, ask: &Ask<'_>, now: Timestamp) -> u64 {
        let algorithm = ask.policy.algorithm();
        algorithm.free(&algorithm.load(self.counters.get(&name(ask)).cloned(), now))
    }

    /// What is stored for the counter that `ask` names.
    #[must_use]
    pub fn stored(&self, ask: &Ask<'_>) -> Stored {
        match self.counters.get(&name(ask)) {
            None => Stored::Nothing,
            Some(Counter::Bucket(c)) => Stored::Numbers(vec![c.used, c.at, c.units, c.period]),
            Some(Counter::Window(c)) => Stored::Numbers(vec![c.count, c.start, c.length]),
            Some(Counter::SubWindows(c)) => {
                let head = [c.head, c.grid.window, c.grid.buckets];
                Stored::Numbers(head.into_iter().chain(c.counts.iter().copied()).collect())
            }
            Some(Counter::Log(log)) => match &**log {
                Log::Times(times) => Stored::Times(times.iter().copied().collect()),
                Log::Summary(_) => Stored::Nothing,
            },
        }
    }
}

fn name(ask: &Ask<'_>) -> String {
    [ask.policy.key_prefix(), ask.key].concat()
}

/// Whether a counter is written even if the request is refused: its parameters changed, or the clock stepped back.
fn outdated(layer: &Layer<'_>, stored: &Counter, loaded: &Counter, now: Timestamp) -> bool {
    let now = now.as_micros();
    match (layer.algorithm, stored, loaded) {
        (_, Counter::Bucket(stored), Counter::Bucket(loaded)) => {
            let other_rate = (stored.units, stored.period) != (loaded.units, loaded.period);
            loaded.used > 0 && (other_rate || stored.at > now)
        }
        (_, Counter::Window(stored), Counter::Window(loaded)) => {
            let runs = now < stored.start + stored.length;
            runs && (stored.start, stored.length) != (loaded.start, loaded.length)
        }
        (_, Counter::SubWindows(stored), Counter::SubWindows(loaded)) => {
            if stored.grid == loaded.grid {
                stored.head > loaded.head
            } else {
                loaded.counts.iter().any(|count| *count > 0)
            }
        }
        (Algorithm::SlidingWindowLog(_), Counter::Log(stored), _) => match &**stored {
            Log::Times(times) => times.back().is_some_and(|newest| *newest > now),
            Log::Summary(_) => false,
        },
        _ => true,
    }
}
