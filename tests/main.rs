//! Whole-gateway tests: the real binary, real sockets, a real redis-server.
//!
//! One file a subject. `support` holds the guards and clients; it knows the contract (gateway.yaml, the admin listener, the
//! log's `listening on` lines) and nothing of the inside.
#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, and clippy's own exception does not reach functions outside #[test]"
)]

mod support;

mod admin;
mod admin_changes;
mod admin_limits;
mod answers;
mod bans;
mod bans_servers;
mod calendar;
mod cases_arithmetic;
mod cases_bans;
mod cases_clock;
mod cases_config;
mod cases_contract;
mod cases_counting;
mod cases_edges;
mod cases_expiry;
mod cases_identity;
mod cases_paths;
mod cases_redis;
mod cases_redis_down;
mod charging;
mod cli;
mod concurrency;
mod concurrency_faults;
mod demo;
mod drain;
mod exact;
mod exact_killed;
mod fallback;
mod faults;
mod faults_cluster;
mod faults_sentinel;
mod faults_tls;
mod fields;
mod framing;
mod harness;
mod jwt;
mod layers;
mod leased;
mod local_refusals;
mod matching;
mod outage;
mod overrides;
mod proxy;
mod queue;
mod redis_manual;
mod regression;
mod reload;
mod reload_counts;
mod reload_load;
mod reload_random;
mod retry_after;
mod roles;
mod scope;
mod shedding;
mod soak;
mod streaming;
mod tried;
mod upstreams;
mod warm_up;
