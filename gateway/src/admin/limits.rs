//! `/api/limits`.

use serde_json::{Map, Value, json};

use crate::snapshot::Snapshot;

/// The layers in order: what they go by, and what they have said since the process began.
pub(crate) fn limits(snapshot: &Snapshot) -> Value {
    let layers = snapshot.config.limits.iter().zip(&snapshot.config.descriptions);
    let described = layers
        .zip(&snapshot.metrics.limits)
        .map(|((layer, described), metrics)| {
            let mut limit = Map::new();
            let mut say = |key: &str, value: Value| limit.insert(key.to_owned(), value);
            say("name", json!(**layer.policy.name()));
            say("key", one_or_many(&described.key));
            say(
                "mode",
                json!(if layer.policy.role().is_enforced() {
                    "enforce"
                } else {
                    "shadow"
                }),
            );
            say("algorithm", json!(layer.policy.algorithm().name()));
            say("parameters", json!(described.parameters));
            for (outcome, count) in metrics.counts() {
                say(outcome, json!(count));
            }
            if let Some((policy, parameters)) = layer.candidate.as_ref().zip(described.candidate.as_ref()) {
                let algorithm = policy.algorithm().name();
                let denied = metrics.candidate_denied();
                say(
                    "candidate",
                    json!({"algorithm": algorithm, "parameters": parameters, "denied": denied}),
                );
            }
            Value::Object(limit)
        });
    described.collect()
}

/// As the file may have it: a single value stands for a list of one.
fn one_or_many(parts: &[String]) -> Value {
    match parts {
        [one] => json!(one),
        many => json!(many),
    }
}
