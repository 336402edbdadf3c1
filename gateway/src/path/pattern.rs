//! What templates and globs have in common: segments of a normalised path, and why they cannot be one.

use super::{BadPath, normalise};

/// Segments of a template or a glob at most: they are walked on the stack.
const MAX_SEGMENTS: usize = 256;

/// A template or a glob that cannot be used: it has no meaning, or no normalised path would ever match it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(pub(super) String);

/// The segments of `pattern`, which begins with a slash.
pub(super) fn segments(pattern: &str) -> Result<impl Iterator<Item = &str>, BadPattern> {
    let Some(segments) = pattern.strip_prefix('/') else {
        return Err(BadPattern(format!(
            "`{pattern}` does not begin with a slash, expected `/{pattern}`"
        )));
    };
    if segments.split('/').nth(MAX_SEGMENTS).is_some() {
        return Err(BadPattern(format!(
            "has more than {MAX_SEGMENTS} segments, expected fewer"
        )));
    }
    if pattern.contains("//") {
        return Err(BadPattern(format!(
            "`{pattern}` has an empty segment, expected single slashes: requests' paths are normalised"
        )));
    }
    if let Some(c) = pattern
        .chars()
        .find(|c| !c.is_ascii_graphic() || matches!(c, '?' | '#' | '\\'))
    {
        return Err(BadPattern(format!(
            "`{pattern}` has {c:?}, expected a path without query, in visible ASCII, others as `%XX`"
        )));
    }
    Ok(segments.split('/'))
}

/// `segment` of `pattern` as a normalised path spells it.
pub(super) fn spelled(pattern: &str, segment: &str) -> Result<Box<str>, BadPattern> {
    let wrong = |what: &str| Err(BadPattern(format!("`{pattern}` {what}")));
    let absolute = format!("/{segment}");
    match normalise(&absolute).as_deref() {
        Ok("/") if !segment.is_empty() => wrong("has a dot segment, expected none: requests' paths are normalised"),
        Ok(path) => Ok(path.trim_start_matches('/').into()),
        Err(BadPath::Escape) => wrong("has a bad escape, expected `%` and two hex digits"),
        Err(error) => wrong(&format!("matches nothing, expected another: {error}")),
    }
}
