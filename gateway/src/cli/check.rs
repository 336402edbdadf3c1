//! `gateway check`: loads and checks as a reload would, opens nothing.

use std::{path::Path, process::ExitCode};

use limiter_core::Algorithm;

use crate::config::{self, Config, Layer, Terms};

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
    leased.map(bound).collect()
}

fn bound(layer: &Layer) -> String {
    let policy = &layer.policy;
    let (limit, lot) = (policy.algorithm().limit(), policy.lot_max());
    let overrides = layer.overrides.iter().filter_map(|one| match &one.terms {
        Terms::Policy(policy) => Some(policy.lot_max()),
        Terms::Unlimited | Terms::Denied => None,
    });
    let most = match overrides.max() {
        Some(most) if most > lot => format!(" (up to {most} of those with overrides)"),
        _ => String::new(),
    };
    let excess = match policy.algorithm() {
        Algorithm::FixedWindow(_) | Algorithm::SlidingWindowCounter(_) => {
            "no window lets more pass, for what is in hand ends with it".to_owned()
        }
        _ => format!(
            "within one window up to that many more may pass for each gateway, so {lot} with one and {} with ten; over time \
             never more",
            lot.saturating_mul(10)
        ),
    };
    format!(
        "limit `{}`: leased: a gateway has up to {lot} of {limit} in hand, of each key{most}: {excess}\n",
        policy.name()
    )
}

/// `1 route`, `2 routes`.
fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}
