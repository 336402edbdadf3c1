//! `/api/status`.

use std::{net::SocketAddr, time::Duration};

use limiter_core::{Health, Timestamp};
use serde::{Serialize, Serializer, ser::SerializeStruct as _};

use crate::reload::LastReload;

/// What is running.
#[derive(Clone, Debug)]
pub struct Status {
    /// Since the process began to serve.
    pub uptime: Duration,
    /// Of the configuration: 1 for the first, one more with each that was applied.
    pub config_version: u64,
    /// Since when that configuration is in force.
    pub loaded_at: Timestamp,
    /// `None` before the first: then the start counts, which applied a configuration.
    pub last_reload: Option<LastReload>,
    /// `memory` or `redis`.
    pub store_kind: &'static str,
    /// How the store is doing.
    pub store_state: Health,
    /// The bound addresses that serve traffic.
    pub listeners: Vec<SocketAddr>,
}

impl Serialize for Status {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Config<'a> {
            version: u64,
            loaded_at: String,
            last_reload: Reload<'a>,
        }
        #[derive(Serialize)]
        struct Reload<'a> {
            outcome: &'a str,
            at: String,
            error: Option<&'a str>,
        }
        #[derive(Serialize)]
        struct Store<'a> {
            kind: &'a str,
            state: &'a str,
        }
        let last_reload = match &self.last_reload {
            Some(reload) => (reload.outcome, reload.at, reload.error.as_deref()),
            None => ("applied", self.loaded_at, None),
        };
        let mut status = serializer.serialize_struct("Status", 5)?;
        status.serialize_field("version", env!("CARGO_PKG_VERSION"))?;
        status.serialize_field("uptime_s", &self.uptime.as_secs())?;
        status.serialize_field(
            "config",
            &Config {
                version: self.config_version,
                loaded_at: rfc_3339(self.loaded_at),
                last_reload: Reload {
                    outcome: last_reload.0,
                    at: rfc_3339(last_reload.1),
                    error: last_reload.2,
                },
            },
        )?;
        let state = match self.store_state {
            Health::Connected => "connected",
            Health::Degraded => "degraded",
            Health::Down => "down",
        };
        status.serialize_field(
            "store",
            &Store {
                kind: self.store_kind,
                state,
            },
        )?;
        status.serialize_field("listeners", &self.listeners)?;
        status.end()
    }
}

/// In UTC, with as many digits below the second as there are.
pub(super) fn rfc_3339(at: Timestamp) -> String {
    let micros = i64::try_from(at.as_micros()).unwrap_or(i64::MAX);
    jiff::Timestamp::from_microsecond(micros)
        .unwrap_or(jiff::Timestamp::MAX)
        .to_string()
}
