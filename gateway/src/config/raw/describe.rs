//! What is to be said of the keys: the parts that the JSON Schema and the documentation are made of.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::field::Shape;

/// What stands beside a key, apart from its meaning.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Facts {
    /// Whether it must be there.
    pub(in crate::config) required: bool,
    /// The value that it has where it is not there, as the file would write it; empty where no value says that.
    pub(in crate::config) default: &'static str,
    /// In words, what is so where it is not there.
    pub(in crate::config) otherwise: &'static str,
    /// A value, as the file would write it.
    pub(in crate::config) example: &'static str,
    /// All values, where they are words.
    pub(in crate::config) words: &'static [&'static str],
    /// The least and the greatest value, where they are whole numbers.
    pub(in crate::config) range: (u64, u64),
}

/// Greater bounds are those of the arithmetic, and say nothing to the reader.
const MANY: u64 = 1 << 52;

impl Facts {
    pub(in crate::config) const NONE: Self = Self {
        required: false,
        default: "",
        otherwise: "",
        example: "",
        words: &[],
        range: (0, u64::MAX),
    };

    /// The value that it has where it is not there, if a value says that.
    pub(super) fn default_value(&self) -> Option<Value> {
        parsed(self.default)
    }

    /// The words that can stand there, or `kind`.
    pub(super) fn kind(&self, kind: &str) -> String {
        match self.words {
            [] => match self.range {
                (min, max) if max < MANY => format!("{kind}, {min} to {max}"),
                _ => kind.to_owned(),
            },
            [word] => format!("`{word}`"),
            [words @ .., last] => {
                let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
                format!("{} or `{last}`", words.join(", "))
            }
        }
    }
}

/// How a single value is written.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) enum Form {
    /// Any text.
    Text,
    /// A text of this pattern.
    Pattern(&'static str),
    /// A truth value.
    Flag,
    /// A whole number.
    Whole,
    /// A whole number, also below 0.
    Signed,
    /// A whole number, or a text of this pattern.
    WholeOr(&'static str),
    /// A whole number, or one with a unit.
    Size,
}

/// A key of a mapping.
#[derive(Clone, Debug)]
pub(in crate::config) struct Key {
    /// As the file has it.
    pub(in crate::config) name: &'static str,
    /// In a sentence or two.
    pub(in crate::config) meaning: String,
    /// The shape of its value in a word or two.
    pub(in crate::config) kind: String,
    /// The rest.
    pub(in crate::config) facts: Facts,
    schema: Value,
}

/// A mapping or a kind of single value that has a name.
#[derive(Clone, Debug, Default)]
pub(in crate::config) struct Definition {
    /// Its keys, in the order in which they are told; of a single value, none.
    pub(in crate::config) keys: Vec<Key>,
    /// Its JSON Schema.
    pub(in crate::config) schema: Value,
}

/// All definitions that were met on the way.
#[derive(Debug, Default)]
pub(in crate::config) struct Definitions(pub(in crate::config) BTreeMap<&'static str, Definition>);

impl Definitions {
    /// A key whose value is a `T`; `None` where no value is supported.
    pub(super) fn key<T: Shape>(&mut self, name: &'static str, meaning: &str, facts: Facts) -> Option<Key> {
        Some(Key {
            name,
            meaning: meaning.to_owned(),
            kind: T::kind(&facts)?,
            facts,
            schema: T::schema(self, &facts)?,
        })
    }

    /// A reference to the mapping `name`, which is defined with `keys` if it is not yet.
    pub(super) fn mapping(&mut self, name: &'static str, keys: impl FnOnce(&mut Self) -> Vec<Key>) -> Value {
        if !self.0.contains_key(name) {
            // A mapping may hold another of its kind.
            self.0.insert(name, Definition::default());
            let keys = keys(self);
            let schema = mapping_schema(&keys);
            self.0.insert(name, Definition { keys, schema });
        }
        reference(name)
    }

    /// The schema of a single value: a reference to what such values are, or what they are at this key.
    pub(super) fn leaf(&mut self, name: &'static str, expected: &str, form: &Form, facts: &Facts) -> Value {
        self.0.entry("Variable").or_insert_with(variable);
        if !facts.words.is_empty() {
            return json!({"anyOf": [{"enum": facts.words}, reference("Variable")]});
        }
        let (min, max) = facts.range;
        if (min, max) != Facts::NONE.range {
            return json!({"anyOf": [
                {"type": "integer", "minimum": min, "maximum": max},
                {"type": "string", "pattern": DIGITS},
                reference("Variable"),
            ]});
        }
        self.0.entry(name).or_insert_with(|| {
            let mut schema = form.schema();
            schema.insert("description".into(), format!("Takes {expected}.").into());
            Definition {
                keys: Vec::new(),
                schema: schema.into(),
            }
        });
        reference(name)
    }
}

const DIGITS: &str = "^(0|[1-9][0-9]*)$";

impl Form {
    fn schema(self) -> Map<String, Value> {
        let forms = match self {
            Self::Text => return object(json!({"type": "string"})),
            Self::Pattern(pattern) => vec![json!({"type": "string", "pattern": pattern})],
            // Variables can only give texts, so texts do for the others too.
            Self::Flag => vec![json!({"type": "boolean"}), json!({"enum": ["true", "false"]})],
            Self::Whole => vec![
                json!({"type": "integer", "minimum": 0}),
                json!({"type": "string", "pattern": DIGITS}),
            ],
            Self::Signed => vec![
                json!({"type": "integer"}),
                json!({"type": "string", "pattern": "^(0|-?[1-9][0-9]*)$"}),
            ],
            Self::WholeOr(pattern) => vec![
                json!({"type": "integer", "minimum": 0}),
                json!({"type": "string", "pattern": DIGITS}),
                json!({"type": "string", "pattern": pattern}),
            ],
            Self::Size => vec![
                json!({"type": "integer", "minimum": 0}),
                json!({"type": "string", "pattern": "^(0|[1-9][0-9]*)(B|KiB|MiB|GiB)?$"}),
            ],
        };
        let forms: Vec<_> = forms.into_iter().chain([reference("Variable")]).collect();
        object(json!({"anyOf": forms}))
    }
}

fn variable() -> Definition {
    Definition {
        keys: Vec::new(),
        schema: json!({
            "description": "A text with an environment variable: `${NAME}` or `${NAME:-default}`.",
            "type": "string",
            "pattern": "[$][{]",
        }),
    }
}

fn mapping_schema(keys: &[Key]) -> Value {
    let required = keys.iter().filter(|key| key.facts.required).map(|key| key.name);
    let properties = keys.iter().map(|key| (key.name.to_owned(), key.schema()));
    let mut schema = object(json!({"type": "object", "additionalProperties": false}));
    schema.insert("properties".into(), properties.collect::<Map<_, _>>().into());
    schema.insert("required".into(), required.collect());
    schema.into()
}

impl Key {
    fn schema(&self) -> Value {
        let mut schema = object(self.schema.clone());
        schema.insert("description".into(), self.meaning.clone().into());
        if let Some(default) = self.facts.default_value() {
            schema.insert("default".into(), default);
        }
        if let Some(example) = parsed(self.facts.example) {
            schema.insert("examples".into(), json!([example]));
        }
        schema.into()
    }
}

/// A value as the file would write it.
fn parsed(yaml: &str) -> Option<Value> {
    serde_yaml::from_str(yaml).ok().filter(|value: &Value| !value.is_null())
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
