use http::HeaderName;

use super::*;
use crate::config::ForwardingHeader;

fn client_ip() -> ClientIp {
    ClientIp {
        trusted_proxies: Vec::new(),
        header: ForwardingHeader::XForwardedFor,
        ipv4_prefix: 32,
        ipv6_prefix: 64,
    }
}

fn header(secret: bool) -> KeyPart {
    KeyPart::Header {
        name: HeaderName::from_static("x-user"),
        secret,
    }
}

fn of(text: &str, key: &[KeyPart]) -> Result<KeyPattern, String> {
    pattern(text, key, &client_ip())
}

fn value(text: &str) -> KeyValue {
    KeyValue::Value(text.into())
}

fn printed(text: &str) -> KeyValue {
    KeyValue::Printed(text.to_owned())
}

#[test]
fn values_of_one_part() {
    let hash = "#0123456789abcdef0123456789abcdef";
    for (text, expected) in [
        ("alice", value("alice")),
        ("a|b", value("a|b")),
        (r"a\|b\\", value(r"a|b\")),
        (r"\*", value("*")),
        (r"star\*", value("star*")),
        (r"caf\xc3\xa9", value("café")),
        ("café", value("café")),
        ("~ip:192.0.2.1", printed("~ip:192.0.2.1")),
        ("~ip:2001:DB8::/64", printed("~ip:2001:db8::/64")),
        (r"\~ip:192.0.2.1", value("~ip:192.0.2.1")),
        (hash, printed(hash)),
        ("#1", value("#1")),
    ] {
        assert_eq!(
            of(text, &[header(false)]),
            Ok(KeyPattern::Exact(vec![expected])),
            "{text}"
        );
    }
    let secret = KeyValue::Secret(b"s3cret".to_vec());
    assert_eq!(of("s3cret", &[header(true)]), Ok(KeyPattern::Exact(vec![secret])));
    assert_eq!(of(hash, &[header(true)]), Ok(KeyPattern::Exact(vec![printed(hash)])));
    assert_eq!(
        of("A.Example", &[KeyPart::Host]),
        Ok(KeyPattern::Exact(vec![value("a.example")]))
    );
    assert_eq!(of("*", &[KeyPart::Global]), Ok(KeyPattern::Exact(vec![printed("*")])));
}

#[test]
fn prefixes() {
    let prefix = |head: &[KeyValue], begin| Ok(KeyPattern::Prefix(head.to_vec(), begin));
    assert_eq!(of("partner-*", &[header(false)]), prefix(&[], value("partner-")));
    assert_eq!(of(r"\**", &[header(false)]), prefix(&[], value("*")));
    assert_eq!(of("~ip:10.*", &[header(false)]), prefix(&[], printed("~ip:10.")));
    assert_eq!(of("192.0.2.*", &[KeyPart::Ip]), prefix(&[], value("192.0.2.")));
    assert_eq!(of("A.*", &[KeyPart::Host]), prefix(&[], value("a.")));
    let composite = [header(false), KeyPart::Path];
    assert_eq!(of("ali*", &composite), prefix(&[], value("ali")));
    assert_eq!(of("alice|*", &composite), prefix(&[value("alice")], value("")));
    assert_eq!(of("alice|/v1/*", &composite), prefix(&[value("alice")], value("/v1/")));
    let secret = KeyValue::Secret(b"s3cret".to_vec());
    assert_eq!(
        of("s3cret|*", &[header(true), KeyPart::Path]),
        prefix(&[secret], value(""))
    );
}

#[test]
fn values_of_several_parts() {
    let exact = |values: &[KeyValue]| Ok(KeyPattern::Exact(values.to_vec()));
    let key = [header(false), KeyPart::Ip];
    assert_eq!(
        of("alice|192.0.2.1", &key),
        exact(&[value("alice"), value("192.0.2.1")])
    );
    assert_eq!(
        of(r"a\|b|2001:DB8::/64", &key),
        exact(&[value("a|b"), value("2001:db8::/64")])
    );
    let hash = "#0123456789abcdef0123456789abcdef";
    let secret = KeyValue::Secret(b"k".to_vec());
    assert_eq!(
        of("k|/a", &[header(true), KeyPart::Path]),
        exact(&[secret, value("/a")])
    );
    assert_eq!(
        of(&format!("{hash}|/a"), &[header(true), KeyPart::Path]),
        exact(&[printed(hash), value("/a")])
    );
    assert_eq!(
        of("*|/a", &[KeyPart::Global, KeyPart::Path]),
        exact(&[printed("*"), value("/a")])
    );
}

#[test]
fn addresses() {
    let network = |text: &str| Ok(KeyPattern::Network(text.parse().unwrap()));
    let key = [KeyPart::Ip];
    assert_eq!(of("10.1.2.3/8", &key), network("10.0.0.0/8"));
    assert_eq!(of("2001:db8::/32", &key), network("2001:db8::/32"));
    for (text, expected) in [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1/32", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:DB8::/64", "2001:db8::/64"),
    ] {
        assert_eq!(of(text, &key), Ok(KeyPattern::Exact(vec![value(expected)])), "{text}");
    }
}

#[test]
fn what_names_no_key_is_refused() {
    let (user, composite) = ([header(false)], [header(false), KeyPart::Path]);
    let long = "x".repeat(65) + "*";
    for (text, key, expected) in [
        ("", &user[..], "is empty"),
        ("*", &user, "is every key"),
        ("a*b", &user, "not at its end"),
        ("*a", &user, "not at its end"),
        (r"a\b", &user, "escapes nothing"),
        (r"a\", &user, "escapes nothing"),
        (r"\xg0", &user, "escapes nothing"),
        ("~ip:here", &user, "not an address range"),
        (&*long, &user, "more than 64 bytes"),
        ("alice", &composite, "1 of the 2 parts"),
        ("a|b|c", &composite, "3 of the 2 parts"),
        ("a|b|*", &composite, "3 of the 2 parts"),
        ("|/a", &composite, "an empty part"),
        ("a|", &composite, "an empty part"),
        ("*|*", &composite, "not at its end"),
        ("s*", &[header(true)], "are hashed"),
        ("sid-*", &[KeyPart::Cookie("sid".to_owned())], "are hashed"),
        ("all", &[KeyPart::Global], "expected `*`"),
        ("alice", &[KeyPart::Ip], "not an address range"),
        ("2001:db8::1", &[KeyPart::Ip], "narrower than what is counted apart"),
        (
            "10.0.0.0/8|/a",
            &[KeyPart::Ip, KeyPart::Path],
            "wider than what is counted apart",
        ),
    ] {
        let told = of(text, key).expect_err(text);
        assert!(told.contains(expected), "{text}: {told}");
    }
}
