//! `gateway check`: loads and checks as a reload would, opens nothing.

use std::{path::Path, process::ExitCode};

use crate::{
    config::{self, Config, ConfigError},
    descriptor::Layers,
    route::Router,
};

/// Checks the file at `path`; prints every problem.
pub(super) fn check(path: &Path) -> ExitCode {
    match config::load(path).and_then(|config| build(path, config)) {
        Ok(config) => {
            println!(
                "{}: ok: {} routes, {} upstreams, {} limits",
                path.display(),
                config.routes.len(),
                config.upstreams.len(),
                config.limits.len()
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            super::print_problems(&error);
            let count = error.problems().len();
            let noun = if count == 1 { "problem" } else { "problems" };
            eprintln!("{}: {count} {noun}", path.display());
            ExitCode::from(super::WRONG)
        }
    }
}

/// Builds what a reload would build, but opens nothing.
fn build(path: &Path, config: Config) -> Result<Config, ConfigError> {
    let wrong = |message: String| ConfigError::whole_file(path.display().to_string(), message);
    Router::build(&config.routes).map_err(|(index, error)| wrong(format!("routes[{index}].path: {error}")))?;
    Layers::build(&config.limits, &config.client_ip, None)
        .map_err(|(index, error)| wrong(format!("limits[{index}].match: {error}")))?;
    Ok(config)
}
