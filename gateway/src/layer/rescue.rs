//! Turns every failure into an answer: the only file that picks a status for one.

use std::borrow::Cow;

use bytes::Bytes;
use http::{
    HeaderMap, HeaderName, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, RETRY_AFTER},
};
use limiter_core::{Verdict, decision::ceil_secs};

use self::document::Text;
use crate::{
    body::Body,
    error::{BadRequest, Failure, RateLimited, UpstreamError, causes},
    exchange::Exchange,
    ratelimit_fields::Told,
    rejection::{self, Rejection, Values},
    upstream::rewrite::X_REQUEST_ID,
    worker::Worker,
};

mod document;

const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
const NO_STORE: HeaderValue = HeaderValue::from_static("no-store");
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Of a refusal, with its id.
const FIELDS: usize = 10;

const BLANK: &str = "about:blank";
const QUOTA_EXCEEDED: &str = "https://iana.org/assignments/http-problem-types#quota-exceeded";
const ABNORMAL_USAGE: &str = "https://iana.org/assignments/http-problem-types#abnormal-usage-detected";
const REDUCED_CAPACITY: &str = "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";

/// What a client that meets a passing trouble is told to wait: breakers and stores are tried again each second.
const RETRY_SECS: u64 = 1;

/// A problem document (RFC 9457) in the making.
struct Problem {
    kind: &'static str,
    status: StatusCode,
    detail: Detail,
    retry_after: Option<u64>,
    /// The refusal that it tells of.
    refusal: Option<Box<RateLimited>>,
}

/// What is said beside the title.
enum Detail {
    Nothing,
    Text(Cow<'static, str>),
    /// That a limit is used up, in the words of [`document::put_used_up`]: written where it is read.
    UsedUp,
}

/// The answer to a request that failed.
pub(crate) fn answer(exchange: &mut Exchange, failure: Failure) -> Response<Body> {
    log(exchange, &failure);
    // Where the body ends is not known, so what follows it cannot be told from a request.
    let is_last = matches!(failure, Failure::BadRequest(BadRequest::Framing | BadRequest::Coding));
    let problem = problem(exchange, failure);
    if exchange.is_grpc
        && let Some(code) = grpc_code(&problem)
    {
        return grpc(exchange, &problem, code);
    }
    let (content_type, body) =
        designed(exchange, &problem).unwrap_or_else(|| (PROBLEM, document(exchange, &problem).into()));
    let mut response = Response::new(Body::own(body));
    *response.status_mut() = problem.status;
    *response.headers_mut() = head(exchange, &problem, content_type);
    if is_last {
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// The fields of an answer. One that tells of a layer alone has all of them but for the numbers from an earlier one.
fn head(exchange: &Exchange, problem: &Problem, content_type: HeaderValue) -> HeaderMap {
    let (worker, snapshot) = (&exchange.conn().worker, &exchange.view.snapshot);
    let alone = (problem.refusal.as_deref()).and_then(|refusal| {
        let (layer, reading) = refusal.refused_alone()?;
        let told = Told {
            policy: snapshot.layers.spelled(layer),
            reading,
            retry_after: problem.retry_after?,
            asked: refusal.at,
            now: worker.now(),
        };
        Some(told)
    });
    if let Some(told) = &alone
        && let Some(head) = snapshot.kept_head(told, &mut worker.fields.borrow_mut())
    {
        return head;
    }
    let mut headers = HeaderMap::with_capacity(FIELDS);
    headers.insert(CONTENT_TYPE, content_type);
    headers.insert(CACHE_CONTROL, NO_STORE);
    write_waits(exchange, problem, &mut headers);
    if let Some(told) = &alone {
        // A place for each request's own, or the map would have to grow for it.
        headers.insert(X_REQUEST_ID.clone(), HeaderValue::from_static("0"));
        worker.fields.borrow_mut().keep_head(told.policy, &headers);
    }
    headers
}

/// What is counted for a client that left before its answer began; never sent.
pub(crate) fn client_left() -> StatusCode {
    StatusCode::from_u16(499).unwrap_or(StatusCode::BAD_REQUEST)
}

/// The answer to a head that did not come in time.
pub(crate) fn too_slow(worker: &Worker) -> Vec<u8> {
    unreadable(worker, StatusCode::REQUEST_TIMEOUT)
}

/// The answer to a head that cannot be read, with hyper's status for it: as bytes, since there is no request to answer.
pub(crate) fn unreadable(worker: &Worker, status: StatusCode) -> Vec<u8> {
    // hyper says 414 of a target past 64 KiB; the contract has one status for a head that is too large.
    let status = match status {
        StatusCode::URI_TOO_LONG => StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
        other => other,
    };
    let id = worker.request_id();
    let id = std::str::from_utf8(&id).unwrap_or_default();
    let (code, title) = (status.as_u16(), status.canonical_reason().unwrap_or("Error"));
    let mut readers = HeaderMap::new();
    if let Some(cors) = worker.view().snapshot.cors() {
        cors.write(cors.allowed(None), &mut readers);
    }
    let readers = readers
        .iter()
        .filter_map(|(name, value)| Some(format!("{name}: {}\r\n", value.to_str().ok()?)));
    let readers: String = readers.collect();
    let body = format!("{{\"type\":\"{BLANK}\",\"title\":\"{title}\",\"status\":{code},\"instance\":\"{id}\"}}\n");
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code} {title}\r\ncontent-type: application/problem+json\r\ncache-control: no-store\r\n\
         x-request-id: {id}\r\n{readers}connection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    (head + &body).into_bytes()
}

/// Which status, and what is said.
fn problem(exchange: &mut Exchange, failure: Failure) -> Problem {
    let plain = |status, detail| Problem {
        kind: BLANK,
        status,
        detail,
        retry_after: None,
        refusal: None,
    };
    let text = |text: String| Detail::Text(text.into());
    let passing = |detail: Cow<'static, str>| Problem {
        kind: REDUCED_CAPACITY,
        retry_after: Some(RETRY_SECS),
        ..plain(StatusCode::SERVICE_UNAVAILABLE, Detail::Text(detail))
    };
    match failure {
        Failure::BadRequest(error) => plain(StatusCode::BAD_REQUEST, text(error.to_string())),
        Failure::RouteNotFound => plain(StatusCode::NOT_FOUND, Detail::Nothing),
        Failure::Forbidden { layer } => {
            exchange.refused_by = u16::try_from(layer).ok();
            let detail = format!(
                "limit {:?} takes no request without its key",
                layer_name(exchange, layer)
            );
            plain(StatusCode::FORBIDDEN, text(detail))
        }
        Failure::KeyDenied { layer } => {
            exchange.refused_by = u16::try_from(layer).ok();
            let detail = format!("limit {:?} takes no request of this key", layer_name(exchange, layer));
            plain(StatusCode::FORBIDDEN, text(detail))
        }
        Failure::BadCost { layer, problem } => {
            let snapshot = &exchange.view.snapshot;
            let header = snapshot.layers.cost_header(layer).map_or("", |name| name.as_str());
            let name = snapshot.limit_name(layer).unwrap_or_default();
            let detail = format!("header {header:?}, the cost for limit {name:?}, {problem}");
            plain(StatusCode::BAD_REQUEST, text(detail))
        }
        Failure::RateLimited(refusal) => refused(exchange, refusal),
        Failure::Banned(refusal) => banned(exchange, refusal),
        Failure::StoreAway { layer, .. } => {
            exchange.refused_by = u16::try_from(layer).ok();
            let name = layer_name(exchange, layer);
            passing(format!("limit {name:?} cannot be checked for the moment").into())
        }
        Failure::Shed(_) => {
            exchange.is_shed = true;
            passing("the upstream has as many requests as it can do with".into())
        }
        Failure::TooManyWait => passing("too many requests wait for their turn".into()),
        Failure::Upstream(error @ UpstreamError::Busy { .. }) => passing(failed_detail(&error).into()),
        Failure::Upstream(error) => plain(failed_status(&error), Detail::Text(failed_detail(&error).into())),
    }
}

fn failed_status(error: &UpstreamError) -> StatusCode {
    match error {
        UpstreamError::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
        UpstreamError::Timeout { .. } => StatusCode::GATEWAY_TIMEOUT,
        // Nobody is left to read it.
        UpstreamError::ClientBody(_) => StatusCode::BAD_REQUEST,
        UpstreamError::Connect { .. } | UpstreamError::Exchange { .. } | UpstreamError::Switched { .. } => {
            StatusCode::BAD_GATEWAY
        }
    }
}

/// What a client may know of it; the log has the rest.
fn failed_detail(error: &UpstreamError) -> &'static str {
    match error {
        UpstreamError::Busy { .. } => "too many requests wait for the upstream",
        UpstreamError::Timeout { .. } => "the upstream did not answer in time",
        UpstreamError::ClientBody(_) => "the body broke off",
        UpstreamError::Connect { .. } => "the upstream cannot be reached",
        UpstreamError::Exchange { .. } | UpstreamError::Switched { .. } => "the upstream gave no valid answer",
    }
}

/// What an upstream is counted with: its own status, or the one that its failure is answered with.
pub(crate) fn upstream_status(sent: &Result<Response<Body>, UpstreamError>) -> StatusCode {
    sent.as_ref().map_or_else(failed_status, Response::status)
}

fn layer_name(exchange: &Exchange, layer: usize) -> String {
    exchange.view.snapshot.limit_name(layer).unwrap_or_default().to_owned()
}

fn refused(exchange: &mut Exchange, refusal: Box<RateLimited>) -> Problem {
    exchange.refused_by = refusal.refused_by();
    let retry_after = match refusal.decision.verdict {
        Verdict::Denied { wait, .. } => wait.retry_after_secs(),
        Verdict::Allowed => None,
    };
    Problem {
        kind: QUOTA_EXCEEDED,
        status: chosen(exchange, &refusal).map_or(StatusCode::TOO_MANY_REQUESTS, |answer| answer.status),
        detail: Detail::UsedUp,
        retry_after,
        refusal: Some(refusal),
    }
}

/// As a refusal, but for what is said of it.
fn banned(exchange: &mut Exchange, refusal: Box<RateLimited>) -> Problem {
    let mut problem = refused(exchange, refusal);
    let name = exchange.refused_by.map(|layer| layer_name(exchange, layer.into()));
    problem.kind = ABNORMAL_USAGE;
    if let (Some(name), Some(secs)) = (name, problem.retry_after) {
        let detail = format!("limit {name:?} was exceeded too often: refused for a time; retry in {secs} s");
        problem.detail = Detail::Text(detail.into());
    }
    problem
}

/// The answer that the layer which refuses, or else the configuration, has in place of the contract's.
fn chosen<'a>(exchange: &'a Exchange, refusal: &RateLimited) -> Option<&'a rejection::Answer> {
    match exchange.view.snapshot.rejection(refusal.refused_by()?)? {
        Rejection::Answer(answer) => Some(answer),
        Rejection::Degrade { .. } => None,
    }
}

/// The body of a refusal, and its media type, where it is of the operator's design.
fn designed(exchange: &Exchange, problem: &Problem) -> Option<(HeaderValue, Bytes)> {
    let refusal = problem.refusal.as_deref()?;
    let body = chosen(exchange, refusal)?.body.as_ref()?;
    let (layer, reading) = refusal.refusing()?;
    let policy = exchange.view.snapshot.layers.policy(layer);
    let algorithm = policy.algorithm();
    let values = Values {
        layer: policy.name(),
        limit: algorithm.limit(),
        window: ceil_secs(algorithm.window()),
        remaining: reading.remaining,
        retry_after: problem.retry_after,
        detail: &detail(exchange, problem).unwrap_or_default(),
        status: problem.status.as_u16(),
        request_id: exchange.request_id.to_str().unwrap_or_default(),
    };
    Some((body.content_type.clone(), body.template.render(&values)))
}

/// What is said beside the title, as text.
fn detail<'a>(exchange: &Exchange, problem: &'a Problem) -> Option<Cow<'a, str>> {
    match &problem.detail {
        Detail::Nothing => None,
        Detail::Text(text) => Some(text.as_ref().into()),
        Detail::UsedUp => {
            let mut text = Text::with_capacity(96);
            put_used_up(&mut text, "\"", exchange, problem);
            Some(text.finish().into())
        }
    }
}

fn put_used_up(text: &mut Text, quote: &'static str, exchange: &Exchange, problem: &Problem) {
    if let Some(refusal) = problem.refusal.as_deref()
        && let Some((layer, reading)) = refusal.refusing()
    {
        let policy = exchange.view.snapshot.layers.policy(layer);
        document::put_used_up(text, quote, policy, reading.wait, problem.retry_after);
    }
}

/// The document itself: members in the order of the contract.
fn document(exchange: &Exchange, problem: &Problem) -> String {
    let mut json = Text::with_capacity(384);
    // A title is the type's (RFC 9457, section 3.1.4), so a refusal keeps its own under another status.
    let titled = problem
        .refusal
        .as_ref()
        .map_or(problem.status, |_| StatusCode::TOO_MANY_REQUESTS);
    let title = titled.canonical_reason().unwrap_or("Error");
    json.put("{\"type\":\"").put(problem.kind);
    json.put("\",\"title\":\"").put(title);
    json.put("\",\"status\":").put_number(problem.status.as_u16());
    if problem.refusal.is_some() {
        json.put(",\"code\":\"TOO_MANY_REQUESTS\"");
    }
    match &problem.detail {
        Detail::Nothing => {}
        Detail::Text(text) => {
            json.put(",\"detail\":").put_json(text);
        }
        Detail::UsedUp => {
            json.put(",\"detail\":\"");
            put_used_up(&mut json, "\\\"", exchange, problem);
            json.put("\"");
        }
    }
    if let Some(refusal) = &problem.refusal {
        let layers = &exchange.view.snapshot.layers;
        for (at, (layer, _)) in refusal.without_room().enumerate() {
            let lead = if at == 0 { ",\"violated-policies\":[" } else { "," };
            json.put(lead).put_json(layers.policy(layer).name());
        }
        json.put("]");
    }
    if let Some(secs) = problem.retry_after {
        json.put(",\"retry-after\":").put_number(secs);
    }
    let id = exchange.request_id.to_str().unwrap_or_default();
    json.put(",\"instance\":").put_json(id).put("}\n").finish()
}

/// `Retry-After`, and for a refusal how full the layers are.
fn write_waits(exchange: &Exchange, problem: &Problem, headers: &mut HeaderMap) {
    if let Some(secs) = problem.retry_after {
        headers.insert(RETRY_AFTER, HeaderValue::from(secs));
    }
    if let Some(refusal) = &problem.refusal {
        let worker = &exchange.conn().worker;
        let fields = &mut worker.fields.borrow_mut();
        let snapshot = &exchange.view.snapshot;
        snapshot.write_ratelimit_fields(refusal, worker.now(), fields, headers);
    }
}

/// gRPC's code for a refusal: RESOURCE_EXHAUSTED or UNAVAILABLE. Other failures stay HTTP's, which gRPC clients map.
fn grpc_code(problem: &Problem) -> Option<u64> {
    match problem.status {
        StatusCode::SERVICE_UNAVAILABLE => Some(14),
        _ => problem.refusal.is_some().then_some(8),
    }
}

/// An answer of trailers only, which HTTP carries as headers.
fn grpc(exchange: &Exchange, problem: &Problem, code: u64) -> Response<Body> {
    let mut response = Response::new(Body::own(""));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, GRPC);
    headers.insert(CACHE_CONTROL, NO_STORE);
    headers.insert(GRPC_STATUS.clone(), HeaderValue::from(code));
    if let Some(message) = detail(exchange, problem).and_then(|detail| HeaderValue::from_str(&detail).ok()) {
        headers.insert(GRPC_MESSAGE.clone(), message);
    }
    write_waits(exchange, problem, headers);
    response
}

/// Upstream troubles and failing stores are the operator's to know; the rest is the client's doing, and in the access
/// line.
fn log(exchange: &Exchange, failure: &Failure) {
    let Failure::Upstream(error) = failure else { return };
    let request_id = exchange.request_id.to_str().unwrap_or_default();
    let cause = causes(error);
    match error {
        UpstreamError::ClientBody(_) => tracing::debug!(request_id, cause, "a client's body broke off"),
        _ => {
            let upstreams = &exchange.view.upstreams;
            let failed = upstreams
                .iter()
                .find(|upstream| Some(upstream.name()) == error.upstream());
            let now = exchange.conn().worker.now();
            if let Some(held_back) = failed.map_or(Some(0), |upstream| upstream.warnings.pass(now)) {
                tracing::warn!(request_id, cause, held_back, "an upstream failed");
            }
        }
    }
}
