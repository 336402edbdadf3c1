//! The threads: each with a runtime of its own, and listeners of its own on the same addresses.

use std::{
    io,
    net::TcpListener as StdListener,
    rc::Rc,
    sync::{Arc, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::{
    net::TcpListener,
    runtime::{Builder, LocalOptions, LocalRuntime},
    sync::watch,
    task::{JoinHandle as TaskHandle, spawn_local},
};

use super::accept;
use crate::{
    app::AppError,
    snapshot::{Shared, Snapshot},
    worker::Worker,
};

/// The threads that serve.
#[derive(Debug)]
pub(crate) struct Workers {
    threads: Vec<JoinHandle<()>>,
    stop: watch::Sender<Stop>,
    /// Closed when the last worker has ended.
    ended: mpsc::Receiver<()>,
}

/// How far stopping has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    Serve,
    /// Take no more; end when nothing is left.
    Drain,
    /// End now.
    Now,
}

impl Workers {
    /// Starts one for each entry of `listeners`.
    ///
    /// # Errors
    /// Where the system refuses a thread or what a runtime needs.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        current: &Arc<ArcSwap<Snapshot>>,
        listeners: Vec<Vec<StdListener>>,
    ) -> Result<Self, AppError> {
        let (stop, stopping) = watch::channel(Stop::Serve);
        let (alive, ended) = mpsc::channel();
        let (report, started) = mpsc::channel();
        let count = listeners.len();
        let mut threads = Vec::with_capacity(count);
        for (index, listeners) in listeners.into_iter().enumerate() {
            let (shared, current) = (Arc::clone(shared), Arc::clone(current));
            let (stopping, alive, report) = (stopping.clone(), alive.clone(), report.clone());
            let thread = thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
                match start(listeners) {
                    Ok((runtime, listeners)) => {
                        report.send(Ok(())).unwrap_or_default();
                        let worker = Rc::new(Worker::new(&shared, &current, count));
                        runtime.block_on(run(worker, listeners, stopping));
                    }
                    Err(error) => report.send(Err(error)).unwrap_or_default(),
                }
                drop(alive);
            });
            threads.push(thread.map_err(|error| system("cannot start a worker", error))?);
        }
        // The workers keep their ends for as long as they run: one report each, then no more.
        for report in started.iter().take(count) {
            report.map_err(|error| system("cannot start a worker's runtime", error))?;
        }
        Ok(Self { threads, stop, ended })
    }

    /// Takes no more connections and waits, at most so long, for what is in flight. Whether all of it ended.
    pub(crate) fn drain(self, at_most: Duration) -> bool {
        self.stop.send_replace(Stop::Drain);
        // The workers only ever close the channel.
        let ended = matches!(
            self.ended.recv_timeout(at_most),
            Err(mpsc::RecvTimeoutError::Disconnected)
        );
        self.stop.send_replace(Stop::Now);
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("a worker had panicked");
            }
        }
        ended
    }
}

fn system(what: &'static str, error: io::Error) -> AppError {
    AppError::System { what, error }
}

/// A runtime, and the listeners registered with it.
fn start(listeners: Vec<StdListener>) -> io::Result<(LocalRuntime, Vec<TcpListener>)> {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())?;
    let listeners = runtime.block_on(async {
        listeners
            .into_iter()
            .map(TcpListener::from_std)
            .collect::<io::Result<_>>()
    })?;
    Ok((runtime, listeners))
}

async fn run(worker: Rc<Worker>, listeners: Vec<TcpListener>, mut stopping: watch::Receiver<Stop>) {
    drop(spawn_local(Rc::clone(&worker).sweep()));
    let accept = |listener| spawn_local(accept(Rc::clone(&worker), listener));
    let accepting: Vec<TaskHandle<()>> = listeners.into_iter().map(accept).collect();
    if stopping.wait_for(|stop| *stop != Stop::Serve).await.is_err() {
        return; // Whoever stops workers is gone.
    }
    accepting.iter().for_each(TaskHandle::abort);
    worker.start_drain();
    tokio::select! {
        () = worker.all_closed() => {}
        _ = stopping.wait_for(|stop| *stop == Stop::Now) => {}
    }
}
