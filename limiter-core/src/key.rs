//! What is counted apart: a request's values, encoded as the name of a counter.
//!
//! The text is read by people (in Redis, in the admin API), so a value stays as it was sent wherever that is
//! unambiguous, and is bounded, so that clients cannot choose how much memory a counter's name takes.

use std::{fmt, str};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

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
    /// Bytes of a value at most: a longer one is hashed.
    pub const BARE_MAX: usize = 64;

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
        self.begin_part();
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

    /// Adds a part as it is printed, `~ip:192.0.2.1`, or the beginning of one: to look keys up that were printed before.
    pub fn push_printed(&mut self, text: &str) {
        self.begin_part();
        self.0.push_str(text);
    }

    /// Adds what the parts have in common whose values begin with `value` and are not hashed: to look for keys that begin
    /// so. Nothing is added after it.
    pub fn push_beginning(&mut self, value: &[u8]) {
        self.begin_part();
        self.push_bare(value);
    }

    fn begin_part(&mut self) {
        // No part is encoded as nothing, so an empty buffer means that this is the first.
        if !self.0.is_empty() {
            self.0.push('|');
        }
    }

    /// The encoded text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn push_value(&mut self, value: &[u8], hasher: &KeyHasher) {
        if value.len() > Self::BARE_MAX {
            return self.push_hash(value, hasher);
        }
        match value {
            [] => self.0.push_str("\\e"),
            value => self.push_bare(value),
        }
    }

    fn push_bare(&mut self, value: &[u8]) {
        match (value, str::from_utf8(value)) {
            ([], _) => {}
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
mod tests;
