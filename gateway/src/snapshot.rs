//! Checked config + [`Shared`] → what a request runs on.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use http::{HeaderMap, Uri};
use limiter_core::{
    Clock, Fallback, Health, Limiter, MemoryStore, MonotonicClock, Policy, RedisConfig, RedisOptions, RedisStore,
    Scope, Store, StoreError, Timestamp,
};
use smallvec::SmallVec;
use tokio::runtime::Handle;

use crate::{
    bans::{self, Banning},
    config::{self, Config, Layer},
    cors::Cors,
    descriptor::Layers,
    error::RateLimited,
    jwt::{self, KeysAt},
    metrics::{LimitMetrics, Metrics, NO_ROUTE, Traffic},
    ratelimit_fields,
    rejection::Rejection,
    route::Router,
    server::Connections,
    shedding::{Gates, Shedding},
    telemetry::Telemetry,
};

/// Counters of the fallback at most, of what it saw in Redis, and of layers that are this gateway's alone: as many as a
/// memory store holds by default.
const FALLBACK_KEYS: usize = 1_000_000;

/// How long a new Redis store may take to connect before it serves all the same. Requests that came earlier would be
/// decided by their failure policies, and so not counted together, although nothing is wrong.
const FIRST_CONNECTION: Duration = Duration::from_millis(700);

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
    fallback: Arc<Fallback>,
    /// Counters of layers that are this gateway's alone.
    own: Arc<MemoryStore>,
    /// Who is banned.
    pub(crate) bans: bans::Tables,
    stores: Mutex<Vec<Running>>,
    /// What is known of upstreams that shed.
    gates: Gates,
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
    fn store(&self, config: &config::Store) -> Result<Arc<CounterStore>, BuildError> {
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
    fn keys(&self, at: &KeysAt) -> Arc<jwt::Source> {
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
    fn start(config: &config::Store, shared: &Shared, must_answer: bool) -> Result<Self, BuildError> {
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
    fn limiter(&self, shared: &Shared, layers: &[Layer]) -> Limiter {
        let mut limiter = Limiter::new(self.as_store(), Arc::clone(&shared.fallback) as Arc<dyn Store>);
        let is_own = |layer: &Layer| layer.policy.scope() == Scope::Instance;
        // A store in memory is nobody else's either.
        if matches!(self, Self::Redis(_)) && layers.iter().any(is_own) {
            limiter = limiter.with_own(Arc::clone(&shared.own));
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
    pub layers: Arc<Layers>,
    /// Those of them that ban.
    pub(crate) banning: Option<Banning>,
    /// Decides over them.
    pub limiter: Limiter,
    /// Where their counters live.
    pub store: Arc<CounterStore>,
    /// Which upstreams shed.
    pub(crate) shedding: Shedding,
    /// What its requests are counted in.
    pub(crate) metrics: Counted,
}

/// Handles of the metrics of a configuration, by its indices: names are looked up once, not with every request.
#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) routes: Vec<Arc<Traffic>>,
    pub(crate) no_route: Arc<Traffic>,
    pub(crate) upstreams: Vec<Arc<Traffic>>,
    pub(crate) limits: Vec<Arc<LimitMetrics>>,
}

impl Counted {
    fn new(config: &Config, metrics: &Metrics) -> Self {
        Self {
            routes: config.routes.iter().map(|route| metrics.route(&route.name)).collect(),
            no_route: metrics.route(NO_ROUTE),
            upstreams: config
                .upstreams
                .iter()
                .map(|upstream| metrics.upstream(&upstream.name))
                .collect(),
            limits: config
                .limits
                .iter()
                .map(|layer| metrics.limit(layer.policy.name()))
                .collect(),
        }
    }
}

/// A checked configuration that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The store's settings cannot be used.
    #[error("the store cannot be set up")]
    Store(#[source] StoreError),
    /// Nothing answers at a changed store: what runs goes on with the old one.
    #[error("the changed store does not answer, or does not let the gateway in")]
    StoreAway,
}

impl Snapshot {
    /// Builds the whole of it before anything old is touched.
    ///
    /// A store whose settings are those of the running snapshot is taken over, with its counters and connections; a
    /// changed one starts here, before the swap.
    ///
    /// # Errors
    /// Where the store's settings cannot be used, or nothing answers there while the running one does.
    pub fn build(version: u64, config: Arc<Config>, shared: &Arc<Shared>) -> Result<Self, BuildError> {
        let key_secret = match &config.store {
            config::Store::Redis(redis) => redis.key_secret.as_deref(),
            config::Store::Memory { .. } => None,
        };
        let store = shared.store(&config.store)?;
        let mut layers = Layers::new(&config.limits, &config.client_ip, key_secret);
        if let Some(jwt) = &config.jwt {
            layers = layers.believing(jwt, shared.keys(&jwt.keys), Arc::new(shared.clock));
        }
        let layers = Arc::new(layers);
        let known = Arc::downgrade(&layers);
        let find = move |prefix: &str, key: &str| known.upgrade()?.policy_of(prefix, key).map(Arc::clone);
        shared.fallback.use_policies(find);
        Ok(Self {
            version,
            built: shared.clock.now(),
            router: Router::new(&config.routes),
            banning: Banning::new(&config.limits, &shared.bans),
            layers,
            limiter: store.limiter(shared, &config.limits),
            store,
            shedding: Shedding::new(&config, &shared.gates, &shared.metrics, shared.clock.now()),
            metrics: Counted::new(&config, &shared.metrics),
            config,
        })
    }

    /// The name of a route, by its index.
    pub(crate) fn route_name(&self, route: usize) -> Option<&str> {
        self.config.routes.get(route).map(|route| &*route.name)
    }

    /// The name of a limit, by its index.
    pub(crate) fn limit_name(&self, limit: usize) -> Option<&str> {
        self.config.limits.get(limit).map(|limit| &**limit.policy.name())
    }

    /// Whether requests get a line in the log.
    pub(crate) fn logs_access(&self) -> bool {
        self.config.log.access
    }

    /// The policies of a decision, in its order.
    pub(crate) fn policies(&self, fact: &RateLimited) -> SmallVec<[&Arc<Policy>; 8]> {
        let layers = fact.layers.iter();
        layers.map(|&layer| self.layers.policy(layer)).collect()
    }

    /// Who may read answers of the gateway's own, where something is to be said of that.
    pub(crate) fn cors(&self) -> Option<&Cors> {
        self.config.responses.cors.as_ref()
    }

    /// What a request gets that `layer` refuses. `None`: 429 and a problem document.
    pub(crate) fn rejection(&self, layer: u16) -> Option<&Rejection> {
        let own = self.config.limits.get(usize::from(layer));
        own.and_then(|layer| layer.rejection.as_ref())
            .or(self.config.responses.rejection.as_ref())
    }

    /// Tells the client how full the layers of a decision are.
    pub(crate) fn write_ratelimit_fields(&self, fact: &RateLimited, now: Timestamp, headers: &mut HeaderMap) {
        let responses = &self.config.responses;
        if responses.draft_11 || responses.legacy {
            ratelimit_fields::write(responses, &self.policies(fact), &fact.decision, fact.at, now, headers);
        }
    }
}
