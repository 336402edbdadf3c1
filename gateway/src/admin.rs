//! The admin listener: liveness, readiness, metrics, status; and calls that change the configuration.
//!
//! A socket and a server of its own, on the control runtime: it answers while the workers are busy, and while they drain.

use std::{convert::Infallible, fmt, future::Future, io, net::SocketAddr, sync::Arc, time::Duration};

use http::{
    Method, Request, Response, StatusCode,
    header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue},
};
use http_body_util::Full;
use hyper::{
    body::{Body, Bytes, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use limiter_core::{Ban, StoreError};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

use crate::{
    metrics::{Format, Gauges, Metrics},
    reload::ReloadOutcome,
};

mod bans;
mod change;
mod limits;
mod status;

use change::{Change, Changes};

pub(crate) use limits::limits;
pub use status::Status;

/// Open connections at most: a monitor that leaks them must not take the descriptors that clients need.
const MAX_CONNECTIONS: usize = 128;

/// For a request's head to arrive.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);

/// After an accept that failed for lack of descriptors, until some may be free again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");

type Answer = Response<Full<Bytes>>;

/// The gateway, as the admin listener sees it.
pub trait Running: fmt::Debug + Send + Sync + 'static {
    /// Whether traffic is welcome: not while draining.
    fn is_ready(&self) -> bool;

    /// What is running.
    fn status(&self) -> Status;

    /// The layers, and what they have said so far.
    fn limits(&self) -> serde_json::Value;

    /// What metrics read at the moment.
    fn gauges(&self) -> Gauges;

    /// What calls that change something must bear.
    fn token(&self) -> Option<String>;

    /// Reads the file again. Blocks.
    fn reload(&self) -> ReloadOutcome;

    /// Takes a new content of the file, and writes it there. Blocks.
    ///
    /// # Errors
    /// The file cannot be written.
    fn replace_config(&self, bytes: Vec<u8>) -> io::Result<ReloadOutcome>;

    /// The bans that are in force.
    fn bans(&self) -> Vec<Ban>;

    /// Ends a ban, on all gateways. Whether there was one. Blocks.
    ///
    /// # Errors
    /// Other gateways cannot be told.
    fn lift_ban(&self, limit: &str, key: &str) -> Result<bool, StoreError>;
}

/// What the admin listener answers from.
#[derive(Clone, Debug)]
pub struct Admin {
    /// All counters.
    metrics: Arc<Metrics>,
    /// What is running.
    running: Arc<dyn Running>,
    changes: Changes,
}

/// Serves until `stop` is there; connections end with it, for a probe is never long.
pub async fn serve(listener: TcpListener, admin: Admin, stop: impl Future<Output = ()>) {
    if let Ok(address) = listener.local_addr() {
        tracing::info!("admin listening on {address}");
    }
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut connections = JoinSet::new();
    let accepting = async {
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else {
                return;
            };
            let (stream, client) = accept(&listener).await;
            let admin = admin.clone();
            while connections.try_join_next().is_some() {}
            connections.spawn(async move {
                if let Err(error) = serve_connection(stream, client, admin).await {
                    tracing::debug!(%client, %error, "an admin connection ended");
                }
                drop(permit);
            });
        }
    };
    tokio::select! {
        () = stop => {}
        () = accepting => {}
    }
}

/// The next connection, however long accepting fails.
async fn accept(listener: &TcpListener) -> (TcpStream, SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            // The client's own doing; the next one may be fine.
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "the admin listener cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn is_of_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn serve_connection(stream: TcpStream, client: SocketAddr, admin: Admin) -> hyper::Result<()> {
    let service = service_fn(|request: Request<Incoming>| {
        let admin = admin.clone();
        async move { Ok::<_, Infallible>(admin.answer(request, client).await) }
    });
    http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service)
        .await
}

impl Admin {
    /// Answers from these.
    #[must_use]
    pub fn new(metrics: Arc<Metrics>, running: Arc<dyn Running>) -> Self {
        Self {
            metrics,
            changes: change::changes(Arc::clone(&running)),
            running,
        }
    }

    async fn answer<B>(&self, request: Request<B>, client: SocketAddr) -> Answer
    where
        B: Body<Data = Bytes> + Send + 'static,
    {
        match Change::at(request.uri().path()) {
            Some(change) if request.method() == change.method() => {
                let (token, changes) = (self.running.token(), self.changes.clone());
                change::answer(change, request, client, token.as_deref(), changes).await
            }
            Some(change) => not_allowed(change.method()),
            None => self.read(&request),
        }
    }

    fn read<B>(&self, request: &Request<B>) -> Answer {
        let call: fn(&Self, &Request<B>) -> Answer = match request.uri().path() {
            "/healthz" => |_, _| json(br#"{"status":"alive"}"#.as_slice()),
            "/readyz" => |admin, _| admin.readiness(),
            "/metrics" => Self::metrics,
            "/api/status" => |admin, _| admin.status(),
            "/api/limits" => |admin, _| json(admin.running.limits().to_string()),
            "/api/bans" => |admin, _| bans::list(&admin.running.bans()),
            _ => return problem(StatusCode::NOT_FOUND, "there is nothing here"),
        };
        if *request.method() == Method::GET || *request.method() == Method::HEAD {
            return call(self, request);
        }
        not_allowed("GET, HEAD")
    }

    fn readiness(&self) -> Answer {
        if self.running.is_ready() {
            json(br#"{"status":"ready"}"#.as_slice())
        } else {
            problem(StatusCode::SERVICE_UNAVAILABLE, "draining")
        }
    }

    fn metrics<B>(&self, request: &Request<B>) -> Answer {
        let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
        let format = Format::accepted(accept);
        let text = self.metrics.render(format, self.running.gauges());
        respond(StatusCode::OK, HeaderValue::from_static(format.content_type()), text)
    }

    fn status(&self) -> Answer {
        match serde_json::to_vec(&self.running.status()) {
            Ok(body) => json(body),
            Err(error) => {
                tracing::error!(%error, "the status cannot be written: a bug");
                problem(StatusCode::INTERNAL_SERVER_ERROR, "the status cannot be written")
            }
        }
    }
}

fn json(body: impl Into<Bytes>) -> Answer {
    respond(StatusCode::OK, JSON, body)
}

/// RFC 9457.
fn problem(status: StatusCode, detail: &str) -> Answer {
    problem_with(status, detail, serde_json::Map::new())
}

/// With members of its own (RFC 9457, section 3.2).
fn problem_with(status: StatusCode, detail: &str, more: serde_json::Map<String, serde_json::Value>) -> Answer {
    let title = status.canonical_reason().unwrap_or_default();
    let mut body =
        serde_json::json!({"type": "about:blank", "title": title, "status": status.as_u16(), "detail": detail});
    if let Some(body) = body.as_object_mut() {
        body.extend(more);
    }
    respond(status, PROBLEM, body.to_string())
}

fn not_allowed(methods: &'static str) -> Answer {
    let detail = format!("expected {methods}");
    let mut answer = problem(StatusCode::METHOD_NOT_ALLOWED, &detail);
    answer.headers_mut().insert(ALLOW, HeaderValue::from_static(methods));
    answer
}

fn respond(status: StatusCode, content_type: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, content_type);
    answer
        .headers_mut()
        .insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

#[cfg(test)]
mod tests;
