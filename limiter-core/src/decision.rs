//! The answer to a request: whether it may pass, and how full each layer is.

use std::time::Duration;

use smallvec::SmallVec;

use crate::{held::Held, receipt::Receipt, turn::Turn};

/// Layers kept without a heap allocation.
pub(crate) const INLINE_LAYERS: usize = 4;

/// Readings kept so. A decision is handed on a dozen times, which costs more than one allocation if it is large.
const INLINE_READINGS: usize = 1;

/// One reading for each of some layers.
pub(crate) type Readings = SmallVec<[Reading; INLINE_READINGS]>;

/// The answer to one request over all its layers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the request may pass.
    pub verdict: Verdict,
    /// One reading for each layer asked, in the same order.
    pub readings: Readings,
    /// When it may go on, where that is not at once: a queue has taken it in.
    pub turn: Option<Box<Turn>>,
    /// What was charged in layers that [give back](crate::Policy::gives_back); `None` where nothing was.
    pub receipt: Option<Box<Receipt>>,
    /// The slots that it takes in limits of concurrency, where it takes any.
    pub held: Option<Box<Held>>,
}

impl Decision {
    /// What is said of a request that meets no layer.
    pub(crate) fn unlimited() -> Self {
        Self {
            verdict: Verdict::Allowed,
            readings: SmallVec::new(),
            turn: None,
            receipt: None,
            held: None,
        }
    }
}

/// Whether a request may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every layer had room; all were charged.
    Allowed,
    /// A layer had no room; none was charged.
    Denied {
        /// The first layer, in order, that had no room: an index into the layers asked.
        by: usize,
        /// The longest wait of all layers without room.
        wait: Wait,
    },
}

/// What one layer says after the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Whether this layer had room for the request's cost.
    pub fits: bool,
    /// Whole units left after the decision, rounded down, never below 0.
    pub remaining: u64,
    /// Units that this layer was charged.
    pub taken: u64,
    /// How long until more is free: for a layer without room, until this request's cost fits; else until `remaining`
    /// grows by one. [`Wait::For`] zero where nothing is used.
    pub wait: Wait,
}

/// How long to wait, alone, until something fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wait {
    /// This long; then it fits, if nobody else was charged meanwhile.
    For(Duration),
    /// It never fits: the cost is above the capacity.
    Never,
}

impl Wait {
    /// Whole seconds, rounded up, at least 1: the value of `Retry-After`. `None` where waiting cannot help.
    #[must_use]
    pub fn retry_after_secs(self) -> Option<u64> {
        match self {
            Self::For(wait) => Some(ceil_secs(wait).max(1)),
            Self::Never => None,
        }
    }
}

/// Whole seconds, rounded up.
#[must_use]
pub fn ceil_secs(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}
