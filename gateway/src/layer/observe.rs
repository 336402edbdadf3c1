//! A request from its head to the end of its answer's body: id, clock, metrics, the access line.

use std::{net::IpAddr, rc::Rc, time::Duration};

use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header::CONTENT_TYPE};
use hyper::body::Incoming;
use limiter_core::Timestamp;

use super::in_flight::InFlight;
use crate::{
    body::Body,
    client_addr,
    server::conn::Conn,
    telemetry::ACCESS,
    upstream::rewrite::X_REQUEST_ID,
    worker::{View, Worker},
};

/// Longest id that is taken from a trusted peer.
const LONGEST_ID: usize = 128;
/// Counted for a client that left before its answer began; never sent.
const CLIENT_LEFT: u16 = 499;

/// A request from its head to the end of its answer's body.
#[derive(Debug)]
pub(crate) struct Exchange {
    in_flight: InFlight,
    /// The snapshot that this request runs on, whatever is swapped meanwhile.
    pub(crate) view: Rc<View>,
    pub(crate) started: Timestamp,
    pub(crate) request_id: HeaderValue,
    pub(crate) client: IpAddr,
    pub(crate) peer_is_trusted: bool,
    /// Whether a refusal has to be told in gRPC's way.
    pub(crate) is_grpc: bool,
    method: Method,
    target: Uri,
    /// Indices into the configuration.
    pub(crate) route: Option<u16>,
    pub(crate) refused_by: Option<u16>,
    status: StatusCode,
    bytes: u64,
    end: End,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Not yet; if this is the last word, the client has left.
    Open,
    /// The whole answer was handed over.
    Whole,
    /// The upstream's body broke off.
    Broken,
}

impl Exchange {
    /// A request has come.
    pub(crate) fn begin(conn: &Rc<Conn>, request: &Request<Incoming>) -> Box<Self> {
        let worker = &conn.worker;
        let view = worker.view();
        let config = &view.snapshot.config;
        let headers = request.headers();
        let peer_is_trusted = config
            .client_ip
            .trusted_proxies
            .iter()
            .any(|net| net.contains(&conn.peer));
        let grpc = |kind: &HeaderValue| kind.as_bytes().starts_with(b"application/grpc");
        let is_http2 = request.version() == Version::HTTP_2;
        Box::new(Self {
            in_flight: InFlight::enter(conn, is_http2, config.server.idle_timeout),
            started: worker.now(),
            request_id: request_id(worker, headers.get(&X_REQUEST_ID).filter(|_| peer_is_trusted)),
            client: client_addr::client_addr(conn.peer, headers, &config.client_ip),
            peer_is_trusted,
            is_grpc: headers.get(CONTENT_TYPE).is_some_and(grpc),
            method: request.method().clone(),
            target: request.uri().clone(),
            route: None,
            refused_by: None,
            status: client_left(),
            bytes: 0,
            end: End::Open,
            view,
        })
    }

    /// The connection that it came on.
    pub(crate) fn conn(&self) -> &Rc<Conn> {
        self.in_flight.conn()
    }

    /// The answer is known; the exchange ends with its body.
    pub(crate) fn answer(mut self: Box<Self>, mut response: Response<Body>) -> Response<Body> {
        self.status = response.status();
        response
            .headers_mut()
            .insert(X_REQUEST_ID.clone(), self.request_id.clone());
        let no_body = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if no_body || self.method == Method::HEAD {
            // Nobody asks the body for its end.
            self.end = End::Whole;
        }
        response.map(|body| body.observed(self))
    }

    /// So many bytes of the answer's body went by.
    pub(crate) fn count_bytes(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
    }

    /// The whole answer was handed over.
    pub(crate) fn completed(&mut self) {
        if self.end == End::Open {
            self.end = End::Whole;
        }
    }

    /// The upstream's body broke off.
    pub(crate) fn broke_off(&mut self) {
        self.end = End::Broken;
    }

    fn record(&self, took: Duration) {
        let metrics = &self.view.snapshot.metrics;
        let route = self.route.and_then(|route| metrics.routes.get(usize::from(route)));
        route.unwrap_or(&metrics.no_route).record(self.status, took);
    }

    fn write_access_line(&self, took: Duration) {
        let config = &self.view.snapshot.config;
        let route = self.route.and_then(|route| config.routes.get(usize::from(route)));
        let limit = self.refused_by.and_then(|layer| config.limits.get(usize::from(layer)));
        tracing::info!(
            target: ACCESS,
            method = self.method.as_str(),
            path = self.target.path(),
            status = self.status.as_u16(),
            route = route.map(|route| &*route.name),
            limit = limit.map(|limit| &**limit.policy.name()),
            duration_ms = took.as_secs_f64() * 1000.0,
            bytes = self.bytes,
            request_id = self.request_id.to_str().unwrap_or_default(),
            client = %self.client,
            incomplete = (self.end != End::Whole).then_some(true),
        );
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let took = self.conn().worker.now().since(self.started);
        self.record(took);
        if self.view.snapshot.config.log.access {
            self.write_access_line(took);
        }
    }
}

fn client_left() -> StatusCode {
    StatusCode::from_u16(CLIENT_LEFT).unwrap_or(StatusCode::BAD_REQUEST)
}

/// The peer's id where it can be written anywhere as it is; else a new one.
fn request_id(worker: &Worker, given: Option<&HeaderValue>) -> HeaderValue {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.:/+=@~".contains(byte);
    let taken = given.filter(|id| (1..=LONGEST_ID).contains(&id.len()) && id.as_bytes().iter().all(plain));
    let made = || HeaderValue::from_maybe_shared(worker.request_id()).ok();
    let id = taken.cloned().or_else(made);
    // Hex digits are a valid value.
    id.unwrap_or_else(|| HeaderValue::from_static("0"))
}
