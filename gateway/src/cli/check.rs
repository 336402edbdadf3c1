//! `gateway check`: loads and checks as a reload would, opens nothing.

use std::{path::Path, process::ExitCode};

use crate::config;

/// Checks the file at `path`; prints every problem.
pub(super) fn check(path: &Path) -> ExitCode {
    match config::load(path) {
        Ok(config) => {
            super::print(&format!(
                "{}: ok: {} routes, {} upstreams, {} limits\n",
                path.display(),
                config.routes.len(),
                config.upstreams.len(),
                config.limits.len()
            ));
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
