//! The command line.

mod check;
mod demo;

use std::{
    io::{self, Write as _},
    path::PathBuf,
    process::ExitCode,
};

use anstream::{AutoStream, ColorChoice};
use clap::{Parser, Subcommand};

use crate::{
    app::{self, AppError},
    config::{self, ConfigError, Overrides},
    error::causes,
};

/// Something failed while it ran.
const FAILED: u8 = 1;
/// The configuration or the command line is wrong.
const WRONG: u8 = 2;

/// A reverse-proxy API gateway with layered, exact, shared rate limits.
#[derive(Debug, Parser)]
#[command(name = "gateway", version, args_conflicts_with_subcommands = true)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    config: ConfigArg,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve; a bare `gateway` is the same
    Run(ConfigArg),
    /// Load and check as a reload would, and print every problem and warning
    Check(ConfigArg),
    /// Serve the shipped configuration on this machine, in front of a backend of its own, and say what to try
    Demo,
    /// Print the JSON Schema of the configuration file, for editors
    Schema {
        /// Print docs/configuration.md instead
        #[arg(long, hide = true)]
        docs: bool,
    },
}

#[derive(Debug, clap::Args)]
struct ConfigArg {
    /// The configuration file
    #[arg(long, value_name = "FILE", default_value = "gateway.yaml")]
    config: PathBuf,
}

/// Runs the command that the arguments name. Exit status: 0 fine, 1 failed while running, 2 the configuration or the
/// command line is wrong.
#[must_use]
pub fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => {
            // Help and version are such errors too, with status 0. Where they cannot be printed, nothing can.
            error.print().ok();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(WRONG));
        }
    };
    match args.command.unwrap_or(Command::Run(args.config)) {
        Command::Run(arg) => run(arg.config, Overrides::default()),
        Command::Check(arg) => check::check(&arg.config),
        Command::Demo => demo::demo(),
        Command::Schema { docs } => schema(docs),
    }
}

/// Serves the file at `config_path` until a signal ends it.
fn run(config_path: PathBuf, overrides: Overrides) -> ExitCode {
    match app::run(&app::Options { config_path, overrides }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(AppError::Config(error)) => {
            print_problems(&error);
            ExitCode::from(WRONG)
        }
        Err(error @ AppError::Build(_)) => {
            failed(&error);
            ExitCode::from(WRONG)
        }
        Err(error) => failed(&error),
    }
}

fn schema(docs: bool) -> ExitCode {
    if docs {
        print(&config::docs());
    } else {
        print(&format!("{:#}\n", config::schema()));
    }
    ExitCode::SUCCESS
}

/// Prints to standard output; nobody may be reading, which is no reason to fail.
fn print(text: &str) {
    io::stdout().write_all(text.as_bytes()).ok();
}

fn print_problems(error: &ConfigError) {
    eprint!("{}", error.render(is_colored()));
}

/// Whether problems are told in colour: standard error is a terminal that knows it, and `NO_COLOR` is not set.
fn is_colored() -> bool {
    AutoStream::choice(&io::stderr()) != ColorChoice::Never
}

/// Prints an error with its causes.
fn failed(error: &dyn std::error::Error) -> ExitCode {
    eprintln!("gateway: {}", causes(error));
    ExitCode::from(FAILED)
}
