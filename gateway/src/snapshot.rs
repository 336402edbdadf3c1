//! Checked config + [`Shared`] → what a request runs on.

use std::sync::Arc;

use http::HeaderMap;
use limiter_core::{Clock, Limiter, StoreError, Timestamp};

use crate::{
    bans::Banning,
    config::{self, Config},
    cors::Cors,
    descriptor::Layers,
    error::RateLimited,
    metrics::{LimitMetrics, Metrics, NO_ROUTE, Traffic},
    ratelimit_fields::{Fields, Told},
    rejection::Rejection,
    route::Router,
    shedding::Shedding,
};

mod counter_store;
mod shared;

pub use self::{counter_store::CounterStore, shared::Shared};

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

    /// How they look.
    pub(crate) fn log_format(&self) -> config::LogFormat {
        self.config.log.format
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

    /// The head of a refusal by one layer alone, where an earlier one was kept.
    pub(crate) fn kept_head(&self, told: &Told<'_>, fields: &mut Fields) -> Option<HeaderMap> {
        fields.head(&self.config.responses, told)
    }

    /// Tells the client how full the layers of a decision are.
    pub(crate) fn write_ratelimit_fields(
        &self,
        fact: &RateLimited,
        now: Timestamp,
        fields: &mut Fields,
        headers: &mut HeaderMap,
    ) {
        let responses = &self.config.responses;
        if responses.draft_11 || responses.legacy {
            let policies = fact.layers.iter().map(|&layer| self.layers.spelled(layer));
            fields.write(responses, policies, &fact.decision, fact.at, now, headers);
        }
    }
}
