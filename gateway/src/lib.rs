//! A reverse-proxy API gateway whose reason to exist is limiting.
//!
//! The path of a request: `server` accepts → `service` (the spine): `observe` → `rescue` → take the snapshot, `route` →
//! `rate_limit` → `in_flight` → `upstream`, and back.
//!
//! The path of a reload: `reload` → `config` → [`snapshot::Snapshot::build`] → one swap → [`reload::ReloadOutcome`].

pub mod admin;
pub mod app;
mod bans;
pub mod body;
pub mod cli;
pub mod client_addr;
pub mod config;
pub mod cors;
pub mod descriptor;
pub mod error;
mod exchange;
mod head_fields;
pub mod jwt;
pub mod layer;
pub mod metrics;
pub mod path;
pub mod ratelimit_fields;
pub mod rejection;
pub mod reload;
pub mod route;
pub mod server;
pub mod service;
mod shedding;
pub mod snapshot;
pub mod telemetry;
pub mod upstream;
pub mod worker;
