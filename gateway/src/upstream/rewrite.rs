//! What changes in a head on its way to the upstream and back; pure.
//!
//! Heads are edited in place: a map that is built anew costs more than everything else here together. One pass over the
//! names finds what has to go, and only that is looked up again.

use http::{
    HeaderMap, HeaderName, HeaderValue, Uri,
    header::{
        CONNECTION, CONTENT_LENGTH, COOKIE, EXPECT, Entry, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
        TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
    },
    uri::PathAndQuery,
};
use smallvec::SmallVec;

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

/// What a request's head is edited by.
#[derive(Debug)]
pub(crate) struct Edit<'a> {
    /// The one Host that the upstream sees: the client's authority, or the upstream's own where the client named none.
    pub(crate) host: HeaderValue,
    /// Whether it is the client's.
    pub(crate) names_host: bool,
    /// The peer's address, as `X-Forwarded-For` has it.
    pub(crate) forwarded_for: &'a HeaderValue,
    /// Whether what the peer says of whom it forwards for is believed.
    pub(crate) peer_is_trusted: bool,
    /// The request's id.
    pub(crate) request_id: HeaderValue,
    /// The layer that refused it, where the request goes to another upstream instead.
    pub(crate) degraded_by: Option<HeaderValue>,
}

/// Headers that a message may carry and that end here, as bits.
#[derive(Clone, Copy, Default)]
struct Found(u16);

impl Found {
    const CONNECTION: u16 = 1;
    const TE: u16 = 1 << 1;
    const TRANSFER_ENCODING: u16 = 1 << 2;
    const UPGRADE: u16 = 1 << 3;
    const TRAILER: u16 = 1 << 4;
    const PROXY_AUTHORIZATION: u16 = 1 << 5;
    const PROXY_AUTHENTICATE: u16 = 1 << 6;
    const KEEP_ALIVE: u16 = 1 << 7;
    const PROXY_CONNECTION: u16 = 1 << 8;
    const HTTP2_SETTINGS: u16 = 1 << 9;
    const EXPECT: u16 = 1 << 10;
    const COOKIE: u16 = 1 << 11;
    const FORWARDED: u16 = 1 << 12;
    const X_REAL_IP: u16 = 1 << 13;
    const X_GATEWAY_DEGRADED: u16 = 1 << 14;

    fn look(headers: &HeaderMap) -> Self {
        let mut found = 0;
        for name in headers.keys() {
            found |= match *name {
                CONNECTION => Self::CONNECTION,
                TE => Self::TE,
                TRANSFER_ENCODING => Self::TRANSFER_ENCODING,
                UPGRADE => Self::UPGRADE,
                TRAILER => Self::TRAILER,
                PROXY_AUTHORIZATION => Self::PROXY_AUTHORIZATION,
                PROXY_AUTHENTICATE => Self::PROXY_AUTHENTICATE,
                EXPECT => Self::EXPECT,
                COOKIE => Self::COOKIE,
                FORWARDED => Self::FORWARDED,
                ref other => Self::uncommon(other.as_str()),
            };
        }
        Self(found)
    }

    fn uncommon(name: &str) -> u16 {
        match name {
            "keep-alive" => Self::KEEP_ALIVE,
            "proxy-connection" => Self::PROXY_CONNECTION,
            "http2-settings" => Self::HTTP2_SETTINGS,
            "x-real-ip" => Self::X_REAL_IP,
            "x-gateway-degraded" => Self::X_GATEWAY_DEGRADED,
            _ => 0,
        }
    }

    fn has(self, bits: u16) -> bool {
        self.0 & bits != 0
    }
}

/// Edits a request's head for an HTTP/1.1 upstream.
pub(crate) fn request(headers: &mut HeaderMap, edit: Edit<'_>) {
    let found = Found::look(headers);
    if found.0 != 0 {
        strip_request(headers, found, edit.peer_is_trusted);
    }
    if !edit.peer_is_trusted || !headers.contains_key(&X_FORWARDED_HOST) {
        match edit.names_host {
            true => headers.insert(X_FORWARDED_HOST.clone(), edit.host.clone()),
            false => headers.remove(&X_FORWARDED_HOST),
        };
    }
    headers.insert(HOST, edit.host);
    if !edit.peer_is_trusted || !headers.contains_key(&X_FORWARDED_PROTO) {
        headers.insert(X_FORWARDED_PROTO.clone(), HeaderValue::from_static("http"));
    }
    let forwarded_for = match edit.peer_is_trusted && headers.contains_key(&X_FORWARDED_FOR) {
        true => joined(headers, &X_FORWARDED_FOR, b", ", Some(edit.forwarded_for)),
        false => edit.forwarded_for.clone(),
    };
    headers.insert(X_FORWARDED_FOR.clone(), forwarded_for);
    headers.insert(X_REQUEST_ID.clone(), edit.request_id);
    if let Some(layer) = edit.degraded_by {
        headers.append(X_GATEWAY_DEGRADED.clone(), layer);
    }
}

fn strip_request(headers: &mut HeaderMap, found: Found, peer_is_trusted: bool) {
    let wants_trailers = found.has(Found::TE) && headers.get_all(TE).iter().any(|te| names_token(te, "trailers"));
    strip_hop_by_hop(headers, found);
    if wants_trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    // Trailers follow chunked bodies only; elsewhere the announcement says nothing.
    if found.has(Found::TRAILER) && !found.has(Found::TRANSFER_ENCODING) {
        headers.remove(TRAILER);
    }
    if found.has(Found::EXPECT) {
        // Answered here, when the upstream's connection asks for the body.
        headers.remove(EXPECT);
    }
    if found.has(Found::COOKIE) && headers.get_all(COOKIE).iter().nth(1).is_some() {
        // HTTP/2 splits cookies into crumbs; HTTP/1.1 has one line (RFC 9113, section 8.2.3).
        let cookie = joined(headers, &COOKIE, b"; ", None);
        headers.insert(COOKIE, cookie);
    }
    if !peer_is_trusted {
        if found.has(Found::FORWARDED) {
            headers.remove(FORWARDED);
        }
        if found.has(Found::X_REAL_IP) {
            headers.remove(&X_REAL_IP);
        }
        if found.has(Found::X_GATEWAY_DEGRADED) {
            headers.remove(&X_GATEWAY_DEGRADED);
        }
    }
}

/// Edits an answer's head for a client.
pub(crate) fn response(headers: &mut HeaderMap) {
    let found = Found::look(headers);
    if found.0 != 0 {
        strip_hop_by_hop(headers, found);
    }
    if found.has(Found::TRANSFER_ENCODING) {
        // The coding overrides a length (RFC 9112, section 6.3), which must not frame the answer a second time.
        headers.remove(CONTENT_LENGTH);
    }
}

/// Removes what concerns one connection only (RFC 9110, section 7.6.1), and what Connection names. `Trailer` stays: it
/// announces fields of the message.
fn strip_hop_by_hop(headers: &mut HeaderMap, found: Found) {
    if found.has(Found::CONNECTION) {
        strip_connection(headers);
    }
    let removals = [
        (Found::TE, &TE),
        (Found::TRANSFER_ENCODING, &TRANSFER_ENCODING),
        (Found::UPGRADE, &UPGRADE),
        (Found::PROXY_AUTHORIZATION, &PROXY_AUTHORIZATION),
        (Found::PROXY_AUTHENTICATE, &PROXY_AUTHENTICATE),
        (Found::KEEP_ALIVE, &KEEP_ALIVE),
        (Found::PROXY_CONNECTION, &PROXY_CONNECTION),
        (Found::HTTP2_SETTINGS, &HTTP2_SETTINGS),
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
    let (_, lines) = connection.remove_entry_mult();
    let lines: SmallVec<[HeaderValue; 2]> = lines.collect();
    // Host is ours to set, and no client may take it out of the message. The others name no field, or one that goes anyway.
    let stays: [&[u8]; 3] = [b"host", b"keep-alive", b"close"];
    for token in lines.iter().flat_map(tokens) {
        if !stays.iter().any(|stays| token.eq_ignore_ascii_case(stays))
            && let Ok(name) = HeaderName::from_bytes(token)
        {
            headers.remove(name);
        }
    }
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
