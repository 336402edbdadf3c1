//! Globs of paths.
//!
//! Not a general glob: a path is matched as the segments that routes know, and `**` may stand for none of them, so that
//! `/v1/orders/**` holds `/v1/orders` too. Matching neither allocates nor shares a cache between threads.

use super::pattern::{BadPattern, segments, spelled};

/// A glob of normalised paths.
///
/// `*` is any characters of one segment, also none; `**`, a whole segment, is any number of segments, also none. All
/// else stands for itself, and is read as a path: `/%7Ea` is `/~a`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob(Box<[Segment]>);

/// One segment of a glob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Segment {
    /// This, as a normalised path spells it.
    Literal(Box<str>),
    /// Has a `*`.
    Wild(Box<str>),
    /// `**`
    AnyNumber,
}

impl Glob {
    /// Reads a glob.
    ///
    /// # Errors
    /// [`BadPattern`]
    pub fn new(glob: &str) -> Result<Self, BadPattern> {
        // As everybody writes "every path".
        let glob = if glob == "**" { "/**" } else { glob };
        let segments = segments(glob)?.map(|segment| Segment::new(glob, segment));
        segments.collect::<Result<_, _>>().map(Self)
    }

    /// Whether this matches every path that `other` does, as far as their segments tell one by one. Some that do are not
    /// found.
    pub(crate) fn includes(&self, other: &Self) -> bool {
        let (mut own, mut others) = (self.0.iter(), other.0.iter());
        loop {
            match (own.next(), others.next()) {
                (None, None) => return true,
                (Some(Segment::AnyNumber), _) if own.len() == 0 => return true,
                (Some(own), Some(other)) if own.includes(other) => {}
                _ => return false,
            }
        }
    }

    pub(crate) fn segments(&self) -> &[Segment] {
        &self.0
    }

    /// Whether a normalised path matches.
    #[must_use]
    pub fn matches(&self, path: &str) -> bool {
        let Some(mut left) = path.strip_prefix('/').map(Some) else {
            return false;
        };
        let (mut at, mut retry) = (0, None);
        loop {
            // What a `**` took is extended one segment at a time, and only of the last one: the earlier need not be
            // tried again, since a later one can take whatever they could.
            match (self.0.get(at), left) {
                (Some(Segment::AnyNumber), _) => {
                    at += 1;
                    retry = Some((at, left));
                    continue;
                }
                (Some(segment), Some(path)) => {
                    let (own, below) = cut(path);
                    if segment.takes(own) {
                        (at, left) = (at + 1, below);
                        continue;
                    }
                }
                (None, None) => return true,
                (Some(_), None) | (None, Some(_)) => {}
            }
            let Some((again, Some(skipped))) = retry else {
                return false;
            };
            (at, left) = (again, cut(skipped).1);
            retry = Some((at, left));
        }
    }
}

/// The first segment, and what is below it.
fn cut(path: &str) -> (&str, Option<&str>) {
    match path.split_once('/') {
        Some((first, below)) => (first, Some(below)),
        None => (path, None),
    }
}

impl Segment {
    fn new(glob: &str, segment: &str) -> Result<Self, BadPattern> {
        if segment == "**" {
            return Ok(Self::AnyNumber);
        }
        if segment.contains("**") {
            return Err(BadPattern(format!(
                "`{segment}` mixes `**` with text, expected `**` as a whole segment such as `/v1/**`"
            )));
        }
        if segment.contains(['{', '}', '[', ']']) {
            return Err(BadPattern(format!(
                "`{glob}` has brackets, expected a glob of `*` for one segment and `**` for any number"
            )));
        }
        let text = spelled(glob, segment)?;
        Ok(if segment.contains('*') {
            Self::Wild(text)
        } else {
            Self::Literal(text)
        })
    }

    fn includes(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Wild(_), Self::Literal(text)) => self.takes(text),
            (Self::Wild(wild), Self::Wild(_)) if **wild == *"*" => true,
            _ => self == other,
        }
    }

    /// Whether `own`, a segment of a path, matches.
    pub(crate) fn takes(&self, own: &str) -> bool {
        match self {
            Self::Literal(text) => **text == *own,
            Self::Wild(text) => takes_wild(text, own),
            Self::AnyNumber => true,
        }
    }
}

/// Each piece between two `*` is taken at its first place: a later one leaves less for those that follow.
fn takes_wild(wild: &str, own: &str) -> bool {
    let Some((first, wild)) = wild.split_once('*') else {
        return wild == own;
    };
    let Some(mut own) = own.strip_prefix(first) else {
        return false;
    };
    let (middle, last) = wild.rsplit_once('*').unwrap_or(("", wild));
    for piece in middle.split('*') {
        let Some(at) = own.find(piece) else {
            return false;
        };
        own = own.get(at + piece.len()..).unwrap_or_default();
    }
    own.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use globset::GlobBuilder;
    use proptest::prelude::*;

    fn matches(glob: &str, path: &str) -> bool {
        Glob::new(glob).unwrap().matches(path)
    }

    #[test]
    fn segments() {
        for (glob, path, expected) in [
            ("/v1/orders", "/v1/orders", true),
            ("/v1/orders", "/v1/orders/", false),
            ("/v1/orders", "/v1/orders/7", false),
            ("/v1/*", "/v1/orders", true),
            ("/v1/*", "/v1/orders/7", false),
            ("/v1/*", "/v1", false),
            ("/v1/*/x", "/v1/a%2Fb/x", true),
            ("/v1/o*s", "/v1/orders", true),
            ("/v1/o*s", "/v1/os", true),
            ("/v1/o*s", "/v1/o", false),
            ("/v1/*.json", "/v1/a.json", true),
            ("/a*b*b", "/abb", true),
            ("/a*b*b", "/ab", false),
            ("/*a*", "/bab", true),
            ("/v1/orders/**", "/v1/orders", true),
            ("/v1/orders/**", "/v1/orders/", true),
            ("/v1/orders/**", "/v1/orders/7/x", true),
            ("/v1/orders/**", "/v1/orders7", false),
            ("**", "/", true),
            ("**", "/a/b", true),
            ("/**", "/", true),
            ("/**", "/a/b", true),
            ("/**/x", "/x", true),
            ("/**/x", "/a/x/b/x", true),
            ("/**/x", "/a/xx", false),
            ("/a/**/b", "/a/b", true),
            ("/a/**/b", "/a/1/2/b", true),
            ("/a/**/b/**/c", "/a/b/b/c/c", true),
            ("/a/**/b/**/c", "/a/c/b", false),
            ("/%7ea/caf%c3%a9", "/~a/caf%C3%A9", true),
            ("/", "/", true),
            ("/", "/a", false),
            ("/**", "*", false),
        ] {
            assert_eq!(matches(glob, path), expected, "{glob} {path}");
        }
    }

    #[test]
    fn refused() {
        for (glob, expected) in [
            ("v1", "does not begin with a slash, expected `/v1`"),
            ("**/x", "does not begin with a slash"),
            ("/v1/orders/{id}", "has brackets"),
            ("/v1/[ab]", "has brackets"),
            ("/v1?x=1", "has '?'"),
            ("/a**", "`a**` mixes `**` with text"),
            ("/***", "`***` mixes `**` with text"),
            ("/%zz", "has a bad escape"),
            ("/a/%2e%2e/*", "has a dot segment"),
            ("/*%5C", "matches nothing, expected another: the path has a backslash"),
            ("/caf\u{e9}", "has '\u{e9}'"),
        ] {
            let error = Glob::new(glob).unwrap_err().to_string();
            assert!(error.contains(expected), "{glob}: {error}");
        }
    }

    #[test]
    fn more_segments_than_the_stack_has_room_for() {
        assert!(Glob::new(&"/a".repeat(256)).is_ok());
        let error = Glob::new(&"/a".repeat(257)).unwrap_err().to_string();
        assert_eq!(error, "has more than 256 segments, expected fewer");
    }

    #[test]
    fn includes() {
        for (wide, narrow, expected) in [
            ("**", "/a/*/b", true),
            ("/v1/**", "/v1/orders/**", true),
            ("/v1/**", "/v1", true),
            ("/v1/orders/**", "/v1/**", false),
            ("/v1/*", "/v1/orders", true),
            ("/v1/*", "/v1/o*", true),
            ("/v1/o*", "/v1/*", false),
            ("/v1/*", "/v1/**", false),
            ("/**/x", "/a/x", false),
        ] {
            let [wide_glob, narrow_glob] = [wide, narrow].map(|glob| Glob::new(glob).unwrap());
            assert_eq!(wide_glob.includes(&narrow_glob), expected, "{wide} {narrow}");
        }
    }

    proptest! {
        #[test]
        fn what_is_included_matches(
            wide in "(/(a|\\*|a\\*|\\*\\*)){1,4}",
            narrow in "(/(a|b|\\*|a\\*|\\*\\*)){1,4}",
            path in "(/[ab]{1,2}){1,5}",
        ) {
            let [wide, narrow] = [wide, narrow].map(|glob| Glob::new(&glob).unwrap());
            prop_assert!(!wide.includes(&narrow) || !narrow.matches(&path) || wide.matches(&path));
        }

        #[test]
        fn as_globset_has_it(glob in "(/(a|b|ab|\\*|a\\*|\\*b|a\\*b\\*|\\*\\*)){1,5}", path in "(/[ab]{1,3}){1,5}") {
            // globset wants a separator where `**` takes nothing at the end: both spellings together are ours. One `**`
            // behind another says nothing new.
            let once = glob.replace("/**/**", "/**").replace("/**/**", "/**").replace("/**/**", "/**");
            let spellings = [Some(once.as_str()), once.strip_suffix("/**").filter(|rest| !rest.is_empty())];
            let expected = spellings.into_iter().flatten().any(|glob| {
                let glob = GlobBuilder::new(glob).literal_separator(true).build().unwrap();
                glob.compile_matcher().is_match(&path)
            });
            prop_assert_eq!(matches(&glob, &path), expected);
        }
    }
}
