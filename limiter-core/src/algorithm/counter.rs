//! The state of a counter, and the questions that every algorithm answers about its own.

use std::time::Duration;

use super::{
    Algorithm, Bucket, LeakyBucket, Log, SlidingWindowCounter, Slots, SubWindows, TokenBucket, Warming, Window,
};
use crate::{clock::Timestamp, decision::Wait, settlement::Change};

/// Both kinds of bucket, which share their arithmetic.
macro_rules! buckets {
    ($meter:ident) => {
        Algorithm::TokenBucket(TokenBucket { $meter, .. }) | Algorithm::LeakyBucket(LeakyBucket { $meter, .. })
    };
}

/// A token bucket that warms up, whose meter is not asked.
macro_rules! warming {
    ($warm_up:ident) => {
        Algorithm::TokenBucket(TokenBucket {
            warm_up: Some($warm_up),
            ..
        })
    };
}

/// What was stored, if it is of this kind.
macro_rules! own {
    ($stored:ident, $kind:path) => {
        match $stored {
            Some($kind(own)) => Some(own),
            _ => None,
        }
    };
}

/// The state of one counter, settled to some moment, under parameters which it carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Counter {
    /// Of a token bucket or leaky bucket.
    Bucket(Bucket),
    /// Of a token bucket that warms up.
    Warming(Box<Warming>),
    Window(Window),
    SubWindows(Box<SubWindows>),
    Log(Box<Log>),
    Slots(Slots),
}

impl Default for Counter {
    /// Something to leave in a counter's place while it is moved; it means nothing.
    fn default() -> Self {
        Self::Window(Window::default())
    }
}

impl Algorithm {
    /// Settles what was stored (`None`: nothing) to `now` under the parameters that it was written with, then converts
    /// it to ours. A stored time ahead of now is rebased to now: the level unchanged, nothing refilled.
    ///
    /// What was stored has to be replaced by the result even if the request is refused, where parameters changed or the
    /// clock stepped back (else a refused key would go on under its old parameters, or freeze); in all other cases it
    /// may be: settling early changes no later answer. A refused request must not create a counter.
    pub(crate) fn load(&self, stored: Option<Counter>, now: Timestamp) -> Counter {
        let now = now.as_micros();
        match self {
            warming!(warm_up) => Counter::Warming(warm_up.load(stored, now)),
            buckets!(meter) => {
                let stored = match stored {
                    Some(Counter::Bucket(stored)) => Some(stored),
                    Some(Counter::Warming(stored)) => Some(stored.into_bucket(now)),
                    _ => None,
                };
                Counter::Bucket(meter.load(stored, now))
            }
            Self::FixedWindow(a) => Counter::Window(a.load(own!(stored, Counter::Window), now)),
            Self::SlidingWindowCounter(a) => Counter::SubWindows(a.load(own!(stored, Counter::SubWindows), now)),
            Self::SlidingWindowLog(a) => Counter::Log(a.load(own!(stored, Counter::Log), now)),
            Self::Concurrency(_) => Counter::Slots(Slots::load(own!(stored, Counter::Slots), now)),
        }
    }

    /// Whole units that may be taken at the moment that `counter` was loaded for, those that have to be waited for among
    /// them.
    pub(crate) fn free(&self, counter: &Counter) -> u64 {
        match (self, counter) {
            (buckets!(meter), Counter::Bucket(c)) => meter.free(c),
            (warming!(warm_up), Counter::Warming(c)) => warm_up.free(c),
            (Self::FixedWindow(a), Counter::Window(c)) => a.free(c),
            (Self::SlidingWindowCounter(a), Counter::SubWindows(c)) => a.free(c),
            (Self::SlidingWindowLog(a), Counter::Log(c)) => a.free(c),
            (Self::Concurrency(a), Counter::Slots(c)) => a.free(c),
            _ => foreign(0),
        }
    }

    /// Whole units that are left of the limit.
    pub(crate) fn remaining(&self, counter: &Counter) -> u64 {
        match (self, counter) {
            (buckets!(meter), Counter::Bucket(c)) => meter.remaining(c),
            _ => self.free(counter),
        }
    }

    /// The turn of a request that has just been charged `units`, at least one; `None`: now.
    pub(crate) fn turn(&self, counter: &Counter, units: u64) -> Option<(Duration, Timestamp)> {
        match (self, counter) {
            (buckets!(meter), Counter::Bucket(c)) => match meter.delay_micros(c, units) {
                0 => None,
                delay => Some((Duration::from_micros(delay), c.empty_at())),
            },
            _ => None,
        }
    }

    /// Whether requests may have to wait for their turn, which they give back if they leave before it.
    pub(crate) fn has_turns(&self) -> bool {
        match self {
            Self::TokenBucket(a) => !a.max_wait().is_zero(),
            Self::LeakyBucket(a) => a.is_queue(),
            _ => false,
        }
    }

    /// Takes `used` units, at most those that are free, at the moment that `counter` was loaded for.
    pub(crate) fn save(&self, counter: &mut Counter, used: u64, now: Timestamp) {
        match (self, counter) {
            (buckets!(meter), Counter::Bucket(c)) => meter.save(c, used),
            (warming!(warm_up), Counter::Warming(c)) => warm_up.save(c, used),
            (Self::FixedWindow(_), Counter::Window(c)) => c.count += used,
            (Self::SlidingWindowCounter(_), Counter::SubWindows(c)) => SlidingWindowCounter::save(c, used),
            (Self::SlidingWindowLog(a), Counter::Log(c)) => a.save(c, used, now.as_micros()),
            (Self::Concurrency(_), Counter::Slots(c)) => c.held += used,
            _ => foreign(()),
        }
    }

    /// Applies a settlement at the moment that `counter` was loaded for.
    ///
    /// A counter that [expires](Self::expires_at) at that moment has nothing left: it need not be stored.
    pub(crate) fn settle(&self, counter: &mut Counter, change: Change, now: Timestamp) {
        let now = now.as_micros();
        match (self, counter) {
            (buckets!(meter), Counter::Bucket(c)) => meter.settle(c, change),
            (warming!(warm_up), Counter::Warming(c)) => warm_up.settle(c, change),
            (Self::FixedWindow(a), Counter::Window(c)) => a.settle(c, change, now),
            (Self::SlidingWindowCounter(_), Counter::SubWindows(c)) => SlidingWindowCounter::settle(c, change, now),
            (Self::SlidingWindowLog(a), Counter::Log(c)) => a.settle(c, change, now),
            (Self::Concurrency(_), Counter::Slots(c)) => c.settle(change),
            _ => foreign(()),
        }
    }

    /// How long until `cost` fits, if nothing else is taken: the shortest such time, in whole µs.
    pub(crate) fn wait(&self, counter: &Counter, cost: u64, now: Timestamp) -> Wait {
        if cost == 0 {
            return Wait::For(Duration::ZERO);
        }
        let now = now.as_micros();
        match (self, counter) {
            (buckets!(meter), Counter::Bucket(c)) => meter.wait(c, cost),
            (warming!(warm_up), Counter::Warming(c)) => warm_up.wait(c, cost),
            (Self::FixedWindow(a), Counter::Window(c)) => a.wait(c, cost, now),
            (Self::SlidingWindowCounter(a), Counter::SubWindows(c)) => a.wait(c, cost, now),
            (Self::SlidingWindowLog(a), Counter::Log(c)) => a.wait(c, cost, now),
            (Self::Concurrency(a), Counter::Slots(c)) => a.wait(c, cost),
            _ => foreign(Wait::Never),
        }
    }

    /// How long until `units` are left of the limit, if nothing else is taken.
    pub(crate) fn wait_remaining(&self, counter: &Counter, units: u64, now: Timestamp) -> Wait {
        match (self, counter) {
            (buckets!(meter), Counter::Bucket(c)) if units > 0 => meter.wait_remaining(c, units),
            (warming!(warm_up), Counter::Warming(c)) if units > 0 => warm_up.wait_remaining(c, units),
            _ => self.wait(counter, units, now),
        }
    }

    /// Whole units that are left of the limit, and how long until it is one more, if nothing else is taken: no time where
    /// all of it is left.
    pub(crate) fn left(&self, counter: &Counter, now: Timestamp) -> (u64, Wait) {
        if let (buckets!(meter), Counter::Bucket(c)) = (self, counter) {
            return meter.left(c);
        }
        let remaining = self.remaining(counter);
        let wait = match remaining < self.limit() {
            true => self.wait_remaining(counter, remaining + 1, now),
            false => Wait::For(Duration::ZERO),
        };
        (remaining, wait)
    }

    /// The moment from which the counter says nothing any more: from then on, a fresh one gives the same answers.
    pub(crate) fn expires_at(&self, counter: &Counter) -> Timestamp {
        match (self, counter) {
            (_, Counter::Bucket(c)) => c.empty_at(),
            (warming!(warm_up), Counter::Warming(c)) => warm_up.expires_at(c),
            (_, Counter::Window(c)) => c.over_at(),
            (_, Counter::SubWindows(c)) => c.empty_at(),
            (Self::SlidingWindowLog(a), Counter::Log(c)) => a.expires_at(c),
            (_, Counter::Slots(c)) => c.expires_at(),
            _ => foreign(Timestamp::MAX),
        }
    }

    /// Share of the limit in use, 0 to 1, above it after a limit was lowered: what would be given away if the counter
    /// were forgotten.
    pub(crate) fn used_share(&self, counter: &Counter) -> f32 {
        match (self, counter) {
            (buckets!(meter), Counter::Bucket(c)) => meter.used_share(c),
            (warming!(warm_up), Counter::Warming(c)) => warm_up.used_share(c),
            (Self::FixedWindow(a), Counter::Window(c)) => a.used_share(c),
            (Self::SlidingWindowCounter(a), Counter::SubWindows(c)) => a.used_share(c),
            (Self::SlidingWindowLog(a), Counter::Log(c)) => a.used_share(c),
            (Self::Concurrency(a), Counter::Slots(c)) => a.used_share(c),
            _ => foreign(1.0),
        }
    }
}

/// The strictest answer, for a counter of another algorithm: a policy and its counters are one, so none is ever asked.
fn foreign<T>(strictest: T) -> T {
    debug_assert!(false, "a counter of another algorithm");
    strictest
}
