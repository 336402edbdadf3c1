//! Counters in Redis, shared by any number of processes.
pub(crate) mod script;

use super::{Answer, Ask, Health, Store, StoreError};
use std::time::Duration;
/// How to reach Redis, and how long to wait for it.
#[derive(Clone, Debug)]
pub struct RedisConfig {
    /// `redis://[user:pass@]host:port/db`.
    pub url: String,
    /// Deadline of one decision, waiting included.
    pub timeout: Duration,
    /// Connections.
    pub connections: usize,
    /// Begins every key.
    pub prefix: String,
}
/// Counters in Redis.
#[derive(Debug)]
pub struct RedisStore {}
impl RedisStore {
    /// Starts connecting, in tasks of `runtime`; does not wait for the connection.
    ///
    /// # Errors
    /// Where the configuration cannot be used.
    pub fn start(config: RedisConfig, runtime: &tokio::runtime::Handle) -> Result<Self, StoreError> {
        let _ = (config, runtime);
        unimplemented!()
    }
}
impl RedisStore {
    /// As [`RedisStore::start`], with an observer of its calls.
    ///
    /// # Errors
    /// Where the configuration cannot be used.
    pub fn start_observed(
        config: RedisConfig,
        runtime: &tokio::runtime::Handle,
        observer: std::sync::Arc<dyn StoreObserver>,
    ) -> Result<Self, StoreError> {
        let _ = observer;
        Self::start(config, runtime)
    }
}
impl Store for RedisStore {
    fn decide(&self, _asks: &[Ask<'_>]) -> Answer {
        unimplemented!()
    }
    fn health(&self) -> Health {
        unimplemented!()
    }
}
/// Is told of every call to the store, for metrics. Called on the path of decisions: it must be quick.
pub trait StoreObserver: std::fmt::Debug + Send + Sync + 'static {
    /// A call was answered: how long it took, how many requests it decided.
    fn answered(&self, took: Duration, requests: usize);

    /// A call, or a probe, has no usable answer; `kind` is [`StoreError::kind`].
    fn failed(&self, kind: &'static str);
}
