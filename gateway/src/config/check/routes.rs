//! `routes`.

use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode};

use crate::path::Template;

use super::{
    super::{
        Respond, Route, Target,
        place::Place,
        raw::{self, Field, Scalar},
        units,
    },
    Names,
    context::{Context, name, within},
    matching::{header_name, header_value, hosts, methods},
    upstreams,
};

pub(super) fn routes(raw: &raw::Config, cx: &mut Context<'_>) -> Vec<Route> {
    let place = Place::Root.key("routes");
    let Some(list) = cx.shape(&place, &raw.routes) else {
        return Vec::new();
    };
    let upstreams = upstreams::names(raw);
    let mut names = Names::default();
    let mut routes = Vec::new();
    cx.each(&place, list, |cx, place, field| {
        routes.extend(route(place, field, &upstreams, &mut names, cx));
    });
    routes
}

fn route(
    place: &Place<'_>,
    field: &Field<raw::Route>,
    upstreams: &[&str],
    names: &mut Names,
    cx: &mut Context<'_>,
) -> Option<Route> {
    let raw = cx.mapping(place, field)?;
    let name = cx.read(&place.key("name"), &raw.name, name);
    if let Some(name) = name {
        names.note(name, place, &place.key("name"), cx);
    }
    let path = cx.required(place, "path", &raw.path, template);
    let timeout_place = place.key("timeout");
    let timeout = cx.read(&timeout_place, &raw.timeout, units::positive_duration);
    let priority = cx.read(&place.key("priority"), &raw.priority, units::rank);
    let target = target(place, raw, upstreams, cx);
    if timeout.is_some() && matches!(target, Target::Respond(_)) && !raw.upstream.is_present() {
        cx.wrong_key(
            &timeout_place,
            "`timeout` needs an upstream, expected none beside `respond`",
        );
    }
    let methods = methods(&place.key("methods"), &raw.methods, cx);
    let hosts = hosts(&place.key("hosts"), &raw.hosts, cx);
    let path = path?;
    Some(Route {
        name: Arc::from(name.unwrap_or(path.as_str())),
        path,
        methods,
        hosts,
        target,
        timeout,
        priority: priority.unwrap_or_default(),
    })
}

fn target(place: &Place<'_>, raw: &raw::Route, upstreams: &[&str], cx: &mut Context<'_>) -> Target {
    if raw.upstream.is_present() && raw.respond.is_present() {
        cx.wrong_key(
            &place.key("respond"),
            "a second target, expected one of `upstream` and `respond`",
        );
    } else if !raw.upstream.is_present() && !raw.respond.is_present() {
        cx.missing_both(place, ["upstream", "respond"]);
    }
    let upstream = cx.read(&place.key("upstream"), &raw.upstream, upstreams::named(upstreams));
    let respond = respond(&place.key("respond"), &raw.respond, cx);
    match (upstream, respond) {
        (Some(upstream), _) => Target::Upstream(upstream),
        (None, Some(respond)) => Target::Respond(respond),
        (None, None) => Target::Upstream(0),
    }
}

fn respond(place: &Place<'_>, field: &Field<raw::Respond>, cx: &mut Context<'_>) -> Option<Respond> {
    let raw = cx.mapping(place, field)?;
    let status = cx.read(&place.key("status"), &raw.status, within(200, 599));
    let status = status
        .and_then(|status| StatusCode::from_u16(u16::try_from(status).ok()?).ok())
        .unwrap_or_default();
    let body = cx.read(&place.key("body"), &raw.body, units::text).unwrap_or_default();
    if !body.is_empty() && matches!(status.as_u16(), 204 | 205 | 304) {
        cx.wrong(
            &place.key("body"),
            format!("an answer of status {} has no body, expected none", status.as_u16()),
        );
    }
    Some(Respond {
        status,
        body: body.to_owned(),
        headers: headers(&place.key("headers"), &raw.headers, cx),
    })
}

fn headers(
    place: &Place<'_>,
    field: &Field<raw::Named<raw::OneOrMany<raw::Text>>>,
    cx: &mut Context<'_>,
) -> Vec<(HeaderName, HeaderValue)> {
    // What HTTP itself says about the message is ours to say.
    const OURS: &[&str] = &[
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "upgrade",
        "te",
        "trailer",
    ];
    let mut headers = Vec::new();
    for (name, field) in cx
        .shape(place, field)
        .map(|named| named.0.as_slice())
        .unwrap_or_default()
    {
        let place = place.key(name);
        let name = match header_name(name) {
            Ok(name) if !OURS.contains(&name.as_str()) => name,
            Ok(name) => {
                cx.wrong_key(
                    &place,
                    format!("`{name}` is set by the gateway, expected another header"),
                );
                continue;
            }
            Err(message) => {
                cx.wrong_key(&place, message);
                continue;
            }
        };
        if let Some(list) = cx.shape(&place, field) {
            cx.each(&place, list, |cx, place, field| {
                headers.extend(cx.read(place, field, header_value).map(|value| (name.clone(), value)));
            });
        }
    }
    headers
}

fn template(scalar: &Scalar) -> Result<Template, String> {
    Template::new(units::text(scalar)?).map_err(|error| error.to_string())
}
