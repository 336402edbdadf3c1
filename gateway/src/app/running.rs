//! The gateway as the admin listener sees it.

use std::{io, sync::Arc};

use arc_swap::ArcSwap;
use limiter_core::{Ban, Clock, StoreError};

use crate::{
    admin::{self, Admin, Running, Status},
    config::Upstream,
    metrics::{Endpoints, Gauges},
    reload::{ReloadOutcome, Reloader, Trigger},
    snapshot::{Shared, Snapshot},
};

/// The gateway as the admin listener sees it.
#[derive(Debug)]
pub(super) struct Gateway {
    shared: Arc<Shared>,
    current: Arc<ArcSwap<Snapshot>>,
    reloader: Arc<Reloader>,
}

impl Gateway {
    pub(super) fn new(shared: &Arc<Shared>, current: &Arc<ArcSwap<Snapshot>>, reloader: &Arc<Reloader>) -> Self {
        Self {
            shared: Arc::clone(shared),
            current: Arc::clone(current),
            reloader: Arc::clone(reloader),
        }
    }

    pub(super) fn into_admin(self) -> Admin {
        Admin::new(Arc::clone(&self.shared.metrics), Arc::new(self))
    }
}

impl Running for Gateway {
    fn is_ready(&self) -> bool {
        !self.shared.is_draining()
    }

    fn status(&self) -> Status {
        let snapshot = self.current.load_full();
        Status {
            uptime: self.shared.clock.now().since(self.shared.started),
            config_version: snapshot.version,
            loaded_at: snapshot.built,
            last_reload: self.reloader.last_reload(),
            store_kind: snapshot.store.kind(),
            store_state: snapshot.store.health(),
            listeners: self.shared.listeners().to_vec(),
        }
    }

    fn limits(&self) -> serde_json::Value {
        admin::limits(&self.current.load_full())
    }

    fn gauges(&self) -> Gauges {
        let snapshot = self.current.load_full();
        let endpoints = |upstream: &Upstream| Endpoints {
            upstream: Arc::clone(&upstream.name),
            available: upstream.endpoints.len() as u64,
            ejected: 0,
        };
        let counters = self.shared.counters_len() + snapshot.store.memory().map_or(0, |memory| memory.len());
        Gauges {
            store: Some(snapshot.store.health()),
            live_gateways: snapshot.store.live_gateways(),
            memory_store_keys: counters as u64,
            endpoints: snapshot.config.upstreams.iter().map(endpoints).collect(),
            concurrency_limits: snapshot.shedding.limits(),
        }
    }

    fn token(&self) -> Option<String> {
        self.current.load().config.admin.token.clone()
    }

    fn reload(&self) -> ReloadOutcome {
        self.reloader.reload(Trigger::Admin)
    }

    fn replace_config(&self, bytes: Vec<u8>) -> io::Result<ReloadOutcome> {
        self.reloader.replace(bytes)
    }

    fn bans(&self) -> Vec<Ban> {
        self.shared.bans.list()
    }

    fn lift_ban(&self, limit: &str, key: &str) -> Result<bool, StoreError> {
        self.shared.bans.lift(limit, key, &self.shared.control)
    }
}
