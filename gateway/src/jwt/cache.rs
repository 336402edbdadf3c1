//! What is known of tokens that were seen before: a signature costs far more than a decision.

use std::{collections::HashMap, fmt};

use sha2::{Digest, Sha256};

use super::Finding;

/// Tokens of a generation; two are kept.
const GENERATION: usize = 4_096;

/// What is known of the tokens that were seen last: between 4,096 and 8,192 of them, whatever comes. One serves one worker.
#[derive(Default)]
pub struct Tokens {
    /// The keys that the findings are by.
    keys: u64,
    young: HashMap<[u8; 32], Finding>,
    /// What was young when that was full: what is asked for again is young again, the rest goes.
    old: HashMap<[u8; 32], Finding>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tokens")
            .field("known", &self.len())
            .finish_non_exhaustive()
    }
}

impl Tokens {
    /// How many are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is known of `token` by the keys of this id, or else what `look` finds.
    pub(super) fn find(&mut self, token: &[u8], keys: u64, look: impl FnOnce() -> Finding) -> Finding {
        if self.keys != keys {
            *self = Self {
                keys,
                ..Self::default()
            };
        }
        // No two tokens have the same: one that is not verified cannot be taken for one that is.
        let name: [u8; 32] = Sha256::digest(token).into();
        if let Some(finding) = self.young.get(&name) {
            return finding.clone();
        }
        let finding = self.old.remove(&name).unwrap_or_else(look);
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, finding.clone());
        finding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_again_stays_and_the_number_is_bounded() {
        let mut tokens = Tokens::default();
        let mut looks = 0;
        let mut find = |tokens: &mut Tokens, name: &str, keys| {
            let before = looks;
            tokens.find(name.as_bytes(), keys, || {
                looks += 1;
                Finding::WORTHLESS
            });
            looks > before
        };
        assert!(find(&mut tokens, "often", 1));
        for n in 0..3 * GENERATION {
            assert!(find(&mut tokens, &n.to_string(), 1));
            assert!(!find(&mut tokens, "often", 1));
            assert!(tokens.len() <= 2 * GENERATION);
        }
        assert!(find(&mut tokens, "0", 1), "long forgotten");
        assert!(find(&mut tokens, "often", 2), "by other keys nothing is known");
        assert_eq!(tokens.len(), 1);
    }
}
