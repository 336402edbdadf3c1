//! `responses`, and a layer's own `rejection`.

use http::{HeaderValue, StatusCode, uri::Authority};

use crate::{
    cors::Cors,
    rejection::{Answer, BadTemplate, Body, Rejection, Template},
};

use super::{
    super::{
        LegacyReset, Responses,
        place::Place,
        raw::{self, Field, Scalar, Short},
        suggest, units,
    },
    context::{Context, one_of, within},
    matching::header_value,
    upstreams,
};

/// The status of a refusal where none is written: the contract's, RFC 6585 section 4.
const TOO_MANY: u64 = 429;

pub(super) fn responses(raw: &raw::Config, cx: &mut Context<'_>) -> Responses {
    let place = Place::Root.key("responses");
    let (default, upstreams) = (raw::Responses::default(), upstreams::names(raw));
    let raw = cx.mapping(&place, &raw.responses).unwrap_or(&default);
    let fields_place = place.key("ratelimit_headers");
    let (mut draft_11, mut legacy) = (true, true);
    if let Some(list) = cx.shape(&fields_place, &raw.ratelimit_headers) {
        (draft_11, legacy) = (false, false);
        cx.each(&fields_place, list, |cx, place, field| {
            match cx.read(place, field, |scalar| {
                one_of(scalar, &[("draft-11", true), ("legacy", false)])
            }) {
                Some(true) => draft_11 = true,
                Some(false) => legacy = true,
                None => {}
            }
        });
    }
    let resets = [("epoch", LegacyReset::Epoch), ("delta", LegacyReset::Delta)];
    Responses {
        draft_11,
        legacy,
        legacy_reset: cx
            .word(&place.key("legacy_reset"), &raw.legacy_reset, &resets)
            .unwrap_or_default(),
        rejection: rejection(&place.key("rejection"), &raw.rejection, &upstreams, cx),
        cors: cors(&place.key("cors"), &raw.cors, cx),
    }
}

/// What stands at a `rejection`; `None` where nothing does.
pub(super) fn rejection(
    place: &Place<'_>,
    field: &Field<raw::Rejection>,
    upstreams: &[&str],
    cx: &mut Context<'_>,
) -> Option<Rejection> {
    let raw = cx.mapping(place, field)?;
    let status = cx.read(&place.key("status"), &raw.status, within(400, 599));
    let body = body(&place.key("body"), &raw.body, cx);
    let upstream = cx.read(&place.key("upstream"), &raw.upstream, upstreams::named(upstreams));
    if raw.upstream.is_present() {
        for (key, is_present) in [("status", raw.status.is_present()), ("body", raw.body.is_present())] {
            if is_present {
                let message = format!("`{key}` beside `upstream`, which answers instead, expected one of them");
                cx.wrong_key(&place.key(key), message);
            }
        }
        return Some(Rejection::Degrade { upstream: upstream? });
    }
    let status = u16::try_from(status.unwrap_or(TOO_MANY)).ok();
    Some(Rejection::Answer(Answer {
        status: StatusCode::from_u16(status?).ok()?,
        body,
    }))
}

fn body(place: &Place<'_>, field: &Field<Short<raw::Word, raw::RejectionBody>>, cx: &mut Context<'_>) -> Option<Body> {
    let raw = match cx.shape(place, field)? {
        Short::Short(word) => {
            cx.scalar(place, word, |scalar| one_of(scalar, &[("problem", ())]));
            return None;
        }
        Short::Long(raw) => raw,
    };
    cx.unknown_keys(place, raw);
    let content_type = cx.required(place, "content_type", &raw.content_type, media_type);
    // Where the media type is wrong, the template may still be.
    let media_type = content_type.as_ref().map_or("", |(text, _)| *text);
    let template = cx.required(place, "template", &raw.template, |scalar| template(media_type, scalar));
    Some(Body {
        content_type: content_type?.1,
        template: template?,
    })
}

/// `type/subtype`, perhaps with parameters (RFC 9110, section 8.3.1).
fn media_type(scalar: &Scalar) -> Result<(&str, HeaderValue), String> {
    let text = units::text(scalar)?;
    let token = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    let essence = text.split(';').next().unwrap_or_default().trim_end();
    match essence.split_once('/') {
        Some((kind, subtype)) if token(kind) && token(subtype) => Ok((text, header_value(scalar)?)),
        _ => Err(format!(
            "`{text}` is not a media type, expected one such as `text/html; charset=utf-8`"
        )),
    }
}

fn template(media_type: &str, scalar: &Scalar) -> Result<Template, String> {
    Template::new(media_type, units::text(scalar)?).map_err(|error| match &error {
        BadTemplate::Unknown(name) => format!("{error}{}", suggest::hint(name, &Template::NAMES)),
        BadTemplate::Open | BadTemplate::NotJson(_) => error.to_string(),
    })
}

fn cors(place: &Place<'_>, field: &Field<raw::Cors>, cx: &mut Context<'_>) -> Option<Cors> {
    let raw = cx.mapping(place, field)?;
    let place_of_origins = place.key("allow_origin");
    if !raw.allow_origin.is_present() {
        cx.missing(
            place,
            "allow_origin",
            "`*`, an origin such as `https://app.example.org`, or a list of origins",
        );
    }
    let mut origins = cx.read_each(&place_of_origins, &raw.allow_origin, "at least one origin", origin);
    if let Some(list) = raw.allow_origin.value()
        && let Some(at) = origins.iter().position(|origin| origin == "*")
        && origins.len() == list.items.len()
        && origins.len() > 1
    {
        let message = "`*` is everybody, expected it alone";
        cx.wrong(&place_of_origins.item(at, list.is_list), message);
    }
    match origins.len() {
        1 => origins.pop().map(Cors::Always),
        _ => Some(Cors::Listed(origins)),
    }
}

/// `*`, or an origin as browsers send it: scheme and host in lower case, the port unless it is the scheme's own, no path.
fn origin(scalar: &Scalar) -> Result<HeaderValue, String> {
    let text = units::text(scalar)?;
    const FORM: &str = "expected `*`, or one such as `https://app.example.org`";
    let is_not = || format!("`{text}` is not an origin, {FORM}");
    if text == "*" {
        return Ok(HeaderValue::from_static("*"));
    }
    if text == "null" {
        return Err(format!(
            "`null` is every page without an origin, also an attacker's, {FORM}"
        ));
    }
    let (scheme, host) = text.split_once("://").ok_or_else(is_not)?;
    let plain = sent(scheme, host).ok_or_else(is_not)?;
    if plain != text {
        return Err(format!("`{text}` is not what browsers send, expected `{plain}`"));
    }
    HeaderValue::from_str(text).map_err(|_| is_not())
}

/// What browsers send of this scheme and host; `None` where it is none.
fn sent(scheme: &str, host: &str) -> Option<String> {
    let is_scheme = scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+.-".contains(&byte));
    let authority = host.strip_suffix('/').unwrap_or(host).parse::<Authority>().ok()?;
    if !is_scheme || authority.as_str().contains('@') || authority.host().contains('*') {
        return None;
    }
    let scheme = scheme.to_ascii_lowercase();
    let own_port = match scheme.as_str() {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    };
    let name = authority.host().to_ascii_lowercase();
    Some(match authority.port_u16().filter(|port| Some(*port) != own_port) {
        Some(port) => format!("{scheme}://{name}:{port}"),
        None => format!("{scheme}://{name}"),
    })
}
