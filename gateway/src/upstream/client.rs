//! Sends a request to one of an upstream's endpoints.

use std::{sync::Arc, time::Duration};

use http::{Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use limiter_core::Timestamp;

use super::{
    Upstream,
    pool::{Lease, NoLease},
    rewrite,
};
use crate::{
    body::{Body, RequestBody},
    error::UpstreamError,
    worker::deadlines::Deadlines,
};

impl Upstream {
    /// Sends `request`, whose head is already as the upstream expects it, and returns the answer with its body streaming.
    ///
    /// `timeout`: instead of the upstream's own, counted from `since`.
    ///
    /// # Errors
    /// No connection, no answer in time, or none that can be read. Nothing is sent twice: only a request of which no
    /// byte was written goes to another connection.
    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
        timeout: Option<Duration>,
        since: Timestamp,
        deadlines: &Deadlines,
    ) -> Result<Response<Body>, UpstreamError> {
        let due = since.plus(timeout.unwrap_or(self.timeout));
        let deadline = deadlines.never();
        let overdue = |_| UpstreamError::Timeout {
            upstream: self.name_again(),
        };
        let mut request = request;
        let mut fresh_only = false;
        let first = self.balance.next();
        let mut at = first;
        loop {
            let pool = &self.pools[at];
            let idle = if fresh_only { None } else { pool.take_idle() };
            let was_idle = idle.is_some();
            let leased = match idle {
                Some(lease) => Ok(lease),
                None => deadline.bound(due, pool.lease()).await.map_err(overdue)?,
            };
            let mut lease = match leased {
                Ok(lease) => lease,
                Err(NoLease::Connect(error)) => {
                    tracing::debug!(upstream = %self.name, endpoint = at, %error, "cannot connect");
                    at = (at + 1) % self.pools.len();
                    if at == first {
                        return Err(UpstreamError::Connect {
                            upstream: self.name_again(),
                            error,
                        });
                    }
                    continue;
                }
                Err(NoLease::Busy) => {
                    return Err(UpstreamError::Busy {
                        upstream: self.name_again(),
                    });
                }
            };
            let sending = lease.sender.try_send_request(request);
            match deadline.bound(due, sending).await.map_err(overdue)? {
                Ok(response) => return self.answered(response, lease),
                Err(mut failed) => match failed.take_message() {
                    // The connection had ended already; nothing was written. Another idle one may have as well.
                    Some(unsent) if was_idle => {
                        request = unsent;
                        fresh_only = true;
                    }
                    _ => return Err(self.failed(failed.into_error())),
                },
            }
        }
    }

    /// An answer, whose body streams over `lease`.
    fn answered(&self, response: Response<Incoming>, lease: Lease) -> Result<Response<Body>, UpstreamError> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(UpstreamError::Switched {
                upstream: self.name_again(),
            });
        }
        let mut response = response.map(|incoming| Body::upstream(incoming, lease));
        // Each side has its own version; HTTP/1.0 from an upstream must not end the client's connection.
        *response.version_mut() = Version::HTTP_11;
        rewrite::response(response.headers_mut());
        Ok(response)
    }

    fn failed(&self, error: hyper::Error) -> UpstreamError {
        // hyper calls an error of the request's body, which is the client's, a user's.
        if error.is_user() {
            return UpstreamError::ClientBody(error);
        }
        UpstreamError::Exchange {
            upstream: self.name_again(),
            error,
        }
    }

    fn name_again(&self) -> Arc<str> {
        Arc::clone(self.name())
    }
}
