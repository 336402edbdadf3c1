//! Bearer tokens → claims to count by.
//!
//! A claim is used only of a token that is verified: signed by a key of the operator's set, by an algorithm that this key
//! is for, in its time, and by and for whom the configuration says. Any other token is none.

mod cache;
mod keys;
mod source;
#[cfg(test)]
pub(crate) mod tests;

use std::{fmt, sync::Arc, time::Duration};

use http::{HeaderMap, Uri, header::AUTHORIZATION};
use keys::Verified;
use limiter_core::{Clock, Timestamp};
use serde_json::{Map, Value};

pub use cache::Tokens;
pub use keys::{Keys, KeysError};
pub use source::Source;

/// A longer token is not looked at: a head may have 32 KiB, and each byte of it is hashed.
const LONGEST: usize = 16 << 10;

/// How far the issuer's clock may be ahead: tokens are often used in the moment in which they are made.
const AHEAD: Duration = Duration::from_secs(5);

/// Which tokens are believed.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the keys are that sign them.
    pub keys: KeysAt,
    /// Who may have issued one. Empty: anybody who has such a key.
    pub issuers: Vec<String>,
    /// Whom one may be meant for. Empty: anybody.
    pub audiences: Vec<String>,
}

/// Where keys are.
#[derive(Clone, Debug)]
pub enum KeysAt {
    /// In a file, which was read.
    File(Arc<Keys>),
    /// At a URL, of `http` or `https`.
    Url(Uri),
}

/// Verifies tokens.
pub struct Verifier {
    source: Arc<Source>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    /// The claims that are counted by: of no other the value is kept.
    claims: Vec<String>,
    clock: Arc<dyn Clock>,
}

// The keys may be secret.
impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("claims", &self.claims)
            .finish_non_exhaustive()
    }
}

/// Several lines of Authorization: which of them counts cannot be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated;

/// The values of a verified token's claims, in the order of those that are counted by.
#[derive(Debug, PartialEq, Eq)]
pub struct Claims(Box<[Option<Box<str>>]>);

/// What a token is worth.
#[derive(Clone, Debug)]
struct Finding {
    /// `None` where it is not verified.
    claims: Option<Arc<Claims>>,
    /// Before and after which it counts for nothing.
    from: Timestamp,
    until: Timestamp,
}

impl Finding {
    const WORTHLESS: Self = Self {
        claims: None,
        from: Timestamp::from_micros(0),
        until: Timestamp::MAX,
    };
}

impl Verifier {
    /// A verifier of tokens by these settings and the keys of `source`, for the values of these `claims`.
    #[must_use]
    pub fn new(settings: &Settings, source: Arc<Source>, claims: Vec<String>, clock: Arc<dyn Clock>) -> Self {
        Self {
            source,
            issuers: settings.issuers.clone(),
            audiences: settings.audiences.clone(),
            claims,
            clock,
        }
    }

    /// The claims of the request's bearer token (RFC 6750 §2.1), if there is one and it is verified.
    ///
    /// # Errors
    /// Where Authorization comes on several lines.
    pub fn claims(&self, headers: &HeaderMap, tokens: &mut Tokens) -> Result<Option<Arc<Claims>>, Repeated> {
        let mut lines = headers.get_all(AUTHORIZATION).iter();
        let (Some(line), rest) = (lines.next(), lines.next()) else {
            return Ok(None);
        };
        if rest.is_some() {
            return Err(Repeated);
        }
        let Some(token) = bearer(line.as_bytes()).filter(|token| token.len() <= LONGEST) else {
            return Ok(None);
        };
        let keys = self.source.keys();
        let finding = tokens.find(token, keys.id(), || self.look(token, &keys));
        let now = self.clock.now();
        let counts = finding.from <= now.plus(AHEAD) && now < finding.until;
        Ok(finding.claims.as_ref().filter(|_| counts).map(Arc::clone))
    }

    /// The value of a claim: not blank.
    #[must_use]
    pub fn value<'a>(&self, claims: &'a Claims, name: &str) -> Option<&'a str> {
        let at = self.claims.iter().position(|claim| claim == name)?;
        claims.0.get(at)?.as_deref()
    }

    fn look(&self, token: &[u8], keys: &Keys) -> Finding {
        let verified = match keys.verify(token) {
            Verified::By(payload) => Some(payload).filter(|payload| self.is_for_us(payload)),
            Verified::ByNone => None,
            Verified::ByUnknown => {
                self.source.want();
                None
            }
        };
        let finding = verified.and_then(|payload| {
            Some(Finding {
                claims: Some(Arc::new(self.extract(&payload))),
                from: moment(&payload, "nbf", Finding::WORTHLESS.from)?,
                until: moment(&payload, "exp", Timestamp::MAX)?,
            })
        });
        finding.unwrap_or(Finding::WORTHLESS)
    }

    fn is_for_us(&self, payload: &Map<String, Value>) -> bool {
        let is_wanted =
            |wanted: &[String], value: &Value| value.as_str().is_some_and(|text| wanted.iter().any(|own| own == text));
        let by = self.issuers.is_empty() || payload.get("iss").is_some_and(|value| is_wanted(&self.issuers, value));
        let for_whom = match payload.get("aud") {
            _ if self.audiences.is_empty() => true,
            Some(Value::Array(several)) => several.iter().any(|value| is_wanted(&self.audiences, value)),
            Some(value) => is_wanted(&self.audiences, value),
            None => false,
        };
        by && for_whom
    }

    fn extract(&self, payload: &Map<String, Value>) -> Claims {
        let value = |name: &String| match payload.get(name)? {
            Value::String(text) => Some(text.trim()).filter(|text| !text.is_empty()).map(Box::from),
            Value::Number(number) if !number.is_f64() => Some(number.to_string().into()),
            Value::Bool(flag) => Some(flag.to_string().into()),
            // Of what has several spellings there is no one value to count by.
            Value::Number(_) | Value::Array(_) | Value::Object(_) | Value::Null => None,
        };
        Claims(self.claims.iter().map(value).collect())
    }
}

/// A NumericDate (RFC 7519 §2), whole seconds and maybe a fraction; `otherwise` where there is none. `None` where it is
/// something else.
fn moment(payload: &Map<String, Value>, name: &str, otherwise: Timestamp) -> Option<Timestamp> {
    let Some(value) = payload.get(name) else {
        return Some(otherwise);
    };
    let secs = value.as_f64().filter(|secs| *secs >= 0.0)?;
    Some(Duration::try_from_secs_f64(secs).map_or(Timestamp::MAX, |since| Timestamp::from_micros(0).plus(since)))
}

/// The token of `Bearer TOKEN`; the scheme is known in any case.
fn bearer(line: &[u8]) -> Option<&[u8]> {
    const SCHEME: &[u8] = b"bearer ";
    let (scheme, token) = line.split_at_checked(SCHEME.len())?;
    Some(token.trim_ascii()).filter(|token| scheme.eq_ignore_ascii_case(SCHEME) && !token.is_empty())
}
