//! Where everything in the document stands.
//!
//! Values come from `serde_yaml`, which does not say where they stood. This index is made from the same text and is
//! asked for a place's position when there is something to tell about it. What only the text shows is found here too:
//! duplicate keys, and documents that are too deep or grow too large when their aliases are followed.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, Tag};

use super::{error::Spot, place::Place};

/// Levels of lists and mappings; the contract needs 7.
const MAX_DEPTH: usize = 32;
/// Values when all aliases are followed; 10,000 routes and 5,000 limits have about 200,000.
const MAX_VALUES: usize = 2_000_000;
const MERGE: &str = "<<";

/// A value's position, and its parts.
#[derive(Debug)]
struct Node {
    spot: Spot,
    parts: Parts,
    /// Values in it, itself included, with its aliases followed.
    values: usize,
    /// Levels of lists and mappings in it, with its aliases followed.
    depth: usize,
}

#[derive(Debug)]
enum Parts {
    /// A scalar; empty where nothing is written.
    Scalar {
        is_empty: bool,
    },
    List(Vec<Rc<Node>>),
    Mapping(Vec<Entry>),
}

#[derive(Debug)]
struct Entry {
    key: String,
    spot: Spot,
    value: Rc<Node>,
}

/// The positions of a document's values.
#[derive(Debug)]
pub(super) struct Index {
    root: Option<Rc<Node>>,
}

/// Something wrong that only the text shows.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) spot: Spot,
    pub(super) path: String,
    pub(super) message: String,
}

impl Index {
    /// The index of `text`, and the duplicate keys in it.
    ///
    /// # Errors
    /// What makes the text no document that can be used.
    pub(super) fn build(text: &str) -> Result<(Self, Vec<Fault>), Fault> {
        let mut builder = Builder::default();
        for event in Parser::new_from_str(text) {
            let (event, span) = event.map_err(|error| syntax_fault(text, error.marker(), error.info()))?;
            builder.event(event, span)?;
        }
        Ok((Self { root: builder.root }, builder.duplicates))
    }

    /// Whether the document has no value at all.
    pub(super) fn is_empty(&self) -> bool {
        self.root
            .as_ref()
            .is_none_or(|root| matches!(root.parts, Parts::Scalar { is_empty: true }))
    }

    /// Where the value at `place` stands; its key, where nothing is written.
    pub(super) fn value(&self, place: &Place<'_>) -> Spot {
        match self.find(place) {
            Some((key, node)) => match (&node.parts, key) {
                (Parts::Scalar { is_empty: true }, Some(key)) => key,
                _ => node.spot,
            },
            None => self.nearest(place),
        }
    }

    /// Where the item at `place` begins: its key in a mapping, itself in a list.
    pub(super) fn item(&self, place: &Place<'_>) -> Spot {
        match self.find(place) {
            Some((key, node)) => key.unwrap_or(node.spot),
            None => self.nearest(place),
        }
    }

    fn nearest(&self, place: &Place<'_>) -> Spot {
        match place {
            Place::Root => Spot::START,
            Place::Key(parent, _) | Place::Item(parent, _) => self.item(parent),
        }
    }

    fn find(&self, place: &Place<'_>) -> Option<(Option<Spot>, &Node)> {
        match place {
            Place::Root => Some((None, self.root.as_deref()?)),
            Place::Key(parent, key) => {
                let entry = self.find(parent)?.1.entry(key)?;
                Some((Some(entry.spot), &entry.value))
            }
            Place::Item(parent, index) => match &self.find(parent)?.1.parts {
                Parts::List(items) => Some((None, items.get(*index)?)),
                Parts::Scalar { .. } | Parts::Mapping(_) => None,
            },
        }
    }
}

impl Node {
    /// The entry of `key`: the mapping's own, else one that is merged into it.
    fn entry(&self, key: &str) -> Option<&Entry> {
        let Parts::Mapping(entries) = &self.parts else {
            return None;
        };
        entries.iter().find(|entry| entry.key == key).or_else(|| {
            let mut merged = entries.iter().filter(|entry| entry.key == MERGE);
            merged.find_map(|entry| match &entry.value.parts {
                Parts::Mapping(_) => entry.value.entry(key),
                Parts::List(items) => items.iter().find_map(|item| item.entry(key)),
                Parts::Scalar { .. } => None,
            })
        })
    }
}

#[derive(Debug, Default)]
struct Builder {
    open: Vec<Open>,
    anchors: HashMap<usize, Rc<Node>>,
    root: Option<Rc<Node>>,
    documents: usize,
    duplicates: Vec<Fault>,
}

/// A list or mapping that has not ended yet.
#[derive(Debug)]
struct Open {
    spot: Spot,
    anchor: usize,
    values: usize,
    depth: usize,
    parts: Parts,
    /// Of a mapping: the keys seen, and the key whose value comes next.
    keys: HashSet<String>,
    key: Option<(String, Spot)>,
}

impl Builder {
    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let spot = spot(span);
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(self.fault(spot, "a second document begins here, expected one"));
                }
                Ok(())
            }
            Event::Alias(anchor) => match self.anchors.get(&anchor) {
                Some(node) => {
                    let node = Rc::clone(node);
                    self.add(node)
                }
                None => Err(self.fault(spot, "an alias inside of the value that it stands for")),
            },
            Event::Scalar(text, style, anchor, tag) => {
                if tag.is_some_and(|tag| !is_core(&tag)) {
                    return Err(self.fault(spot, "a YAML tag, expected a plain value"));
                }
                self.scalar(&text, style, anchor, spot)
            }
            Event::SequenceStart(anchor, tag) => self.open(spot, anchor, tag.is_some(), Parts::List(Vec::new())),
            Event::MappingStart(anchor, tag) => self.open(spot, anchor, tag.is_some(), Parts::Mapping(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, anchor: usize, mut spot: Spot) -> Result<(), Fault> {
        if !matches!(
            style,
            ScalarStyle::Plain | ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted
        ) {
            spot.width = 1;
        }
        if let Some(open) = self.open.last_mut()
            && matches!(open.parts, Parts::Mapping(_))
            && open.key.is_none()
        {
            let is_new = open.keys.insert(text.to_owned());
            open.key = Some((text.to_owned(), spot));
            if !is_new {
                let fault = self.fault(spot, &format!("`{text}` stands here a second time, expected it once"));
                self.duplicates.push(fault);
            }
            return Ok(());
        }
        let node = Rc::new(Node {
            spot,
            parts: Parts::Scalar {
                is_empty: text.is_empty() && style == ScalarStyle::Plain,
            },
            values: 1,
            depth: 0,
        });
        self.anchor(anchor, &node);
        self.add(node)
    }

    fn open(&mut self, spot: Spot, anchor: usize, is_tagged: bool, parts: Parts) -> Result<(), Fault> {
        if is_tagged {
            return Err(self.fault(spot, "a YAML tag, expected a plain value"));
        }
        self.check_depth(spot, 1)?;
        self.check_key(spot)?;
        self.open.push(Open {
            spot: Spot { width: 1, ..spot },
            anchor,
            values: 1,
            depth: 1,
            parts,
            keys: HashSet::new(),
            key: None,
        });
        Ok(())
    }

    fn close(&mut self) -> Result<(), Fault> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let node = Rc::new(Node {
            spot: open.spot,
            parts: open.parts,
            values: open.values,
            depth: open.depth,
        });
        self.anchor(open.anchor, &node);
        self.add(node)
    }

    fn anchor(&mut self, anchor: usize, node: &Rc<Node>) {
        if anchor > 0 {
            self.anchors.insert(anchor, Rc::clone(node));
        }
    }

    /// Puts a whole value where it belongs.
    fn add(&mut self, node: Rc<Node>) -> Result<(), Fault> {
        self.check_key(node.spot)?;
        self.check_depth(node.spot, node.depth)?;
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return Ok(());
        };
        open.values = open.values.saturating_add(node.values);
        open.depth = open.depth.max(node.depth + 1);
        let is_too_large = open.values > MAX_VALUES;
        let spot = node.spot;
        match &mut open.parts {
            Parts::List(items) => items.push(node),
            Parts::Mapping(entries) => {
                let (key, spot) = open.key.take().unwrap_or_default();
                let is_merge = key == MERGE;
                let can_merge = node.is_mapping_or_mappings();
                entries.push(Entry { key, spot, value: node });
                if is_merge && !can_merge {
                    return Err(self.fault(spot, "`<<` merges something else, expected a mapping or a list of them"));
                }
            }
            Parts::Scalar { .. } => {}
        }
        if is_too_large {
            let message = format!("too many values when aliases are followed, expected at most {MAX_VALUES}");
            return Err(self.fault(spot, &message));
        }
        Ok(())
    }

    /// Refuses what would be too deep; aliases are looked into, for following them is what costs.
    fn check_depth(&self, spot: Spot, depth: usize) -> Result<(), Fault> {
        if self.open.len() + depth > MAX_DEPTH {
            return Err(self.fault(spot, &too_deep()));
        }
        Ok(())
    }

    /// Refuses a list, a mapping or an alias as a key.
    fn check_key(&self, spot: Spot) -> Result<(), Fault> {
        match self.open.last() {
            Some(open) if matches!(open.parts, Parts::Mapping(_)) && open.key.is_none() => {
                Err(self.fault(spot, "a list, a mapping or an alias is used as a key, expected a text"))
            }
            _ => Ok(()),
        }
    }

    fn fault(&self, spot: Spot, message: &str) -> Fault {
        Fault {
            spot,
            path: self.path(),
            message: message.to_owned(),
        }
    }

    /// The path of what is being read.
    fn path(&self) -> String {
        let mut path = String::new();
        for open in &self.open {
            match &open.parts {
                Parts::List(items) => path.push_str(&format!("[{}]", items.len())),
                Parts::Mapping(_) => {
                    if let Some((key, _)) = &open.key {
                        if !path.is_empty() {
                            path.push('.');
                        }
                        path.push_str(key);
                    }
                }
                Parts::Scalar { .. } => {}
            }
        }
        path
    }
}

impl Node {
    fn is_mapping_or_mappings(&self) -> bool {
        match &self.parts {
            Parts::Mapping(_) => true,
            Parts::List(items) => items.iter().all(|item| matches!(item.parts, Parts::Mapping(_))),
            Parts::Scalar { .. } => false,
        }
    }
}

fn spot(span: Span) -> Spot {
    let width = if span.start.line() == span.end.line() {
        span.end.col().saturating_sub(span.start.col())
    } else {
        1
    };
    Spot {
        line: span.start.line(),
        column: span.start.col() + 1,
        width: width.max(1),
    }
}

fn too_deep() -> String {
    format!("nested too deep, expected at most {MAX_DEPTH} levels")
}

/// Whether a tag only says what a plain value is anyway.
fn is_core(tag: &Tag) -> bool {
    tag.is_yaml_core_schema() && matches!(tag.suffix.as_str(), "str" | "int" | "float" | "bool" | "null")
}

/// What the scanner says, or, where a tab is the cause, that.
fn syntax_fault(text: &str, marker: &Marker, info: &str) -> Fault {
    let at = Spot {
        line: marker.line().max(1),
        column: marker.col() + 1,
        width: 1,
    };
    let (spot, message) = match tab_in_indentation(text, at.line) {
        Some(tab) => (tab, "a tab in the indentation, expected spaces".to_owned()),
        // The scanner has a limit of its own, which it meets first where it reads ahead.
        None if info.contains("recursion limit") => (at, too_deep()),
        None => (at, format!("not YAML: {info}")),
    };
    Fault {
        spot,
        path: String::new(),
        message,
    }
}

/// The first tab that indents `line`, or one beside it: the scanner may notice only at the next token, or name the begin of
/// the value that the tab is in.
fn tab_in_indentation(text: &str, line: usize) -> Option<Spot> {
    [line, line.saturating_sub(1), line + 1].into_iter().find_map(|line| {
        let content = text.lines().nth(line.checked_sub(1)?)?;
        let indentation = content.len() - content.trim_start_matches([' ', '\t']).len();
        let column = content[..indentation].find('\t')? + 1;
        Some(Spot { line, column, width: 1 })
    })
}
