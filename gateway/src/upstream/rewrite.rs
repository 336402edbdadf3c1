//! What changes in a head on its way to the upstream and back; pure.
//!
//! Heads are edited in place: a map that is built anew costs more than everything else here together. One pass over the
//! names ([`HeadFields`]) finds what has to go, and only that is looked up again.

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{
        CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, Entry, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
        TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
    uri::PathAndQuery,
};
use smallvec::SmallVec;

use crate::head_fields::HeadFields;

pub(crate) static X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
pub(crate) static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Names the layer that refused a request, where it went to another upstream instead.
pub(crate) static X_GATEWAY_DEGRADED: HeaderName = HeaderName::from_static("x-gateway-degraded");
static X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
static X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
static X_REAL_IP: HeaderName = HeaderName::from_static("x-real-ip");
static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");
static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
static HTTP2_SETTINGS: HeaderName = HeaderName::from_static("http2-settings");

/// What the upstream sees as Host.
#[derive(Clone, Debug)]
pub(crate) enum Host {
    /// What the head says already.
    Kept(HeaderValue),
    /// The authority of the client's target.
    Named(HeaderValue),
    /// The upstream's own, for the client named none.
    Upstream(HeaderValue),
}

/// What a request's head is edited by.
#[derive(Debug)]
pub(crate) struct Edit<'a> {
    /// The one Host that the upstream sees.
    pub(crate) host: Host,
    /// The peer's address, as `X-Forwarded-For` has it.
    pub(crate) forwarded_for: &'a HeaderValue,
    /// Whether what the peer says of whom it forwards for is believed.
    pub(crate) peer_is_trusted: bool,
    /// The request's id.
    pub(crate) request_id: HeaderValue,
    /// The layer that refused it, where the request goes to another upstream instead.
    pub(crate) degraded_by: Option<HeaderValue>,
}

/// Edits a request's head for an HTTP/1.1 upstream. `fields`: what is in it.
pub(crate) fn request(headers: &mut HeaderMap, fields: HeadFields, edit: Edit<'_>) {
    let mut fields = fields;
    if !fields.are_passed_on() {
        strip_request(headers, fields, edit.peer_is_trusted);
        if edit.peer_is_trusted {
            // Connection may have named what is asked for below.
            fields = HeadFields::of(headers);
        }
    }
    let is_told = |field| edit.peer_is_trusted && fields.has(field);
    let (named, host) = match edit.host {
        Host::Kept(host) => (Some(host), None),
        Host::Named(host) => (Some(host.clone()), Some(host)),
        Host::Upstream(host) => (None, Some(host)),
    };
    if !is_told(HeadFields::X_FORWARDED_HOST) {
        match named {
            Some(named) => headers.insert(X_FORWARDED_HOST.clone(), named),
            None => headers.remove(&X_FORWARDED_HOST),
        };
    }
    if let Some(host) = host {
        headers.insert(HOST, host);
    }
    if !is_told(HeadFields::X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO.clone(), HeaderValue::from_static("http"));
    }
    let forwarded_for = match is_told(HeadFields::X_FORWARDED_FOR) {
        true => joined(headers, &X_FORWARDED_FOR, b", ", Some(edit.forwarded_for)),
        false => edit.forwarded_for.clone(),
    };
    headers.insert(X_FORWARDED_FOR.clone(), forwarded_for);
    headers.insert(X_REQUEST_ID.clone(), edit.request_id);
    if let Some(layer) = edit.degraded_by {
        headers.append(X_GATEWAY_DEGRADED.clone(), layer);
    }
}

fn strip_request(headers: &mut HeaderMap, found: HeadFields, peer_is_trusted: bool) {
    let wants_trailers = found.has(HeadFields::TE) && headers.get_all(TE).iter().any(|te| names_token(te, "trailers"));
    strip_hop_by_hop(headers, found);
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // Trailers follow chunked bodies only; elsewhere the announcement says nothing.
    if found.has(HeadFields::TRAILER) && !found.has(HeadFields::TRANSFER_ENCODING) {
        headers.remove(TRAILER);
    }
    if found.has(HeadFields::EXPECT) {
        // Answered here, when the upstream's connection asks for the body.
        headers.remove(EXPECT);
    }
    if found.has(HeadFields::COOKIE) && headers.get_all(COOKIE).iter().nth(1).is_some() {
        // HTTP/2 splits cookies into crumbs; HTTP/1.1 has one line (RFC 9113, section 8.2.3).
        let cookie = joined(headers, &COOKIE, b"; ", None);
        headers.insert(COOKIE, cookie);
    }
    if !peer_is_trusted {
        if found.has(HeadFields::FORWARDED) {
            headers.remove(FORWARDED);
        }
        if found.has(HeadFields::X_REAL_IP) {
            headers.remove(&X_REAL_IP);
        }
        if found.has(HeadFields::X_GATEWAY_DEGRADED) {
            headers.remove(&X_GATEWAY_DEGRADED);
        }
    }
}

/// Edits an answer's head for a client.
pub(crate) fn response(headers: &mut HeaderMap) {
    let found = HeadFields::of(headers);
    if !found.are_passed_on() {
        strip_hop_by_hop(headers, found);
    }
    if found.has(HeadFields::TRANSFER_ENCODING) {
        // The coding overrides a length (RFC 9112, section 6.3), which must not frame the answer a second time.
        headers.remove(CONTENT_LENGTH);
    }
}

/// Removes what concerns one connection only (RFC 9110, section 7.6.1), and what Connection names. `Trailer` stays: it
/// announces fields of the message.
fn strip_hop_by_hop(headers: &mut HeaderMap, found: HeadFields) {
    if found.has(HeadFields::CONNECTION) {
        strip_connection(headers);
    }
    if !found.has(HeadFields::HOP_BY_HOP) {
        return;
    }
    let removals = [
        (HeadFields::TE, &TE),
        (HeadFields::TRANSFER_ENCODING, &TRANSFER_ENCODING),
        (HeadFields::UPGRADE, &UPGRADE),
        (HeadFields::PROXY_AUTHORIZATION, &PROXY_AUTHORIZATION),
        (HeadFields::PROXY_AUTHENTICATE, &PROXY_AUTHENTICATE),
        (HeadFields::KEEP_ALIVE, &KEEP_ALIVE),
        (HeadFields::PROXY_CONNECTION, &PROXY_CONNECTION),
        (HeadFields::HTTP2_SETTINGS, &HTTP2_SETTINGS),
    ];
    for (bit, name) in removals {
        if found.has(bit) {
            headers.remove(name);
        }
    }
}

fn strip_connection(headers: &mut HeaderMap) {
    let Entry::Occupied(connection) = headers.entry(CONNECTION) else {
        return;
    };
    if connection.iter().all(|line| names_nothing(line.as_bytes())) {
        connection.remove();
        return;
    }
    let (_, lines) = connection.remove_entry_mult();
    let lines: SmallVec<[HeaderValue; 2]> = lines.collect();
    for token in lines.iter().flat_map(tokens) {
        // Host is ours to set, and no client may take it out of the message.
        if !names_nothing(token)
            && !token.eq_ignore_ascii_case(b"host")
            && let Ok(name) = HeaderName::from_bytes(token)
        {
            headers.remove(name);
        }
    }
}

/// Whether this, in Connection, names no field, or one that goes anyway: nearly all that is ever said there.
fn names_nothing(option: &[u8]) -> bool {
    option == b"keep-alive" || option.eq_ignore_ascii_case(b"keep-alive") || option.eq_ignore_ascii_case(b"close")
}

fn tokens(list: &HeaderValue) -> impl Iterator<Item = &[u8]> {
    list.as_bytes()
        .split(|&byte| byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|token| !token.is_empty())
}

/// Whether a list has `token`, with or without parameters.
fn names_token(list: &HeaderValue, token: &str) -> bool {
    tokens(list).any(|entry| {
        let name = entry.split(|&byte| byte == b';').next().unwrap_or_default();
        name.trim_ascii().eq_ignore_ascii_case(token.as_bytes())
    })
}

/// All lines of a header as one, and `more` behind them.
fn joined(headers: &HeaderMap, name: &HeaderName, separator: &[u8], more: Option<&HeaderValue>) -> HeaderValue {
    let mut line = Vec::new();
    for value in headers.get_all(name).iter().chain(more) {
        if !line.is_empty() {
            line.extend_from_slice(separator);
        }
        line.extend_from_slice(value.as_bytes());
    }
    // Values and separators are valid, so their concatenation is.
    HeaderValue::from_maybe_shared(bytes::Bytes::from(line)).unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Makes the target what an upstream expects: path and query only. `path`: the normalised path, where it differs from
/// what the client wrote.
pub(crate) fn target(uri: &mut Uri, path: Option<String>) {
    if path.is_none() && uri.scheme().is_none() && uri.authority().is_none() {
        return;
    }
    let written = uri.path_and_query();
    let target = match path {
        None => written.cloned(),
        Some(mut path) => {
            if let Some(query) = written.and_then(PathAndQuery::query) {
                path.push('?');
                path.push_str(query);
            }
            PathAndQuery::try_from(path).ok()
        }
    };
    // A normalised path and the client's query always make a target.
    *uri = Uri::from(target.unwrap_or_else(|| PathAndQuery::from_static("/")));
}

#[cfg(test)]
mod tests;
