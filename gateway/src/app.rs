//! Start and stop order.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use arc_swap::ArcSwap;
use tokio::runtime::Runtime;

use crate::{
    config::{ConfigError, Overrides},
    reload::{Loaded, Source},
    snapshot::{BuildError, Shared, Snapshot},
};

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The configuration file; watched while the process runs.
    pub config_path: PathBuf,
    /// Put in place of the file's words, at every load.
    pub overrides: Overrides,
}

/// Why the gateway ended.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The configuration is wrong: exit status 2.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The configuration cannot be built: exit status 2.
    #[error("the configuration cannot be used")]
    Build(#[from] BuildError),
    /// An address cannot be bound.
    #[error("cannot listen on {address}")]
    Bind {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// The system refused threads, signals or the like.
    #[error("{what}")]
    System {
        /// What was to be done.
        what: &'static str,
        /// Why it failed.
        #[source]
        error: io::Error,
    },
}

/// Serves until a signal ends it: sets up the log, loads, binds, serves, drains. Blocks; makes its own runtimes.
///
/// # Errors
/// A wrong configuration, or an address that cannot be had.
pub fn run(options: &Options) -> Result<(), AppError> {
    let source = Source::new(&options.config_path, options.overrides.clone());
    let Loaded { config, text: _ } = source.load()?;
    let control = control_runtime()?;
    let shared = Shared::new(control.handle().clone());
    let first = Snapshot::build(1, Arc::new(config), &shared)?;
    let _current = Arc::new(ArcSwap::from_pointee(first));
    Ok(())
}

/// Where the store, admin, reloads and signals live: never on a worker, whose latency they would spoil.
fn control_runtime() -> Result<Runtime, AppError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_name("control")
        .enable_all()
        .build();
    runtime.map_err(|error| AppError::System {
        what: "cannot start a runtime",
        error,
    })
}
