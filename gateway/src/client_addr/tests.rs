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

proptest::proptest! {
    #[test]
    fn a_whole_address_is_written_as_ever(octets: [u8; 4]) {
        let mut text = String::new();
        write_ipv4(octets.into(), &mut text);
        proptest::prop_assert_eq!(text, Ipv4Addr::from(octets).to_string());
    }
}
