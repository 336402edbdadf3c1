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
mod tests {
    use super::*;
    use http::HeaderValue;
    use proptest::prelude::*;

    fn config(header: ForwardingHeader, trusted: &[&str]) -> config::ClientIp {
        config::ClientIp {
            trusted_proxies: trusted.iter().map(|net| net.parse().unwrap()).collect(),
            header,
            ipv4_prefix: 32,
            ipv6_prefix: 64,
        }
    }

    fn find(header: ForwardingHeader, peer: &str, lines: &[&str]) -> String {
        let name = match header {
            ForwardingHeader::XForwardedFor => X_FORWARDED_FOR,
            ForwardingHeader::Forwarded => FORWARDED,
        };
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(&name, HeaderValue::from_bytes(line.as_bytes()).unwrap());
        }
        let config = config(header, &["10.0.0.0/8", "192.0.2.0/24", "2001:db8:ffff::/48"]);
        client_addr(peer.parse().unwrap(), &headers, &config).to_string()
    }

    fn xff(peer: &str, lines: &[&str]) -> String {
        find(ForwardingHeader::XForwardedFor, peer, lines)
    }

    fn forwarded(lines: &[&str]) -> String {
        find(ForwardingHeader::Forwarded, "10.0.0.5", lines)
    }

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_it_sends() {
        let mut headers = HeaderMap::new();
        for name in ["x-forwarded-for", "x-real-ip", "true-client-ip", "cf-connecting-ip"] {
            headers.insert(name, HeaderValue::from_static("198.51.100.1"));
        }
        headers.insert("forwarded", HeaderValue::from_static("for=198.51.100.1"));
        let peer: IpAddr = "203.0.113.9".parse().unwrap();
        for header in [ForwardingHeader::XForwardedFor, ForwardingHeader::Forwarded] {
            assert_eq!(client_addr(peer, &headers, &config(header, &[])), peer);
            assert_eq!(client_addr(peer, &headers, &config(header, &["10.0.0.0/8"])), peer);
        }
        let trusting = config(ForwardingHeader::XForwardedFor, &["203.0.113.0/24"]);
        assert_eq!(client_addr(peer, &headers, &trusting).to_string(), "198.51.100.1");
    }

    #[test]
    fn the_rightmost_untrusted_address() {
        assert_eq!(xff("10.0.0.5", &["203.0.113.7"]), "203.0.113.7");
        assert_eq!(
            xff("10.0.0.5", &["198.51.100.1, 203.0.113.7, 192.0.2.8"]),
            "203.0.113.7"
        );
        assert_eq!(
            xff("10.0.0.5", &["198.51.100.1", "203.0.113.7 ,10.9.9.9", "192.0.2.8"]),
            "203.0.113.7"
        );
        assert_eq!(xff("::ffff:10.0.0.5", &["203.0.113.7"]), "203.0.113.7");
        assert_eq!(xff("2001:db8:ffff::1", &["203.0.113.7"]), "203.0.113.7");
    }

    #[test]
    fn spellings_of_one_address() {
        for entry in [
            "203.0.113.7",
            "203.0.113.7:51000",
            "  203.0.113.7\t",
            "::ffff:203.0.113.7",
            "[::ffff:203.0.113.7]:1",
        ] {
            assert_eq!(xff("10.0.0.5", &[entry]), "203.0.113.7", "{entry}");
        }
        for entry in [
            "2001:db8::7",
            "[2001:db8::7]:443",
            "[2001:db8::7]",
            "2001:DB8:0::7",
            " 2001:db8::7 ",
        ] {
            assert_eq!(xff("10.0.0.5", &[entry]), "2001:db8::7", "{entry}");
        }
        assert_eq!(
            xff("10.0.0.5", &["2001:db8::7:443"]),
            "2001:db8::7:443",
            "no port in a bare address"
        );
    }

    #[test]
    fn rubbish_leaves_the_peer() {
        let long = "1".repeat(10_000);
        for entry in [
            "203.0.113.999",
            "",
            "-",
            "unknown",
            &long,
            "203.0.113.7:",
            "203.0.113.7:x",
            "203.0.113.7:99999",
            "203.0.113.7:+1",
            "[2001:db8::7",
            "[203.0.113.7]",
            "[2001:db8::7]443",
            "2001:db8::7]",
            "fe80::1%eth0",
            "a.example",
            "203.0.113.7 198.51.100.1",
        ] {
            assert_eq!(xff("10.0.0.5", &[entry]), "10.0.0.5", "{entry}");
        }
    }

    #[test]
    fn rubbish_ends_the_walk_where_it_stands() {
        assert_eq!(xff("10.0.0.5", &["203.0.113.7, rubbish, 192.0.2.8"]), "192.0.2.8");
        assert_eq!(xff("10.0.0.5", &["rubbish, 203.0.113.7"]), "203.0.113.7");
        assert_eq!(
            xff("10.0.0.5", &["203.0.113.7,, ,", " , 192.0.2.8,"]),
            "203.0.113.7",
            "empty entries are nothing"
        );
    }

    #[test]
    fn without_an_untrusted_address() {
        assert_eq!(xff("10.0.0.5", &[]), "10.0.0.5");
        assert_eq!(xff("10.0.0.6", &[]), "10.0.0.6");
        assert_eq!(
            xff("10.0.0.5", &["192.0.2.1, 10.1.1.1", "10.2.2.2"]),
            "192.0.2.1",
            "the leftmost"
        );
    }

    #[test]
    fn rfc_7239() {
        for (element, expected) in [
            ("for=203.0.113.7", "203.0.113.7"),
            ("For=203.0.113.7;proto=http;by=192.0.2.8", "203.0.113.7"),
            ("proto=https ; FOR=\"203.0.113.7:51000\"", "203.0.113.7"),
            ("for=\"[2001:db8::7]\"", "2001:db8::7"),
            ("for=\"[2001:db8::7]:443\"", "2001:db8::7"),
            ("for=\"[2001:db8::7]:_port\"", "2001:db8::7"),
            ("for=198.51.100.1, for=203.0.113.7, for=192.0.2.8", "203.0.113.7"),
            ("by=\"a,b;for=198.51.100.1\";for=203.0.113.7", "203.0.113.7"),
            ("by=\"a\\\",for=198.51.100.1\";for=203.0.113.7", "203.0.113.7"),
            ("for=203.0.113.7, for=_hidden", "10.0.0.5"),
            ("for=unknown", "10.0.0.5"),
            ("for=203.0.113.7;for=198.51.100.1", "10.0.0.5"),
            ("203.0.113.7", "10.0.0.5"),
            ("by=203.0.113.7", "10.0.0.5"),
            ("for=\"203.0.113.7", "10.0.0.5"),
            ("for=", "10.0.0.5"),
        ] {
            assert_eq!(forwarded(&[element]), expected, "{element}");
        }
        assert_eq!(
            forwarded(&["for=198.51.100.1", "for=203.0.113.7", "for=192.0.2.8"]),
            "203.0.113.7"
        );
    }

    #[test]
    fn keys_are_networks() {
        let key = |addr: &str, v4, v6| {
            let mut config = config(ForwardingHeader::XForwardedFor, &[]);
            (config.ipv4_prefix, config.ipv6_prefix) = (v4, v6);
            let mut to = String::new();
            write_key(addr.parse().unwrap(), &config, &mut to);
            to
        };
        assert_eq!(key("203.0.113.7", 32, 64), "203.0.113.7");
        assert_eq!(key("203.0.113.7", 24, 64), "203.0.113.0/24");
        assert_eq!(key("::ffff:203.0.113.7", 32, 64), "203.0.113.7");
        assert_eq!(key("2001:db8:1:2::7", 32, 64), "2001:db8:1:2::/64");
        assert_eq!(key("2001:DB8:1:2:ffff::7", 32, 64), "2001:db8:1:2::/64");
        assert_eq!(key("2001:db8:1:3::1", 32, 64), "2001:db8:1:3::/64");
        assert_eq!(key("2001:db8:1:2::7", 32, 128), "2001:db8:1:2::7");
        assert_eq!(key("203.0.113.7", 99, 64), "203.0.113.7");
    }

    proptest! {
        #[test]
        fn never_panics(line in any::<Vec<u8>>()) {
            if let Ok(value) = HeaderValue::from_bytes(&line) {
                for header in [ForwardingHeader::XForwardedFor, ForwardingHeader::Forwarded] {
                    let mut headers = HeaderMap::new();
                    headers.insert(X_FORWARDED_FOR, value.clone());
                    headers.insert(FORWARDED, value.clone());
                    let found = client_addr(IpAddr::from([10, 0, 0, 1]), &headers, &config(header, &["0.0.0.0/0", "::/0"]));
                    prop_assert_eq!(found, found.to_canonical());
                }
            }
        }

        #[test]
        fn nobody_invents_an_address(invented in "[0-9a-f.:, ]{0,40}", real in any::<[u8; 4]>()) {
            let real = IpAddr::from(real);
            let config = config(ForwardingHeader::XForwardedFor, &["10.0.0.0/8"]);
            prop_assume!(!is_trusted(real, &config.trusted_proxies));
            let mut headers = HeaderMap::new();
            headers.insert(X_FORWARDED_FOR, HeaderValue::from_str(&format!("{invented}, {real}")).unwrap());
            prop_assert_eq!(client_addr(IpAddr::from([10, 0, 0, 1]), &headers, &config), real);
        }
    }
}
