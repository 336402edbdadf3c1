//! The spine: what happens to a request, in order. `spine` lists it, as tower layers around one service.
//!
//! 1. **observe** gives it an id and starts its clock: outermost, so that failures are counted too. It is in flight from
//!    here to the end of its answer's body.
//! 2. **rescue** turns every failure below it into an answer.
//! 3. **dispatch** takes the snapshot once and looks for the route: a request that no route takes is refused before it is
//!    charged.
//! 4. **rate_limit**: before waiting, before a connection, before the body is read, so that a refusal is the cheapest
//!    answer of all. A layer may send what it refuses to another upstream instead.
//!    A request that a queue takes in waits here for its turn.
//! 5. **upstream**: an endpoint, the head edited in place, the body streamed both ways.
//! 6. On the way out the decision's fields are written, and observe closes with the body.
//!
//! Every type is concrete and nothing is boxed. What is under way between two awaits, from routing to the upstream's
//! answer, is one `async fn`: as a layer each it would be a future written by hand, and the order no longer in one place.

use std::{borrow::Cow, convert::Infallible, rc::Rc};

use http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use tower::{Service, ServiceBuilder};

use crate::{
    body::{Body, RequestBody},
    config::{Respond, Target},
    descriptor::Facts,
    error::{BadRequest, Failure},
    exchange::Exchange,
    layer::{queue, rate_limit::Check, rescue},
    server::conn::Conn,
    upstream::{
        Upstream,
        rewrite::{self, Edit},
    },
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

/// A request on its way in, and what is known of it.
struct Call {
    exchange: Box<Exchange>,
    request: Request<RequestBody>,
}

/// What becomes of a request on one connection, outermost first.
pub(crate) fn spine(
    conn: Rc<Conn>,
) -> impl Service<Request<Incoming>, Response = Response<Body>, Error = Infallible> + Clone {
    ServiceBuilder::new()
        .map_request(move |request| observe(&conn, request))
        .map_response(rescue)
        .service_fn(dispatch)
}

fn observe(conn: &Rc<Conn>, request: Request<Incoming>) -> Call {
    let exchange = Exchange::begin(conn, &request);
    let drains = !exchange.waits_for_100;
    let request = request.map(|body| RequestBody::new(body, conn, drains));
    Call { exchange, request }
}

/// What became of a request: an answer or a failure, and the exchange that it ends.
struct Outcome {
    exchange: Box<Exchange>,
    result: Result<Response<Body>, Failure>,
}

fn rescue(outcome: Outcome) -> Response<Body> {
    let Outcome { mut exchange, result } = outcome;
    let response = result.unwrap_or_else(|failure| rescue::answer(&mut exchange, failure));
    exchange.answer(response)
}

async fn dispatch(call: Call) -> Result<Outcome, Infallible> {
    let Call { mut exchange, request } = call;
    let result = forward(&mut exchange, request).await;
    Ok(Outcome { exchange, result })
}

async fn forward(exchange: &mut Exchange, request: Request<RequestBody>) -> Result<Response<Body>, Failure> {
    let Routed {
        host,
        path,
        route,
        check,
    } = route(exchange, &request)?;
    let view = Rc::clone(&exchange.view);
    let mut passed = check.finish(&view.snapshot).await?;
    if let Some(turn) = passed.take_turn() {
        exchange.waited = queue::wait(turn, &exchange.conn().worker, &view.snapshot).await?;
    }
    let route = &view.snapshot.config.routes[route];
    let degraded = passed.degraded();
    if let Some(degraded) = degraded {
        exchange.refused_by = Some(degraded.layer);
    }
    let elsewhere = degraded.map(|degraded| &degraded.upstream);
    let mut response = match (elsewhere, &route.target) {
        (None, Target::Respond(respond)) => fixed(respond),
        (Some(index), _) | (None, Target::Upstream(index)) => {
            let upstream = &view.upstreams[*index];
            let degraded_by = degraded.map(|degraded| degraded.name.clone());
            let request = edited(exchange, request, upstream, host, path, degraded_by);
            let worker = &exchange.conn().worker;
            let since = worker.now();
            let sent = upstream.send(request, route.timeout, since, &worker.deadlines).await;
            let status = rescue::upstream_status(&sent);
            view.snapshot.metrics.upstreams[*index].record(status, worker.now().since(since));
            // Rescued here: what the layers said is told whoever answers.
            sent.unwrap_or_else(|error| rescue::answer(exchange, error.into()))
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
    target::check_coding(request.headers())?;
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
    upstream: &Upstream,
    host: Option<HeaderValue>,
    path: Option<String>,
    degraded_by: Option<HeaderValue>,
) -> Request<RequestBody> {
    rewrite::target(request.uri_mut(), path);
    let edit = Edit {
        names_host: host.is_some(),
        host: host.unwrap_or_else(|| upstream.authority()),
        forwarded_for: &exchange.conn().forwarded_for,
        peer_is_trusted: exchange.peer_is_trusted,
        request_id: exchange.request_id.clone(),
        degraded_by,
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
