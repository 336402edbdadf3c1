//! `gateway check`: loads and checks as a reload would, opens nothing.

use std::{path::Path, process::ExitCode};

use limiter_core::{Algorithm, Policy};

use crate::config::{self, Config};

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
            super::print(&bounds(&config));
            ExitCode::SUCCESS
        }
        Err(error) => {
            super::print_problems(&error);
            eprintln!("{file}: {}", counted(error.count(), "problem"));
            ExitCode::from(super::WRONG)
        }
    }
}

/// What each limit whose units are leased lets pass beyond it, at worst: a line each.
fn bounds(config: &Config) -> String {
    let leased = config.limits.iter().filter(|layer| layer.policy.lots().is_some());
    leased.map(|layer| bound(&layer.policy)).collect()
}

fn bound(policy: &Policy) -> String {
    let (name, limit, lot) = (policy.name(), policy.algorithm().limit(), policy.lot_max());
    let kept = format!("limit `{name}`: leased: a gateway has up to {lot} of {limit} in hand, of each key");
    match policy.algorithm() {
        Algorithm::FixedWindow(_) => format!("{kept}; no window lets more pass, for what is in hand ends with it\n"),
        _ => format!("{kept}; at worst {lot} more for each gateway pass within one window, and never more over time\n"),
    }
}

/// `1 route`, `2 routes`.
fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
