//! Templates of paths: what routes take.

use std::{collections::HashSet, sync::Arc};

use super::pattern::{BadPattern, segments, spelled};

/// A template of normalised paths: `/v1/orders/{id}`, `/{*rest}`.
///
/// `{name}`, a whole segment, is any one segment; `{*rest}`, the last one, is the rest of the path. All else stands for
/// itself, and is read as a path: `/%7Ea` is `/~a`.
#[derive(Clone, Debug)]
pub struct Template {
    text: Arc<str>,
    segments: Box<[Segment]>,
}

/// One segment of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// This, as a normalised path spells it.
    Literal(Box<str>),
    /// `{name}`
    Any,
    /// `{*rest}`
    Rest,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`BadPattern`]
    pub fn new(text: &str) -> Result<Self, BadPattern> {
        let mut names = HashSet::new();
        let mut parsed = Vec::new();
        let mut segments = segments(text)?.peekable();
        while let Some(segment) = segments.next() {
            parsed.push(match inner(segment) {
                Some(inner) => parameter(segment, inner, segments.peek().is_none(), &mut names)?,
                None => Segment::Literal(literal(text, segment)?),
            });
        }
        Ok(Self {
            text: text.into(),
            segments: parsed.into(),
        })
    }

    /// The template, as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

/// What stands in the braces of a parameter.
fn inner(segment: &str) -> Option<&str> {
    segment.strip_prefix('{')?.strip_suffix('}')
}

fn parameter<'a>(
    segment: &str,
    inner: &'a str,
    is_last: bool,
    names: &mut HashSet<&'a str>,
) -> Result<Segment, BadPattern> {
    let (name, parameter) = match inner.strip_prefix('*') {
        Some(name) => (name, Segment::Rest),
        None => (inner, Segment::Any),
    };
    if name.is_empty() || !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b)) {
        return Err(BadPattern(format!(
            "`{segment}` has no name, expected letters, digits, `_`, `-` or `.` in the braces"
        )));
    }
    if parameter == Segment::Rest && !is_last {
        return Err(BadPattern(format!(
            "`{segment}` takes the rest of the path, expected it to stand last"
        )));
    }
    if !names.insert(name) {
        return Err(BadPattern(format!("`{{{name}}}` stands twice, expected another name")));
    }
    Ok(parameter)
}

fn literal(template: &str, segment: &str) -> Result<Box<str>, BadPattern> {
    if segment.contains(['{', '}']) {
        return Err(BadPattern(format!(
            "`{segment}` mixes a parameter with text, expected `{{name}}` as a whole segment"
        )));
    }
    if segment.contains('*') {
        return Err(BadPattern(format!(
            "`{segment}` is a glob, expected `{{name}}` for one segment or `{{*rest}}` for the rest"
        )));
    }
    spelled(template, segment)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_spelled_as_paths_are() {
        let template = Template::new("/caf%c3%a9/%7ex/{id}/{*rest}").unwrap();
        let literal = |text: &str| Segment::Literal(text.into());
        assert_eq!(
            template.segments(),
            [literal("caf%C3%A9"), literal("~x"), Segment::Any, Segment::Rest]
        );
        assert_eq!(template.as_str(), "/caf%c3%a9/%7ex/{id}/{*rest}");
        assert_eq!(Template::new("/a/").unwrap().segments(), [literal("a"), literal("")]);
        assert_eq!(Template::new("/").unwrap().segments(), [literal("")]);
    }

    #[test]
    fn refused() {
        for (template, expected) in [
            ("", "does not begin with a slash"),
            ("a", "does not begin with a slash, expected `/a`"),
            ("*", "does not begin with a slash"),
            ("/a/{*rest}/b", "`{*rest}` takes the rest"),
            ("/a/{}", "`{}` has no name"),
            ("/{*}", "`{*}` has no name"),
            ("/a/{x/y}", "`{x` mixes a parameter"),
            ("/a/{{x}}", "`{{x}}` has no name"),
            ("/a/x{id}", "`x{id}` mixes a parameter"),
            ("/a/{id}.json", "`{id}.json` mixes a parameter"),
            ("/a/{id", "`{id` mixes a parameter"),
            ("/a/b}", "`b}` mixes a parameter"),
            ("/{id}/{id}", "`{id}` stands twice"),
            ("/{id}/{*id}", "`{id}` stands twice"),
            ("/a/*", "`*` is a glob"),
            ("/a//b", "has an empty segment"),
            ("/a/../b", "has a dot segment"),
            ("/./a", "has a dot segment"),
            ("/a/%2e%2E", "has a dot segment"),
            ("/a/%zz", "has a bad escape"),
            ("/a%4", "has a bad escape"),
            ("/a\\b", "has '\\\\'"),
            ("/a%5Cb", "matches nothing, expected another: the path has a backslash"),
            ("/a%00", "matches nothing, expected another: the path has a NUL"),
            ("/a?x=1", "has '?'"),
            ("/caf\u{e9}", "has '\u{e9}'"),
            ("/a b", "has ' '"),
        ] {
            let error = Template::new(template).unwrap_err().to_string();
            assert!(error.contains(expected), "{template}: {error}");
        }
    }
}
