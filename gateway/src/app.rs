//! Start and stop order.

use std::{
    io,
    net::{SocketAddr, TcpListener},
    num::NonZero,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    runtime::{Handle, Runtime},
    signal::unix::{SignalKind, signal},
    time::{MissedTickBehavior, interval},
};

use crate::{
    admin,
    config::{Config, ConfigError, Overrides},
    reload::{Loaded, Reloader, Source},
    server::{self, Workers},
    snapshot::{BuildError, Shared, Snapshot},
    telemetry::{self, TelemetryError},
};

mod running;

use running::Gateway;

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
    /// The log cannot be set up.
    #[error(transparent)]
    Log(#[from] TelemetryError),
    /// The configuration cannot be built.
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

/// How long the end waits for a store that is away. A probe finds one that is back within half of that.
const SETTLE_AT_MOST: Duration = Duration::from_secs(1);

/// Serves until a signal ends it: sets up the log, loads, binds, serves, drains. Blocks; makes its own runtimes.
///
/// # Errors
/// A wrong configuration, or an address that cannot be had.
pub fn run(options: &Options) -> Result<(), AppError> {
    let source = Source::new(&options.config_path, options.overrides.clone());
    let Loaded { config, text } = source.load()?;
    let config = Arc::new(config);
    let telemetry = telemetry::init(&config.log)?;
    let control = control_runtime()?;
    let store = store_runtime()?;
    let shared = Shared::new(control.handle().clone(), store);
    shared.set_telemetry(telemetry);
    let current = Arc::new(ArcSwap::from_pointee(Snapshot::build(1, Arc::clone(&config), &shared)?));
    shared.metrics.config_loaded(current.load().built);
    shared.apply_bans(&current.load());
    let clock = Arc::new(shared.clock);
    let reloader = Arc::new(Reloader::new(
        source,
        text,
        Arc::clone(&current),
        Arc::clone(&shared),
        clock,
    ));

    reloader.tell_warnings();

    // Every address is bound before anything is served: a start either succeeds whole or leaves nothing behind.
    let admin = control.block_on(bind_admin(config.admin.address))?;
    let workers = worker_count(&config);
    let listeners = bind(&config, workers)?;
    shared.set_listeners(listeners.iter().map(|(address, _)| *address).collect());
    // Whoever reads that it listens may send a signal, whose default action would end the process.
    let end_signal = {
        let _runtime = control.enter();
        control.spawn(Arc::clone(&reloader).watch());
        end_signal()?
    };
    let running = Workers::start(&shared, &current, per_worker(listeners, workers))?;
    for address in shared.listeners() {
        tracing::info!("listening on {address}");
    }
    let gateway = Gateway::new(&shared, &current, &reloader);
    control.spawn(admin::serve(admin, gateway.into_admin(), std::future::pending()));
    control.spawn(sweep_counters(Arc::clone(&shared), Arc::clone(&current)));
    control.block_on(end_signal);
    drain(&shared, running, current.load().config.server.drain);
    let store = Arc::clone(&current.load().store);
    match control.block_on(store.settled(SETTLE_AT_MOST)) {
        0 => {}
        lost => tracing::warn!(counters = lost, "redis is not told what was admitted while it was away"),
    }
    control.shutdown_background();
    shared.end_log();
    Ok(())
}

async fn bind_admin(address: SocketAddr) -> Result<tokio::net::TcpListener, AppError> {
    let bound = tokio::net::TcpListener::bind(address).await;
    bound.map_err(|error| AppError::Bind { address, error })
}

/// Memory that nobody counts in any more is given back even when no traffic comes.
async fn sweep_counters(shared: Arc<Shared>, current: Arc<ArcSwap<Snapshot>>) {
    let mut ticks = interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        shared.sweep_counters(&current.load_full().store);
        shared.bans.sweep();
    }
}

fn worker_count(config: &Config) -> usize {
    match config.server.workers {
        0 => std::thread::available_parallelism().map_or(1, NonZero::get),
        workers => workers,
    }
}

type Listeners = Vec<(SocketAddr, Vec<TcpListener>)>;

fn bind(config: &Config, workers: usize) -> Result<Listeners, AppError> {
    let bind = |&address| server::bind(address, workers).map_err(|error| AppError::Bind { address, error });
    config.listen.iter().map(bind).collect()
}

/// One listener of each address for each worker.
fn per_worker(listeners: Listeners, workers: usize) -> Vec<Vec<TcpListener>> {
    let mut all: Vec<Vec<TcpListener>> = (0..workers).map(|_| Vec::new()).collect();
    for (_, of_address) in listeners {
        for (worker, listener) in all.iter_mut().zip(of_address) {
            worker.push(listener);
        }
    }
    all
}

/// Takes no more, finishes what is in flight, and says so on `/readyz` meanwhile; the admin listener stays to the end.
fn drain(shared: &Shared, workers: Workers, at_most: Duration) {
    tracing::info!("draining for at most {at_most:?}");
    shared.start_drain();
    if workers.drain(at_most) {
        tracing::info!("drained");
    } else {
        tracing::warn!("some requests did not end in time");
    }
}

/// Catches the signals that end the process from now on; the future waits for one.
fn end_signal() -> Result<impl Future<Output = ()>, AppError> {
    let on = |kind| {
        signal(kind).map_err(|error| AppError::System {
            what: "cannot wait for signals",
            error,
        })
    };
    let (mut terminate, mut interrupt) = (on(SignalKind::terminate())?, on(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Where the connections of the store live: never on a worker, whose latency they would spoil. A thread of its own, so
/// that nothing that takes long delays a decision, and one, since a call is then made without waking another.
fn store_runtime() -> Result<Handle, AppError> {
    let error = |error| AppError::System {
        what: "cannot start the runtime of the store",
        error,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(error)?;
    let handle = runtime.handle().clone();
    let thread = std::thread::Builder::new().name("store".to_owned());
    // It ends with the process.
    let run = move || runtime.block_on(std::future::pending::<()>());
    thread.spawn(run).map_err(error)?;
    Ok(handle)
}

/// Where admin, reloads and signals live: never on a worker, whose latency they would spoil.
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
