//! Named groups of endpoints.

use std::{sync::Arc, time::Duration};

/// An entry of `upstreams`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upstream {
    /// Its name.
    pub name: Arc<str>,
    /// At least one.
    pub endpoints: Vec<Endpoint>,
    /// Default: 1 s.
    pub connect_timeout: Duration,
    /// To the response head, all attempts together. Default: 30 s.
    pub timeout: Duration,
    /// Of a pooled connection. Default: 4 s.
    pub idle_timeout: Duration,
    /// For each endpoint. Default: 1024.
    pub max_connections: usize,
    /// What it sheds by; `None`: nothing is shed.
    pub adaptive_concurrency: Option<AdaptiveConcurrency>,
}

/// `adaptive_concurrency`: bounds of what may be at an upstream at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdaptiveConcurrency {
    /// At least 1. Default: 10.
    pub min: u64,
    /// At least `min`. Default: 1000.
    pub max: u64,
}

/// One `host:port` of an upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// A name or an address (IPv6 without brackets).
    pub host: String,
    /// Default: 80.
    pub port: u16,
    /// Its share of the requests. At least 1, the default.
    pub weight: u32,
}
