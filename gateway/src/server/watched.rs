//! A client's socket, watched: the first byte of a head starts its deadline, and what hyper itself answers to a head
//! that it cannot read is replaced by the gateway's own document.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    rc::Rc,
    task::{Context, Poll, ready},
};

use http::StatusCode;
use memchr::memmem;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use super::conn::Conn;
use crate::layer::rescue;

const REQUEST_ID: &[u8] = b"x-request-id";

/// A client's socket.
#[derive(Debug)]
pub(super) struct Watched {
    stream: TcpStream,
    conn: Rc<Conn>,
    /// Written instead of what hyper wrote, and how much of it has been.
    instead: Option<(Vec<u8>, usize)>,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, conn: &Rc<Conn>) -> Self {
        let conn = Rc::clone(conn);
        Self {
            stream,
            conn,
            instead: None,
        }
    }

    /// The document to write instead of `written`, where that is hyper's own.
    fn replace(&mut self, written: &[u8]) -> bool {
        if self.instead.is_none()
            && !self.conn.writes_an_answer()
            && let Some(status) = status_of_hyper(written)
        {
            self.instead = Some((rescue::unreadable(&self.conn.worker, status), 0));
        }
        self.instead.is_some()
    }

    /// Writes the document in its place, and then claims to have written `claimed` bytes.
    fn poll_instead(&mut self, cx: &mut Context<'_>, claimed: usize) -> Poll<io::Result<usize>> {
        while let Some((document, done)) = &mut self.instead {
            let rest = document.get(*done..).unwrap_or_default();
            if rest.is_empty() {
                self.instead = None;
                break;
            }
            *done += ready!(Pin::new(&mut self.stream).poll_write(cx, rest))?;
        }
        Poll::Ready(Ok(claimed))
    }
}

/// The status of an answer that hyper made itself: it says 4xx and bears no id, as every answer of ours does.
fn status_of_hyper(written: &[u8]) -> Option<StatusCode> {
    let rest = written
        .strip_prefix(b"HTTP/1.1 ")
        .filter(|rest| rest.first() == Some(&b'4'))?;
    if memmem::find(written, REQUEST_ID).is_some() {
        None
    } else {
        StatusCode::from_bytes(rest.get(..3)?).ok()
    }
}

impl AsyncRead for Watched {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if let Some(read) = buf.filled().get(before..).filter(|read| !read.is_empty()) {
            self.conn.on_read(read);
        }
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.replace(buf) {
            return self.poll_instead(cx, buf.len());
        }
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.conn.on_flush();
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.replace(bufs.first().map_or(&[], |buf| buf)) {
            return self.poll_instead(cx, bufs.iter().map(|buf| buf.len()).sum());
        }
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        if self.conn.is_head_overdue() {
            // hyper has nothing to answer with before there is a request. Whether this gets out does not matter.
            let answer = rescue::too_slow(&self.conn.worker);
            drop(self.stream.try_write(&answer));
        }
    }
}
