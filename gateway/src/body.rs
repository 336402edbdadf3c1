//! Bodies as they pass: never gathered, never boxed.

use std::{
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::{exchange::Exchange, server::conn::Conn, upstream::pool::Lease};

/// A request's body, on its way to the upstream.
#[derive(Debug)]
pub(crate) struct RequestBody {
    incoming: Option<Incoming>,
    /// Where what nobody has read is read and thrown away.
    drain: Option<Rc<Conn>>,
}

impl RequestBody {
    /// `drains`: whether what nobody has read is read and thrown away, so that the client gets to the answer: over
    /// HTTP/1.1 because a reset would overtake it, over HTTP/2 because some clients look for it only once they have sent
    /// all. Not where the client waits for 100, which it must not get any more.
    pub(crate) fn new(incoming: Incoming, conn: &Rc<Conn>, drains: bool) -> Self {
        let is_open = !http_body::Body::is_end_stream(&incoming);
        Self {
            incoming: is_open.then_some(incoming),
            drain: (is_open && drains).then(|| Rc::clone(conn)),
        }
    }

    /// No body.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        Self {
            incoming: None,
            drain: None,
        }
    }
}

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match &mut self.incoming {
            Some(incoming) => Pin::new(incoming).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.as_ref().is_none_or(http_body::Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming
            .as_ref()
            .map_or_else(|| SizeHint::with_exact(0), http_body::Body::size_hint)
    }
}

impl Drop for RequestBody {
    fn drop(&mut self) {
        if let (Some(conn), Some(incoming)) = (self.drain.take(), self.incoming.take())
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
    Upstream { incoming: Incoming, lease: Option<Lease> },
}

impl Body {
    /// A body of the gateway's own.
    pub(crate) fn own(bytes: impl Into<Bytes>) -> Self {
        Self::of(Source::Own(bytes.into()))
    }

    /// An upstream's body; `lease` goes back to its pool when it ends.
    pub(crate) fn upstream(incoming: Incoming, lease: Lease) -> Self {
        let mut body = Self::of(Source::Upstream {
            incoming,
            lease: Some(lease),
        });
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
    pub(crate) fn observed(mut self, exchange: Box<Exchange>) -> Self {
        self.exchange = Some(exchange);
        self
    }

    /// Gives the connection back if this was all.
    fn settle(&mut self, ended: bool) {
        if let Source::Upstream { incoming, lease } = &mut self.source
            && (ended || http_body::Body::is_end_stream(incoming))
            && let Some(lease) = lease.take()
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
            Source::Own(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
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
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Own(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Source::Upstream { incoming, .. } => http_body::Body::size_hint(incoming),
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
