//! Requests in flight: a slot that is held until the answer's body ends.
//!
//! tower's concurrency limit lets go at the answer's head, which for a streamed answer is its beginning.

use std::{rc::Rc, time::Duration};

use crate::server::conn::Conn;

/// A request in flight. Whatever ends it, dropped futures included, lets go.
#[derive(Debug)]
pub(crate) struct InFlight {
    conn: Rc<Conn>,
    idle_timeout: Duration,
}

impl InFlight {
    /// Takes a slot. The connection may idle that long once it is given back.
    pub(crate) fn enter(conn: &Rc<Conn>, is_http2: bool, idle_timeout: Duration) -> Self {
        conn.begin(is_http2);
        conn.worker.shared.metrics.request_began();
        let conn = Rc::clone(conn);
        Self { conn, idle_timeout }
    }

    /// The connection that it came on.
    pub(crate) fn conn(&self) -> &Rc<Conn> {
        &self.conn
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.conn.end(self.idle_timeout);
        self.conn.worker.shared.metrics.request_ended();
    }
}
