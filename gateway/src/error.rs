//! Why a request ends without an upstream's answer: facts only. `layer::rescue` alone turns them into a status.

use std::{error::Error, io, sync::Arc};

use limiter_core::{Decision, Reading, StoreError, Timestamp, Verdict};
use smallvec::SmallVec;

use crate::{
    descriptor::{CostProblem, LayerId},
    path::BadPath,
    shedding::NoRoom,
};

/// An error and what caused it, in one line.
pub(crate) fn causes(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        line.push_str(": ");
        line.push_str(&cause.to_string());
        next = cause.source();
    }
    line
}

/// Layers that a request meets; seldom more than four.
pub(crate) type LayerIds = SmallVec<[LayerId; 4]>;

/// Why a request ends without an upstream's answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// It is unreadable or ambiguous.
    #[error("bad request")]
    BadRequest(#[from] BadRequest),
    /// No route takes it.
    #[error("no route takes this request")]
    RouteNotFound,
    /// A value that a layer counts by is missing, and the layer says `deny`.
    #[error("a layer does not take a request without its key")]
    Forbidden {
        /// The layer.
        layer: usize,
    },
    /// A layer refuses this key.
    #[error("a layer does not take this key")]
    KeyDenied {
        /// The layer.
        layer: usize,
    },
    /// A header says no cost, and a layer needs one.
    #[error("the header that says the cost {problem}")]
    BadCost {
        /// The layer.
        layer: usize,
        /// What it does instead.
        problem: CostProblem,
    },
    /// A layer has no room.
    #[error("a limit is used up")]
    RateLimited(Box<RateLimited>),
    /// A layer has banned the key. The layers of the fact are those that have; its decision was made without the store.
    #[error("a key is banned")]
    Banned(Box<RateLimited>),
    /// A layer refuses everything while its store is away.
    #[error("the store is away")]
    StoreAway {
        /// The layer.
        layer: usize,
        /// Why the store could not answer.
        #[source]
        error: StoreError,
    },
    /// It was to wait for its turn, and too many do already.
    #[error("too many requests wait for their turn")]
    TooManyWait,
    /// The upstream has as many requests as it can do with.
    #[error(transparent)]
    Shed(#[from] NoRoom),
    /// The upstream did not answer.
    #[error("no answer from the upstream")]
    Upstream(#[from] UpstreamError),
}

/// A refusal, with everything that its answer says.
#[derive(Debug)]
pub(crate) struct RateLimited {
    /// The layers of the decision, in its order.
    pub(crate) layers: LayerIds,
    /// The decision.
    pub(crate) decision: Decision,
    /// When it was asked for. What it says of waiting counts from here, so that a window that ends with a second still does.
    pub(crate) at: Timestamp,
}

impl RateLimited {
    /// The layer that refuses: the first, in order, of those without room. `None` where all had some.
    pub(crate) fn refused_by(&self) -> Option<u16> {
        match self.decision.verdict {
            Verdict::Denied { by, .. } => u16::try_from(self.layers.get(by)?.index()).ok(),
            Verdict::Allowed => None,
        }
    }

    /// The same layer, and what it said.
    pub(crate) fn refusing(&self) -> Option<(LayerId, &Reading)> {
        let Verdict::Denied { by, .. } = self.decision.verdict else {
            return None;
        };
        self.layers.get(by).copied().zip(self.decision.readings.get(by))
    }

    /// The layers that had no room, and what they said.
    pub(crate) fn without_room(&self) -> impl Iterator<Item = (LayerId, &Reading)> {
        let readings = self.layers.iter().copied().zip(&self.decision.readings);
        readings.filter(|(_, reading)| !reading.fits)
    }

    /// The layer that refuses, and what it said, where no other had no room.
    pub(crate) fn refused_alone(&self) -> Option<(LayerId, &Reading)> {
        let mut refused = self.without_room();
        refused.next().filter(|_| refused.next().is_none())
    }
}

/// Why a request cannot be read in one way only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRequest {
    /// Its path has no single normal form.
    #[error(transparent)]
    Path(#[from] BadPath),
    /// No Host, or several.
    #[error("exactly one Host is needed")]
    Host,
    /// Host says something else than the request's target.
    #[error("Host and the request's authority differ")]
    Authority,
    /// Host has characters that no host has.
    #[error("the host is not valid")]
    HostSyntax,
    /// CONNECT: this is not a tunnel.
    #[error("CONNECT is not supported")]
    Connect,
    /// A length and a transfer coding, or several lengths (RFC 9112, section 6.3).
    #[error("the length of the body is ambiguous")]
    Framing,
    /// A transfer coding other than chunked, alone (RFC 9112, section 6.1): a body would go on without its label.
    #[error("the transfer coding is not supported")]
    Coding,
    /// A header that a layer counts by comes on several lines.
    #[error("a header that is counted by comes on several lines")]
    RepeatedKey,
}

/// Who failed on the way to an upstream.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamError {
    /// No endpoint could be connected to; nothing was sent.
    #[error("cannot connect to upstream {upstream}")]
    Connect {
        /// The upstream's name.
        upstream: Arc<str>,
        /// Of the last endpoint that was tried.
        #[source]
        error: io::Error,
    },
    /// All connections are in use, and too many requests wait for one already; nothing was sent.
    #[error("upstream {upstream} has no free connection")]
    Busy {
        /// The upstream's name.
        upstream: Arc<str>,
    },
    /// The exchange broke off, or the answer cannot be read.
    #[error("bad answer from upstream {upstream}")]
    Exchange {
        /// The upstream's name.
        upstream: Arc<str>,
        /// What hyper says.
        #[source]
        error: hyper::Error,
    },
    /// It switched protocols, which nobody had asked for.
    #[error("upstream {upstream} switched protocols unasked")]
    Switched {
        /// The upstream's name.
        upstream: Arc<str>,
    },
    /// No response head in time.
    #[error("upstream {upstream} did not answer in time")]
    Timeout {
        /// The upstream's name.
        upstream: Arc<str>,
    },
    /// The client's body broke off; there is nobody left to answer.
    #[error("the client's body broke off")]
    ClientBody(#[source] hyper::Error),
}

impl UpstreamError {
    /// Whether the upstream has certainly seen nothing of the request.
    pub(crate) fn is_unsent(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Busy { .. })
    }

    /// The name of the upstream that failed, if it was one.
    pub(crate) fn upstream(&self) -> Option<&Arc<str>> {
        match self {
            Self::Connect { upstream, .. }
            | Self::Busy { upstream }
            | Self::Exchange { upstream, .. }
            | Self::Switched { upstream }
            | Self::Timeout { upstream } => Some(upstream),
            Self::ClientBody(_) => None,
        }
    }
}
