//! Where in the document something stands: `limits[0].rate`.

use std::fmt;

/// A path through the document, from its root. Links on the stack: naming a place costs nothing until it is printed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Place<'a> {
    /// The document.
    Root,
    /// A key of a mapping.
    Key(&'a Place<'a>, &'a str),
    /// An item of a list.
    Item(&'a Place<'a>, usize),
}

impl<'a> Place<'a> {
    /// The place of `key` in this mapping.
    pub(super) fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    /// The place of an item in this list; the place itself where a single value stands for the list.
    pub(super) fn item(&'a self, index: usize, is_list: bool) -> Self {
        if is_list { Self::Item(self, index) } else { *self }
    }
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root => Ok(()),
            Self::Key(Place::Root, key) => f.write_str(key),
            Self::Key(parent, key) => write!(f, "{parent}.{key}"),
            Self::Item(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}
