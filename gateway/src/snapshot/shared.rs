//! What outlives a reload.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::Uri;
use limiter_core::{Clock, Fallback, Health, MemoryStore, MonotonicClock, Timestamp};
use tokio::runtime::Handle;

use super::{BuildError, CounterStore, Snapshot};
use crate::{
    bans, config,
    jwt::{self, KeysAt},
    metrics::Metrics,
    server::Connections,
    shedding::Gates,
    telemetry::{AccessLog, Telemetry},
};

/// Counters of the fallback at most, of what it saw in Redis, and of layers that are this gateway's alone: as many as a
/// memory store holds by default.
const FALLBACK_KEYS: usize = 1_000_000;

/// How long the first keys of a URL may take before requests come all the same, whose tokens would not be believed.
const FIRST_KEYS: Duration = Duration::from_millis(700);

/// What outlives a reload; found again by name.
#[derive(Debug)]
pub struct Shared {
    /// Tells the time.
    pub clock: MonotonicClock,
    /// When the process began to serve.
    pub started: Timestamp,
    /// Where the store's connections, admin and reloads run; never a worker.
    pub control: Handle,
    /// The runtime of the connections of the store.
    pub store_runtime: Handle,
    /// All counters of the process.
    pub metrics: Arc<Metrics>,
    /// Clients' connections, of all workers.
    pub(crate) connections: Connections,
    /// Counts in place of a store that is away.
    pub(super) fallback: Arc<Fallback>,
    /// Counters of layers that are this gateway's alone.
    pub(super) own: Arc<MemoryStore>,
    /// Who is banned.
    pub(crate) bans: bans::Tables,
    stores: Mutex<Vec<Running>>,
    /// What is known of upstreams that shed.
    pub(super) gates: Gates,
    /// The URL whose keys are followed.
    keys: Mutex<Option<(Uri, Weak<jwt::Source>)>>,
    telemetry: Mutex<Option<Telemetry>>,
    draining: AtomicBool,
    listeners: OnceLock<Vec<SocketAddr>>,
}

impl Shared {
    /// What a process has once. `store_runtime` is that of the store's connections, `control`
    /// that of everything else but requests.
    #[must_use]
    pub fn new(control: Handle, store_runtime: Handle) -> Arc<Self> {
        let clock = MonotonicClock::new();
        let started = clock.now();
        Arc::new(Self {
            clock,
            started,
            control,
            store_runtime,
            metrics: Arc::new(Metrics::new(started)),
            connections: Connections::default(),
            fallback: Arc::new(Fallback::new(FALLBACK_KEYS)),
            own: Arc::new(MemoryStore::new(Arc::new(clock), FALLBACK_KEYS)),
            bans: bans::Tables::new(Arc::new(clock)),
            stores: Mutex::default(),
            gates: Gates::default(),
            keys: Mutex::default(),
            telemetry: Mutex::default(),
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

    /// The store with these settings that a snapshot still holds, with its counters and connections, or a new one. A
    /// memory store is the same whatever it may hold: [`Shared::applied`] tells it.
    pub(super) fn store(&self, config: &config::Store) -> Result<Arc<CounterStore>, BuildError> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.retain(|running| running.store.strong_count() > 0);
        let running = stores.iter().find(|running| is_same_store(&running.settings, config));
        if let Some(store) = running.and_then(|running| running.store.upgrade()) {
            return Ok(store);
        }
        // A store that answers is not given up for one that does not. At a start, and while Redis is away, there is none.
        let mut running = stores.iter().filter_map(|running| running.store.upgrade());
        let must_answer = running.any(|store| store.health() == Health::Connected);
        let store = Arc::new(CounterStore::start(config, self, must_answer)?);
        stores.push(Running {
            settings: config.clone(),
            store: Arc::downgrade(&store),
        });
        Ok(store)
    }

    /// The keys of tokens: those that a snapshot holds already, where they are at the same URL. Waits for the first for a
    /// moment. Blocks: not for a task.
    pub(super) fn keys(&self, at: &KeysAt) -> Arc<jwt::Source> {
        let url = match at {
            KeysAt::File(keys) => return jwt::Source::fixed(Arc::clone(keys)),
            KeysAt::Url(url) => url,
        };
        let mut followed = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let running = followed.as_ref().filter(|(known, _)| known == url);
        if let Some(source) = running.and_then(|(_, source)| source.upgrade()) {
            return source;
        }
        let source = jwt::Source::follow(url.clone(), &self.control);
        *followed = Some((url.clone(), Arc::downgrade(&source)));
        if !self.control.block_on(source.wait(FIRST_KEYS)) {
            tracing::warn!("{url} gives no keys yet: no token is believed until it does");
        }
        source
    }

    /// Forgets counters that have expired, a tenth of them a call: traffic does that too, but traffic may cease.
    pub(crate) fn sweep_counters(&self, store: &CounterStore) {
        self.fallback.sweep(FALLBACK_KEYS / 10);
        self.own.sweep(FALLBACK_KEYS / 10);
        if let Some(memory) = store.memory() {
            memory.sweep(memory.len() / 10 + 1);
        }
    }

    /// Counters in memory, beside those of a store there.
    pub(crate) fn counters_len(&self) -> usize {
        self.fallback.len() + self.own.len()
    }

    /// Who writes the log; a changed `log` reaches it from now on.
    pub(crate) fn set_telemetry(&self, telemetry: Telemetry) {
        *self.telemetry() = Some(telemetry);
    }

    /// Writes what is left of the log, and ends it.
    pub(crate) fn end_log(&self) {
        let ended = self.telemetry().take();
        drop(ended);
    }

    /// What one worker writes its access lines to; nothing where there is no log.
    pub(crate) fn access_log(&self) -> AccessLog {
        (self.telemetry().as_ref()).map_or_else(AccessLog::default, Telemetry::access_log)
    }

    fn telemetry(&self) -> MutexGuard<'_, Option<Telemetry>> {
        self.telemetry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bans by the layers of `snapshot`, which runs from now on, and shares them where its counters are.
    pub(crate) fn apply_bans(&self, snapshot: &Snapshot) {
        let redis = match &*snapshot.store {
            CounterStore::Redis(redis) => Some(redis),
            CounterStore::Memory(_) => None,
        };
        self.bans.apply(&snapshot.config.limits, redis);
    }

    /// Tells log, metrics, counters and bans that `snapshot` runs from now on.
    pub fn applied(&self, snapshot: &Snapshot) {
        if let (CounterStore::Memory(memory), config::Store::Memory { max_keys }) =
            (&*snapshot.store, &snapshot.config.store)
        {
            memory.set_max_keys(*max_keys);
        }
        snapshot.store.return_lots();
        snapshot.shedding.apply();
        self.apply_bans(snapshot);
        self.metrics.config_loaded(snapshot.built);
        if let Some(telemetry) = &*self.telemetry() {
            telemetry.reload(&snapshot.config.log);
        }
    }

    /// Says which addresses are bound. Only the first call counts.
    pub(crate) fn set_listeners(&self, addresses: Vec<SocketAddr>) {
        self.listeners.get_or_init(|| addresses);
    }
}

/// A store that was started, for as long as a snapshot holds it.
#[derive(Debug)]
struct Running {
    settings: config::Store,
    store: Weak<CounterStore>,
}

/// Whether a running store with the settings `running` can serve as one with `wanted`.
fn is_same_store(running: &config::Store, wanted: &config::Store) -> bool {
    matches!(
        (running, wanted),
        (config::Store::Memory { .. }, config::Store::Memory { .. })
    ) || running == wanted
}
