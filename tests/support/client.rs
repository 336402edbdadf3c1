//! A client as most are: one connection, kept alive.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use super::{
    http::{Request, Response, get},
    raw::Raw,
};

/// Sends one request after the other over one connection, and opens a new one only when the server said `close`.
#[derive(Debug)]
pub(crate) struct Client {
    address: SocketAddr,
    from: Option<IpAddr>,
    connection: Option<Raw>,
}

impl Client {
    /// A client of `address`.
    pub(crate) fn to(address: SocketAddr) -> Self {
        Self {
            address,
            from: None,
            connection: None,
        }
    }

    /// Speaks from this address of the machine (any of 127.0.0.0/8).
    pub(crate) fn from(mut self, address: &str) -> Self {
        self.from = Some(address.parse().unwrap());
        self
    }

    /// Sends a request and reads its response.
    ///
    /// # Panics
    ///
    /// If no whole response comes.
    pub(crate) async fn send(&mut self, request: &Request) -> Response {
        let response = self
            .try_send(request)
            .await
            .unwrap_or_else(|error| panic!("no answer to {} {}: {error}", request.method, request.target));
        assert!(response.complete, "cut short: {response:?}");
        response
    }

    /// As `send`, for tests in which the answer may fail to come.
    pub(crate) async fn try_send(&mut self, request: &Request) -> io::Result<Response> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Raw::connect_from(self.from, self.address).await?,
        };
        connection.send(request.to_bytes()).await?;
        let response = connection.response_to(&request.method).await?;
        let closes = response
            .header("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"));
        if response.complete && !closes {
            self.connection = Some(connection);
        }
        Ok(response)
    }

    /// Sends a GET.
    pub(crate) async fn get(&mut self, target: &str) -> Response {
        self.send(&get(target)).await
    }

    /// Sends the same request `count` times, one after the other.
    pub(crate) async fn repeat(&mut self, count: usize, request: &Request) -> Vec<Response> {
        let mut responses = Vec::with_capacity(count);
        for _ in 0..count {
            responses.push(self.send(request).await);
        }
        responses
    }
}
