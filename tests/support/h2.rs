//! A client that speaks cleartext HTTP/2 with prior knowledge.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::http::{Request, Response};

/// One HTTP/2 connection; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct H2Client {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

impl H2Client {
    /// Connects and shakes hands.
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        Self {
            sender,
            authority: "gateway.test".to_owned(),
        }
    }

    /// Names another `:authority`.
    pub(crate) fn authority(mut self, authority: &str) -> Self {
        authority.clone_into(&mut self.authority);
        self
    }

    /// Sends a request and reads its response.
    pub(crate) async fn send(&mut self, request: &Request) -> Response {
        self.try_send(request).await.unwrap()
    }

    /// As `send`, for tests in which the answer may fail to come.
    pub(crate) async fn try_send(&mut self, request: &Request) -> hyper::Result<Response> {
        let mut builder = http::Request::builder()
            .method(request.method.as_str())
            .uri(format!("http://{}{}", self.authority, request.target));
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let request = builder.body(Full::new(Bytes::from(request.body.clone()))).unwrap();
        self.sender.ready().await?;
        let (head, body) = self.sender.send_request(request).await?.into_parts();
        let line = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        let headers = head.headers.iter().map(line).collect();
        let body = body.collect().await;
        Ok(Response {
            status: head.status.as_u16(),
            headers,
            complete: body.is_ok(),
            body: body.map(|body| body.to_bytes().to_vec()).unwrap_or_default(),
        })
    }
}
