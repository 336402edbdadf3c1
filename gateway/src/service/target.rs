//! What a request asks for: one host, one path, or 400; pure.

use std::borrow::Cow;

use http::{
    HeaderMap, HeaderValue, Method, Request, Uri, Version,
    header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING},
    uri::Authority,
};

use crate::{error::BadRequest, path, upstream::rewrite};

/// The host that a request names.
#[derive(Debug)]
pub(crate) struct Host<'a> {
    /// As the upstream gets it.
    pub(crate) value: rewrite::Host,
    /// Lower case, without port: as routes and keys have it.
    pub(crate) name: Cow<'a, str>,
}

/// The one host of a request: the target's authority, else its Host. `None`: it names none, which only HTTP/1.0 may.
///
/// # Errors
/// None, several, or two that differ (RFC 9112, section 3.2; RFC 9113, section 8.3.1). With HTTP/1.1 the authority of an
/// absolute target overrides Host.
pub(crate) fn host<B>(request: &Request<B>) -> Result<Option<Host<'_>>, BadRequest> {
    let mut hosts = request.headers().get_all(HOST).iter();
    let (host, authority) = (hosts.next(), request.uri().authority());
    if hosts.next().is_some() || (request.version() == Version::HTTP_11 && host.is_none()) {
        return Err(BadRequest::Host);
    }
    let named = match (authority, host) {
        (None, None) if request.version() == Version::HTTP_10 => return Ok(None),
        (None, None) => return Err(BadRequest::Host),
        (None, Some(host)) => (
            rewrite::Host::Kept(host.clone()),
            host.to_str().map_err(|_| BadRequest::HostSyntax)?,
        ),
        (Some(authority), host) => {
            let differs = |host: &HeaderValue| !host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes());
            if request.version() == Version::HTTP_2 && host.is_some_and(differs) {
                return Err(BadRequest::Authority);
            }
            (rewrite::Host::Named(to_value(authority)?), authority.as_str())
        }
    };
    let (value, text) = named;
    Ok(Some(Host {
        value,
        name: name(text)?,
    }))
}

fn to_value(authority: &Authority) -> Result<HeaderValue, BadRequest> {
    HeaderValue::from_str(authority.as_str()).map_err(|_| BadRequest::HostSyntax)
}

/// The name without its port and its last dot, in lower case.
fn name(authority: &str) -> Result<Cow<'_, str>, BadRequest> {
    let position = |wanted| authority.bytes().position(|byte| byte == wanted);
    let end = match authority.as_bytes().first() {
        Some(b'[') => position(b']').ok_or(BadRequest::HostSyntax)? + 1,
        _ => position(b':').unwrap_or(authority.len()),
    };
    let (name, port) = authority.split_at(end);
    let digits = port.strip_prefix(':').unwrap_or(port);
    let is_port = digits.len() <= 5 && digits.bytes().all(|byte| byte.is_ascii_digit());
    let all = name.bytes().fold(0, |all, byte| all | CLASSES[usize::from(byte)]);
    if name.is_empty() || !is_port || all & NO_HOST != 0 {
        return Err(BadRequest::HostSyntax);
    }
    // The dot of a name that is complete (RFC 3986, section 3.2.2) makes it no other name.
    let name = name.strip_suffix('.').filter(|name| !name.is_empty()).unwrap_or(name);
    Ok(if all & UPPER != 0 {
        name.to_ascii_lowercase().into()
    } else {
        name.into()
    })
}

/// Not a byte of a host (RFC 3986, section 3.2.2): no user information, no path, no list.
const NO_HOST: u8 = 1;
/// A capital letter.
const UPPER: u8 = 2;
/// What each byte is.
static CLASSES: [u8; 256] = {
    let mut classes = [NO_HOST; 256];
    let mut byte = 0;
    while byte < classes.len() {
        #[expect(clippy::cast_possible_truncation, reason = "there are 256 bytes")]
        match byte as u8 {
            b'A'..=b'Z' => classes[byte] = UPPER,
            b'a'..=b'z'
            | b'0'..=b'9'
            | b'-'
            | b'.'
            | b'_'
            | b'~'
            | b'%'
            | b'!'
            | b'$'
            | b'&'
            | b'\''
            | b'('
            | b')'
            | b'*'
            | b'+'
            | b';'
            | b'='
            | b'['
            | b']'
            | b':' => classes[byte] = 0,
            _ => {}
        }
        byte += 1;
    }
    classes
};

/// The normalised path; `*` of a server-wide OPTIONS counts as the root.
///
/// # Errors
/// CONNECT, and what has no normal form.
pub(crate) fn path<'a>(method: &Method, uri: &'a Uri) -> Result<Cow<'a, str>, BadRequest> {
    if method == Method::CONNECT {
        return Err(BadRequest::Connect);
    }
    if is_server_wide(method, uri) {
        return Ok(Cow::Borrowed("/"));
    }
    Ok(path::normalise(uri.path())?)
}

/// Whether the head says once how long the body is: by a length, or by a transfer coding that ends here, which is chunked.
///
/// # Errors
/// Several lengths, as HTTP/2 can have them too, and be they equal: upstreams would have to choose. Any other coding. The
/// field is of one connection and goes no further, so the coding would stay on the body without a name.
pub(crate) fn check_framing(headers: &HeaderMap) -> Result<(), BadRequest> {
    if headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(BadRequest::Framing);
    }
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    match (codings.next(), codings.next()) {
        (None, _) => Ok(()),
        (Some(coding), None) if coding.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked") => Ok(()),
        _ => Err(BadRequest::Coding),
    }
}

/// `OPTIONS *`: of the server, not of a resource (RFC 9110, section 9.3.7).
fn is_server_wide(method: &Method, uri: &Uri) -> bool {
    method == Method::OPTIONS && uri.path() == "*"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(version: Version, target: &str, hosts: &[&str]) -> Request<()> {
        let mut request = Request::builder().version(version).uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        request.body(()).unwrap()
    }

    fn host_of(version: Version, target: &str, hosts: &[&str]) -> Result<Option<String>, BadRequest> {
        let request = request(version, target, hosts);
        let host = host(&request)?;
        Ok(host.map(|host| {
            let (rewrite::Host::Kept(value) | rewrite::Host::Named(value) | rewrite::Host::Upstream(value)) =
                host.value;
            format!("{} {}", host.name, value.to_str().unwrap())
        }))
    }

    #[test]
    fn http_1_1_has_exactly_one_host() {
        assert_eq!(
            host_of(Version::HTTP_11, "/", &["A.example:80"]),
            Ok(Some("a.example A.example:80".into()))
        );
        assert_eq!(host_of(Version::HTTP_11, "/", &[]), Err(BadRequest::Host));
        assert_eq!(host_of(Version::HTTP_11, "/", &["a", "a"]), Err(BadRequest::Host));
        assert_eq!(host_of(Version::HTTP_10, "/", &[]), Ok(None));
    }

    #[test]
    fn the_last_dot_of_a_name_says_nothing() {
        for host in ["a.example.", "A.example.:80"] {
            let expected = format!("a.example {host}");
            assert_eq!(host_of(Version::HTTP_11, "/", &[host]), Ok(Some(expected)));
        }
    }

    #[test]
    fn an_absolute_target_overrides_host() {
        assert_eq!(
            host_of(Version::HTTP_11, "http://a.example/x", &["b.example"]),
            Ok(Some("a.example a.example".into()))
        );
    }

    #[test]
    fn http_2_authority_and_host_agree() {
        assert_eq!(
            host_of(Version::HTTP_2, "http://a.example/x", &[]),
            Ok(Some("a.example a.example".into()))
        );
        assert_eq!(
            host_of(Version::HTTP_2, "http://a.example/x", &["A.example"]),
            Ok(Some("a.example a.example".into()))
        );
        assert_eq!(
            host_of(Version::HTTP_2, "http://a.example/x", &["b.example"]),
            Err(BadRequest::Authority)
        );
        assert_eq!(
            host_of(Version::HTTP_2, "/x", &["b.example"]),
            Ok(Some("b.example b.example".into()))
        );
        assert_eq!(host_of(Version::HTTP_2, "/x", &[]), Err(BadRequest::Host));
    }

    #[test]
    fn only_chunked_ends_here() {
        let checked = |lines: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(TRANSFER_ENCODING, HeaderValue::from_static(line));
            }
            check_framing(&headers).is_ok()
        };
        assert!(checked(&[]) && checked(&["chunked"]) && checked(&[" Chunked"]));
        for other in [
            &["gzip, chunked"][..],
            &["chunked, chunked"],
            &["identity", "chunked"],
            &["chunked", "chunked"],
        ] {
            assert!(!checked(other), "{other:?}");
        }
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for bad in ["", ":80", "a b", "a/b", "user@a", "a,b", "a:port", "[::1", "a:80:80"] {
            assert_eq!(
                host_of(Version::HTTP_11, "/", &[bad]),
                Err(BadRequest::HostSyntax),
                "{bad:?}"
            );
        }
        assert_eq!(
            host_of(Version::HTTP_11, "/", &["[::1]:80"]),
            Ok(Some("[::1] [::1]:80".into()))
        );
    }
}
