//! Bodies as they pass: never gathered, never boxed.

use std::{
    mem,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::{exchange::Exchange, server::conn::Conn, upstream::pool::Lease};

/// A request's body, on its way to the upstream. Small where there is none, since requests are moved about.
#[derive(Debug)]
pub(crate) struct RequestBody(Option<Box<Open>>);

/// A body that has not ended.
#[derive(Debug)]
struct Open {
    incoming: Incoming,
    /// Where what nobody has read is read and thrown away.
    drain: Option<Rc<Conn>>,
}

impl RequestBody {
    /// `drains`: whether what nobody has read is read and thrown away, so that the client gets to the answer: over
    /// HTTP/1.1 because a reset would overtake it, over HTTP/2 because some clients look for it only once they have sent
    /// all. Not where the client waits for 100, which it must not get any more.
    pub(crate) fn new(incoming: Incoming, conn: &Rc<Conn>, drains: bool) -> Self {
        if http_body::Body::is_end_stream(&incoming) {
            return Self(None);
        }
        let drain = drains.then(|| Rc::clone(conn));
        Self(Some(Box::new(Open { incoming, drain })))
    }

    /// No body.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self(None)
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.0 {
            Some(open) => Pin::new(&mut open.incoming).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0
            .as_ref()
            .is_none_or(|open| http_body::Body::is_end_stream(&open.incoming))
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map_or_else(
            || SizeHint::with_exact(0),
            |open| http_body::Body::size_hint(&open.incoming),
        )
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let Some(open) = self.0.take()
            && let Open {
                incoming,
                drain: Some(conn),
            } = *open
            && !http_body::Body::is_end_stream(&incoming)
        {
            conn.drain_body(incoming);
        }
    }
}

/// An answer's body.
#[derive(Debug)]
pub(crate) struct Body {
    source: Source,
    exchange: Option<Box<Exchange>>,
}

#[derive(Debug)]
enum Source {
    Own(Bytes),
    /// The lease goes back to its pool when the body ends; dropped earlier, it closes the connection.
    Upstream {
        incoming: Incoming,
        lease: Lease,
    },
    /// An upstream's that has ended.
    Ended,
}

impl Body {
    /// A body of the gateway's own.
    pub(crate) fn own(bytes: impl Into<Bytes>) -> Self {
        Self::of(Source::Own(bytes.into()))
    }

    /// An upstream's body; `lease` goes back to its pool when it ends.
    pub(crate) fn upstream(incoming: Incoming, lease: Lease) -> Self {
        let mut body = Self::of(Source::Upstream { incoming, lease });
        body.settle(false);
        body
    }

    /// Whether it is one of the gateway's own.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.source, Source::Own(_))
    }

    fn of(source: Source) -> Self {
        Self { source, exchange: None }
    }

    /// The exchange ends when the body does.
    pub(crate) fn observe(&mut self, exchange: Box<Exchange>) {
        self.exchange = Some(exchange);
    }

    /// Gives the connection back if this was all.
    fn settle(&mut self, ended: bool) {
        if let Source::Upstream { incoming, .. } = &self.source
            && (ended || http_body::Body::is_end_stream(incoming))
            && let Source::Upstream { lease, .. } = mem::replace(&mut self.source, Source::Ended)
        {
            lease.give_back();
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let polled = match &mut this.source {
            Source::Own(bytes) if bytes.is_empty() => Poll::Ready(None),
            Source::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(mem::take(bytes))))),
            Source::Ended => Poll::Ready(None),
            Source::Upstream { incoming, .. } => Pin::new(incoming).poll_frame(cx),
        };
        if let (Poll::Ready(Some(Ok(frame))), Some(exchange)) = (&polled, &mut this.exchange)
            && let Some(data) = frame.data_ref()
        {
            exchange.count_bytes(data.len());
        }
        if let Some(exchange) = &mut this.exchange {
            match polled {
                // Asked for its end, a body of unknown length never knows.
                Poll::Ready(None) => exchange.completed(),
                Poll::Ready(Some(Err(_))) => exchange.broke_off(),
                Poll::Ready(Some(Ok(_))) | Poll::Pending => {}
            }
        }
        this.settle(matches!(polled, Poll::Ready(None)));
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Own(bytes) => bytes.is_empty(),
            Source::Upstream { incoming, .. } => http_body::Body::is_end_stream(incoming),
            Source::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Upstream { incoming, .. } => http_body::Body::size_hint(incoming),
            Source::Ended => SizeHint::with_exact(0),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let whole = http_body::Body::is_end_stream(self);
        if let Some(exchange) = &mut self.exchange
            && whole
        {
            exchange.completed();
        }
    }
}
