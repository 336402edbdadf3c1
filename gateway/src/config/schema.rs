//! The JSON Schema of `gateway.yaml`, for editors.
//!
//! It is made from the mirror of the file, so it has the keys that `check` knows, and no others. It takes all that `check`
//! takes, and some that it does not: what depends on two values is left to `gateway check`.

mod docs;
#[cfg(test)]
pub(super) mod tests;

pub use docs::docs;

use serde_json::{Map, Value, json};

use super::raw::{self, Definitions, Facts, Shape as _};

/// Mappings that have one of two keys.
const EITHER: &[(&str, [&str; 2])] = &[
    ("Route", ["upstream", "respond"]),
    ("Store", ["memory", "redis"]),
    ("Jwt", ["jwks_file", "jwks_url"]),
];

/// The schema (draft 2020-12).
#[must_use]
pub fn schema() -> Value {
    let (root, definitions) = definitions();
    let definitions = definitions.0.into_iter();
    let definitions: Map<_, _> = definitions
        .map(|(name, definition)| (name.into(), definition.schema))
        .collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gateway.yaml",
        "description": "Configuration of the gateway.",
        "$ref": root["$ref"],
        "$defs": definitions,
    })
}

/// A reference to the whole file, and all that it is made of.
fn definitions() -> (Value, Definitions) {
    let mut definitions = Definitions::default();
    let root = raw::Config::schema(&mut definitions, &Facts::NONE).unwrap_or_default();
    for (name, [one, other]) in EITHER {
        if let Some(definition) = definitions.0.get_mut(name) {
            definition.schema["oneOf"] = json!([{"required": [one]}, {"required": [other]}]);
        }
    }
    (root, definitions)
}
