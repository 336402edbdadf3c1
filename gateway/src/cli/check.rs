//! `gateway check`: loads and checks as a reload would, opens nothing.

use std::{path::Path, process::ExitCode};

use crate::config;

/// Checks the file at `path`; prints every problem.
pub(super) fn check(path: &Path) -> ExitCode {
    match config::load(path) {
        Ok(config) => {
            super::print(&format!(
                "{}: ok: {}, {}, {}\n",
                path.display(),
                counted(config.routes.len(), "route"),
                counted(config.upstreams.len(), "upstream"),
                counted(config.limits.len(), "limit")
            ));
            ExitCode::SUCCESS
        }
        Err(error) => {
            super::print_problems(&error);
            eprintln!("{}: {}", path.display(), counted(error.problems().len(), "problem"));
            ExitCode::from(super::WRONG)
        }
    }
}

/// `1 route`, `2 routes`.
fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
