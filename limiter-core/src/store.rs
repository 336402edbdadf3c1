//! Where counters live: one trait, in memory and in Redis.

use std::{collections::HashSet, fmt, future::Future, pin::Pin, sync::Arc};

mod memory;
mod owned;
#[cfg(feature = "redis")]
pub(crate) mod redis;

pub use memory::MemoryStore;
pub(crate) use owned::OwnedAsks;
#[cfg(feature = "redis")]
pub use redis::{
    Access, Address, AddressError, BanSharing, ClientIdentity, PemProblem, RedisConfig, RedisOptions, RedisStore,
    RedisUrl, Servers, StoreObserver, Tls, TlsError, UrlError,
};

use smallvec::SmallVec;

use crate::{
    clock::Timestamp,
    decision::{Decision, INLINE_LAYERS},
    policy::Policy,
    receipt::Receipt,
    settlement::Settlement,
};

/// One layer of a request: which policy, which of its counters, how many units.
#[derive(Clone, Debug)]
pub struct Ask<'a> {
    /// The layer.
    pub policy: &'a Arc<Policy>,
    /// The counter of that layer: an encoded [`Key`](crate::Key), without the policy's prefix.
    pub key: &'a str,
    /// Units it takes. 0 checks and takes nothing.
    pub cost: u64,
}

/// A decision that is there, or will be.
pub enum Answer {
    /// Decided without waiting.
    Ready(Result<Decision, StoreError>),
    /// On its way. Who drops it is charged if the request had left, and not if it still waited for a call to leave.
    Pending(Pin<Box<dyn Future<Output = Result<Decision, StoreError>> + Send>>),
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready(result) => f.debug_tuple("Ready").field(result).finish(),
            Self::Pending(_) => f.write_str("Pending"),
        }
    }
}

/// Keeps counters, and decides requests over them.
pub trait Store: fmt::Debug + Send + Sync + 'static {
    /// Decides one request: its layers in order, as one step, all or nothing. A refused request is charged nowhere.
    ///
    /// What is taken of a limit of concurrency, and is not in [`Decision::held`], is put there by the
    /// [`Limiter`](crate::Limiter) that asked, to be given back with [`Store::settle`].
    ///
    /// No two asks may name the same counter: each would be decided as if the other were not there. The stores of this
    /// crate panic on that in debug builds.
    fn decide(&self, asks: &[Ask<'_>]) -> Answer;

    /// Charges counters, or gives back to them, without asking. What cannot be done is dropped.
    fn settle(&self, settlements: Vec<Settlement>);

    /// Of a fallback: settles charges that it made, each at this time of its clock. Gives what is the shared store's to
    /// settle, for it has been told of those charges.
    fn settle_charged(&self, charges: Vec<(Timestamp, Settlement)>) -> Vec<Settlement> {
        self.settle(charges.into_iter().map(|(_, settlement)| settlement).collect());
        Vec::new()
    }

    /// Of a fallback: whether a request that the shared store would be asked about is to be refused all the same, and by
    /// which layers (indices into those asked). Else `receipt` becomes what it charged for itself. Other stores have nothing
    /// to say.
    fn hold_back(
        &self,
        _asks: &[Ask<'_>],
        _receipt: &mut Option<Box<Receipt>>,
    ) -> Option<(SmallVec<[usize; INLINE_LAYERS]>, Decision)> {
        None
    }

    /// How the store is doing.
    fn health(&self) -> Health;
}

/// Whether every ask names another counter.
pub(crate) fn are_distinct(asks: &[Ask<'_>]) -> bool {
    let name = |ask: &Ask<'_>| (ask.policy.key_prefix().to_owned(), ask.key.to_owned());
    let names: HashSet<_> = asks.iter().map(name).collect();
    names.len() == asks.len()
}

/// How a store is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// It answers.
    Connected,
    /// Calls fail or time out; it is still asked.
    Degraded,
    /// It is not asked, but for a probe now and then.
    Down,
}

/// A store could not answer. The request may or may not have been charged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StoreError {
    /// No answer within the deadline; whether the request was charged is unknown.
    #[error("no answer from the store within its deadline")]
    Timeout,
    /// The breaker is open, or there is no connection: the store was not asked. Or the connection broke while the
    /// answer was on its way.
    #[error("the store is not available")]
    Unavailable,
    /// Some layers were decided; the store could not answer for the others.
    #[error("the store could not answer for all layers: {}", .0.error)]
    Partly(Arc<Partly>),
    /// The store answered with an error.
    #[error("the store answered with an error: {0}")]
    Server(Arc<str>),
    /// The store answered something that cannot be read.
    #[error("the store's answer cannot be read: {0}")]
    Protocol(&'static str),
    /// The store was described in a way that cannot work.
    #[error("the store cannot be used as configured: {0}")]
    Config(Arc<str>),
}

impl StoreError {
    /// A fixed word for metrics.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unavailable => "unavailable",
            Self::Partly(partly) => partly.error.kind(),
            Self::Server(_) => "server",
            Self::Protocol(_) => "protocol",
            Self::Config(_) => "config",
        }
    }

    /// Whether asking again later can help without anyone's doing.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Protocol(_) | Self::Config(_) => false,
            Self::Partly(partly) => partly.error.is_transient(),
            _ => true,
        }
    }
}

/// What a store of several servers decided of a request while some of them could not answer.
#[derive(Clone, Debug)]
pub struct Partly {
    /// The layers that were decided: indices into those asked.
    pub layers: SmallVec<[usize; INLINE_LAYERS]>,
    /// The decision over these; the index in a refusal counts these.
    pub decision: Decision,
    /// What they were charged, to be given back with [`Store::settle`] if the request is refused after all.
    pub taken: Vec<Settlement>,
    /// Why the others were not decided.
    pub error: StoreError,
}
