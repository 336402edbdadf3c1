//! `gateway check`: loads and checks as a reload would, opens nothing.

use std::{path::Path, process::ExitCode};

use crate::config;

/// Checks the file at `path`; prints every problem and every warning.
pub(super) fn check(path: &Path) -> ExitCode {
    let file = path.display().to_string();
    let read = config::read(path).and_then(|text| Ok((config::parse(&file, &text)?, text)));
    match read {
        Ok((config, text)) => {
            let warnings = &config.warnings;
            eprint!(
                "{}",
                config::render_warnings(&file, &text, warnings, super::is_colored())
            );
            let warnings = match warnings.len() {
                0 => String::new(),
                count => format!(", {}", counted(count, "warning")),
            };
            super::print(&format!(
                "{file}: ok: {}, {}, {}{warnings}\n",
                counted(config.routes.len(), "route"),
                counted(config.upstreams.len(), "upstream"),
                counted(config.limits.len(), "limit")
            ));
            ExitCode::SUCCESS
        }
        Err(error) => {
            super::print_problems(&error);
            eprintln!("{file}: {}", counted(error.count(), "problem"));
            ExitCode::from(super::WRONG)
        }
    }
}

/// `1 route`, `2 routes`.
fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
