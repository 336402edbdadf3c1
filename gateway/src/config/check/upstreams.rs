//! `upstreams`.

use std::time::Duration;

use super::{
    super::{
        AdaptiveConcurrency, Endpoint, Upstream,
        place::Place,
        raw::{self, Scalar, Short},
        suggest, units,
    },
    context::{Context, check_name, within},
};

pub(super) fn upstreams(raw: &raw::Config, cx: &mut Context<'_>) -> Vec<Upstream> {
    let place = Place::Root.key("upstreams");
    let Some(named) = cx.shape(&place, &raw.upstreams) else {
        return Vec::new();
    };
    let mut upstreams = Vec::new();
    for (name, field) in &named.0 {
        let place = place.key(name);
        if let Err(message) = check_name(name) {
            cx.wrong_key(&place, message);
        }
        // One for each entry, also for a wrong one: routes refer to them by their place in this list.
        upstreams.push(upstream(name, &place, field, cx));
    }
    upstreams
}

/// The names of all upstreams, as references count them.
pub(super) fn names(raw: &raw::Config) -> Vec<&str> {
    let named = raw.upstreams.value();
    named.map_or_else(Vec::new, |named| {
        named.0.iter().map(|(name, _)| name.as_str()).collect()
    })
}

/// The place among `names` of the upstream that a value names.
pub(super) fn named(names: &[&str]) -> impl Fn(&Scalar) -> Result<usize, String> {
    |scalar| {
        let wanted = scalar.to_string();
        let found = names.iter().position(|name| *name == wanted);
        found.ok_or_else(|| match names {
            [] => format!("there is no upstream `{wanted}`, expected it in `upstreams`"),
            _ => format!("there is no upstream `{wanted}`{}", suggest::hint(&wanted, names)),
        })
    }
}

fn upstream(name: &str, place: &Place<'_>, field: &raw::Field<raw::Upstream>, cx: &mut Context<'_>) -> Upstream {
    let default = raw::Upstream::default();
    let is_there = cx.mapping(place, field);
    let raw = is_there.unwrap_or(&default);
    let endpoints = cx.shape(&place.key("endpoints"), &raw.endpoints);
    if is_there.is_some() && !raw.endpoints.is_present() {
        cx.missing(
            place,
            "endpoints",
            "a URL such as `http://127.0.0.1:8000`, or a list of them",
        );
    }
    let endpoints = endpoints
        .map(|list| self::endpoints(&place.key("endpoints"), list, cx))
        .unwrap_or_default();
    cx.only(
        &place.key("balance"),
        &raw.balance,
        "round_robin",
        &["least_request", "hash"],
    );
    cx.only(&place.key("protocol"), &raw.protocol, "http1", &["http2"]);
    let connect_timeout = cx.read(
        &place.key("connect_timeout"),
        &raw.connect_timeout,
        units::positive_duration,
    );
    let timeout = cx.read(&place.key("timeout"), &raw.timeout, units::positive_duration);
    let idle_timeout = cx.read(&place.key("idle_timeout"), &raw.idle_timeout, units::positive_duration);
    let max_connections = cx.read(
        &place.key("max_connections"),
        &raw.max_connections,
        within(1, 1_000_000),
    );
    Upstream {
        name: name.into(),
        endpoints,
        connect_timeout: connect_timeout.unwrap_or(Duration::from_secs(1)),
        timeout: timeout.unwrap_or(Duration::from_secs(30)),
        idle_timeout: idle_timeout.unwrap_or(Duration::from_secs(4)),
        adaptive_concurrency: adaptive_concurrency(&place.key("adaptive_concurrency"), &raw.adaptive_concurrency, cx),
        max_connections: usize::try_from(max_connections.unwrap_or(1024)).unwrap_or(usize::MAX),
    }
}

fn adaptive_concurrency(
    place: &Place<'_>,
    field: &raw::Field<raw::AdaptiveConcurrency>,
    cx: &mut Context<'_>,
) -> Option<AdaptiveConcurrency> {
    let raw = cx.mapping(place, field)?;
    let min = cx.read(&place.key("min"), &raw.min, within(1, 1_000_000)).unwrap_or(10);
    let max_place = place.key("max");
    let max = cx.read(&max_place, &raw.max, within(1, 1_000_000)).unwrap_or(1000);
    if max < min {
        let given = if raw.max.is_present() {
            &max_place
        } else {
            &place.key("min")
        };
        cx.wrong(
            given,
            format!("`max` is {max} and `min` {min}, expected `max` to be at least `min`"),
        );
    }
    Some(AdaptiveConcurrency { min, max: max.max(min) })
}

fn endpoints(
    place: &Place<'_>,
    list: &raw::OneOrMany<Short<raw::Url, raw::Endpoint>>,
    cx: &mut Context<'_>,
) -> Vec<Endpoint> {
    cx.not_empty(place, list, "at least one endpoint");
    let mut endpoints: Vec<Endpoint> = Vec::new();
    cx.each(place, list, |cx, place, field| {
        let Some(item) = cx.shape(place, field) else { return };
        let (url, weight) = match item {
            Short::Short(leaf) => (cx.scalar(place, leaf, url), None),
            Short::Long(long) => {
                cx.unknown_keys(place, long);
                let weight = cx.read(&place.key("weight"), &long.weight, within(1, 65_535));
                (cx.required(place, "url", &long.url, url), weight)
            }
        };
        let Some((host, port)) = url else { return };
        if endpoints.iter().any(|other| other.host == host && other.port == port) {
            cx.wrong(
                place,
                format!("`{host}:{port}` stands here a second time, expected a `weight` instead"),
            );
        }
        endpoints.push(Endpoint {
            host,
            port,
            weight: weight.and_then(|weight| u32::try_from(weight).ok()).unwrap_or(1),
        });
    });
    endpoints
}

/// `http://host[:port]`: host, in lower case and without brackets, and port.
fn url(scalar: &Scalar) -> Result<(String, u16), String> {
    const FORM: &str = "expected one such as `http://127.0.0.1:8000`";
    let text = units::text(scalar)?;
    let Some((scheme, _)) = text.split_once("://") else {
        return Err(format!("`{text}` has no scheme, {FORM}"));
    };
    if scheme.eq_ignore_ascii_case("https") {
        return Err(format!("`https://` is not supported by this version yet, {FORM}"));
    }
    let not_a_url = || format!("`{text}` is not the URL of an endpoint, {FORM}");
    let uri: http::Uri = text.parse().map_err(|_| not_a_url())?;
    if !scheme.eq_ignore_ascii_case("http") {
        return Err(not_a_url());
    }
    if uri.path() != "/" || uri.query().is_some() {
        return Err(format!(
            "`{text}` has a path, expected only scheme, host and port: the request's path is forwarded"
        ));
    }
    let authority = uri.authority().ok_or_else(not_a_url)?;
    if authority.as_str().contains('@') {
        return Err(format!("a URL with a user, {FORM}"));
    }
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_ascii_lowercase();
    // The library takes any text for a port, but gives only a number.
    let port = match authority.port_u16() {
        Some(port) => port,
        None if authority.host().len() == authority.as_str().len() => 80,
        None => return Err(not_a_url()),
    };
    if host.is_empty() || port == 0 {
        return Err(not_a_url());
    }
    Ok((host, port))
}
