//! Values that keep what is wrong with them, and the shapes that they have.

use std::fmt;

use serde_json::{Value as Json, json};
use serde_yaml::{Number, Value};

use super::describe::{Definitions, Facts};

/// What stands at a key.
#[derive(Clone, Debug, Default)]
pub(in crate::config) enum Field<T> {
    /// The key is not there.
    #[default]
    Absent,
    /// A value of the right shape.
    Is(T),
    /// A value of another shape.
    Wrong {
        /// What stands there: `is a list`.
        found: &'static str,
        /// What should.
        expected: String,
    },
}

impl<T: Shape> Field<T> {
    /// What `value` is as a `T`.
    pub(in crate::config) fn read(value: Value) -> Self {
        let found = kind(&value);
        match T::read(value) {
            Some(value) if found != NOTHING => Self::Is(value),
            _ => Self::Wrong {
                found,
                expected: T::expected(),
            },
        }
    }
}

impl<T> Field<T> {
    /// Whether the key is there, right or wrong.
    pub(in crate::config) fn is_present(&self) -> bool {
        !matches!(self, Self::Absent)
    }

    /// The value, if it has the right shape.
    pub(in crate::config) fn value(&self) -> Option<&T> {
        match self {
            Self::Is(value) => Some(value),
            Self::Absent | Self::Wrong { .. } => None,
        }
    }
}

const NOTHING: &str = "has no value";

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => NOTHING,
        Value::Bool(_) => "is a truth value",
        Value::Number(_) => "is a number",
        Value::String(_) => "is a text",
        Value::Sequence(_) => "is a list",
        Value::Mapping(_) => "is a mapping",
        Value::Tagged(_) => "is a tagged value",
    }
}

/// A shape that values can have.
pub(in crate::config) trait Shape: Sized {
    /// What a message says was expected.
    fn expected() -> String;

    /// The value in this shape; `None` where it has another.
    fn read(value: Value) -> Option<Self>;

    /// The value as JSON has it; `None` of all but single values.
    fn json(&self) -> Option<Json> {
        None
    }

    /// A word or two for the documentation; `None` where no value is supported.
    fn kind(facts: &Facts) -> Option<String>;

    /// The JSON Schema of such values at a key with these `facts`; `None` where no value is supported.
    fn schema(definitions: &mut Definitions, facts: &Facts) -> Option<Json>;
}

/// A shape that is a mapping with known keys.
pub(in crate::config) trait Mapping: Shape {
    /// The keys that this version understands.
    fn keys() -> Vec<&'static str>;

    /// The keys that are known by name only.
    fn later() -> &'static [&'static str];

    /// The keys that are neither.
    fn other(&self) -> &[String];
}

/// Keys that several mappings have, told by each in its own way.
pub(in crate::config) trait Part: Default {
    /// The keys, in the order in which they are told.
    const KEYS: &'static [&'static str];

    /// Takes the value of one of them.
    fn set(&mut self, key: &str, value: Value);
}

/// A shape that is a scalar.
pub(in crate::config) trait Leaf: Shape {
    /// The value.
    fn scalar(&self) -> &Scalar;
}

/// A single value.
#[derive(Clone, Debug)]
pub(in crate::config) enum Scalar {
    /// `true` or `false`.
    Flag(bool),
    /// A number.
    Number(Number),
    /// A text.
    Text(String),
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl Scalar {
    /// As JSON has it. Variables can only give texts, so numbers and truth values that stand in one are what they say.
    pub(in crate::config) fn json(&self) -> Json {
        match self {
            Self::Flag(value) => json!(value),
            Self::Number(number) => match number.as_i64() {
                Some(value) => json!(value),
                None => json!(number.as_f64()),
            },
            Self::Text(text) => match (text.parse::<u64>(), text.parse::<bool>()) {
                (Ok(value), _) => json!(value),
                (_, Ok(value)) => json!(value),
                _ => json!(text),
            },
        }
    }

    pub(in crate::config) fn read(value: Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Flag(value)),
            Value::Number(value) => Some(Self::Number(value)),
            Value::String(value) => Some(Self::Text(value)),
            Value::Null | Value::Sequence(_) | Value::Mapping(_) | Value::Tagged(_) => None,
        }
    }
}

/// A single value, or a mapping that says more.
#[derive(Debug)]
pub(in crate::config) enum Short<S, T> {
    /// The single value.
    Short(S),
    /// The mapping.
    Long(T),
}

impl<S: Shape, T: Shape> Shape for Short<S, T> {
    fn expected() -> String {
        T::expected()
    }

    fn read(value: Value) -> Option<Self> {
        match value {
            Value::Mapping(_) => T::read(value).map(Self::Long),
            value => S::read(value).map(Self::Short),
        }
    }

    fn kind(facts: &Facts) -> Option<String> {
        let short = S::kind(facts)?;
        Some(match T::kind(facts) {
            Some(long) => format!("{short}, or a {long}"),
            None => short,
        })
    }

    fn schema(definitions: &mut Definitions, facts: &Facts) -> Option<Json> {
        let short = S::schema(definitions, facts)?;
        Some(match T::schema(definitions, facts) {
            Some(long) => json!({"anyOf": [short, long]}),
            None => short,
        })
    }
}

/// A list, or a single value that stands for a list of one.
#[derive(Debug)]
pub(in crate::config) struct OneOrMany<T> {
    /// The items.
    pub(in crate::config) items: Vec<Field<T>>,
    /// Whether it was written as a list.
    pub(in crate::config) is_list: bool,
}

impl<T: Shape> Shape for OneOrMany<T> {
    fn expected() -> String {
        format!("{}, or a list", T::expected())
    }

    fn read(value: Value) -> Option<Self> {
        Some(match value {
            Value::Sequence(items) => Self {
                items: items.into_iter().map(Field::read).collect(),
                is_list: true,
            },
            value => Self {
                items: vec![Field::read(value)],
                is_list: false,
            },
        })
    }

    fn kind(facts: &Facts) -> Option<String> {
        Some(format!("{}, or a list", T::kind(facts)?))
    }

    fn schema(definitions: &mut Definitions, facts: &Facts) -> Option<Json> {
        let item = T::schema(definitions, facts)?;
        Some(json!({"anyOf": [item, {"type": "array", "items": item}]}))
    }
}

/// A mapping whose keys are names, in the order of the file.
#[derive(Debug)]
pub(in crate::config) struct Named<T>(pub(in crate::config) Vec<(String, Field<T>)>);

impl<T: Shape> Shape for Named<T> {
    fn expected() -> String {
        "a mapping from names to values".into()
    }

    fn read(value: Value) -> Option<Self> {
        let Value::Mapping(entries) = value else {
            return None;
        };
        let entries = entries.into_iter();
        Some(Self(
            entries
                .map(|(key, value)| (key_text(key), Field::read(value)))
                .collect(),
        ))
    }

    fn kind(_: &Facts) -> Option<String> {
        Some("mapping from names".into())
    }

    fn schema(definitions: &mut Definitions, facts: &Facts) -> Option<Json> {
        let value = T::schema(definitions, facts)?;
        Some(json!({"type": "object", "additionalProperties": value}))
    }
}

impl<T: Shape> Shape for Box<T> {
    fn expected() -> String {
        T::expected()
    }

    fn read(value: Value) -> Option<Self> {
        T::read(value).map(Self::new)
    }

    fn kind(facts: &Facts) -> Option<String> {
        T::kind(facts)
    }

    fn schema(definitions: &mut Definitions, facts: &Facts) -> Option<Json> {
        T::schema(definitions, facts)
    }
}

/// The text of a key: `8080` and `true` are names too.
pub(in crate::config) fn key_text(key: Value) -> String {
    match Scalar::read(key) {
        Some(scalar) => scalar.to_string(),
        None => "null".into(),
    }
}

/// A field's name as the file has it.
pub(in crate::config) fn key_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}
