//! Where counters live: in this process, or in Redis.

use std::{sync::Arc, time::Duration};

use limiter_core::{Health, Limiter, MemoryStore, RedisConfig, RedisOptions, RedisStore, Scope, Store};

use super::{BuildError, Shared};
use crate::config::{self, Layer};

/// How long a new Redis store may take to connect before it serves all the same. Requests that came earlier would be
/// decided by their failure policies, and so not counted together, although nothing is wrong.
const FIRST_CONNECTION: Duration = Duration::from_millis(700);

/// Where counters live.
#[derive(Debug)]
pub enum CounterStore {
    /// In this process.
    Memory(Arc<MemoryStore>),
    /// In Redis.
    Redis(Arc<RedisStore>),
}

impl CounterStore {
    /// Blocks: not for a task.
    pub(super) fn start(config: &config::Store, shared: &Shared, must_answer: bool) -> Result<Self, BuildError> {
        Ok(match config {
            config::Store::Memory { max_keys } => {
                Self::Memory(Arc::new(MemoryStore::new(Arc::new(shared.clock), *max_keys)))
            }
            config::Store::Redis(redis) => {
                let config = RedisConfig {
                    servers: redis.servers.clone(),
                    access: redis.access.clone(),
                    timeout: redis.timeout,
                    connections: redis.connections,
                    prefix: redis.prefix.clone(),
                };
                let options = RedisOptions {
                    observer: Some(shared.metrics.store()),
                    fallback: Some(Arc::clone(&shared.fallback)),
                    ..RedisOptions::default()
                };
                let store =
                    RedisStore::start_with(config, &shared.store_runtime, options).map_err(BuildError::Store)?;
                if !shared.control.block_on(store.wait_connected(FIRST_CONNECTION)) {
                    if must_answer {
                        return Err(BuildError::StoreAway);
                    }
                    tracing::warn!("redis does not answer yet: layers go by their failure policies until it does");
                }
                Self::Redis(Arc::new(store))
            }
        })
    }

    fn as_store(&self) -> Arc<dyn Store> {
        match self {
            Self::Memory(memory) => Arc::clone(memory) as Arc<dyn Store>,
            Self::Redis(redis) => Arc::clone(redis) as Arc<dyn Store>,
        }
    }

    /// A limiter over it. What it refuses costs no call for a while, where refusals stand: several servers give back what
    /// they charged for a request that one of them refused, and memory costs nothing to ask.
    pub(super) fn limiter(&self, shared: &Shared, layers: &[Layer]) -> Limiter {
        let mut limiter = Limiter::new(self.as_store(), Arc::clone(&shared.fallback) as Arc<dyn Store>);
        let is_own = |layer: &Layer| layer.policy.scope() == Scope::Instance;
        // A store in memory is nobody else's either.
        if matches!(self, Self::Redis(_)) && layers.iter().any(is_own) {
            limiter = limiter.with_own(Arc::clone(&shared.own));
        }
        if let Self::Redis(redis) = self
            && layers.iter().any(|layer| layer.policy.lots().is_some())
        {
            limiter = limiter.with_lots(Arc::clone(redis.lots()));
        }
        match self {
            Self::Redis(redis) if !redis.is_cluster() => limiter.repeating_refusals(Arc::new(shared.clock)),
            _ => limiter,
        }
    }

    /// `memory` or `redis`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Memory(_) => "memory",
            Self::Redis(_) => "redis",
        }
    }

    /// How it is doing.
    #[must_use]
    pub fn health(&self) -> Health {
        match self {
            Self::Memory(memory) => memory.health(),
            Self::Redis(redis) => redis.health(),
        }
    }

    /// Gateways that share it, this one included, as last seen.
    #[must_use]
    pub fn live_gateways(&self) -> u32 {
        match self {
            Self::Memory(_) => 1,
            Self::Redis(redis) => redis.live_gateways(),
        }
    }

    /// Gives back units that were taken from it ahead of their use: who runs from now on may have no use for them.
    pub(super) fn return_lots(&self) {
        if let Self::Redis(redis) = self {
            redis.return_lots();
        }
    }

    /// Tells the store, `at_most` so long, what it is still to be told. Gives the number of counters for which that was in
    /// vain: what was admitted of them while it was away is not charged.
    pub(crate) async fn settled(&self, at_most: Duration) -> usize {
        match self {
            Self::Memory(_) => 0,
            Self::Redis(redis) => redis.settled(at_most).await,
        }
    }

    /// The memory store, if it is one.
    pub(crate) fn memory(&self) -> Option<&Arc<MemoryStore>> {
        match self {
            Self::Memory(memory) => Some(memory),
            Self::Redis(_) => None,
        }
    }
}
