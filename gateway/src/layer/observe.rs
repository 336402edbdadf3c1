//! What is told of every request once it has ended: its metrics and its access line.
//!
//! Outermost, so that failures are told of as well.

use std::time::Duration;

use limiter_core::Role;

use crate::{exchange::Exchange, telemetry::ACCESS};

/// The request has ended, with the body of its answer, or because the client left.
pub(crate) fn ended(exchange: &Exchange) {
    let took = exchange.conn().worker.now().since(exchange.started);
    let snapshot = &exchange.view.snapshot;
    let route = exchange.route.map(usize::from);
    let metrics = route.and_then(|route| snapshot.metrics.routes.get(route));
    metrics
        .unwrap_or(&snapshot.metrics.no_route)
        .record(exchange.status, took);
    if snapshot.logs_access() {
        write_access_line(exchange, took);
    }
}

fn write_access_line(exchange: &Exchange, took: Duration) {
    let snapshot = &exchange.view.snapshot;
    tracing::info!(
        target: ACCESS,
        method = exchange.method.as_str(),
        path = exchange.target.path(),
        status = exchange.status.as_u16(),
        route = exchange.route.and_then(|route| snapshot.route_name(usize::from(route))),
        limit = exchange.refused_by.and_then(|layer| snapshot.limit_name(usize::from(layer))),
        shadow_denied = tried(exchange, false),
        candidate_denied = tried(exchange, true),
        shed = exchange.is_shed.then_some(true),
        duration_ms = took.as_secs_f64() * 1000.0,
        waited_ms = (!exchange.waited.is_zero()).then_some(exchange.waited.as_secs_f64() * 1000.0),
        bytes = exchange.bytes,
        request_id = exchange.request_id.to_str().unwrap_or_default(),
        client = %exchange.client,
        incomplete = exchange.is_incomplete().then_some(true),
    );
}

/// The names of the layers that would have refused the request, if anybody had let them: shadows, or those whose candidate
/// would have.
fn tried(exchange: &Exchange, candidates: bool) -> Option<String> {
    let snapshot = &exchange.view.snapshot;
    let of_kind = exchange.tried.iter().filter(|&&layer| {
        let role = snapshot.layers.policy(layer).role();
        (role == Role::Candidate) == candidates
    });
    let names: Vec<_> = of_kind.filter_map(|layer| snapshot.limit_name(layer.index())).collect();
    (!names.is_empty()).then(|| names.join(","))
}
