//! What is counted apart: a request's values, encoded as the name of a counter.

/// The encoded name of a counter within its policy, as people see it: the bare value (`alice`), parts of a composite
/// joined by `|`, `*` for the one counter of everything, `~ip:ADDRESS` for a missing value, `#` and 32 hex digits for a
/// hashed one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Key(String);

/// Replaces secret and long values by a 128-bit hash, the same on every gateway that has the same secret.
#[derive(Clone, Debug, Default)]
pub struct KeyHasher {
    secret: Option<Box<[u8]>>,
}

impl KeyHasher {
    /// SHA-256 without a secret, HMAC-SHA-256 with one; both cut to 128 bits.
    #[must_use]
    pub fn new(secret: Option<&[u8]>) -> Self {
        Self {
            secret: secret.map(Into::into),
        }
    }
}

/// One part of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part<'a> {
    /// Everything is counted together: `*`.
    Global,
    /// A value, hashed where it is longer than 64 bytes.
    Value(&'a [u8]),
    /// A value that must not be seen: always hashed.
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
        let _ = (part, hasher, &hasher.secret);
        unimplemented!()
    }

    /// The encoded text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
