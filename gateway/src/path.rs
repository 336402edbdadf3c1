//! Paths: their one spelling, and the templates and globs that are matched with it; pure.
//!
//! Matching, keys and forwarding must read a path alike, or a request is counted under one spelling and served under
//! another. So there is one spelling, made here, before anything looks at the path.

use std::borrow::Cow;

mod glob;
mod pattern;
mod template;

pub use glob::Glob;
pub(crate) use glob::Segment as GlobSegment;
pub use pattern::BadPattern;
pub(crate) use template::Segment;
pub use template::Template;

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

/// The one spelling that matching, keys and forwarding use.
///
/// RFC 3986 §6.2.2, and two steps beyond it, in this order: escapes of unreserved characters are decoded and the hex
/// digits of all others are written in upper case (§6.2.2.1, §6.2.2.2); what may not stand in a path unescaped is
/// escaped; doubled slashes are merged; dot segments are resolved, never above the root (§5.2.4, §6.2.2.3). `%2F` stays
/// as it is and separates nothing. A slash at the end is kept: with and without it are two paths.
///
/// Applied to its own result it changes nothing. Borrows where nothing changes, which costs one pass. `raw` is the path
/// without the query; `*` of an `OPTIONS *` is not a path and is [`BadPath::Relative`].
///
/// # Errors
/// [`BadPath`]: upstreams disagree about what these mean, so no spelling of them is safe to forward.
pub fn normalise(raw: &str) -> Result<Cow<'_, str>, BadPath> {
    if !raw.starts_with('/') {
        return Err(BadPath::Relative);
    }
    if is_normal(raw.as_bytes()) {
        return Ok(Cow::Borrowed(raw));
    }
    rewrite(raw.as_bytes()).map(Cow::Owned)
}

/// What a byte means to the pass over a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Stands for itself.
    Plain,
    /// `/`
    Slash,
    /// `%`
    Percent,
    /// Anything else: to be escaped or refused.
    Other,
}

const CLASSES: [Class; 256] = {
    let mut classes = [Class::Other; 256];
    let mut byte = 0;
    while byte < 128 {
        // The `pchar` of RFC 3986 §3.3, without escapes.
        if matches!(
            byte as u8,
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b':' | b'@'
            | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'='
        ) {
            classes[byte] = Class::Plain;
        }
        byte += 1;
    }
    classes[b'/' as usize] = Class::Slash;
    classes[b'%' as usize] = Class::Percent;
    classes
};

fn class(byte: u8) -> Class {
    CLASSES[usize::from(byte)]
}

/// RFC 3986 §2.3: an escape of these means the same as the character.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn is_normal(path: &[u8]) -> bool {
    let mut at = 0;
    while let Some(&byte) = path.get(at) {
        match class(byte) {
            Class::Plain => {}
            Class::Slash => {
                let rest = path.get(at + 1..).unwrap_or_default();
                if matches!(
                    rest,
                    [b'/', ..] | [b'.'] | [b'.', b'/', ..] | [b'.', b'.'] | [b'.', b'.', b'/', ..]
                ) {
                    return false;
                }
            }
            Class::Percent => {
                let digits = path.get(at + 1..at + 3).unwrap_or_default();
                if !matches!(escaped(digits), Ok(value) if !is_unreserved(value))
                    || digits.iter().any(u8::is_ascii_lowercase)
                {
                    return false;
                }
                at += 2;
            }
            Class::Other => return false,
        }
        at += 1;
    }
    true
}

/// The byte that two hex digits stand for.
fn escaped(digits: &[u8]) -> Result<u8, BadPath> {
    let hex = |digit: u8| char::from(digit).to_digit(16).ok_or(BadPath::Escape);
    let &[high, low] = digits else {
        return Err(BadPath::Escape);
    };
    let value = u8::try_from(hex(high)? * 16 + hex(low)?).map_err(|_| BadPath::Escape)?;
    refuse(value)?;
    Ok(value)
}

fn refuse(byte: u8) -> Result<(), BadPath> {
    match byte {
        0 => Err(BadPath::Nul),
        b'\\' => Err(BadPath::Backslash),
        _ => Ok(()),
    }
}

fn rewrite(path: &[u8]) -> Result<String, BadPath> {
    let mut to = String::with_capacity(path.len() + 8);
    to.push('/');
    let mut segment = to.len();
    let mut at = 1;
    while let Some(&byte) = path.get(at) {
        match class(byte) {
            Class::Plain => to.push(char::from(byte)),
            Class::Slash => {
                close_segment(&mut to, segment);
                if !to.ends_with('/') {
                    to.push('/');
                }
                segment = to.len();
            }
            Class::Percent => {
                push(&mut to, escaped(path.get(at + 1..at + 3).unwrap_or_default())?);
                at += 2;
            }
            Class::Other => {
                refuse(byte)?;
                push(&mut to, byte);
            }
        }
        at += 1;
    }
    close_segment(&mut to, segment);
    Ok(to)
}

/// Resolves the segment that begins at `start` and ends `to`, if it is a dot segment.
fn close_segment(to: &mut String, start: usize) {
    match to.get(start..) {
        Some(".") => to.truncate(start),
        Some("..") => {
            let parent = to.get(..start - 1).and_then(|above| above.rfind('/')).unwrap_or(0);
            to.truncate(parent + 1);
        }
        _ => {}
    }
}

/// Adds a byte that was escaped, or has to be.
fn push(to: &mut String, byte: u8) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    if is_unreserved(byte) {
        to.push(char::from(byte));
    } else {
        to.push('%');
        to.push(char::from(HEX[usize::from(byte >> 4)]));
        to.push(char::from(HEX[usize::from(byte & 15)]));
    }
}

#[cfg(test)]
mod tests;
