//! What stands for a counter's name: 128 bits instead of a string, which clients cannot steer.

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
    sync::LazyLock,
};

use siphasher::sip128::{Hash128, Hasher128, SipHasher13};

/// A keyed hash of a counter's whole name. Two names meet with a probability of 2^-128; with a secret key nobody can
/// look for such a pair, or for names that crowd one place of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Fingerprint {
    /// For the place within a shard.
    low: u64,
    /// For the shard.
    high: u64,
}

impl Fingerprint {
    pub(crate) fn hash(self) -> u64 {
        self.low
    }

    /// One of `shards`, a power of two up to 64.
    pub(crate) fn shard(self, shards: usize) -> usize {
        (self.high & (shards as u64 - 1)) as usize
    }
}

/// What counters' names are hashed with.
#[derive(Clone, Copy)]
pub(crate) struct Secret(u64, u64);

impl Secret {
    /// From the randomness of the operating system, which the standard library's hash maps are keyed by.
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        Self(random.hash_one(0_u8), random.hash_one(1_u8))
    }

    /// That of this process for the counters whose names begin with `prefix`: a hash, too, so that no two prefixes have
    /// the same. It is worked out once a policy; with each request, only the key is hashed.
    pub(crate) fn of_prefix(prefix: &str) -> Self {
        static PROCESS: LazyLock<Secret> = LazyLock::new(Secret::random);
        PROCESS.for_prefix(prefix)
    }

    fn for_prefix(self, prefix: &str) -> Self {
        let hash = self.hash(prefix.as_bytes());
        Self(hash.low, hash.high)
    }

    /// Of the counter `key`, under the prefix that this was made for.
    pub(crate) fn fingerprint(self, key: &str) -> Fingerprint {
        self.hash(key.as_bytes())
    }

    /// Of `units` of the counter `key`; of one unit, the counter's own.
    pub(crate) fn fingerprint_of(self, key: &str, units: u64) -> Fingerprint {
        if units == 1 {
            return self.fingerprint(key);
        }
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write(key.as_bytes());
        // No text has this byte: where the key ends is plain.
        hasher.write(&[0xff]);
        hasher.write(&units.to_le_bytes());
        Self::finish(hasher.finish128())
    }

    fn hash(self, text: &[u8]) -> Fingerprint {
        Self::finish(SipHasher13::new_with_keys(self.0, self.1).hash(text))
    }

    fn finish(hash: Hash128) -> Fingerprint {
        Fingerprint {
            low: hash.h1,
            high: hash.h2,
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_secrets_make_the_fingerprint() {
        let name = |secret: Secret, prefix, key| secret.for_prefix(prefix).fingerprint(key);
        let (a, b) = (Secret(1, 2), Secret(1, 3));
        let alice = name(a, "user:tb:", "alice");
        assert_eq!(alice, name(a, "user:tb:", "alice"));
        assert_ne!(alice, name(a, "user:tb:", "alicf"));
        assert_ne!(alice, name(a, "user:lb:", "alice"));
        assert_ne!(alice, name(a, "user:tb:alice", ""));
        assert_ne!(alice, name(b, "user:tb:", "alice"));
        assert_eq!(alice, a.for_prefix("user:tb:").fingerprint_of("alice", 1));
        assert_ne!(alice, a.for_prefix("user:tb:").fingerprint_of("alice", 2));
    }

    #[test]
    fn a_process_has_one_secret_and_each_its_own() {
        let name = |secret: Secret| secret.for_prefix("user:tb:").fingerprint("alice");
        assert_ne!(name(Secret::random()), name(Secret::random()));
        let of_process = || Secret::of_prefix("user:tb:").fingerprint("alice");
        assert_eq!(of_process(), of_process());
    }
}
