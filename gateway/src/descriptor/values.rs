//! Finds the value that a part of a key names.

use http::{
    HeaderMap, HeaderName,
    header::{COOKIE, GetAll},
};

/// A header that is counted by comes on several lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Repeated;

/// A value without the blanks around it; `None` if nothing is left.
fn present(value: &[u8]) -> Option<&[u8]> {
    let value = value.trim_ascii();
    (!value.is_empty()).then_some(value)
}

/// The value of a header, byte for byte. The lines of a Cookie are one value (RFC 9113 §8.2.3), joined in `scratch`.
pub(super) fn header<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    scratch: &'a mut Vec<u8>,
) -> Result<Option<&'a [u8]>, Repeated> {
    let lines = headers.get_all(name);
    let mut rest = lines.iter();
    let first = rest.next();
    match (first, rest.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => Ok(present(value.as_bytes())),
        (Some(_), Some(_)) if *name == COOKIE => Ok(present(join(&lines, scratch))),
        (Some(_), Some(_)) => Err(Repeated),
    }
}

fn join<'a>(lines: &GetAll<'_, http::HeaderValue>, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    scratch.clear();
    for line in lines {
        if !scratch.is_empty() {
            scratch.extend_from_slice(b"; ");
        }
        scratch.extend_from_slice(line.as_bytes());
    }
    scratch
}

/// The value of the first cookie of this name, as it was sent (RFC 6265 §4.2.1). HTTP/2 may split cookies over lines.
pub(super) fn cookie<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a [u8]> {
    headers
        .get_all(COOKIE)
        .iter()
        .flat_map(|line| line.as_bytes().split(|&byte| byte == b';'))
        .find_map(|pair| {
            let equals = pair.iter().position(|&byte| byte == b'=')?;
            let (own, value) = pair.split_at(equals);
            (own.trim_ascii() == name.as_bytes()).then(|| value.get(1..).unwrap_or_default())
        })
        .and_then(present)
}

/// The decoded value of the first parameter of this name. `scratch` holds it where it had to be decoded.
pub(super) fn query<'a>(query: Option<&'a str>, name: &str, scratch: &'a mut Vec<u8>) -> Option<&'a [u8]> {
    let value = query?.split('&').find_map(|pair| {
        let (own, value) = pair.split_once('=').unwrap_or((pair, ""));
        let own = own.as_bytes();
        let same = if is_encoded(own) {
            decode(own, scratch);
            scratch.as_slice() == name.as_bytes()
        } else {
            own == name.as_bytes()
        };
        same.then_some(value.as_bytes())
    })?;
    if !is_encoded(value) {
        return present(value);
    }
    decode(value, scratch);
    present(scratch)
}

fn is_encoded(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'%' | b'+'))
}

/// As forms are (WHATWG URL §5.1): `+` is a blank, an escape its byte, a bad escape itself.
fn decode(text: &[u8], to: &mut Vec<u8>) {
    let hex = |digit: &u8| {
        char::from(*digit)
            .to_digit(16)
            .and_then(|value| u8::try_from(value).ok())
    };
    to.clear();
    let mut left = text;
    while let [first, rest @ ..] = left {
        left = rest;
        match (first, rest) {
            (b'+', _) => to.push(b' '),
            (b'%', [high, low, rest @ ..]) if hex(high).is_some() && hex(low).is_some() => {
                to.push(hex(high).unwrap_or_default() << 4 | hex(low).unwrap_or_default());
                left = rest;
            }
            _ => to.push(*first),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn headers(lines: &[(&'static str, &[u8])]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        headers
    }

    #[test]
    fn headers_are_bytes() {
        let name = HeaderName::from_static("x-user-id");
        for (value, expected) in [
            (&b"alice"[..], Some(&b"alice"[..])),
            (b" a b ", Some(b"a b")),
            (b"\xff\xc3\xa9", Some(b"\xff\xc3\xa9")),
            (b"", None),
            (b" \t ", None),
        ] {
            let headers = headers(&[("x-user-id", value)]);
            assert_eq!(header(&headers, &name, &mut Vec::new()), Ok(expected));
        }
        assert_eq!(header(&HeaderMap::new(), &name, &mut Vec::new()), Ok(None));
    }

    #[test]
    fn a_repeated_header_is_ambiguous_but_for_cookie() {
        let headers = headers(&[
            ("x-user-id", b"a"),
            ("x-user-id", b"a"),
            ("cookie", b"a=1"),
            ("cookie", b"b=2"),
        ]);
        let name = HeaderName::from_static("x-user-id");
        assert_eq!(header(&headers, &name, &mut Vec::new()), Err(Repeated));
        assert_eq!(header(&headers, &COOKIE, &mut Vec::new()), Ok(Some(&b"a=1; b=2"[..])));
    }

    #[test]
    fn cookies() {
        let headers = headers(&[
            ("cookie", b"a=1; sid=x=y ;b"),
            ("cookie", b"late=\xff;sid=other; empty=; blank= "),
        ]);
        for (name, expected) in [
            ("a", Some(&b"1"[..])),
            ("sid", Some(b"x=y")),
            ("late", Some(b"\xff")),
            ("b", None),
            ("empty", None),
            ("blank", None),
            ("id", None),
            ("SID", None),
        ] {
            assert_eq!(cookie(&headers, name), expected, "{name}");
        }
    }

    #[test]
    fn queries() {
        for (text, expected) in [
            ("id=7", Some(&b"7"[..])),
            ("a=1&id=7&id=8", Some(b"7")),
            ("%69d=7", Some(b"7")),
            ("id=a%20b", Some(b"a b")),
            ("id=a+b", Some(b"a b")),
            ("id=%FF%", Some(b"\xff%")),
            ("id=%zz%4", Some(b"%zz%4")),
            ("id=%2B", Some(b"+")),
            ("id=a=b", Some(b"a=b")),
            ("id", None),
            ("id=", None),
            ("id=+%20", None),
            ("xid=7", None),
            ("", None),
        ] {
            assert_eq!(query(Some(text), "id", &mut Vec::new()), expected, "{text}");
        }
        assert_eq!(query(None, "id", &mut Vec::new()), None);
        assert_eq!(query(Some("a%20b=1"), "a b", &mut Vec::new()), Some(&b"1"[..]));
    }
}
