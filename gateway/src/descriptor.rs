//! Request → the layers it meets, with their keys and costs; pure.
//!
//! Nothing here is allocated once a [`Descriptor`] has been used a few times: the keys of a request are written over
//! those of the one before.

use std::{net::IpAddr, sync::Arc};

use http::{HeaderMap, Method, header::ACCESS_CONTROL_REQUEST_METHOD};
use limiter_core::{Clock, Key, KeyHasher, Part, Policy};

use crate::{
    client_addr,
    config::{self, KeyPart, OnMissingKey},
    jwt::{self, Claims, Verifier},
    ratelimit_fields::Spelled,
};

pub(crate) mod cost;
mod list;
mod matcher;
mod overrides;
pub(crate) mod settling;
mod values;

use cost::Cost;
pub use cost::CostProblem;
pub use list::Descriptor;
use list::Scratch;
use matcher::Matcher;
use overrides::{Overrides, Terms};
use settling::Settling;

/// What matching and keys look at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The method.
    pub method: &'a Method,
    /// Lower case, without port.
    pub host: &'a str,
    /// Normalised.
    pub path: &'a str,
    /// Without the question mark.
    pub query: Option<&'a str>,
    /// The request's headers.
    pub headers: &'a HeaderMap,
    /// The client's address.
    pub client: IpAddr,
    /// The route's name.
    pub route: &'a str,
}

/// The layers of a configuration, ready to be applied.
#[derive(Debug)]
pub struct Layers {
    layers: Box<[Layer]>,
    client_ip: config::ClientIp,
    hasher: KeyHasher,
    verifier: Option<Verifier>,
}

/// A layer as a request meets it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LayerId {
    index: u16,
    /// Which of the layer's policies: its own, or that of an override.
    policy: u32,
}

impl LayerId {
    /// The index into the layers of the configuration.
    #[must_use]
    pub fn index(self) -> usize {
        self.index.into()
    }
}

/// One layer that a request meets.
#[derive(Debug)]
pub struct Applied {
    /// Which.
    pub layer: LayerId,
    /// Its counter.
    pub key: Key,
    /// Units.
    pub cost: u64,
}

/// A request that a layer's key refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A header that is a key comes on several lines: 400.
    #[error("a header that is counted by comes on several lines")]
    Repeated {
        /// An index into the layers.
        layer: usize,
    },
    /// `on_missing_key: deny`: 403.
    #[error("a value that is counted by is missing")]
    Missing {
        /// An index into the layers.
        layer: usize,
    },
    /// The header that says the cost does not: 400.
    #[error("the header that says the cost {problem}")]
    Cost {
        /// An index into the layers.
        layer: usize,
        /// What it does instead.
        problem: CostProblem,
    },
    /// An override with `deny`: 403.
    #[error("its key is refused")]
    Denied {
        /// An index into the layers.
        layer: usize,
    },
}

#[derive(Debug)]
struct Layer {
    /// Its own, then those of its overrides, then its candidate.
    policies: Box<[Arc<Policy>]>,
    /// As answers tell of them.
    spelled: Box<[Spelled]>,
    /// Whether the last one is a candidate.
    has_candidate: bool,
    overrides: Option<Box<Overrides>>,
    key: Box<[KeyPart]>,
    on_missing_key: OnMissingKey,
    /// `None` where it meets all requests.
    matches: Option<Box<Matcher>>,
    cost: Cost,
    /// How its charges are settled; `None` where they stand.
    settling: Option<Box<Settling>>,
    /// A CORS preflight carries no headers of the request that it asks for, so it cannot be counted by one.
    meets_preflights: bool,
}

impl Layers {
    /// The layers of a configuration.
    #[must_use]
    pub fn new(limits: &[config::Layer], client_ip: &config::ClientIp, key_secret: Option<&str>) -> Self {
        let hasher = KeyHasher::new(key_secret.map(str::as_bytes));
        Self {
            layers: limits.iter().map(|limit| Layer::new(limit, &hasher)).collect(),
            client_ip: client_ip.clone(),
            hasher,
            verifier: None,
        }
    }

    /// The same, which count by the claims of tokens that `settings` believe, by the keys of `source`.
    #[must_use]
    pub fn believing(self, settings: &jwt::Settings, source: Arc<jwt::Source>, clock: Arc<dyn Clock>) -> Self {
        let mut claims = Vec::new();
        for part in self.layers.iter().flat_map(|layer| &layer.key) {
            if let KeyPart::Jwt { claim, .. } = part
                && !claims.contains(claim)
            {
                claims.push(claim.clone());
            }
        }
        let verifier = (!claims.is_empty()).then(|| Verifier::new(settings, source, claims, clock));
        Self { verifier, ..self }
    }

    /// The policy of a layer, as a request meets it.
    ///
    /// # Panics
    /// If `layer` is not one that these layers said of a request.
    #[must_use]
    pub fn policy(&self, layer: LayerId) -> &Arc<Policy> {
        &self.layers[layer.index()].policies[layer.policy as usize]
    }

    /// The same, as answers tell of it.
    ///
    /// # Panics
    /// If `layer` is not one that these layers said of a request.
    #[must_use]
    pub fn spelled(&self, layer: LayerId) -> &Spelled {
        &self.layers[layer.index()].spelled[layer.policy as usize]
    }

    /// The policy of a counter, by what its name begins with and its key: that of its layer, of the layer's override, or
    /// of its candidate.
    #[must_use]
    pub fn policy_of(&self, key_prefix: &str, key: &str) -> Option<&Arc<Policy>> {
        let is_it = |policy: &&Arc<Policy>| policy.key_prefix() == key_prefix;
        let own = |layer: &&Layer| layer.policies.first().filter(is_it).is_some();
        let Some(layer) = self.layers.iter().find(own) else {
            let mut candidates = self.layers.iter().filter(|layer| layer.has_candidate);
            return candidates.find_map(|layer| layer.policies.last().filter(is_it));
        };
        let terms = layer.overrides.as_ref().map(|overrides| overrides.find_printed(key));
        match terms {
            Some(Terms::Policy(at)) => layer.policies.get(at as usize),
            // What was used while it was another key still is.
            Some(Terms::Unlimited | Terms::Denied) | None => layer.policies.first(),
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.layers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.layers.is_empty()
    }

    /// Fills `to` with the layers that apply, in order.
    ///
    /// # Errors
    /// The first layer, in order, whose key refuses the request; `to` then holds those before it.
    pub fn describe(&self, facts: &Facts<'_>, to: &mut Descriptor) -> Result<(), KeyError> {
        let preflight = *facts.method == Method::OPTIONS && facts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD);
        to.clear();
        for (index, layer) in self.layers.iter().enumerate() {
            if (preflight && !layer.meets_preflights) || !layer.meets(facts) {
                continue;
            }
            let (next, scratch) = to.next();
            match self.write_key(index, layer, facts, &mut next.key, scratch) {
                Ok(true) => {}
                Err(error) if layer.is_enforced() || !matches!(error, KeyError::Missing { .. }) => return Err(error),
                // Skipped; or a shadow, which refuses nothing.
                Ok(false) | Err(_) => {
                    to.skipped.push(index);
                    continue;
                }
            }
            let terms = match &layer.overrides {
                None => Terms::Policy(0),
                Some(overrides) => overrides.find(next.key.as_str(), facts.client),
            };
            match terms {
                Terms::Policy(policy) => {
                    next.cost = match layer.cost.of(facts.headers) {
                        Ok(cost) => cost,
                        // A shadow refuses nothing.
                        Err(_) if !layer.is_enforced() => {
                            to.skipped.push(index);
                            continue;
                        }
                        Err(problem) => return Err(KeyError::Cost { layer: index, problem }),
                    };
                    let index = u16::try_from(index).unwrap_or(u16::MAX);
                    next.layer = LayerId { index, policy };
                    to.len += 1;
                    if policy == 0 && layer.has_candidate {
                        to.add_candidate(layer);
                    }
                }
                Terms::Unlimited => to.skipped.push(index),
                Terms::Denied if !layer.is_enforced() => to.skipped.push(index),
                Terms::Denied => return Err(KeyError::Denied { layer: index }),
            }
        }
        Ok(())
    }

    /// Whether the layer applies, once its key is known; `false` where it says `skip`.
    fn write_key(
        &self,
        index: usize,
        layer: &Layer,
        facts: &Facts<'_>,
        key: &mut Key,
        scratch: &mut Scratch,
    ) -> Result<bool, KeyError> {
        for part in &layer.key {
            if matches!(part, KeyPart::Ip) {
                // An address has nothing in it that is printed in another way.
                key.push_printed(self.ip(facts, &mut scratch.ip));
                continue;
            }
            let claims;
            let value = match part {
                KeyPart::Jwt { claim, secret } => {
                    claims =
                        (self.claims(facts, scratch)).map_err(|jwt::Repeated| KeyError::Repeated { layer: index })?;
                    let value = claims
                        .as_ref()
                        .and_then(|(verifier, claims)| verifier.value(claims, claim));
                    value.map(|value| part_of(value.as_bytes(), *secret))
                }
                _ => value_of(part, facts, &mut scratch.value)
                    .map_err(|values::Repeated| KeyError::Repeated { layer: index })?,
            };
            let value = match (value, layer.on_missing_key) {
                (Some(value), _) => value,
                (None, OnMissingKey::Ip) => Part::Missing(self.ip(facts, &mut scratch.ip)),
                (None, OnMissingKey::Skip) => return Ok(false),
                (None, OnMissingKey::Deny) => return Err(KeyError::Missing { layer: index }),
            };
            key.push(value, &self.hasher);
        }
        Ok(true)
    }

    /// The claims of the request's token, if it has one that is verified.
    fn claims(
        &self,
        facts: &Facts<'_>,
        scratch: &mut Scratch,
    ) -> Result<Option<(&Verifier, Arc<Claims>)>, jwt::Repeated> {
        let Some(verifier) = &self.verifier else {
            return Ok(None);
        };
        let claims = match &scratch.claims {
            Some(claims) => claims.clone(),
            None => verifier.claims(facts.headers, &mut scratch.tokens)?,
        };
        scratch.claims = Some(claims.clone());
        Ok(claims.map(|claims| (verifier, claims)))
    }

    fn ip<'a>(&self, facts: &Facts<'_>, text: &'a mut String) -> &'a str {
        if text.is_empty() {
            client_addr::write_key(facts.client, &self.client_ip, text);
        }
        text
    }
}

/// `None` where the value is absent, empty or blank.
fn value_of<'a>(
    part: &KeyPart,
    facts: &Facts<'a>,
    scratch: &'a mut Vec<u8>,
) -> Result<Option<Part<'a>>, values::Repeated> {
    let text = |text: &'a str| {
        Some(text.as_bytes())
            .filter(|text| !text.trim_ascii().is_empty())
            .map(Part::Value)
    };
    let bytes = |value: Option<&'a [u8]>, secret: bool| value.map(|value| part_of(value, secret));
    Ok(match part {
        KeyPart::Global => Some(Part::Global),
        // These are not in the request as it is.
        KeyPart::Ip | KeyPart::Jwt { .. } => None,
        KeyPart::Path => text(facts.path),
        KeyPart::Route => text(facts.route),
        KeyPart::Method => text(facts.method.as_str()),
        KeyPart::Host => text(facts.host),
        KeyPart::Header { name, secret } => bytes(values::header(facts.headers, name, scratch)?, *secret),
        KeyPart::Cookie(name) => bytes(values::cookie(facts.headers, name), true),
        KeyPart::Query { name, secret } => bytes(values::query(facts.query, name, scratch), *secret),
    })
}

fn part_of(value: &[u8], secret: bool) -> Part<'_> {
    if secret {
        Part::Secret(value)
    } else {
        Part::Value(value)
    }
}

impl Layer {
    fn new(config: &config::Layer, hasher: &KeyHasher) -> Self {
        let mut policies = vec![Arc::clone(&config.policy)];
        let overrides = Overrides::new(config, hasher, &mut policies);
        policies.extend(config.candidate.clone());
        let of_the_client =
            |part: &KeyPart| matches!(part, KeyPart::Header { .. } | KeyPart::Cookie(_) | KeyPart::Jwt { .. });
        Self {
            has_candidate: config.candidate.is_some(),
            spelled: policies.iter().map(|policy| Spelled::new(policy)).collect(),
            policies: policies.into(),
            overrides,
            key: config.key.clone().into(),
            on_missing_key: config.on_missing_key,
            matches: Matcher::new(&config.matches).map(Box::new),
            cost: Cost::new(&config.cost),
            settling: Settling::new(config),
            meets_preflights: !config.key.iter().any(of_the_client),
        }
    }
}

impl Layer {
    /// Whether it applies to such requests.
    fn meets(&self, facts: &Facts<'_>) -> bool {
        self.matches.as_ref().is_none_or(|matches| matches.holds(facts))
    }

    /// Whether it refuses anything: a shadow does not.
    fn is_enforced(&self) -> bool {
        self.policies.first().is_none_or(|policy| policy.role().is_enforced())
    }
}

#[cfg(test)]
mod tests;
