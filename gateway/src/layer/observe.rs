//! What is told of every request once it has ended: its metrics and its access line.
//!
//! Outermost, so that failures are told of as well.

use std::time::Duration;

use http::uri::PathAndQuery;
use limiter_core::{Role, clock::wall_clock};

use crate::{exchange::Exchange, telemetry::name};

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
    let route = exchange.route.and_then(|route| snapshot.route_name(usize::from(route)));
    let limit = exchange.refused_by;
    let limit = limit.and_then(|layer| snapshot.limit_name(usize::from(layer)));
    let mut log = exchange.conn().worker.access_log.borrow_mut();
    log.write(snapshot.log_format(), wall_clock(), |line| {
        line.word(name!("method"), exchange.method.as_str())
            .text(name!("path"), exchange.target.as_ref().map_or("", PathAndQuery::path))
            .number(name!("status"), exchange.status.as_u16())
            .text(name!("route"), route)
            .text(name!("limit"), limit);
        if !exchange.tried.is_empty() {
            line.text(name!("shadow_denied"), tried(exchange, false).as_deref())
                .text(name!("candidate_denied"), tried(exchange, true).as_deref());
        }
        line.flag(name!("shed"), exchange.is_shed)
            .millis(name!("duration_ms"), took);
        if !exchange.waited.is_zero() {
            line.millis(name!("waited_ms"), exchange.waited);
        }
        line.number(name!("bytes"), exchange.bytes)
            .word(name!("request_id"), exchange.request_id.to_str().unwrap_or_default())
            .address(name!("client"), exchange.client)
            .flag(name!("incomplete"), exchange.is_incomplete());
    });
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
