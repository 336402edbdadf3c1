//! An HTTP/1.1 request as bytes, and a response as it was read.

use std::fmt::Write as _;

/// A request to be sent as HTTP/1.1 or HTTP/2.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

/// A request with `method` for `target`.
pub(crate) fn request(method: &str, target: &str) -> Request {
    Request {
        method: method.to_owned(),
        target: target.to_owned(),
        headers: Vec::new(),
        body: Vec::new(),
    }
}

/// A GET.
pub(crate) fn get(target: &str) -> Request {
    request("GET", target)
}

/// A POST that carries `body`.
pub(crate) fn post(target: &str, body: impl Into<Vec<u8>>) -> Request {
    Request {
        body: body.into(),
        ..request("POST", target)
    }
}

impl Request {
    /// Adds a header line.
    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The bytes of it, with a Host line unless it has one, and with Content-Length if it has a body or is a POST.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\n", self.method, self.target);
        if !self.headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
            head.push_str("Host: gateway.test\r\n");
        }
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if !self.body.is_empty() || self.method == "POST" {
            write!(head, "Content-Length: {}\r\n", self.body.len()).unwrap();
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// A response as it was read.
#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// In order, as spelled on the wire.
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its framing said; false if the connection was cut before.
    pub(crate) complete: bool,
}

impl Response {
    /// The first value of a header.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.header_lines(name).first().copied()
    }

    /// All values of a header, in order.
    pub(crate) fn header_lines(&self, name: &str) -> Vec<&str> {
        lines_named(&self.headers, name)
    }

    /// The first value of a header as a whole number.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.header(name).map(|value| {
            value
                .parse()
                .unwrap_or_else(|_| panic!("{name} is no number: {value:?}"))
        })
    }

    /// Retry-After, which must be whole seconds and at least 1 (RFC 9110 section 10.2.3).
    pub(crate) fn retry_after(&self) -> Option<u64> {
        self.header("retry-after").map(|value| {
            let plain = value.bytes().all(|byte| byte.is_ascii_digit()) && !value.starts_with('0');
            assert!(plain && !value.is_empty(), "retry-after: {value:?}");
            value.parse().unwrap()
        })
    }

    /// What is left of the policy nearest to exhaustion.
    pub(crate) fn remaining(&self) -> i64 {
        self.number("x-ratelimit-remaining")
            .unwrap_or_else(|| panic!("no x-ratelimit-remaining in {self:?}"))
    }

    /// A parameter of the first entry of `RateLimit`: `r` or `t`.
    pub(crate) fn ratelimit(&self, parameter: &str) -> Option<i64> {
        let first = self.header("ratelimit")?.split(',').next()?;
        first
            .split(';')
            .find_map(|part| part.trim().strip_prefix(parameter)?.strip_prefix('=')?.parse().ok())
    }

    /// The body as text.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    /// Whether the upstream (or a `respond` route) answered it as it should.
    pub(crate) fn passed(&self) -> bool {
        self.status == 200
    }

    /// Whether a layer refused it.
    pub(crate) fn denied(&self) -> bool {
        self.status == 429
    }
}

/// All values of a header among `headers`, in order.
pub(crate) fn lines_named<'a>(headers: &'a [(String, String)], name: &str) -> Vec<&'a str> {
    let named = headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.as_str()).collect()
}
