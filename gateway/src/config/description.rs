//! What the file says of the layers, for people and machines to read.

use serde_json::{Map, Value, json};

use super::{
    Config, Layer,
    raw::{self, Leaf as _, Parameters},
};
use limiter_core::Algorithm;

/// What the file says of a layer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Description {
    /// The parts of its key, as they are written.
    pub key: Vec<String>,
    /// The parameters of its algorithm, defaults included, as the file has them.
    pub parameters: Map<String, Value>,
    /// Those of its candidate, where it has one.
    pub candidate: Option<Map<String, Value>>,
}

/// Describes the layers of `config`, which was made of `raw` and has nothing wrong.
pub(super) fn describe(raw: &raw::Config, config: &Config) -> Vec<Description> {
    let Some(list) = raw.limits.value() else {
        return Vec::new();
    };
    let layers = list.items.iter().zip(&config.limits);
    layers
        .map(|(field, layer)| field.value().map(|raw| layer_described(raw, layer)).unwrap_or_default())
        .collect()
}

fn layer_described(raw: &raw::Limit, layer: &Layer) -> Description {
    let parts = raw.key.value().map(|key| key.items.as_slice()).unwrap_or_default();
    let candidate = raw.candidate.value().zip(layer.candidate.as_ref());
    Description {
        key: parts
            .iter()
            .filter_map(|part| Some(part.value()?.scalar().to_string()))
            .collect(),
        parameters: parameters(&raw.parameters, layer.policy.algorithm()),
        candidate: candidate.map(|(raw, policy)| parameters(&raw.parameters, policy.algorithm())),
    }
}

fn parameters(raw: &Parameters, algorithm: &Algorithm) -> Map<String, Value> {
    let mut all = raw.of_algorithm(algorithm.name());
    // These defaults are reckoned.
    match algorithm {
        Algorithm::TokenBucket(bucket) => {
            all.insert("burst".into(), bucket.burst().into());
        }
        Algorithm::LeakyBucket(bucket) => {
            all.insert("capacity".into(), bucket.capacity().into());
            if !bucket.is_queue() {
                all.remove("max_delay");
            }
        }
        Algorithm::Concurrency(_) => {
            let lease = raw.lease.value().and_then(|lease| lease.ttl.value());
            let ttl = lease.map_or_else(|| json!("1s"), |ttl| ttl.scalar().json());
            all.insert("lease".into(), json!({"ttl": ttl}));
        }
        Algorithm::FixedWindow(_) | Algorithm::SlidingWindowLog(_) | Algorithm::SlidingWindowCounter(_) => {}
    }
    all
}
