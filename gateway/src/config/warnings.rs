//! What is right, but hardly what was meant. Only what is certain is told.

mod priority;
mod reach;
#[cfg(test)]
mod tests;

use std::time::Duration;

use limiter_core::{Algorithm, OnFailure, Scope, algorithm::TokenBucket};

use super::{
    Config, Cost, KeyPart, Layer, Store,
    check::Context,
    place::Place,
    raw::{self, Field, OneOrMany},
};
use reach::Routes;

/// A log of more requests is large: it keeps the time of each, for each key.
const LARGE_LOG: u64 = 10_000;

/// Tells `cx` of what is doubtful in `config`, which was made of `raw` and has nothing wrong.
pub(super) fn find(raw: &raw::Config, config: &Config, cx: &mut Context<'_>) {
    trusted_proxies(raw, config, cx);
    open_for_all(raw, config, cx);
    priority::without_effect(raw, config, cx);
    let Some(list) = raw.limits.value() else { return };
    let limits = Place::Root.key("limits");
    let mut routes = Routes::new(&config.routes);
    for (i, (field, layer)) in list.items.iter().zip(&config.limits).enumerate() {
        let Some(raw) = field.value() else { continue };
        let place = limits.item(i, list.is_list);
        quota(&place, raw, layer, cx);
        dear(&place, layer, cx);
        doubtful_ban(&place, layer, cx);
        if !config.routes.is_empty() {
            reachable(&place.key("match"), raw, layer, &mut routes, cx);
        }
    }
}

fn trusted_proxies(raw: &raw::Config, config: &Config, cx: &mut Context<'_>) {
    let place = Place::Root.key("client_ip");
    let place = place.key("trusted_proxies");
    let is_list = raw.client_ip.value().is_some_and(|raw| is_list(&raw.trusted_proxies));
    for (i, network) in config.client_ip.trusted_proxies.iter().enumerate() {
        if network.prefix_len() == 0 {
            let message = format!("`{network}` is everybody: any client can name the address that it is counted by");
            cx.warn(&place.item(i, is_list), message);
        }
    }
}

fn open_for_all(raw: &raw::Config, config: &Config, cx: &mut Context<'_>) {
    let is_open =
        |layer: &Layer| layer.policy.on_failure() == OnFailure::Open && layer.policy.scope() == Scope::Cluster;
    if matches!(config.store, Store::Redis(_)) && !config.limits.is_empty() && config.limits.iter().all(is_open) {
        let place = Place::Root.key("store");
        let place = place.key("redis");
        let on_failure = place.key("on_failure");
        let is_written = match raw.store.value() {
            Some(raw::Short::Long(store)) => store.redis.value().is_some_and(|redis| redis.on_failure.is_present()),
            _ => false,
        };
        let message = "every layer is `open`: nothing is limited while Redis cannot answer";
        cx.warn(if is_written { &on_failure } else { &place }, message);
    }
}

/// Tells of costs that are taken and never fit.
fn dear(item: &Place<'_>, layer: &Layer, cx: &mut Context<'_>) {
    let limit = layer.policy.algorithm().limit();
    if let Cost::Header { max: Some(max), .. } = layer.cost
        && max > limit
    {
        let message = format!("only {limit} pass at once: a request that costs more, up to {max}, is always refused");
        cx.warn(&item.key("cost").key("max"), message);
    }
}

/// Tells of bans that nobody gets, or that one client brings on all.
fn doubtful_ban(item: &Place<'_>, layer: &Layer, cx: &mut Context<'_>) {
    let is_everybodys =
        |part: &KeyPart| matches!(part, KeyPart::Global | KeyPart::Route | KeyPart::Method | KeyPart::Host);
    if layer.ban.is_some() && !layer.policy.role().is_enforced() {
        cx.warn(
            &item.key("ban"),
            "a shadow refuses nothing, so it bans nobody: this has no effect",
        );
    } else if layer.ban.is_some() && layer.key.iter().all(is_everybodys) {
        let message = "clients share this key: one that is refused too often shuts all of them out";
        cx.warn(&item.key("ban"), message);
    }
}

fn quota(item: &Place<'_>, raw: &raw::Limit, layer: &Layer, cx: &mut Context<'_>) {
    match layer.policy.algorithm() {
        Algorithm::TokenBucket(bucket) => {
            let (rate, burst) = (bucket.rate(), layer.policy.algorithm().limit());
            let second = u128::from(rate.units) * Duration::from_secs(1).as_nanos() / rate.per.as_nanos().max(1);
            if u128::from(burst) < second {
                let key = if raw.parameters.burst.is_present() {
                    "burst"
                } else {
                    "rate"
                };
                let message = format!(
                    "{burst} pass at once, but {second} in a second: requests that keep to the rate are refused where they \
                     do not come evenly"
                );
                cx.warn(&item.key(key), message);
            }
            never_warm(item, bucket, cx);
        }
        Algorithm::SlidingWindowLog(_) if layer.policy.algorithm().limit() > LARGE_LOG => {
            let limit = layer.policy.algorithm().limit();
            let message = format!(
                "the times of up to {limit} requests are kept for each key; `sliding_window_counter` keeps a few sums"
            );
            cx.warn(&item.key("limit"), message);
        }
        _ => {}
    }
}

/// Tells of a bucket whose tokens come so slowly that it is cold before each.
fn never_warm(item: &Place<'_>, bucket: &TokenBucket, cx: &mut Context<'_>) {
    let (rate, warm_up) = (bucket.rate(), bucket.warm_up());
    let is_slower = rate.per.as_nanos() > warm_up.as_nanos().saturating_mul(u128::from(rate.units));
    if is_slower && !warm_up.is_zero() {
        let message = "is less than the time of a token: a key is cold again before the next, and never warm";
        cx.warn(&item.key("warm_up"), message);
    }
}

/// Tells of conditions that no route can fulfil: what has no route meets no layer.
fn reachable(place: &Place<'_>, raw: &raw::Limit, layer: &Layer, routes: &mut Routes<'_>, cx: &mut Context<'_>) {
    let Some(raw) = raw.r#match.value() else { return };
    let matches = &layer.matches;
    let mut tell = |place: &Place<'_>, what: &str| cx.warn(place, format!("no route {what}: this has no effect"));
    let mut is_met = true;
    let paths = place.key("path");
    for (i, glob) in matches.paths.iter().enumerate() {
        if !routes.any(glob, |_| true) {
            is_met = false;
            tell(&paths.item(i, is_list(&raw.path)), "has such a path");
        }
    }
    let hosts = place.key("hosts");
    for (i, host) in matches.hosts.iter().enumerate() {
        if !routes.has_host(host) {
            is_met = false;
            tell(&hosts.item(i, is_list(&raw.hosts)), "has this host");
        }
    }
    if !routes.all().any(|route| reach::share_method(route, matches)) {
        is_met = false;
        tell(&place.key("methods"), "takes any of these methods");
    }
    if is_met && !routes.takes(matches) {
        tell(place, "has such a path, method and host together");
    }
}

fn is_list<T>(field: &Field<OneOrMany<T>>) -> bool {
    field.value().is_some_and(|list| list.is_list)
}
