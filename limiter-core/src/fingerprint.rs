//! What stands for a counter's name: 128 bits instead of a string, which clients cannot steer.

use std::{
    fmt,
    hash::{BuildHasher, Hasher, RandomState},
};

use siphasher::sip128::{Hasher128, SipHasher13};

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

/// The secret of a process.
#[derive(Clone, Copy)]
pub(crate) struct Secret(u64, u64);

impl Secret {
    /// From the randomness of the operating system, which the standard library's hash maps are keyed by.
    pub(crate) fn random() -> Self {
        let random = RandomState::new();
        Self(random.hash_one(0_u8), random.hash_one(1_u8))
    }

    /// Of the counter `key` of the policy whose counters' names begin with `prefix`.
    pub(crate) fn fingerprint(self, prefix: &str, key: &str) -> Fingerprint {
        Self::finish(self.named(prefix, key))
    }

    /// Of `units` of that counter.
    pub(crate) fn fingerprint_of(self, prefix: &str, key: &str, units: u64) -> Fingerprint {
        let mut hasher = self.named(prefix, key);
        // No text has this byte: where the name ends is plain.
        hasher.write(&[0xff]);
        hasher.write(&units.to_le_bytes());
        Self::finish(hasher)
    }

    fn named(self, prefix: &str, key: &str) -> SipHasher13 {
        let mut hasher = SipHasher13::new_with_keys(self.0, self.1);
        hasher.write(prefix.as_bytes());
        hasher.write(key.as_bytes());
        hasher
    }

    fn finish(hasher: SipHasher13) -> Fingerprint {
        let hash = hasher.finish128();
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
        let (a, b) = (Secret(1, 2), Secret(1, 3));
        assert_eq!(a.fingerprint("user:tb:", "alice"), a.fingerprint("user:tb:", "alice"));
        assert_ne!(a.fingerprint("user:tb:", "alice"), a.fingerprint("user:tb:", "alicf"));
        assert_ne!(a.fingerprint("user:tb:", "alice"), a.fingerprint("user:lb:", "alice"));
        assert_ne!(a.fingerprint("user:tb:", "alice"), b.fingerprint("user:tb:", "alice"));
        assert_ne!(
            a.fingerprint_of("user:tb:", "alice", 1),
            a.fingerprint_of("user:tb:", "alice", 2)
        );
    }

    #[test]
    fn every_process_has_its_own_secret() {
        let name = |secret: Secret| secret.fingerprint("user:tb:", "alice");
        assert_ne!(name(Secret::random()), name(Secret::random()));
    }
}
