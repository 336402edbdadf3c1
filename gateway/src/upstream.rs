//! A named group of endpoints, as one worker sees it.

use std::{rc::Rc, sync::Arc, time::Duration};

use http::HeaderValue;
use limiter_core::Timestamp;

use crate::config;

mod balance;
mod bounded;
mod client;
pub(crate) mod pool;
pub(crate) mod rewrite;
#[cfg(test)]
mod tests;

use balance::Balance;
use bounded::Bounded;
use pool::{Bounds, Pool};

/// A named group of endpoints.
#[derive(Debug)]
pub(crate) struct Upstream {
    name: Arc<str>,
    pools: Vec<Rc<Pool>>,
    balance: Balance,
    /// To the response head, all attempts together.
    timeout: Duration,
    /// Of its failures, in the log.
    pub(crate) warnings: Bounded,
}

impl Upstream {
    /// Endpoints that `old` has too keep their connections. `workers`: bounds are for all of them together.
    pub(crate) fn build(
        config: &config::Upstream,
        old: Option<&Self>,
        workers: usize,
        random: &mut fastrand::Rng,
        now: Timestamp,
    ) -> Self {
        let bounds = Bounds {
            connections: (config.max_connections / workers).max(1),
            connect_timeout: config.connect_timeout,
            idle_timeout: config.idle_timeout,
        };
        let pool = |endpoint: &config::Endpoint| {
            let (host, port) = (endpoint.host.as_str(), endpoint.port);
            let known = old.and_then(|old| old.pools.iter().find(|pool| pool.leads_to(host, port)));
            let Some(pool) = known else {
                return Rc::new(Pool::new(host, port, bounds, now));
            };
            pool.set_bounds(bounds);
            Rc::clone(pool)
        };
        Self {
            name: Arc::clone(&config.name),
            pools: config.endpoints.iter().map(pool).collect(),
            balance: Balance::new(config.endpoints.iter().map(|endpoint| endpoint.weight), random),
            timeout: config.timeout,
            warnings: Bounded::default(),
        }
    }

    /// Its name.
    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Whether `config` is of this upstream.
    pub(crate) fn is_named(&self, config: &config::Upstream) -> bool {
        self.name == config.name
    }

    /// What Host says where the client named none.
    pub(crate) fn authority(&self) -> HeaderValue {
        self.pools
            .first()
            .map_or(HeaderValue::from_static("upstream"), |pool| pool.authority().clone())
    }

    /// Closes connections that have been idle for too long.
    pub(crate) fn evict(&self, now: Timestamp) {
        self.pools.iter().for_each(|pool| pool.evict(now));
    }
}
