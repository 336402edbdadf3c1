//! `overrides` of a layer: other terms for some of its keys.

use std::sync::Arc;

use ipnet::IpNet;
use limiter_core::Policy;

/// What a layer says of some of its keys.
#[derive(Clone, Debug)]
pub struct Override {
    /// Which.
    pub keys: KeyPattern,
    /// What.
    pub terms: Terms,
}

/// How a layer takes a key that it names.
#[derive(Clone, Debug)]
pub enum Terms {
    /// With other parameters. Equal ones of a layer are one policy.
    Policy(Arc<Policy>),
    /// It does not apply.
    Unlimited,
    /// It refuses: 403.
    Denied,
}

/// Keys of a layer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyPattern {
    /// The one with these values, one for each part.
    Exact(Vec<KeyValue>),
    /// Those that begin with these values, whole ones, and then with this.
    Prefix(Vec<KeyValue>, KeyValue),
    /// Of a layer whose key is the client's address: those in this range, which is not narrower than what is counted
    /// apart.
    Network(IpNet),
}

/// A value of one part of a key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyValue {
    /// As requests have it.
    Value(Vec<u8>),
    /// As requests have it; must not be seen.
    Secret(Vec<u8>),
    /// As keys are printed: a missing value, a hashed one, or everything.
    Printed(String),
}
