//! The spine: what happens to a request, in order. `spine` lists it, as tower layers around one service.
//!
//! 1. **observe** gives it an id and starts its clock: outermost, so that failures are counted too. It is in flight from
//!    here to the end of its answer's body.
//! 2. **rescue** turns every failure below it into an answer.
//! 3. **dispatch** takes the snapshot once and looks for the route: a request that no route takes is refused before it is
//!    charged, and so is one that its upstream has no room for (**shedding**).
//! 4. **rate_limit**: before waiting, before a connection, before the body is read, so that a refusal is the cheapest
//!    answer of all. A layer may send what it refuses to another upstream instead.
//!    A request that a queue takes in waits here for its turn.
//! 5. **upstream**: an endpoint, the head edited in place, the body streamed both ways.
//! 6. On the way out the decision's fields are written, and observe closes with the body.
//!
//! Every type is concrete; what is large and lives long, the request and its exchange, is boxed, so that little is moved
//! about. What is under way between two awaits, from routing to the upstream's answer, is one `async fn`: as a layer each it
//! would be a future written by hand, and the order no longer in one place.

use std::{borrow::Cow, convert::Infallible, rc::Rc};

use http::{HeaderValue, Request, Response, Version};
use hyper::body::Incoming;
use tower::{Service, ServiceBuilder};

use crate::{
    body::{Body, RequestBody},
    config::{Respond, Target},
    descriptor::{Facts, settling::Reached},
    error::{BadRequest, Failure, UpstreamError},
    exchange::Exchange,
    head_fields::HeadFields,
    layer::{
        queue,
        rate_limit::{Check, Passed},
        rescue,
    },
    server::conn::Conn,
    shedding::NoRoom,
    upstream::{
        Upstream,
        rewrite::{self, Edit, Host},
    },
};

mod target;

/// What was found out about a request before it is let through.
struct Routed {
    host: Option<Host>,
    /// The normalised path, where it is not what the client wrote.
    path: Option<String>,
    route: usize,
    /// `None` where no layer is configured.
    check: Option<Box<Check>>,
}

/// A request on its way in, and what is known of it. Both lie where they are until the request is sent: what is moved about
/// between the steps are pointers.
struct Call {
    exchange: Box<Exchange>,
    request: Box<Request<RequestBody>>,
}

/// What becomes of a request on one connection, outermost first. Always ready: nothing in it waits for a turn.
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
    let request = Box::new(request.map(|body| RequestBody::new(body, conn, drains)));
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

async fn forward(exchange: &mut Exchange, mut request: Box<Request<RequestBody>>) -> Result<Response<Body>, Failure> {
    let Routed {
        host,
        path,
        route,
        check,
    } = route(exchange, &request)?;
    let view = Rc::clone(&exchange.view);
    let mut passed = match check {
        Some(check) => Some(limit(exchange, check).await?),
        None => None,
    };
    let degraded = passed.as_ref().and_then(|passed| passed.degraded());
    if let Some(degraded) = degraded {
        exchange.refused_by = Some(degraded.layer);
    }
    let elsewhere = degraded.map(|degraded| degraded.upstream);
    let sent = match (elsewhere, &view.snapshot.config.routes[route].target) {
        (None, Target::Respond(respond)) => Ok(fixed(respond)),
        (Some(index), _) | (None, &Target::Upstream(index)) => {
            let degraded_by = degraded.map(|degraded| degraded.name.clone());
            edit(exchange, &mut request, &view.upstreams[index], host, path, degraded_by);
            // What leads elsewhere is known only now.
            match elsewhere.map_or(Ok(()), |index| has_room(exchange, index, route)) {
                Ok(()) => {
                    exchange.reached(Reached::Perhaps);
                    send(exchange, request, index, route).await.map_err(Failure::from)
                }
                Err(no_room) => Err(no_room.into()),
            }
        }
    };
    match &sent {
        Ok(_) => exchange.reached(Reached::Answer),
        Err(Failure::Upstream(error)) if error.is_unsent() => exchange.reached(Reached::Nobody),
        Err(_) => {}
    }
    // Rescued here: what the layers said is told whoever answers.
    let mut response = sent.unwrap_or_else(|failure| {
        exchange.held = None;
        rescue::answer(exchange, failure)
    });
    if let Some(passed) = &mut passed {
        exchange.settle(&response, |layer, charged, cost| {
            passed.costs(&view.snapshot, layer, charged, cost);
        });
        passed.write_fields(&exchange.conn().worker, &view.snapshot, response.headers_mut());
    }
    Ok(response)
}

/// Waits for what the layers say, and for the turn that they give.
async fn limit(exchange: &mut Exchange, check: Box<Check>) -> Result<Passed, Failure> {
    let view = Rc::clone(&exchange.view);
    let (tried, owed) = (&mut exchange.tried, &mut exchange.owed);
    let mut passed = check.finish(&view.snapshot, tried, owed).await?;
    if let Some(turn) = passed.take_turn() {
        exchange.waited = queue::wait(turn, &exchange.conn().worker, &view.snapshot).await?;
    }
    exchange.held = passed.take_held();
    Ok(passed)
}

/// Sends a request of `route` to an upstream, and counts it.
async fn send(
    exchange: &Exchange,
    request: Box<Request<RequestBody>>,
    upstream: usize,
    route: usize,
) -> Result<Response<Body>, UpstreamError> {
    let (view, worker) = (&exchange.view, &exchange.conn().worker);
    let snapshot = &view.snapshot;
    let since = worker.now();
    let slot = snapshot.shedding.enter(upstream, since, &worker.shared.clock);
    let timeout = snapshot.config.routes[route].timeout;
    let sent = view.upstreams[upstream]
        .send(*request, timeout, since, &worker.deadlines)
        .await;
    let (status, now) = (rescue::upstream_status(&sent), worker.now());
    snapshot.metrics.upstreams[upstream].record(status, now.since(since));
    if let Some(slot) = slot {
        match &sent {
            // An upstream that refuses is quick, however slow it would be.
            Ok(response) if matches!(response.status().as_u16(), 429 | 503) => slot.untold(),
            Ok(_) | Err(UpstreamError::Timeout { .. }) => slot.answered(now),
            Err(_) => slot.untold(),
        }
    }
    sent
}

/// Whether an upstream has room for a request of `route`.
fn has_room(exchange: &Exchange, upstream: usize, route: usize) -> Result<(), NoRoom> {
    let clock = &exchange.conn().worker.shared.clock;
    exchange.view.snapshot.shedding.ask(upstream, route, clock)
}

/// Which route takes the request, and what its layers are asked.
fn route(exchange: &mut Exchange, request: &Request<RequestBody>) -> Result<Routed, Failure> {
    let view = Rc::clone(&exchange.view);
    let snapshot = &view.snapshot;
    let (method, uri) = (request.method(), request.uri());
    // Only what has a body says how long it is.
    if exchange
        .fields
        .has(HeadFields::CONTENT_LENGTH | HeadFields::TRANSFER_ENCODING)
    {
        if exchange.conn().is_framing_ambiguous() {
            return Err(BadRequest::Framing.into());
        }
        target::check_framing(request.headers())?;
    }
    let path = target::path(method, uri)?;
    let host = target::host(request)?;
    let host_name = host.as_ref().map_or("", |host| &host.name);
    let route = snapshot
        .router
        .find(method, host_name, &path)
        .ok_or(Failure::RouteNotFound)?;
    exchange.route = u16::try_from(route).ok();
    let config = &snapshot.config.routes[route];
    if let Target::Upstream(upstream) = config.target {
        has_room(exchange, upstream, route)?;
    }
    let check = match snapshot.layers.is_empty() {
        true => None,
        false => {
            let facts = Facts {
                method,
                host: host_name,
                path: &path,
                query: uri.query(),
                headers: request.headers(),
                client: exchange.client,
                route: &config.name,
            };
            Some(Box::new(Check::start(&exchange.conn().worker, snapshot, &facts)?))
        }
    };
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

/// Makes the request what the upstream expects.
fn edit(
    exchange: &Exchange,
    request: &mut Request<RequestBody>,
    upstream: &Upstream,
    host: Option<Host>,
    path: Option<String>,
    degraded_by: Option<HeaderValue>,
) {
    rewrite::target(request.uri_mut(), path);
    let edit = Edit {
        host: host.unwrap_or_else(|| Host::Upstream(upstream.authority())),
        forwarded_for: &exchange.conn().forwarded_for,
        peer_is_trusted: exchange.peer_is_trusted,
        request_id: exchange.request_id.clone(),
        degraded_by,
    };
    rewrite::request(request.headers_mut(), exchange.fields, edit);
    *request.version_mut() = Version::HTTP_11;
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
