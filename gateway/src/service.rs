//! The spine: what happens to a request, in order.
//!
//! 1. **observe** gives it an id and starts its clock: outermost, so that failures are counted too.
//! 2. **rescue** turns every failure below it into an answer.
//! 3. **snapshot and route**: taken once; a request that no route takes is refused before it is charged.
//! 4. **rate_limit**: before waiting, before a connection, before the body is read, so that a refusal is the cheapest
//!    answer of all.
//! 5. **in_flight**: held until the answer's body ends.
//! 6. **upstream**: an endpoint, its head edited in place, the body streamed both ways.
//! 7. On the way out the decision's fields are written, and observe closes with the body.
//!
//! These are plain functions in one `async fn`, not a tower of services: the order stands in one place, nothing is boxed,
//! and the request is moved once.

use std::{borrow::Cow, convert::Infallible, rc::Rc};

use http::{
    HeaderValue, Request, Response, Version,
    header::{CONNECTION, EXPECT},
};
use hyper::body::Incoming;

use crate::{
    body::{Body, RequestBody},
    config::{Respond, Target},
    descriptor::Facts,
    error::{BadRequest, Failure},
    exchange::Exchange,
    layer::{rate_limit::Check, rescue},
    server::conn::Conn,
    upstream::rewrite::{self, Edit},
};

mod target;

/// What was found out about a request before it is let through.
struct Routed {
    /// The authority that the client named; `None`: none, which HTTP/1.0 allows.
    host: Option<HeaderValue>,
    /// The normalised path, where it is not what the client wrote.
    path: Option<String>,
    route: usize,
    check: Check,
}

/// Answers a request.
pub(crate) async fn serve(conn: Rc<Conn>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let mut exchange = Exchange::begin(&conn, &request);
    let waits_for_100 = request.headers().contains_key(EXPECT);
    let is_http1 = request.version() != Version::HTTP_2;
    let request = request.map(|body| RequestBody::new(body, &conn, !waits_for_100));
    let mut response = match dispatch(&mut exchange, request).await {
        Ok(response) => response,
        Err(failure) => rescue::answer(&mut exchange, failure),
    };
    if waits_for_100 && is_http1 && !response.status().is_success() {
        // Whether the body comes after all is anybody's guess, so nothing else can come on this connection.
        response
            .headers_mut()
            .insert(CONNECTION, HeaderValue::from_static("close"));
    }
    Ok(exchange.answer(response))
}

async fn dispatch(exchange: &mut Exchange, request: Request<RequestBody>) -> Result<Response<Body>, Failure> {
    let Routed {
        host,
        path,
        route,
        check,
    } = route(exchange, &request)?;
    let view = Rc::clone(&exchange.view);
    let passed = check.finish(&view.snapshot).await?;
    let route = &view.snapshot.config.routes[route];
    let mut response = match &route.target {
        Target::Respond(respond) => fixed(respond),
        Target::Upstream(index) => {
            let upstream = &view.upstreams[*index];
            let request = edited(exchange, request, host.unwrap_or_else(|| upstream.authority()), path);
            let worker = &exchange.conn().worker;
            let since = worker.now();
            let sent = upstream.send(request, route.timeout, since, &worker.deadlines).await;
            let status = rescue::upstream_status(&sent);
            view.snapshot.metrics.upstreams[*index].record(status, worker.now().since(since));
            sent?
        }
    };
    passed.write_fields(&exchange.conn().worker, &view.snapshot, response.headers_mut());
    Ok(response)
}

/// Which route takes the request, and what its layers say. Nothing of the request is borrowed any more afterwards.
fn route(exchange: &mut Exchange, request: &Request<RequestBody>) -> Result<Routed, Failure> {
    let view = Rc::clone(&exchange.view);
    let snapshot = &view.snapshot;
    let (method, uri) = (request.method(), request.uri());
    if exchange.conn().is_framing_ambiguous() {
        return Err(BadRequest::Framing.into());
    }
    let path = target::path(method, uri)?;
    let host = target::host(request)?;
    let host_name = host.as_ref().map_or("", |host| &host.name);
    let route = snapshot
        .router
        .find(method, host_name, &path)
        .ok_or(Failure::RouteNotFound)?;
    exchange.route = u16::try_from(route).ok();
    let facts = Facts {
        method,
        host: host_name,
        path: &path,
        query: uri.query(),
        headers: request.headers(),
        client: exchange.client,
        route: &snapshot.config.routes[route].name,
    };
    let check = Check::start(&exchange.conn().worker, snapshot, &facts)?;
    let path = match path {
        Cow::Owned(path) => Some(path),
        Cow::Borrowed(_) => None,
    };
    Ok(Routed {
        host: host.map(|host| host.value),
        path,
        route,
        check,
    })
}

/// The request as the upstream expects it.
fn edited(
    exchange: &Exchange,
    mut request: Request<RequestBody>,
    host: HeaderValue,
    path: Option<String>,
) -> Request<RequestBody> {
    rewrite::target(request.uri_mut(), path);
    let edit = Edit {
        host,
        forwarded_for: &exchange.conn().forwarded_for,
        peer_is_trusted: exchange.peer_is_trusted,
        request_id: exchange.request_id.clone(),
    };
    rewrite::request(request.headers_mut(), edit);
    *request.version_mut() = Version::HTTP_11;
    request
}

/// A route's own answer.
fn fixed(respond: &Respond) -> Response<Body> {
    let mut response = Response::new(Body::own(respond.body.clone()));
    *response.status_mut() = respond.status;
    for (name, value) in &respond.headers {
        response.headers_mut().append(name.clone(), value.clone());
    }
    response
}
