//! The log: tracing-subscriber, as text or as JSON, to standard output.
//!
//! Access lines are written beside it (`AccessLog`), and look like the others: target `access`, level info. `log.access`
//! alone decides about those, `log.level` about all others; `RUST_LOG` takes the place of `log.level`. All of it can change
//! while the process runs.

use std::{
    io::{self, IsTerminal},
    time::Duration,
};

use tracing::Subscriber;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    fmt::{self, MakeWriter},
    layer::SubscriberExt as _,
    registry::LookupSpan,
    reload,
    util::{SubscriberInitExt as _, TryInitError},
};

use crate::config;

mod access;
mod sink;

pub(crate) use access::{AccessLog, Name, name};
use sink::Sink;

/// The target of access lines.
const ACCESS: &str = "access";

/// What libraries say at `info` and `debug` is of no use to whoever runs a gateway; nor are the warnings of `notify`, one
/// for each file that was replaced, and those of `fred`, beside our own of the same. `RUST_LOG` brings them back.
const QUIET: [&str; 6] = [
    "fred=error",
    "h2=info",
    "hyper=info",
    "hyper_util=info",
    "mio=info",
    "notify=error",
];

/// How long the end of the process may wait for the log to be written.
const LAST_WORDS: Duration = Duration::from_secs(1);

type Output = Box<dyn Layer<Registry> + Send + Sync>;

/// The running log. Dropping it writes what is left, for a second at most.
#[must_use = "dropping it ends the log"]
pub struct Telemetry {
    output: reload::Handle<Output, Registry>,
    sink: Sink,
    rust_log: Option<String>,
}

/// The log is set up once in a process, before anything else writes to it.
#[derive(Debug, thiserror::Error)]
#[error("the log cannot be set up")]
pub struct TelemetryError(#[source] TryInitError);

/// Begins to log, as `config` says.
///
/// # Errors
/// If the process has a log already.
pub fn init(config: &config::Log) -> Result<Telemetry, TelemetryError> {
    let rust_log = std::env::var(EnvFilter::DEFAULT_ENV)
        .ok()
        .filter(|directives| !directives.is_empty());
    let (telemetry, subscriber) = build(config, rust_log, Sink::start(io::stdout()));
    subscriber.try_init().map_err(TelemetryError)?;
    Ok(telemetry)
}

impl Telemetry {
    /// What one worker writes its access lines to.
    pub(crate) fn access_log(&self) -> AccessLog {
        AccessLog::new(self.sink.clone())
    }

    /// Goes on as `config` says.
    pub fn reload(&self, config: &config::Log) {
        let output = output(config, self.rust_log.as_deref(), self.sink.clone());
        if let Err(error) = self.output.reload(output) {
            tracing::error!(%error, "the log goes on as it was");
        }
    }
}

impl std::fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Telemetry")
            .field("rust_log", &self.rust_log)
            .finish_non_exhaustive()
    }
}

impl Drop for Telemetry {
    fn drop(&mut self) {
        self.sink.flush(LAST_WORDS);
    }
}

fn build(
    config: &config::Log,
    rust_log: Option<String>,
    sink: Sink,
) -> (Telemetry, impl Subscriber + Send + Sync + use<>) {
    let output = output(config, rust_log.as_deref(), sink.clone());
    let (layer, handle) = reload::Layer::new(output);
    let telemetry = Telemetry {
        output: handle,
        sink,
        rust_log,
    };
    (telemetry, tracing_subscriber::registry().with(layer))
}

fn output(config: &config::Log, rust_log: Option<&str>, sink: Sink) -> Output {
    let filter = EnvFilter::builder().parse_lossy(directives(config, rust_log));
    filter.and_then(formatter(config.format, sink)).boxed()
}

fn directives(config: &config::Log, rust_log: Option<&str>) -> String {
    match rust_log {
        Some(directives) => directives.to_owned(),
        None => format!("{},{}", config.level, QUIET.join(",")),
    }
}

fn formatter<S, W>(format: config::LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let layer = fmt::layer().with_writer(writer);
    match format {
        config::LogFormat::Text => layer.with_ansi(io::stdout().is_terminal()).boxed(),
        config::LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .boxed(),
    }
}

#[cfg(test)]
mod tests;
