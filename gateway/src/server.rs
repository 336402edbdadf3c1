//! Bind (a listener a worker), accept, bound the connections, drain.

use std::{
    io,
    net::{SocketAddr, TcpListener as StdListener},
    rc::Rc,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use socket2::{Domain, Protocol, Socket, Type};
use tokio::{
    net::TcpListener,
    sync::Notify,
    task::spawn_local,
    time::{sleep, timeout},
};

use crate::worker::Worker;

pub(crate) mod conn;
mod head_scan;
mod watched;
mod workers;

pub(crate) use workers::Workers;

/// Connections that the system completes before they are accepted.
const BACKLOG: i32 = 4096;
/// How long accepting pauses when the system is out of something.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// Connections of all workers, counted.
#[derive(Debug, Default)]
pub(crate) struct Connections {
    open: AtomicUsize,
    closed: Notify,
}

impl Connections {
    fn try_open(&self, max: usize) -> bool {
        let more = |open| (open < max).then_some(open + 1);
        self.open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    fn close(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.closed.notify_one();
    }
}

/// Counts a connection for as long as it lives.
struct Permit(Rc<Worker>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.shared.connections.close();
        self.0.shared.metrics.connection_closed();
        self.0.on_close();
    }
}

/// One listener a worker on `address`, and the address with its port.
///
/// The workers share the port (`SO_REUSEPORT`), but nobody else may have it: it is bound alone first, which also picks
/// the port where any will do.
///
/// # Errors
/// Where the address cannot be had.
pub(crate) fn bind(address: SocketAddr, workers: usize) -> io::Result<(SocketAddr, Vec<StdListener>)> {
    let alone = socket(address)?;
    alone.bind(&address.into())?;
    let address = alone.local_addr()?.as_socket().unwrap_or(address);
    drop(alone);
    let listener = || {
        let socket = socket(address)?;
        socket.set_reuse_port(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(socket.into())
    };
    let listeners: io::Result<_> = (0..workers).map(|_| listener()).collect();
    Ok((address, listeners?))
}

fn socket(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Accepts on `listener` for ever.
pub(crate) async fn accept(worker: Rc<Worker>, listener: TcpListener) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                after_accept_error(&error).await;
                continue;
            }
        };
        // Small answers leave at once; failing that, they leave a little later.
        drop(stream.set_nodelay(true));
        // Past the bound this one waits here, and the rest in the listen queue.
        let permit = permit(&worker).await;
        let worker = Rc::clone(&worker);
        drop(spawn_local(async move {
            conn::serve(worker, stream, peer).await;
            drop(permit);
        }));
    }
}

async fn permit(worker: &Rc<Worker>) -> Permit {
    while !worker
        .shared
        .connections
        .try_open(worker.view().snapshot.config.server.max_connections)
    {
        // The timeout is for a bound that a reload has raised.
        drop(timeout(ACCEPT_BACKOFF, worker.shared.connections.closed.notified()).await);
    }
    worker.on_open();
    worker.shared.metrics.connection_opened();
    Permit(Rc::clone(worker))
}

/// A connection that died in the queue is nothing; being out of file descriptors passes, but not by trying harder.
async fn after_accept_error(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::warn!(%error, "cannot accept connections");
        sleep(ACCEPT_BACKOFF).await;
    }
}
