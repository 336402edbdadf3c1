//! Peer and trusted proxies → the client's address; pure.
//!
//! A forwarding header is a list to which every proxy appends the address that called it. Only what a trusted proxy
//! wrote can be believed, so the list is walked from its right end for as long as the writer is trusted.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::{HeaderMap, HeaderName, header::FORWARDED};
use ipnet::IpNet;
use smallvec::SmallVec;

use crate::config::{self, ForwardingHeader};

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client's address: the peer, or, where the peer is trusted, the rightmost address of the forwarding header that is
/// not. Where all are trusted, the leftmost. IPv4-mapped IPv6 addresses are IPv4.
///
/// Several lines of the header are one list, empty entries are nothing (RFC 9110 §5.6.1.2). What cannot be read ends the
/// walk: the last address that a trusted proxy is known to have written stands.
#[must_use]
pub fn client_addr(peer: IpAddr, headers: &HeaderMap, config: &config::ClientIp) -> IpAddr {
    let mut client = peer.to_canonical();
    if !is_trusted(client, &config.trusted_proxies) {
        return client;
    }
    let name = match config.header {
        ForwardingHeader::XForwardedFor => &X_FORWARDED_FOR,
        ForwardingHeader::Forwarded => &FORWARDED,
    };
    for line in headers.get_all(name).iter().rev() {
        let line = line.as_bytes();
        let entries = match config.header {
            ForwardingHeader::XForwardedFor => line.split(|&byte| byte == b',').collect(),
            ForwardingHeader::Forwarded => split_unquoted(line, b','),
        };
        for entry in entries.into_iter().rev().map(<[u8]>::trim_ascii) {
            if entry.is_empty() {
                continue;
            }
            let address = match config.header {
                ForwardingHeader::XForwardedFor => parse_node(entry),
                ForwardingHeader::Forwarded => parse_forwarded(entry),
            };
            let Some(address) = address else {
                return client;
            };
            client = address;
            if !is_trusted(client, &config.trusted_proxies) {
                return client;
            }
        }
    }
    client
}

/// Whether a peer's forwarding headers are believed.
#[must_use]
pub fn is_trusted(peer: IpAddr, trusted: &[IpNet]) -> bool {
    let peer = peer.to_canonical();
    trusted.iter().any(|net| net.contains(&peer))
}

/// Writes the address as keys have it, cut to the configured prefix: `203.0.113.7`, `2001:db8::/64`.
///
/// A network of one address is written as that address. A longer prefix than the address has bits is all of it.
pub fn write_key(addr: IpAddr, config: &config::ClientIp, to: &mut String) {
    let addr = addr.to_canonical();
    if addr.is_ipv4() && config.ipv4_prefix >= 32 {
        return write_address(addr, to);
    }
    let (prefix, bits) = match addr {
        IpAddr::V4(_) => (config.ipv4_prefix, 32),
        IpAddr::V6(_) => (config.ipv6_prefix, 128),
    };
    let written = match IpNet::new(addr, prefix) {
        Ok(net) if prefix < bits => write!(to, "{}", net.trunc()),
        _ => write!(to, "{addr}"),
    };
    debug_assert!(written.is_ok(), "writing to a String cannot fail");
}

/// Writes the address.
pub(crate) fn write_address(addr: IpAddr, to: &mut String) {
    match addr {
        IpAddr::V4(addr) => write_ipv4(addr, to),
        IpAddr::V6(addr) => {
            let written = write!(to, "{addr}");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
    }
}

/// What most requests need; the standard library's way takes five times as long.
fn write_ipv4(addr: Ipv4Addr, to: &mut String) {
    let (mut text, mut len) = ([0; 16], 0);
    for octet in addr.octets() {
        for (divisor, least) in [(100, 100), (10, 10), (1, 0)] {
            if octet >= least {
                text[len] = b'0' + octet / divisor % 10;
                len += 1;
            }
        }
        text[len] = b'.';
        len += 1;
    }
    // Without the last dot; digits and dots are text.
    to.push_str(std::str::from_utf8(&text[..len - 1]).unwrap_or_default());
}

/// Splits at `separator` outside quoted strings (RFC 9110 §5.6.4).
fn split_unquoted(line: &[u8], separator: u8) -> SmallVec<[&[u8]; 8]> {
    let mut parts = SmallVec::new();
    let (mut start, mut quoted, mut escaped) = (0, false, false);
    for (at, &byte) in line.iter().enumerate() {
        if escaped {
            escaped = false;
        } else if quoted && byte == b'\\' {
            escaped = true;
        } else if byte == b'"' {
            quoted = !quoted;
        } else if byte == separator && !quoted {
            parts.extend(line.get(start..at));
            start = at + 1;
        }
    }
    parts.extend(line.get(start..));
    parts
}

/// The address of the `for` parameter of one element of `Forwarded` (RFC 7239 §4). `None` where there is not exactly one,
/// or where it is `unknown` or obfuscated.
fn parse_forwarded(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in split_unquoted(element, b';') {
        let Some(equals) = pair.iter().position(|&byte| byte == b'=') else {
            continue;
        };
        let (name, value) = pair.split_at(equals);
        if !name.trim_ascii().eq_ignore_ascii_case(b"for") {
            continue;
        }
        if found.is_some() {
            return None;
        }
        let value = value.get(1..)?.trim_ascii();
        let value = match value {
            [b'"', inner @ .., b'"'] => inner,
            token => token,
        };
        found = Some(parse_node(value)?);
    }
    found
}

/// `a.b.c.d`, `a.b.c.d:port`, `::`, `[::]`, `[::]:port`. Ports may be obfuscated (RFC 7239 §6.3); a bare IPv6 address
/// never has one, since its last group would look like it.
fn parse_node(entry: &[u8]) -> Option<IpAddr> {
    let entry = std::str::from_utf8(entry).ok()?;
    let (address, port) = if let Some(rest) = entry.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        (IpAddr::V6(address.parse::<Ipv6Addr>().ok()?), port)
    } else if let Ok(address) = entry.parse::<IpAddr>() {
        (address, "")
    } else {
        let (address, _) = entry.split_once(':')?;
        (
            IpAddr::V4(address.parse::<Ipv4Addr>().ok()?),
            entry.get(address.len()..)?,
        )
    };
    is_port(port).then(|| address.to_canonical())
}

/// Nothing, `:` and digits, or `:_` and an obfuscated name.
fn is_port(port: &str) -> bool {
    match port.strip_prefix(':') {
        None => port.is_empty(),
        Some(port) => match port.strip_prefix('_') {
            Some(name) => !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)),
            None => port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok(),
        },
    }
}

#[cfg(test)]
mod tests;
