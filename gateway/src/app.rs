//! Start and stop order.
use crate::config::{ConfigError, Overrides};
use std::path::PathBuf;
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
}
/// Serves until a signal ends it: sets up the log, loads, binds, serves, drains. Blocks; makes its own runtimes.
///
/// # Errors
/// A wrong configuration, or an address that cannot be had.
pub fn run(options: &Options) -> Result<(), AppError> {
    let _ = options;
    unimplemented!()
}
