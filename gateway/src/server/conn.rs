//! A client's connection: who is there, what it is doing, and until when it may.

use std::{
    cell::{Cell, RefCell},
    future::{Future, poll_fn},
    net::{IpAddr, SocketAddr},
    pin::pin,
    rc::Rc,
    task::Poll,
    time::Duration,
};

use http::HeaderValue;
use http_body_util::BodyExt;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, runtime::Handle, task::spawn_local, time::timeout};
use tower::Service as _;

use super::{head_scan::HeadScan, watched::Watched};
use crate::{
    service,
    worker::{Worker, deadlines::SWEEP_EVERY},
};

/// A body that nobody wanted is read this long and this far, so that its sender gets to the answer (RFC 9112, section
/// 9.6: a connection that is closed over unread bytes is reset, and the reset may overtake the answer).
const DRAIN_TIME: Duration = Duration::from_secs(10);
const DRAIN_BYTES: usize = 64 * 1024 * 1024;

/// How an HTTP/2 connection begins (RFC 9113, section 3.4).
const HTTP2_PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";
/// How long an idle HTTP/2 connection may take to end once it is asked to.
const GOAWAY_TIME: Duration = Duration::from_secs(1);

/// A client's connection.
#[derive(Debug)]
pub(crate) struct Conn {
    pub(crate) worker: Rc<Worker>,
    /// Its address; IPv4-mapped IPv6 is IPv4.
    pub(crate) peer: IpAddr,
    /// The same, as `X-Forwarded-For` has it.
    pub(crate) forwarded_for: HeaderValue,
    phase: Cell<Phase>,
    head: RefCell<HeadScan>,
    /// Requests, and bodies that are being thrown away.
    in_flight: Cell<u32>,
    /// Whether not all may be written of the answers that were handed over.
    is_unwritten: Cell<bool>,
    is_http2: Cell<bool>,
    deadline: u32,
}

/// What the connection is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A request that may take its time to come.
    Idle,
    /// The rest of a request's head.
    Head,
    /// An answer to end; upstream deadlines hold.
    Busy,
}

impl Conn {
    fn new(worker: &Rc<Worker>, peer: SocketAddr) -> Self {
        let peer = peer.ip().to_canonical();
        let forwarded_for = HeaderValue::from_maybe_shared(bytes::Bytes::from(peer.to_string()));
        let conn = Self {
            worker: Rc::clone(worker),
            peer,
            forwarded_for: forwarded_for.unwrap_or_else(|_| HeaderValue::from_static("unknown")),
            phase: Cell::new(Phase::Idle),
            head: RefCell::default(),
            in_flight: Cell::new(0),
            is_unwritten: Cell::new(false),
            is_http2: Cell::new(false),
            deadline: worker.deadlines.take(),
        };
        // A new connection is there to send a request.
        conn.due_in(worker.view().snapshot.config.server.header_timeout);
        conn
    }

    /// These bytes have come in.
    pub(super) fn on_read(&self, bytes: &[u8]) {
        if self.phase.get() == Phase::Busy || self.is_http2.get() {
            return;
        }
        if self.phase.get() == Phase::Idle && bytes.starts_with(HTTP2_PREFACE) {
            // Streams come when they come: a connection that has none is idle, not late.
            self.is_http2.set(true);
            self.due_in(self.worker.view().snapshot.config.server.idle_timeout);
            return;
        }
        if self.phase.replace(Phase::Head) == Phase::Idle {
            self.due_in(self.worker.view().snapshot.config.server.header_timeout);
            self.head.borrow_mut().clear();
        }
        self.head.borrow_mut().feed(bytes);
    }

    /// Whether the head that came last says more than once how long its body is. Not of a pipelined request, whose head
    /// may have come with the one before: hyper reads it in one way, and only that is forwarded.
    pub(crate) fn is_framing_ambiguous(&self) -> bool {
        self.head.borrow_mut().is_ambiguous()
    }

    /// An answer is handed over, to be written.
    pub(crate) fn answered(&self) {
        self.is_unwritten.set(true);
    }

    /// hyper flushes when it has written all that it has: after the end of an answer, that is the whole of it.
    pub(super) fn on_flush(&self) {
        if self.phase.get() != Phase::Busy {
            self.is_unwritten.set(false);
        }
    }

    /// Whether what is written now is of an answer to a request, or may be: its rest, whatever its bytes look like.
    pub(super) fn writes_an_answer(&self) -> bool {
        self.is_unwritten.get() || self.phase.get() == Phase::Busy || self.is_http2.get()
    }

    /// Whether a request's head was begun and did not come whole in time.
    pub(super) fn is_head_overdue(&self) -> bool {
        self.phase.get() == Phase::Head && self.worker.deadlines.is_overdue(self.deadline)
    }

    /// A request has begun.
    pub(crate) fn begin(&self, is_http2: bool) {
        self.in_flight.set(self.in_flight.get() + 1);
        if self.phase.replace(Phase::Busy) != Phase::Busy {
            self.is_http2.set(is_http2);
            self.worker.deadlines.set(self.deadline, None);
        }
    }

    /// A request has ended, with the body of its answer.
    pub(crate) fn end(&self, idle_timeout: Duration) {
        let left = self.in_flight.get().saturating_sub(1);
        self.in_flight.set(left);
        if left == 0 {
            self.phase.set(Phase::Idle);
            self.head.borrow_mut().clear();
            self.due_in(idle_timeout);
        }
    }

    /// Reads a body to its end and throws it away, within bounds.
    pub(crate) fn drain_body(self: &Rc<Self>, mut body: Incoming) {
        if Handle::try_current().is_err() {
            return; // The worker is being taken down, and its connections with it.
        }
        let conn = Rc::clone(self);
        conn.begin(conn.is_http2.get());
        drop(spawn_local(async move {
            let read = async {
                let mut left = DRAIN_BYTES;
                while let Some(Ok(frame)) = body.frame().await
                    && let Some(rest) = left.checked_sub(frame.data_ref().map_or(0, bytes::Bytes::len))
                {
                    left = rest;
                }
            };
            // Drained or not, this was the attempt.
            timeout(DRAIN_TIME, read).await.unwrap_or_default();
            conn.end(conn.worker.view().snapshot.config.server.idle_timeout);
        }));
    }

    fn due_in(&self, after: Duration) {
        // The last sweep may be a sweep ago: never too early.
        let due = self
            .worker
            .deadlines
            .last_sweep()
            .plus(after.saturating_add(SWEEP_EVERY));
        self.worker.deadlines.set(self.deadline, Some(due));
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        self.worker.deadlines.give_back(self.deadline);
    }
}

/// Serves a connection until it ends, is overdue, or is drained.
pub(crate) async fn serve(worker: Rc<Worker>, stream: TcpStream, peer: SocketAddr) {
    let conn = Rc::new(Conn::new(&worker, peer));
    let http = Rc::clone(&worker.view().http);
    let io = TokioIo::new(Watched::new(stream, &conn));
    let deadline = conn.deadline;
    let spine = service::spine(Rc::clone(&conn));
    // The spine is always ready: who asks first moves the request about once more.
    let requests = service_fn(move |request| spine.clone().call(request));
    let mut connection = pin!(http.serve_connection(io, requests));
    let (mut is_watched, mut is_closing) = (false, false);
    poll_fn(|cx| {
        if !is_watched {
            is_watched = true;
            worker.deadlines.set_waker(deadline, cx.waker());
        }
        if worker.is_draining() && !is_closing {
            is_closing = true;
            connection.as_mut().graceful_shutdown();
        }
        if worker.deadlines.is_overdue(deadline) {
            if is_closing || !conn.is_http2.get() {
                return Poll::Ready(());
            }
            is_closing = true;
            conn.due_in(GOAWAY_TIME);
            connection.as_mut().graceful_shutdown();
        }
        // How a connection ends is the client's affair; what failed within a request was answered there.
        connection.as_mut().poll(cx).map(|end| {
            if let Err(error) = end {
                tracing::debug!(error, "a client connection ended");
            }
        })
    })
    .await;
}
