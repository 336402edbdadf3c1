//! What routes and layers match by: methods, hosts, paths, headers.

use std::net::Ipv6Addr;

use http::{HeaderName, HeaderValue, Method};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};

use crate::path::Glob;

use super::{
    super::{
        Match,
        place::Place,
        raw::{self, Field, Mapping, OneOrMany, Scalar},
        units,
    },
    context::Context,
    sections::networks,
};

/// `GET` stands for `HEAD` as well, which asks for the same without its body (RFC 9110, section 9.3.2): who may do the one
/// may do the other, and a limit on the one is not evaded by the other.
pub(super) fn methods(place: &Place<'_>, field: &Field<OneOrMany<raw::Verb>>, cx: &mut Context<'_>) -> Vec<Method> {
    let expected = "at least one method, or no such key: every method";
    let mut methods = cx.read_each(place, field, expected, method);
    if methods.contains(&Method::GET) && !methods.contains(&Method::HEAD) {
        methods.push(Method::HEAD);
    }
    methods
}

fn method(scalar: &Scalar) -> Result<Method, String> {
    let text = units::text(scalar)?;
    let upper = text.to_ascii_uppercase();
    if upper != text {
        return Err(format!(
            "`{text}` is not a method, expected `{upper}`: methods are case-sensitive"
        ));
    }
    Method::from_bytes(text.as_bytes()).map_err(|_| format!("`{text}` is not a method, expected one such as `GET`"))
}

pub(super) fn hosts(place: &Place<'_>, field: &Field<OneOrMany<raw::Text>>, cx: &mut Context<'_>) -> Vec<String> {
    cx.read_each(place, field, "at least one host, or no such key: every host", host)
}

/// A name, an IPv4 address, or an IPv6 address in brackets; no port.
fn host(scalar: &Scalar) -> Result<String, String> {
    const FORM: &str = "expected a name such as `api.example.com`";
    let host = units::text(scalar)?.to_ascii_lowercase();
    let is_v6 = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    let is_name = !host.is_empty()
        && host.len() <= 253
        && host
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'));
    if is_v6 || is_name {
        return Ok(host.strip_suffix('.').map(str::to_owned).unwrap_or(host));
    }
    Err(match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() && !name.contains(':') => {
            format!("`{host}` has a port, expected `{name}`: hosts match at any port")
        }
        _ if host.contains('*') => format!("`{host}`: patterns of hosts are not supported by this version yet, {FORM}"),
        _ => format!("`{host}` is not a host, {FORM}"),
    })
}

/// A header's name, in lower case.
pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(text.as_bytes())
        .map_err(|_| format!("`{text}` is not the name of a header, expected one such as `x-user-id`"))
}

pub(super) fn header_value(scalar: &Scalar) -> Result<HeaderValue, String> {
    let text = units::text(scalar)?;
    HeaderValue::from_str(text).map_err(|_| "has characters that a header cannot carry, expected visible ASCII".into())
}

/// `match`, and what stands in its `not`.
pub(super) fn matches(place: &Place<'_>, field: &Field<raw::Match>, cx: &mut Context<'_>) -> Match {
    let told = cx.told();
    let matches = cx.mapping(place, field).map(|raw| match_of(place, raw, cx));
    let matches = matches.unwrap_or_default();
    if let Some(not) = &matches.not
        && cx.told() == told
        && includes(not, &matches)
    {
        let message = "leaves out all that `match` takes: the layer never applies, expected less";
        cx.wrong(&place.key("not"), message);
    }
    matches
}

/// Whether `wide` certainly holds for all that the conditions of `narrow` hold for, apart from its `not`.
fn includes(wide: &Match, narrow: &Match) -> bool {
    /// Each of `narrow` is held by one of `wide`; an empty list holds `everything`, where that can be written.
    fn all<T>(wide: &[T], narrow: &[T], everything: &[T], holds: impl Fn(&T, &T) -> bool) -> bool {
        let narrow = if narrow.is_empty() { everything } else { narrow };
        let is_held = |narrow| wide.iter().any(|wide| holds(wide, narrow));
        wide.is_empty() || (!narrow.is_empty() && narrow.iter().all(is_held))
    }
    let every_path = Glob::new("/**").ok();
    let every_ip = [IpNet::V4(Ipv4Net::default()), IpNet::V6(Ipv6Net::default())];
    wide.not.is_none()
        && all(&wide.paths, &narrow.paths, every_path.as_slice(), Glob::includes)
        && all(&wide.methods, &narrow.methods, &[], PartialEq::eq)
        && all(&wide.hosts, &narrow.hosts, &[], PartialEq::eq)
        && all(&wide.ips, &narrow.ips, &every_ip, |wide, narrow| wide.contains(narrow))
        && wide.headers.iter().all(|header| narrow.headers.contains(header))
}

fn match_of(place: &Place<'_>, raw: &raw::Match, cx: &mut Context<'_>) -> Match {
    let is_empty = !(raw.path.is_present()
        || raw.methods.is_present()
        || raw.hosts.is_present()
        || raw.headers.is_present()
        || raw.ip.is_present()
        || raw.not.is_present()
        || !raw.other().is_empty());
    if is_empty {
        cx.wrong(
            place,
            "has no condition, expected `path`, `methods`, `hosts`, `headers`, `ip` or `not`",
        );
    }
    let ip = place.key("ip");
    if let Some(list) = raw.ip.value() {
        cx.not_empty(&ip, list, "at least one address range");
    }
    let not_place = place.key("not");
    let not = cx.shape(&not_place, &raw.not).map(|not| {
        cx.unknown_keys(&not_place, not.as_ref());
        Box::new(match_of(&not_place, not, cx))
    });
    Match {
        paths: cx.read_each(&place.key("path"), &raw.path, "at least one path", glob),
        methods: methods(&place.key("methods"), &raw.methods, cx),
        hosts: hosts(&place.key("hosts"), &raw.hosts, cx),
        headers: headers(&place.key("headers"), &raw.headers, cx),
        ips: networks(&ip, &raw.ip, cx),
        not,
    }
}

fn headers(
    place: &Place<'_>,
    field: &Field<raw::Named<raw::Text>>,
    cx: &mut Context<'_>,
) -> Vec<(HeaderName, HeaderValue)> {
    let Some(named) = cx.shape(place, field) else {
        return Vec::new();
    };
    if named.0.is_empty() {
        cx.wrong(place, "is empty, expected at least one header");
    }
    let mut headers = Vec::new();
    for (name, field) in &named.0 {
        let place = place.key(name);
        let name = header_name(name).map_err(|message| cx.wrong_key(&place, message));
        let value = cx.read(&place, field, header_value);
        let header = name.ok().zip(value);
        if let Some((name, _)) = &header
            && headers.iter().any(|(other, _)| other == name)
        {
            cx.wrong_key(&place, format!("`{name}` stands here a second time, expected it once"));
        }
        headers.extend(header);
    }
    headers
}

fn glob(scalar: &Scalar) -> Result<Glob, String> {
    Glob::new(units::text(scalar)?).map_err(|error| error.to_string())
}
