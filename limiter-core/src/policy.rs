//! A policy: one entry of `limits`, as far as deciding goes.

use std::{fmt, sync::Arc};

use crate::algorithm::Algorithm;

/// What a layer does while its store cannot answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OnFailure {
    /// The layer is decided by this process alone, in memory.
    #[default]
    Local,
    /// The layer lets everything pass.
    Open,
    /// The layer refuses everything.
    Closed,
}

/// One layer: a name, how it counts, and what happens without its store.
///
/// The name is the identity: counters follow it when the other fields change.
#[derive(Clone)]
pub struct Policy {
    name: Arc<str>,
    algorithm: Algorithm,
    on_failure: OnFailure,
    /// `name:tag:`, which begins the name of every counter of this policy.
    key_prefix: Box<str>,
}

impl Policy {
    /// A policy named `name` that counts by `algorithm`.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, algorithm: impl Into<Algorithm>, on_failure: OnFailure) -> Self {
        let (name, algorithm) = (name.into(), algorithm.into());
        let key_prefix = format!("{name}:{}:", algorithm.tag()).into();
        Self {
            name,
            algorithm,
            on_failure,
            key_prefix,
        }
    }

    /// Its name, unique among the policies that share a store.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// How it counts.
    #[must_use]
    pub fn algorithm(&self) -> &Algorithm {
        &self.algorithm
    }

    /// What it does while its store cannot answer.
    #[must_use]
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// `name:tag:`: what the names of this policy's counters begin with, after the store's own prefix. The tag of the
    /// algorithm keeps a changed algorithm from meeting the old state.
    #[must_use]
    pub fn key_prefix(&self) -> &str {
        &self.key_prefix
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("algorithm", &self.algorithm)
            .field("on_failure", &self.on_failure)
            .finish_non_exhaustive()
    }
}
