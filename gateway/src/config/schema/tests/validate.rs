//! As much of JSON Schema as ours has: a keyword that is not known here fails the test.

use regex::Regex;
use serde_json::Value;

/// Whether `value` is valid by the whole schema `root`.
pub(super) fn is_valid(value: &Value, root: &Value) -> bool {
    holds(value, root, root)
}

fn holds(value: &Value, schema: &Value, root: &Value) -> bool {
    let schema = schema.as_object().expect("a schema");
    schema.iter().all(|(keyword, argument)| match keyword.as_str() {
        "$schema" | "$defs" | "title" | "description" | "default" | "examples" => true,
        "$ref" => {
            let pointer = argument.as_str().unwrap().strip_prefix('#').unwrap();
            holds(value, root.pointer(pointer).expect("a definition"), root)
        }
        "anyOf" => argument
            .as_array()
            .unwrap()
            .iter()
            .any(|schema| holds(value, schema, root)),
        "oneOf" => {
            argument
                .as_array()
                .unwrap()
                .iter()
                .filter(|schema| holds(value, schema, root))
                .count()
                == 1
        }
        "enum" => argument.as_array().unwrap().contains(value),
        "type" => match argument.as_str().unwrap() {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            other => panic!("type {other}"),
        },
        "pattern" => {
            let pattern = Regex::new(argument.as_str().unwrap()).unwrap();
            value.as_str().is_none_or(|text| pattern.is_match(text))
        }
        "minimum" => value.as_i64().is_none_or(|value| value >= argument.as_i64().unwrap()),
        "maximum" => value.as_i64().is_none_or(|value| value <= argument.as_i64().unwrap()),
        "items" => {
            let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
            items.iter().all(|item| holds(item, argument, root))
        }
        "required" => {
            let mut keys = argument.as_array().unwrap().iter();
            value
                .as_object()
                .is_none_or(|map| keys.all(|key| map.contains_key(key.as_str().unwrap())))
        }
        "properties" => value.as_object().is_none_or(|map| {
            let mut known = map.iter().filter_map(|(key, value)| Some((value, argument.get(key)?)));
            known.all(|(value, schema)| holds(value, schema, root))
        }),
        "additionalProperties" => value.as_object().is_none_or(|map| {
            let known = schema.get("properties");
            let mut others = map
                .iter()
                .filter(|(key, _)| known.is_none_or(|known| known.get(key).is_none()));
            others.all(|(_, value)| argument.as_bool().unwrap_or_else(|| holds(value, argument, root)))
        }),
        other => panic!("keyword {other}"),
    })
}
