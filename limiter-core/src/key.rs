//! What is counted apart: a request's values, encoded as the name of a counter.
//!
//! The text is read by people (in Redis, in the admin API), so a value stays as it was sent wherever that is
//! unambiguous, and is bounded, so that clients cannot choose how much memory a counter's name takes.

use std::{fmt, str};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// A longer value is hashed.
const MAX_BARE_LEN: usize = 64;

/// Bytes kept of a hash: 128 bits, so that no two of any realistic number of values meet.
const HASH_LEN: usize = 16;

const HEX: &[u8; 16] = b"0123456789abcdef";

/// The encoded name of a counter within its policy, as people see it: the bare value (`alice`), parts of a composite
/// joined by `|`, `*` for the one counter of everything, `~ip:ADDRESS` for a missing value, `#` and 32 hex digits for a
/// hashed one.
///
/// Inside a value a backslash escapes what would be ambiguous: `\|` and `\\` anywhere, `\~`, `\#` and `\*` at the
/// beginning, `\xHH` for a byte outside printable ASCII. An empty value is `\e`. So the text is printable ASCII, and a
/// part is at most 256 bytes long: 64 bytes, each escaped.
///
/// ```
/// use limiter_core::{Key, KeyHasher, Part};
///
/// let hasher = KeyHasher::new(None);
/// let mut key = Key::new();
/// key.push(Part::Value(b"alice"), &hasher);
/// key.push(Part::Value(b"/v1/orders"), &hasher);
/// assert_eq!(key.as_str(), "alice|/v1/orders");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(String);

/// Replaces secret and long values by a 128-bit hash, the same on every gateway that has the same secret.
#[derive(Clone, Default)]
pub struct KeyHasher {
    /// Primed with the secret, to be cloned for each value.
    hmac: Option<Hmac<Sha256>>,
}

impl KeyHasher {
    /// SHA-256 without a secret, HMAC-SHA-256 (RFC 2104) with one; both cut to their first 128 bits.
    ///
    /// # Panics
    /// Never: HMAC takes a secret of any length.
    #[must_use]
    pub fn new(secret: Option<&[u8]>) -> Self {
        Self {
            hmac: secret.map(|secret| Hmac::new_from_slice(secret).expect("HMAC takes a secret of any length")),
        }
    }

    fn hash(&self, value: &[u8]) -> [u8; HASH_LEN] {
        let full = match &self.hmac {
            Some(hmac) => hmac.clone().chain_update(value).finalize().into_bytes(),
            None => Sha256::digest(value),
        };
        std::array::from_fn(|i| full[i])
    }
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher")
            .field("has_secret", &self.hmac.is_some())
            .finish_non_exhaustive()
    }
}

/// One part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Everything is counted together: `*`.
    Global,
    /// A value, hashed where it is longer than 64 bytes.
    Value(&'a [u8]),
    /// A value that must not be seen: always hashed. Its hash is that of an equal long [`Part::Value`].
    Secret(&'a [u8]),
    /// A missing value; the client's address stands for it, in a name space of its own: `~ip:ADDRESS`.
    Missing(&'a str),
}

impl Key {
    /// An empty buffer, to be filled by [`Key::push`].
    #[must_use]
    pub const fn new() -> Self {
        Self(String::new())
    }

    /// Empties the buffer and keeps its memory.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a part. Different lists of parts always give different keys.
    pub fn push(&mut self, part: Part<'_>, hasher: &KeyHasher) {
        // No part is encoded as nothing, so an empty buffer means that this is the first.
        if !self.0.is_empty() {
            self.0.push('|');
        }
        match part {
            Part::Global => self.0.push('*'),
            Part::Value(value) => self.push_value(value, hasher),
            Part::Secret(value) => self.push_hash(value, hasher),
            Part::Missing(address) => {
                self.0.push_str("~ip:");
                self.push_value(address.as_bytes(), hasher);
            }
        }
    }

    /// The encoded text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn push_value(&mut self, value: &[u8], hasher: &KeyHasher) {
        if value.len() > MAX_BARE_LEN {
            return self.push_hash(value, hasher);
        }
        match (value, str::from_utf8(value)) {
            ([], _) => self.0.push_str("\\e"),
            ([first, ..], Ok(text)) if !marks(*first) && value.iter().all(|byte| is_bare(*byte)) => {
                self.0.push_str(text);
            }
            ([first, ..], _) => {
                if marks(*first) {
                    self.0.push('\\');
                }
                value.iter().for_each(|byte| self.push_byte(*byte));
            }
        }
    }

    fn push_byte(&mut self, byte: u8) {
        match byte {
            b'|' | b'\\' => {
                self.0.push('\\');
                self.0.push(char::from(byte));
            }
            bare if is_bare(bare) => self.0.push(char::from(bare)),
            other => {
                self.0.push_str("\\x");
                self.push_hex(other);
            }
        }
    }

    fn push_hash(&mut self, value: &[u8], hasher: &KeyHasher) {
        self.0.push('#');
        for byte in hasher.hash(value) {
            self.push_hex(byte);
        }
    }

    fn push_hex(&mut self, byte: u8) {
        for digit in [byte >> 4, byte & 0x0f] {
            self.0.push(char::from(HEX[usize::from(digit)]));
        }
    }
}

/// Whether a part that begins with this byte is something other than a bare value.
fn marks(first: u8) -> bool {
    matches!(first, b'~' | b'#' | b'*')
}

/// Whether this byte stands for itself, after the first.
fn is_bare(byte: u8) -> bool {
    matches!(byte, b' '..=b'~') && !matches!(byte, b'|' | b'\\')
}

#[cfg(test)]
mod tests {
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
}
