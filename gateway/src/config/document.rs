//! Text → values, with their positions beside them.

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_yaml::{Mapping, Value};
use std::{collections::HashSet, fmt};

use super::{
    env::{self, Lookup},
    error::{Problem, Spot},
    index::{Fault, Index},
    place::Place,
};

/// The largest file that is read. 10,000 routes and 5,000 limits have 2 MiB.
pub const MAX_BYTES: u64 = 16 << 20;

/// A document: values with aliases followed, merges made and variables replaced.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) value: Value,
    pub(super) index: Index,
    /// The paths of texts whose variables could not be replaced: what they say is not to be judged.
    pub(super) unreplaced: HashSet<String>,
}

/// Reads `text`, in which `expected` should stand; what is wrong but leaves a document goes to `problems`.
///
/// # Errors
/// What leaves no document to look at.
pub(super) fn read(
    text: &str,
    expected: &str,
    lookup: Lookup<'_>,
    problems: &mut Vec<Problem>,
) -> Result<Document, Problem> {
    // Editors of Windows write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if text.len() as u64 > MAX_BYTES {
        return Err(at(Spot::START, too_large()));
    }
    let (index, duplicates) = Index::build(text)?;
    if index.is_empty() {
        return Err(at(Spot::START, format!("the file is empty, expected {expected}")));
    }
    problems.extend(duplicates.into_iter().map(Problem::from));
    let Merged(mut value) = serde_yaml::from_str(text).map_err(|error| {
        let spot = error.location().map_or(Spot::START, |location| Spot {
            line: location.line(),
            column: location.column(),
            width: 1,
        });
        at(spot, format!("not YAML: {error}"))
    })?;
    let told = problems.len();
    replace_variables(&mut value, &Place::Root, lookup, &index, problems);
    let unreplaced = problems[told..].iter().map(|problem| problem.path.clone()).collect();
    Ok(Document {
        value,
        index,
        unreplaced,
    })
}

pub(super) fn too_large() -> String {
    format!("the file is too large, expected at most {} MiB", MAX_BYTES >> 20)
}

fn at(spot: Spot, message: String) -> Problem {
    Problem {
        spot: Some(spot),
        path: String::new(),
        message,
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        Self {
            spot: Some(fault.spot),
            path: fault.path,
            message: fault.message,
        }
    }
}

fn replace_variables(
    value: &mut Value,
    place: &Place<'_>,
    lookup: Lookup<'_>,
    index: &Index,
    problems: &mut Vec<Problem>,
) {
    match value {
        Value::String(text) => match env::expand(text, lookup) {
            Ok(None) => {}
            Ok(Some(replaced)) => *text = replaced,
            Err(message) => problems.push(Problem {
                spot: Some(index.value(place)),
                path: place.to_string(),
                message,
            }),
        },
        Value::Sequence(items) => {
            for (i, item) in items.iter_mut().enumerate() {
                replace_variables(item, &Place::Item(place, i), lookup, index, problems);
            }
        }
        Value::Mapping(entries) => {
            for (key, value) in entries.iter_mut() {
                let key = super::raw::key_text(key.clone());
                replace_variables(value, &place.key(&key), lookup, index, problems);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Tagged(_) => {}
    }
}

/// A value that was read leniently: of duplicate keys (which the index reports) the first counts, and `<<` is merged at
/// every level, so that a merged mapping may merge others itself.
struct Merged(Value);

impl<'de> Deserialize<'de> for Merged {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MergedVisitor).map(Self)
    }
}

struct MergedVisitor;

impl<'de> Visitor<'de> for MergedVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a YAML value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i128<E>(self, value: i128) -> Result<Value, E> {
        // Beyond what any key takes: a text of digits, refused with the bound.
        Ok(value.to_string().into())
    }

    fn visit_u128<E>(self, value: u128) -> Result<Value, E> {
        Ok(value.to_string().into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Merged(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Value::Sequence(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut mapping = Mapping::new();
        let mut merges = Vec::new();
        while let Some((Merged(key), Merged(value))) = entries.next_entry()? {
            match (&key, value) {
                (Value::String(name), Value::Mapping(merge)) if name == "<<" => merges.push(merge),
                (Value::String(name), Value::Sequence(items)) if name == "<<" => {
                    for item in items {
                        let Value::Mapping(merge) = item else {
                            return Err(A::Error::custom("`<<` merges something that is no mapping"));
                        };
                        merges.push(merge);
                    }
                }
                (_, value) => {
                    mapping.entry(key).or_insert(value);
                }
            }
        }
        for (key, value) in merges.into_iter().flatten() {
            mapping.entry(key).or_insert(value);
        }
        Ok(Value::Mapping(mapping))
    }
}
