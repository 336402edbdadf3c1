//! What the command line puts in place of the file's words, at the start and at every reload.

use std::net::SocketAddr;

use super::{Config, Endpoint, Store};

/// Changes to a checked configuration; the default changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// In place of `listen`.
    pub listen: Option<Vec<SocketAddr>>,
    /// In place of `admin`'s address.
    pub admin: Option<SocketAddr>,
    /// The memory store, in place of any other.
    pub memory_store: bool,
    /// In place of every upstream's endpoints.
    pub endpoint: Option<Endpoint>,
}

/// The memory store's size where the configuration names another store.
const DEFAULT_MAX_KEYS: usize = 1_000_000;

impl Overrides {
    /// Makes the changes.
    pub fn apply(&self, config: &mut Config) {
        if let Some(listen) = &self.listen {
            config.listen.clone_from(listen);
        }
        if let Some(admin) = self.admin {
            config.admin.address = admin;
        }
        if self.memory_store && !matches!(config.store, Store::Memory { .. }) {
            config.store = Store::Memory {
                max_keys: DEFAULT_MAX_KEYS,
            };
        }
        if let Some(endpoint) = &self.endpoint {
            for upstream in &mut config.upstreams {
                upstream.endpoints = vec![endpoint.clone()];
            }
        }
    }
}
