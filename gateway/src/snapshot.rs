//! Checked config + [`Shared`] → what a request runs on.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use limiter_core::{
    Clock, Limiter, MemoryStore, MonotonicClock, RedisConfig, RedisStore, Store, StoreError, Timestamp,
};
use tokio::runtime::Handle;

use crate::{
    config::{self, Config},
    descriptor::{BadGlob, Layers},
    route::{BadTemplate, Router},
    server::Connections,
};

/// Counters of the fallback at most: as many as a memory store holds by default.
const FALLBACK_KEYS: usize = 1_000_000;

/// What outlives a reload; found again by name.
#[derive(Debug)]
pub struct Shared {
    /// Tells the time.
    pub clock: MonotonicClock,
    /// When the process began to serve.
    pub started: Timestamp,
    /// Where the store's connections, admin and reloads run; never a worker.
    pub control: Handle,
    /// Clients' connections, of all workers.
    pub connections: Connections,
    fallback: Arc<MemoryStore>,
    stores: Mutex<Vec<(config::Store, Weak<dyn Store>)>>,
    draining: AtomicBool,
    listeners: OnceLock<Vec<SocketAddr>>,
}

impl Shared {
    /// What a process has once. `control` is the runtime of everything but requests.
    #[must_use]
    pub fn new(control: Handle) -> Arc<Self> {
        let clock = MonotonicClock::new();
        Arc::new(Self {
            clock,
            started: clock.now(),
            control,
            connections: Connections::default(),
            fallback: Arc::new(MemoryStore::new(Arc::new(clock), FALLBACK_KEYS)),
            stores: Mutex::default(),
            draining: AtomicBool::new(false),
            listeners: OnceLock::new(),
        })
    }

    /// From now on `/readyz` says no.
    pub fn start_drain(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Whether traffic is no longer welcome.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// The addresses that are bound, in the order of `listen`; empty before they are.
    #[must_use]
    pub fn listeners(&self) -> &[SocketAddr] {
        self.listeners.get().map_or(&[], Vec::as_slice)
    }

    /// The store with these settings that a snapshot still holds, with its counters and connections, or a new one.
    fn store(&self, config: &config::Store) -> Result<Arc<dyn Store>, BuildError> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|(_, store)| store.strong_count() > 0);
        let running = stores.iter().find(|(settings, _)| settings == config);
        if let Some(store) = running.and_then(|(_, store)| store.upgrade()) {
            return Ok(store);
        }
        let store = start_store(config, self)?;
        stores.push((config.clone(), Arc::downgrade(&store)));
        Ok(store)
    }

    /// Says which addresses are bound. Only the first call counts.
    pub(crate) fn set_listeners(&self, addresses: Vec<SocketAddr>) {
        self.listeners.get_or_init(|| addresses);
    }
}

/// The immutable running configuration.
#[derive(Debug)]
pub struct Snapshot {
    /// 1 for the first, one more with each that is applied.
    pub version: u64,
    /// When it was built.
    pub built: Timestamp,
    /// What it was built from.
    pub config: Arc<Config>,
    /// Which route takes a request.
    pub router: Router,
    /// Which layers a request meets.
    pub layers: Layers,
    /// Decides over them.
    pub limiter: Limiter,
    /// Where their counters live.
    pub store: Arc<dyn Store>,
}

/// A checked configuration that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The store's settings cannot be used.
    #[error("the store cannot be set up")]
    Store(#[source] StoreError),
    /// A route's path cannot be used.
    #[error("routes[{index}].path cannot be used")]
    Route {
        /// Its place in the file.
        index: usize,
        /// What is wrong.
        #[source]
        error: BadTemplate,
    },
    /// A layer's globs cannot be used.
    #[error("limits[{index}].match cannot be used")]
    Limit {
        /// Its place in the file.
        index: usize,
        /// What is wrong.
        #[source]
        error: BadGlob,
    },
}

impl Snapshot {
    /// Builds the whole of it before anything old is touched.
    ///
    /// A store whose settings are those of the running snapshot is taken over, with its counters and connections; a
    /// changed one starts here, before the swap.
    ///
    /// # Errors
    /// Where a route's path, a layer's globs or the store's settings cannot be used.
    pub fn build(version: u64, config: Arc<Config>, shared: &Arc<Shared>) -> Result<Self, BuildError> {
        let router = Router::build(&config.routes).map_err(|(index, error)| BuildError::Route { index, error })?;
        let key_secret = match &config.store {
            config::Store::Redis(redis) => redis.key_secret.as_deref(),
            config::Store::Memory { .. } => None,
        };
        let layers = Layers::build(&config.limits, &config.client_ip, key_secret)
            .map_err(|(index, error)| BuildError::Limit { index, error })?;
        let store = shared.store(&config.store)?;
        Ok(Self {
            version,
            built: shared.clock.now(),
            router,
            layers,
            limiter: Limiter::new(Arc::clone(&store), Arc::clone(&shared.fallback) as Arc<dyn Store>),
            store,
            config,
        })
    }
}

fn start_store(config: &config::Store, shared: &Shared) -> Result<Arc<dyn Store>, BuildError> {
    Ok(match config {
        config::Store::Memory { max_keys } => Arc::new(MemoryStore::new(Arc::new(shared.clock), *max_keys)),
        config::Store::Redis(redis) => {
            let config = RedisConfig {
                url: redis.url.clone(),
                timeout: redis.timeout,
                connections: redis.connections,
                prefix: redis.prefix.clone(),
            };
            Arc::new(RedisStore::start(config, &shared.control).map_err(BuildError::Store)?)
        }
    })
}
