//! The bans of a process, which outlive its configurations.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use limiter_core::{Ban, BanEvent, BanEventKind, BanSharing, Bans, Clock, RedisStore, StoreError, decision::ceil_secs};
use tokio::runtime::Handle;

use super::rule;
use crate::config;

/// The tables of all layers that ban, and who else is told of them.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(super) bans: Arc<Bans>,
    /// The store that they are shared in.
    sharing: Mutex<Option<(Weak<RedisStore>, Arc<BanSharing>)>>,
}

impl Tables {
    /// Nobody is banned.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            bans: Arc::new(Bans::new(clock)),
            sharing: Mutex::default(),
        }
    }

    /// From now on the layers of `limits` ban, and no others, and `store` is where their bans are shared.
    pub(crate) fn apply(&self, limits: &[config::Layer], store: Option<&Arc<RedisStore>>) {
        let banning = limits.iter();
        self.bans
            .apply(banning.filter_map(|layer| Some((layer.policy.name(), rule(layer)?))));
        let mut sharing = self.sharing.lock().unwrap_or_else(PoisonError::into_inner);
        let shared_in = sharing.as_ref().map(|(store, _)| store.as_ptr());
        if shared_in == store.map(Arc::as_ptr) {
            return;
        }
        // The old one first: it would say that nobody shares any more.
        *sharing = None;
        *sharing = store.map(|store| (Arc::downgrade(store), Arc::new(store.share_bans(&self.bans))));
    }

    /// All that are in force.
    pub(crate) fn list(&self) -> Vec<Ban> {
        self.bans.list()
    }

    /// Ends a ban, on all gateways. Whether there was one. Blocks: not for a task.
    ///
    /// # Errors
    /// Other gateways cannot be told.
    pub(crate) fn lift(&self, limit: &str, key: &str, control: &Handle) -> Result<bool, StoreError> {
        let sharing = self.sharing.lock().unwrap_or_else(PoisonError::into_inner);
        let shared = sharing.as_ref().map(|(_, sharing)| Arc::clone(sharing));
        drop(sharing);
        match shared {
            Some(sharing) => control.block_on(sharing.lift(limit, key)),
            None => Ok(self.bans.lift(limit, key)),
        }
    }

    /// Forgets bans that are over, and tells the log what has become of all.
    pub(crate) fn sweep(&self) {
        self.bans.sweep();
        let events = self.bans.take_events();
        for BanEvent { limit, key, kind } in events.list {
            match kind {
                BanEventKind::Began { left, rung } => {
                    tracing::warn!(%limit, %key, rung, seconds = ceil_secs(left), "a ban began");
                }
                BanEventKind::Ended => tracing::info!(%limit, %key, "a ban ended"),
                BanEventKind::Lifted => tracing::info!(%limit, %key, "a ban was lifted"),
            }
        }
        if events.dropped > 0 {
            tracing::warn!(more = events.dropped, "more bans began and ended than the log tells of");
        }
    }
}
