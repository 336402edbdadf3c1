//! One worker's connections to one endpoint.
//!
//! Last in, first out, so that few connections stay warm and the rest grow old and go. A connection is leased to one
//! request at a time, and comes back when the answer's body has ended; a lease that is dropped earlier closes it, which
//! is how an upstream learns that the client has left.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
    time::Duration,
};

use bytes::Bytes;
use http::HeaderValue;
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use limiter_core::Timestamp;
use tokio::{net::TcpStream, sync::Notify, task::spawn_local, time::timeout};

use crate::body::RequestBody;

/// Connections of one worker to one endpoint.
#[derive(Debug)]
pub(crate) struct Pool {
    host: String,
    port: u16,
    authority: HeaderValue,
    idle: RefCell<Vec<Idle>>,
    /// Connected or connecting, idle or leased.
    open: Cell<usize>,
    waiting: Cell<usize>,
    freed: Notify,
    bounds: Cell<Bounds>,
    last_sweep: Cell<Timestamp>,
}

/// What a reload may change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Open at once, and waiting at once. At least 1.
    pub(crate) connections: usize,
    /// For a connection to come about, waiting for a free one included.
    pub(crate) connect_timeout: Duration,
    /// Of a connection that nobody uses.
    pub(crate) idle_timeout: Duration,
}

#[derive(Debug)]
struct Idle {
    sender: SendRequest<RequestBody>,
    since: Timestamp,
}

/// A connection, for one request.
#[derive(Debug)]
pub(crate) struct Lease {
    pub(crate) sender: SendRequest<RequestBody>,
    pool: Rc<Pool>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(crate) enum NoLease {
    /// The endpoint cannot be reached.
    Connect(io::Error),
    /// As many as may wait for a connection do so already, or this one waited too long.
    Busy,
}

impl Pool {
    /// No connection yet.
    pub(crate) fn new(host: &str, port: u16, bounds: Bounds, now: Timestamp) -> Self {
        Self {
            host: host.to_owned(),
            port,
            authority: authority(host, port),
            idle: RefCell::default(),
            open: Cell::new(0),
            waiting: Cell::new(0),
            freed: Notify::new(),
            bounds: Cell::new(bounds),
            last_sweep: Cell::new(now),
        }
    }

    /// Whether it is of this endpoint.
    pub(crate) fn leads_to(&self, host: &str, port: u16) -> bool {
        self.port == port && self.host == host
    }

    /// `host:port`.
    pub(crate) fn authority(&self) -> &HeaderValue {
        &self.authority
    }

    /// Applies from now on.
    pub(crate) fn set_bounds(&self, bounds: Bounds) {
        self.bounds.set(bounds);
    }

    /// An idle connection that takes a request at once.
    pub(crate) fn take_idle(self: &Rc<Self>) -> Option<Lease> {
        let mut idle = self.idle.borrow_mut();
        let mut at = idle.len();
        while at > 0 {
            at -= 1;
            let sender = &idle[at].sender;
            if sender.is_closed() {
                idle.remove(at);
            } else if sender.is_ready() {
                let sender = idle.remove(at).sender;
                return Some(Lease {
                    sender,
                    pool: Rc::clone(self),
                });
            }
            // Else it came back a moment ago, and its task has not yet run: it will be ready for the next.
        }
        None
    }

    /// Whether an idle connection would take a request at once.
    #[cfg(test)]
    pub(crate) fn is_any_ready(&self) -> bool {
        self.idle.borrow().iter().any(|idle| idle.sender.is_ready())
    }

    /// A connection for one request: an idle one, or a new one, or the next that comes free.
    pub(crate) async fn lease(self: &Rc<Self>) -> Result<Lease, NoLease> {
        let bounds = self.bounds.get();
        if self.open.get() < bounds.connections {
            return self.connect().await;
        }
        if self.waiting.get() >= bounds.connections {
            return Err(NoLease::Busy);
        }
        let _waiting = Counted::new(self, |pool| &pool.waiting);
        let free = async {
            loop {
                if let Some(lease) = self.take_idle() {
                    return Ok(lease);
                }
                if self.open.get() < self.bounds.get().connections {
                    return self.connect().await;
                }
                self.freed.notified().await;
                // The connection that came back is ready once its task has run.
                tokio::task::yield_now().await;
            }
        };
        timeout(bounds.connect_timeout, free)
            .await
            .unwrap_or(Err(NoLease::Busy))
    }

    /// A new connection.
    pub(crate) async fn connect(self: &Rc<Self>) -> Result<Lease, NoLease> {
        let open = Counted::new(self, |pool| &pool.open);
        let connect = async {
            let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
            stream.set_nodelay(true)?;
            hyper::client::conn::http1::handshake(TokioIo::new(stream))
                .await
                .map_err(io::Error::other)
        };
        let connected = timeout(self.bounds.get().connect_timeout, connect).await;
        let connected = connected.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (sender, connection) = connected.map_err(NoLease::Connect)?;
        spawn_local(async move {
            // What went wrong reaches the request through its sender or its body; an idle connection that ends is none.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an upstream connection ended");
            }
            drop(open);
        });
        Ok(Lease {
            sender,
            pool: Rc::clone(self),
        })
    }

    /// Closes what has been idle for too long.
    pub(crate) fn evict(&self, now: Timestamp) {
        self.last_sweep.set(now);
        let idle_timeout = self.bounds.get().idle_timeout;
        let old: Vec<Idle> = {
            let mut idle = self.idle.borrow_mut();
            let young = |entry: &Idle| now.since(entry.since) < idle_timeout && !entry.sender.is_closed();
            if idle.iter().all(young) {
                return;
            }
            let (keep, old) = idle.drain(..).partition(young);
            *idle = keep;
            old
        };
        drop(old);
    }

    fn notify_waiting(&self) {
        if self.waiting.get() > 0 {
            self.freed.notify_one();
        }
    }
}

impl Lease {
    /// Gives the connection back: its answer has ended.
    pub(crate) fn give_back(self) {
        let Self { sender, pool } = self;
        if sender.is_closed() {
            return;
        }
        let since = pool.last_sweep.get();
        pool.idle.borrow_mut().push(Idle { sender, since });
        pool.notify_waiting();
    }
}

fn authority(host: &str, port: u16) -> HeaderValue {
    let host = if host.contains(':') {
        format!("[{host}]")
    } else {
        host.to_owned()
    };
    // A configured host that is no header value cannot be resolved either.
    HeaderValue::from_maybe_shared(Bytes::from(format!("{host}:{port}")))
        .unwrap_or_else(|_| HeaderValue::from_static("upstream"))
}

/// Counts itself for as long as it lives.
#[derive(Debug)]
struct Counted {
    pool: Rc<Pool>,
    counter: fn(&Pool) -> &Cell<usize>,
}

impl Counted {
    fn new(pool: &Rc<Pool>, counter: fn(&Pool) -> &Cell<usize>) -> Self {
        let count = counter(pool);
        count.set(count.get() + 1);
        Self {
            pool: Rc::clone(pool),
            counter,
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let count = (self.counter)(&self.pool);
        count.set(count.get() - 1);
        self.pool.notify_waiting();
    }
}
