#![doc = include_str!("../README.md")]
//! # Where things are
//!
//! A [`Policy`] (a name, an [`Algorithm`], what happens without a store) and a [`Key`] name a counter; with a cost they
//! are an [`Ask`]. A [`Store`] answers a list of them with a [`Decision`], and a [`Limiter`] answers even where its
//! store cannot: with a [`Fallback`], from this process's share of the quota.

pub mod algorithm;
pub mod ban;
pub mod clock;
mod decide;
pub mod decision;
#[cfg(feature = "redis")]
pub mod fallback;
mod fingerprint;
mod held;
#[cfg(feature = "redis")]
mod holdings;
pub mod key;
pub mod limiter;
#[cfg(feature = "redis")]
mod lots;
pub mod policy;
mod receipt;
mod refusals;
mod settlement;
pub mod store;
#[cfg(feature = "test-util")]
pub mod test_util;
mod turn;

pub use algorithm::{Algorithm, AlgorithmError, Rate};
pub use ban::{Ban, BanEvent, BanEventKind, BanRule, BanRuleError, Bans, LayerBans};
pub use clock::{Clock, MonotonicClock, Timestamp};
pub use decision::{Decision, Reading, Verdict, Wait};
#[cfg(feature = "redis")]
pub use fallback::{Debt, Fallback};
pub use held::Held;
pub use key::{Key, KeyHasher, Part};
pub use limiter::{Checking, FallbackDecision, Limiter, Outcome};
#[cfg(feature = "redis")]
pub use lots::Lots;
pub use policy::{LotSize, LotTerms, OnFailure, Policy, Role, Scope};
pub use receipt::Receipt;
#[cfg(feature = "redis")]
pub use store::{
    Access, Address, BanSharing, RedisConfig, RedisOptions, RedisStore, RedisUrl, Servers, StoreObserver, Tls,
};
pub use store::{Answer, Ask, Health, MemoryStore, Store, StoreError};
pub use turn::Turn;
