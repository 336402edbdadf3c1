//! Every metric name and label, once.
//!
//! Labels are names from the configuration and fixed words, never a key, a path or an address. What is counted for each
//! request is counted in cells of the worker's own, through a handle that the snapshot holds; the cells are added up
//! when somebody asks.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use http::StatusCode;
use limiter_core::{Health, Timestamp};
use prometheus_client::{
    encoding::{prometheus_text, text},
    registry::Registry,
};

mod cells;
mod collector;
mod handles;
mod process;
mod waits;

use cells::Level;
pub use handles::{LimitMetrics, LimitOutcome, Sheds, StoreMetrics, Traffic};
pub use waits::Waits;

/// The `route` label of requests that no route takes.
pub const NO_ROUTE: &str = "none";

/// All counters of the process. They are kept by name for as long as it runs: a name that a reload brings back goes on
/// where it was.
#[derive(Debug)]
pub struct Metrics {
    counters: Arc<Counters>,
    registry: Registry,
}

#[derive(Debug)]
struct Counters {
    routes: Named<Traffic>,
    limits: Named<LimitMetrics>,
    upstreams: Named<Traffic>,
    sheds: Named<Sheds>,
    store: Arc<StoreMetrics>,
    in_flight: Level,
    waits: Waits,
    connections: Level,
    reloads: [AtomicU64; ReloadKind::ALL.len()],
    /// µs since the epoch.
    loaded_at: AtomicU64,
    started: Timestamp,
    gauges: Mutex<Gauges>,
}

type Named<T> = Mutex<BTreeMap<Arc<str>, Arc<T>>>;

/// What is read, rather than counted, when somebody asks.
#[derive(Clone, Debug, Default)]
pub struct Gauges {
    /// How the store is doing.
    pub store: Option<Health>,
    /// Gateways that share the store, this one included.
    pub live_gateways: u32,
    /// Counters in the memory store.
    pub memory_store_keys: u64,
    /// The endpoints of every upstream.
    pub endpoints: Vec<Endpoints>,
    /// How many requests may be at each upstream that sheds.
    pub concurrency_limits: Vec<(Arc<str>, u64)>,
}

/// The endpoints of an upstream.
#[derive(Clone, Debug)]
pub struct Endpoints {
    /// Its name.
    pub upstream: Arc<str>,
    /// Those that requests are sent to.
    pub available: u64,
    /// Those that are passed over for a while.
    pub ejected: u64,
}

/// How a reload ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadKind {
    /// In force.
    Applied,
    /// The file says what is running.
    Unchanged,
    /// The file cannot be used.
    Rejected,
    /// A field that needs a restart was changed.
    RestartRequired,
}

impl ReloadKind {
    const ALL: [Self; 4] = [Self::Applied, Self::Unchanged, Self::Rejected, Self::RestartRequired];

    /// The word for it, in metrics and in the admin API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Unchanged => "unchanged",
            Self::Rejected => "rejected",
            Self::RestartRequired => "restart_required",
        }
    }
}

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text 0.0.4.
    Prometheus,
    /// OpenMetrics text 1.0.
    OpenMetrics,
}

impl Format {
    /// What an `Accept` header asks for; Prometheus text unless it names OpenMetrics.
    #[must_use]
    pub fn accepted(accept: Option<&str>) -> Self {
        let media_types = accept.into_iter().flat_map(|accept| accept.split(','));
        let mut names = media_types.map(|range| range.split(';').next().unwrap_or_default().trim());
        if names.any(|name| name.eq_ignore_ascii_case("application/openmetrics-text")) {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Its media type.
    #[must_use]
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => prometheus_text::CONTENT_TYPE,
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

impl Metrics {
    /// All at zero. `started`: when the process began.
    #[must_use]
    pub fn new(started: Timestamp) -> Self {
        let counters = Arc::new(Counters {
            routes: Mutex::default(),
            limits: Mutex::default(),
            upstreams: Mutex::default(),
            sheds: Mutex::default(),
            store: Arc::default(),
            in_flight: Level::default(),
            waits: Waits::default(),
            connections: Level::default(),
            reloads: Default::default(),
            loaded_at: AtomicU64::new(0),
            started,
            gauges: Mutex::default(),
        });
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Arc::clone(&counters)));
        named(&counters.routes, NO_ROUTE, || Traffic::new(StatusCode::NOT_FOUND));
        Self { counters, registry }
    }

    /// The handle of the route of this name, or of [`NO_ROUTE`].
    #[must_use]
    pub fn route(&self, name: &str) -> Arc<Traffic> {
        named(&self.counters.routes, name, || Traffic::new(StatusCode::OK))
    }

    /// The handle of the limit of this name.
    #[must_use]
    pub fn limit(&self, name: &str) -> Arc<LimitMetrics> {
        named(&self.counters.limits, name, LimitMetrics::default)
    }

    /// The handle of the upstream of this name.
    #[must_use]
    pub fn upstream(&self, name: &str) -> Arc<Traffic> {
        named(&self.counters.upstreams, name, || Traffic::new(StatusCode::OK))
    }

    /// The handle of what the upstream of this name sheds.
    #[must_use]
    pub fn sheds(&self, name: &str) -> Arc<Sheds> {
        named(&self.counters.sheds, name, Sheds::default)
    }

    /// The handle of the shared store.
    #[must_use]
    pub fn store(&self) -> Arc<StoreMetrics> {
        Arc::clone(&self.counters.store)
    }

    /// A request is in flight. Whatever holds it calls [`Metrics::request_ended`] when it is dropped: a client that leaves
    /// drops it in the middle.
    pub fn request_began(&self) {
        self.counters.in_flight.add(1);
    }

    /// See [`Metrics::request_began`]. The thread may be another one.
    pub fn request_ended(&self) {
        self.counters.in_flight.add(-1);
    }

    /// Requests that wait for their turn.
    #[must_use]
    pub fn waits(&self) -> &Waits {
        &self.counters.waits
    }

    /// A client's connection is open, until [`Metrics::connection_closed`].
    pub fn connection_opened(&self) {
        self.counters.connections.add(1);
    }

    /// See [`Metrics::connection_opened`].
    pub fn connection_closed(&self) {
        self.counters.connections.add(-1);
    }

    /// Counts a reload.
    pub fn reloaded(&self, how: ReloadKind) {
        self.counters.reloads[how as usize].fetch_add(1, Relaxed);
    }

    /// A configuration is in force since `at`.
    pub fn config_loaded(&self, at: Timestamp) {
        self.counters.loaded_at.store(at.as_micros(), Relaxed);
    }

    /// All metrics as text.
    #[must_use]
    pub fn render(&self, format: Format, gauges: Gauges) -> String {
        *self.counters.gauges.lock().unwrap_or_else(PoisonError::into_inner) = gauges;
        let mut to = String::new();
        let written = match format {
            Format::Prometheus => prometheus_text::encode(&mut to, &self.registry),
            Format::OpenMetrics => text::encode(&mut to, &self.registry),
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
        to
    }
}

/// The counters of this name, made where they are not there yet.
fn named<T>(all: &Named<T>, name: &str, new: impl FnOnce() -> T) -> Arc<T> {
    let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
    match all.get(name) {
        Some(known) => Arc::clone(known),
        None => Arc::clone(all.entry(name.into()).or_insert_with(|| Arc::new(new()))),
    }
}

#[cfg(test)]
mod tests;
