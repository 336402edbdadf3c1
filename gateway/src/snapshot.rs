//! Checked config + [`Shared`] → what a request runs on.
use crate::config::Config;
use std::sync::Arc;
/// What outlives a reload: the stores, pools, metrics; found again by name.
#[derive(Debug)]
pub struct Shared {}
/// The immutable running configuration.
#[derive(Debug)]
pub struct Snapshot {
    /// 1 for the first, one more with each that is applied.
    pub version: u64,
    /// What it was built from.
    pub config: Arc<Config>,
}
/// A checked configuration that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The store's settings cannot be used.
    #[error("the store cannot be set up")]
    Store(#[source] limiter_core::StoreError),
}
impl Snapshot {
    /// Builds the whole of it before anything old is touched.
    pub fn build(version: u64, config: Arc<Config>, shared: &Arc<Shared>) -> Result<Self, BuildError> {
        let _ = shared;
        Ok(Self { version, config })
    }
}
