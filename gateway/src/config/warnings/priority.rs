//! Priorities that order nothing.

use super::super::{Config, Target, check::Context, place::Place, raw};
use crate::rejection::Rejection;

/// Tells of priorities of routes none of whose requests can be shed.
pub(super) fn without_effect(raw: &raw::Config, config: &Config, cx: &mut Context<'_>) {
    let Some(list) = raw.routes.value() else { return };
    let routes = Place::Root.key("routes");
    let sheds = |upstream: usize| {
        let upstream = config.upstreams.get(upstream);
        upstream.is_some_and(|upstream| upstream.adaptive_concurrency.is_some())
    };
    let own = config.limits.iter().filter_map(|layer| layer.rejection.as_ref());
    let mut rejections = own.chain(&config.responses.rejection);
    // What a layer refuses may go there from any route.
    if rejections.any(|rejection| matches!(rejection, Rejection::Degrade { upstream } if sheds(*upstream))) {
        return;
    }
    for (i, (field, route)) in list.items.iter().zip(&config.routes).enumerate() {
        let is_written = field.value().is_some_and(|raw| raw.priority.is_present());
        if is_written && !matches!(route.target, Target::Upstream(upstream) if sheds(upstream)) {
            let message = "orders who is shed, and nothing of this route is, without `adaptive_concurrency` of its \
                           upstream: this has no effect";
            cx.warn(&routes.item(i, list.is_list).key("priority"), message);
        }
    }
}
