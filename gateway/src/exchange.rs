//! A request from its head to the end of its answer's body: what every step of its path may know of it.

mod asked;
mod owed;

use std::{net::IpAddr, rc::Rc, time::Duration};

use http::{
    HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version,
    header::{CONNECTION, CONTENT_TYPE, ORIGIN},
    uri::PathAndQuery,
};
use hyper::body::Incoming;
use limiter_core::{Held, Timestamp};

use crate::{
    body::Body,
    client_addr,
    descriptor::{LayerId, settling::Reached},
    head_fields::HeadFields,
    layer::{in_flight::InFlight, observe, rescue},
    server::conn::Conn,
    upstream::rewrite::X_REQUEST_ID,
    worker::{View, Worker},
};

pub(crate) use asked::Asked;
pub(crate) use owed::Owed;

/// Longest id that is taken from a trusted peer.
const LONGEST_ID: usize = 128;

/// A request from its head to the end of its answer's body.
#[derive(Debug)]
pub(crate) struct Exchange {
    in_flight: InFlight,
    /// The snapshot that this request runs on, whatever is swapped meanwhile.
    pub(crate) view: Rc<View>,
    pub(crate) started: Timestamp,
    /// What is in its head.
    pub(crate) fields: HeadFields,
    pub(crate) request_id: HeaderValue,
    pub(crate) client: IpAddr,
    pub(crate) peer_is_trusted: bool,
    /// Whether a refusal has to be told in gRPC's way.
    pub(crate) is_grpc: bool,
    /// Whether the client sends its body only once it is told to.
    pub(crate) waits_for_100: bool,
    is_http2: bool,
    /// Who may read an answer of our own.
    allow_origin: Option<HeaderValue>,
    pub(crate) method: Method,
    /// What the client asked for, where that is to be logged.
    pub(crate) target: Option<PathAndQuery>,
    /// An index into the routes of the configuration.
    pub(crate) route: Option<u16>,
    /// An index into its limits.
    pub(crate) refused_by: Option<u16>,
    /// The shadows and candidates that would have refused it.
    pub(crate) tried: Vec<LayerId>,
    /// Whether its upstream had no room for it.
    pub(crate) is_shed: bool,
    /// How long it waited for its turn.
    pub(crate) waited: Duration,
    /// What is to be settled once the answer is there.
    pub(crate) owed: Option<Box<Owed>>,
    /// What it holds of limits of concurrency.
    pub(crate) held: Option<Box<Held>>,
    /// Of the answer.
    pub(crate) status: StatusCode,
    /// Of the answer's body, as far as it went by.
    pub(crate) bytes: u64,
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
        let fields = HeadFields::of(headers);
        let peer_is_trusted = config
            .client_ip
            .trusted_proxies
            .iter()
            .any(|net| net.contains(&conn.peer));
        let is_http2 = request.version() == Version::HTTP_2;
        Box::new(Self {
            in_flight: InFlight::enter(conn, is_http2, config.server.idle_timeout),
            started: worker.now(),
            fields,
            request_id: request_id(worker, peer_is_trusted.then(|| headers.get(&X_REQUEST_ID)).flatten()),
            client: client_addr::client_addr(conn.peer, headers, &config.client_ip),
            peer_is_trusted,
            is_grpc: fields.has(HeadFields::CONTENT_TYPE) && is_grpc(headers),
            waits_for_100: fields.has(HeadFields::EXPECT),
            is_http2,
            allow_origin: view.snapshot.cors().and_then(|cors| cors.allowed(headers.get(ORIGIN))),
            method: request.method().clone(),
            target: (view.snapshot.logs_access())
                .then(|| request.uri().path_and_query().cloned())
                .flatten(),
            route: None,
            refused_by: None,
            tried: Vec::new(),
            is_shed: false,
            waited: Duration::ZERO,
            owed: None,
            held: None,
            status: rescue::client_left(),
            bytes: 0,
            end: End::Open,
            view,
        })
    }

    /// The connection that it came on.
    pub(crate) fn conn(&self) -> &Rc<Conn> {
        self.in_flight.conn()
    }

    /// The request has come so far.
    pub(crate) fn reached(&mut self, reached: Reached) {
        if let Some(owed) = &mut self.owed {
            owed.reached(reached);
        }
    }

    /// The answer is known: what was charged becomes what it costs. `told` is told of each layer what both are.
    pub(crate) fn settle(&mut self, response: &Response<Body>, told: impl FnMut(LayerId, u64, u64)) {
        if let Some(owed) = self.owed.take() {
            owed.settle(&self.view.snapshot, Some((response.status(), response.headers())), told);
        }
    }

    /// The answer is known; the exchange ends with its body.
    pub(crate) fn answer(mut self: Box<Self>, mut response: Response<Body>) -> Response<Body> {
        self.status = response.status();
        self.settle(&response, |_, _, _| ());
        response
            .headers_mut()
            .insert(X_REQUEST_ID.clone(), self.request_id.clone());
        if let Some(cors) = self.view.snapshot.cors()
            && response.body().is_own()
        {
            cors.write(self.allow_origin.take(), response.headers_mut());
        }
        if self.waits_for_100 && !self.is_http2 && !response.status().is_success() {
            // Whether the body comes after all is anybody's guess, so nothing else can come on this connection.
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(CONNECTION, close);
        }
        let no_body = matches!(response.status(), StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
        if no_body || self.method == Method::HEAD {
            // Nobody asks the body for its end.
            self.end = End::Whole;
        }
        self.conn().answered();
        response.body_mut().observe(self);
        response
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

    /// Whether the answer did not go out whole: the client left, or the upstream's body broke off.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.end != End::Whole
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Some(owed) = self.owed.take() {
            owed.settle(&self.view.snapshot, None, |_, _, _| ());
        }
        observe::ended(self);
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
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
