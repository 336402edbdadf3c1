//! A set of keys (JWKS, RFC 7517), and what they verify.

use std::{
    fmt,
    sync::atomic::{AtomicU64, Ordering},
};

use jsonwebtoken::{
    Algorithm, DecodingKey, Validation,
    jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse},
};
use serde_json::{Map, Value};

/// Keys that are used of a set at most: a token that names none is tried with each of its kind.
const MOST: usize = 64;

/// Keys that sign tokens.
pub struct Keys {
    id: u64,
    keys: Vec<Key>,
}

// They may be secret.
impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys")
            .field("count", &self.keys.len())
            .finish_non_exhaustive()
    }
}

/// Why a text is no set of keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeysError {
    /// It is not JSON with a list of `keys`.
    #[error("it is not a set of keys, JSON with a list `keys`: {0}")]
    Form(String),
    /// No key of it can verify a token.
    #[error("it has no key that verifies signatures (RSA, EC P-256 or P-384, Ed25519, or a secret)")]
    Empty,
    /// It has too many.
    #[error("it has {0} keys, expected at most {MOST}")]
    TooMany(usize),
}

/// What a set of keys says of a token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verified {
    /// One of them has signed this payload.
    By(Map<String, Value>),
    /// It names a key that is not among them.
    ByUnknown,
    /// None has signed it.
    ByNone,
}

struct Key {
    name: Option<String>,
    key: DecodingKey,
    /// What it may be used with: the one that it names, else those of its kind. So a public key is never taken for the
    /// secret of an HMAC.
    algorithms: Vec<Algorithm>,
}

impl Keys {
    /// The keys in `text`; those that verify nothing are passed over.
    ///
    /// # Errors
    /// Where it is no set of keys, or none is of use.
    pub fn parse(text: &[u8]) -> Result<Self, KeysError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        #[derive(serde::Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(text).map_err(|error| KeysError::Form(error.to_string()))?;
        // One that cannot be read may be of a kind that is not known yet: the others serve.
        let readable = set
            .keys
            .into_iter()
            .filter_map(|key| serde_json::from_value::<Jwk>(key).ok());
        let keys: Vec<Key> = readable.filter_map(|key| Key::new(&key)).collect();
        match keys.len() {
            0 => Err(KeysError::Empty),
            1..=MOST => Ok(Self {
                id: NEXT.fetch_add(1, Ordering::Relaxed),
                keys,
            }),
            many => Err(KeysError::TooMany(many)),
        }
    }

    /// No keys.
    pub(super) fn none() -> Self {
        Self {
            id: 0,
            keys: Vec::new(),
        }
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Another for each set.
    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Who has signed a token.
    pub(super) fn verify(&self, token: &[u8]) -> Verified {
        let Ok(header) = jsonwebtoken::decode_header(token) else {
            return Verified::ByNone;
        };
        // RFC 7515 §4.1.11: what has to be understood is not.
        if header.crit.is_some() {
            return Verified::ByNone;
        }
        if header.kid.is_some() && !self.keys.iter().any(|key| key.name.is_none() || key.name == header.kid) {
            return Verified::ByUnknown;
        }
        let may_be = |key: &&Key| {
            let is_named = header.kid.is_none() || key.name.is_none() || key.name == header.kid;
            is_named && key.algorithms.contains(&header.alg)
        };
        let payload = self.keys.iter().filter(may_be).find_map(|key| {
            let verified = jsonwebtoken::decode(token, &key.key, &signature_only(header.alg));
            verified.ok().map(|token| token.claims)
        });
        payload.map_or(Verified::ByNone, Verified::By)
    }
}

/// What the claims have to say is checked here, against the process's own clock.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    (
        validation.validate_exp,
        validation.validate_nbf,
        validation.validate_aud,
    ) = (false, false, false);
    validation
}

impl Key {
    /// `None` where it verifies no signature that is known here.
    fn new(key: &Jwk) -> Option<Self> {
        let common = &key.common;
        let is_for_signatures = common
            .public_key_use
            .as_ref()
            .is_none_or(|used| *used == PublicKeyUse::Signature);
        let may_verify = (common.key_operations.as_ref()).is_none_or(|may| may.contains(&KeyOperations::Verify));
        let mut algorithms = of_its_kind(&key.algorithm).to_vec();
        if let Some(named) = common.key_algorithm {
            algorithms.retain(|algorithm| Some(*algorithm) == signature(named));
        }
        if !is_for_signatures || !may_verify || algorithms.is_empty() {
            return None;
        }
        Some(Self {
            name: common.key_id.clone(),
            key: DecodingKey::from_jwk(key).ok()?,
            algorithms,
        })
    }
}

fn of_its_kind(parameters: &AlgorithmParameters) -> &'static [Algorithm] {
    use Algorithm::{ES256, ES384, EdDSA, HS256, HS384, HS512, PS256, PS384, PS512, RS256, RS384, RS512};
    match parameters {
        AlgorithmParameters::RSA(_) => &[RS256, RS384, RS512, PS256, PS384, PS512],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => &[ES256],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => &[ES384],
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => &[EdDSA],
        AlgorithmParameters::OctetKey(_) => &[HS256, HS384, HS512],
        _ => &[],
    }
}

fn signature(algorithm: KeyAlgorithm) -> Option<Algorithm> {
    Some(match algorithm {
        KeyAlgorithm::HS256 => Algorithm::HS256,
        KeyAlgorithm::HS384 => Algorithm::HS384,
        KeyAlgorithm::HS512 => Algorithm::HS512,
        KeyAlgorithm::ES256 => Algorithm::ES256,
        KeyAlgorithm::ES384 => Algorithm::ES384,
        KeyAlgorithm::RS256 => Algorithm::RS256,
        KeyAlgorithm::RS384 => Algorithm::RS384,
        KeyAlgorithm::RS512 => Algorithm::RS512,
        KeyAlgorithm::PS256 => Algorithm::PS256,
        KeyAlgorithm::PS384 => Algorithm::PS384,
        KeyAlgorithm::PS512 => Algorithm::PS512,
        KeyAlgorithm::EdDSA => Algorithm::EdDSA,
        _ => return None,
    })
}
