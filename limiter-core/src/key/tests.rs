use proptest::{collection::vec, prelude::*};

use super::*;

fn encode(parts: &[Part<'_>]) -> String {
    let hasher = KeyHasher::new(None);
    let mut key = Key::new();
    for part in parts {
        key.push(*part, &hasher);
    }
    key.as_str().to_owned()
}

fn value(value: &[u8]) -> String {
    encode(&[Part::Value(value)])
}

#[test]
fn plain_values_stay_as_they_are() {
    for plain in [
        "alice",
        "203.0.113.7",
        "2001:db8::/64",
        "/v1/orders",
        "a b",
        "a~b#c*",
        "100%",
    ] {
        assert_eq!(value(plain.as_bytes()), plain);
    }
}

#[test]
fn each_kind_of_part_has_its_shape() {
    assert_eq!(encode(&[Part::Global]), "*");
    assert_eq!(encode(&[Part::Missing("203.0.113.7")]), "~ip:203.0.113.7");
    assert_eq!(encode(&[Part::Missing("2001:db8::/64")]), "~ip:2001:db8::/64");
    assert_eq!(
        encode(&[Part::Value(b"GET"), Part::Value(b"/v1"), Part::Missing("::1")]),
        "GET|/v1|~ip:::1"
    );
}

#[test]
fn ambiguous_bytes_are_escaped() {
    assert_eq!(value(b"a|b"), "a\\|b");
    assert_eq!(value(b"a\\b"), "a\\\\b");
    assert_eq!(value(b"~ip:::1"), "\\~ip:::1");
    assert_eq!(value(b"#1"), "\\#1");
    assert_eq!(value(b"*"), "\\*");
    assert_eq!(value(b""), "\\e");
    assert_eq!(value(b"\\e"), "\\\\e");
    assert_eq!(value("é\n\x7f".as_bytes()), "\\xc3\\xa9\\x0a\\x7f");
    assert_eq!(value(b"\xff"), "\\xff");
}

#[test]
fn long_and_secret_values_are_hashed() {
    // printf '%065d' 0 | sha256sum; printf secret | sha256sum
    assert_eq!(value(&[b'0'; 64]), "0".repeat(64));
    assert_eq!(value(&[b'0'; 65]), "#e531ef0f962409170917abf9de3287af");
    assert_eq!(encode(&[Part::Secret(b"secret")]), "#2bb80d537b1da3e38bd30361aa855686");
}

#[test]
fn a_secret_makes_it_an_hmac() {
    // RFC 4231, test case 2.
    let hasher = KeyHasher::new(Some(b"Jefe"));
    let mut key = Key::new();
    key.push(Part::Secret(b"what do ya want for nothing?"), &hasher);
    assert_eq!(key.as_str(), "#5bdcc146bf60754e6a042426089575c7");
}

#[test]
fn debug_does_not_show_the_secret() {
    let shown = format!("{:?}", KeyHasher::new(Some(b"hunter2")));
    assert_eq!(shown, "KeyHasher { has_secret: true, .. }");
}

#[test]
fn the_length_of_a_part_is_bounded() {
    assert_eq!(value(&[0xff; 64]).len(), 256);
    assert_eq!(value(&[0xff; 1 << 20]).len(), 33);
    assert_eq!(encode(&[Part::Missing(&"x".repeat(1 << 20))]).len(), 4 + 33);
}

#[test]
fn a_cleared_key_starts_anew() {
    let hasher = KeyHasher::new(None);
    let mut key = Key::new();
    key.push(Part::Value(b"a"), &hasher);
    key.clear();
    key.push(Part::Value(b"b"), &hasher);
    assert_eq!(key.as_str(), "b");
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Owned {
    Global,
    Value(Vec<u8>),
    Secret(Vec<u8>),
    Missing(String),
}

impl Owned {
    fn part(&self) -> Part<'_> {
        match self {
            Self::Global => Part::Global,
            Self::Value(value) => Part::Value(value),
            Self::Secret(value) => Part::Secret(value),
            Self::Missing(address) => Part::Missing(address),
        }
    }
}

/// Values out of the few bytes that mean something in the encoding, so that collisions would be found.
fn tricky() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop::sample::select(b"\\|~#*xe0fip:a\x00\x0f\xf0\xff".to_vec());
    prop_oneof![4 => vec(byte, 0..5), 1 => vec(any::<u8>(), 0..80)]
}

fn part() -> impl Strategy<Value = Owned> {
    prop_oneof![
        1 => Just(Owned::Global),
        4 => tricky().prop_map(Owned::Value),
        1 => tricky().prop_map(Owned::Secret),
        1 => tricky().prop_map(|text| Owned::Missing(String::from_utf8_lossy(&text).into_owned())),
    ]
}

/// Reads the encoding back, which is possible only if it is injective.
fn decode(text: &str) -> Vec<Owned> {
    let (mut parts, mut rest) = (Vec::new(), text.as_bytes());
    while !rest.is_empty() {
        let end = end_of_part(rest);
        parts.push(decode_part(&rest[..end]));
        rest = rest.get(end + 1..).unwrap_or_default();
    }
    parts
}

fn end_of_part(text: &[u8]) -> usize {
    let mut at = 0;
    while at < text.len() && text[at] != b'|' {
        at += if text[at] == b'\\' { 2 } else { 1 };
    }
    at
}

fn decode_part(text: &[u8]) -> Owned {
    match text {
        b"*" => Owned::Global,
        [b'#', hash @ ..] => Owned::Secret(hash.to_vec()),
        [b'~', b'i', b'p', b':', rest @ ..] => {
            let address = if rest.starts_with(b"#") {
                rest.to_vec()
            } else {
                unescape(rest)
            };
            Owned::Missing(String::from_utf8(address).unwrap())
        }
        value => Owned::Value(unescape(value)),
    }
}

fn unescape(mut text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        match text {
            [] => return out,
            [b'\\', b'e', ..] => text = &text[2..],
            [b'\\', b'x', high, low, ..] => {
                let digits = [*high, *low];
                out.push(u8::from_str_radix(str::from_utf8(&digits).unwrap(), 16).unwrap());
                text = &text[4..];
            }
            [b'\\', byte, ..] => {
                out.push(*byte);
                text = &text[2..];
            }
            [byte, ..] => {
                out.push(*byte);
                text = &text[1..];
            }
        }
    }
}

/// What can be read back: a hash is not undone.
fn readable(part: &Owned) -> Owned {
    let hash = |value: &[u8]| encode(&[Part::Secret(value)]);
    match part {
        Owned::Secret(value) => Owned::Secret(hash(value).as_bytes()[1..].to_vec()),
        Owned::Value(value) if value.len() > 64 => Owned::Secret(hash(value).as_bytes()[1..].to_vec()),
        Owned::Missing(text) if text.len() > 64 => Owned::Missing(hash(text.as_bytes())),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn a_key_can_be_read_back(parts in vec(part(), 0..5)) {
        let text = encode(&parts.iter().map(Owned::part).collect::<Vec<_>>());
        prop_assert!(text.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{text:?} is not printable");
        prop_assert_eq!(decode(&text), parts.iter().map(readable).collect::<Vec<_>>());
    }

    #[test]
    fn different_parts_give_different_keys(a in vec(part(), 0..3), b in vec(part(), 0..3)) {
        let text = |parts: &[Owned]| encode(&parts.iter().map(Owned::part).collect::<Vec<_>>());
        let readable = |parts: &[Owned]| parts.iter().map(readable).collect::<Vec<_>>();
        prop_assert_eq!(text(&a) == text(&b), readable(&a) == readable(&b));
    }
}
