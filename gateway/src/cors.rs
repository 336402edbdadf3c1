//! Who may read the gateway's own answers: the fields of CORS (<https://fetch.spec.whatwg.org/#http-cors-protocol>);
//! pure.

use http::{
    HeaderMap, HeaderValue,
    header::{ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, VARY},
};

/// The fields of our answers that a script would not see otherwise.
const EXPOSED: HeaderValue = HeaderValue::from_static(
    "retry-after, ratelimit-policy, ratelimit, x-ratelimit-limit, x-ratelimit-remaining, x-ratelimit-reset, x-request-id",
);
const ORIGIN: HeaderValue = HeaderValue::from_static("origin");

/// `responses.cors`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cors {
    /// One value whoever asks: `*`, or the only origin.
    Always(HeaderValue),
    /// The origin that asks, if it is one of these.
    Listed(Vec<HeaderValue>),
}

impl Cors {
    /// What an answer to a request from `origin` allows. `None`: nobody.
    #[must_use]
    pub fn allowed(&self, origin: Option<&HeaderValue>) -> Option<HeaderValue> {
        match self {
            Self::Always(value) => Some(value.clone()),
            Self::Listed(origins) => origins.iter().find(|listed| Some(*listed) == origin).cloned(),
        }
    }

    /// Adds the fields to an answer that allows `allowed`, unless it says itself whom it allows.
    pub fn write(&self, allowed: Option<HeaderValue>, headers: &mut HeaderMap) {
        if headers.contains_key(ACCESS_CONTROL_ALLOW_ORIGIN) {
            return;
        }
        if let Some(allowed) = allowed {
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
            headers.append(ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED);
        }
        if matches!(self, Self::Listed(_)) {
            // A cache must not give one origin what was said to another, or to none.
            headers.append(VARY, ORIGIN);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(cors: &Cors, origin: Option<&'static str>, headers: &[(&'static str, &'static str)]) -> Vec<String> {
        let mut map = HeaderMap::new();
        for (name, value) in headers {
            map.append(*name, HeaderValue::from_static(value));
        }
        let origin = origin.map(HeaderValue::from_static);
        cors.write(cors.allowed(origin.as_ref()), &mut map);
        let lines = map
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.to_str().unwrap()));
        lines.filter(|line| !line.contains("x-request-id")).collect()
    }

    #[test]
    fn one_value_is_said_to_everybody() {
        let everybody = Cors::Always(HeaderValue::from_static("*"));
        for origin in [None, Some("https://a.example"), Some("null")] {
            assert_eq!(written(&everybody, origin, &[]), ["access-control-allow-origin: *"]);
        }
    }

    #[test]
    fn of_a_list_it_is_the_origin_that_asks() {
        let listed = Cors::Listed(
            ["https://a.example", "https://b.example"]
                .map(HeaderValue::from_static)
                .into(),
        );
        assert_eq!(
            written(&listed, Some("https://b.example"), &[("vary", "accept")]),
            [
                "vary: accept",
                "vary: origin",
                "access-control-allow-origin: https://b.example"
            ]
        );
        for other in [
            None,
            Some("null"),
            Some("https://a.example.evil"),
            Some("http://a.example"),
        ] {
            assert_eq!(written(&listed, other, &[]), ["vary: origin"], "{other:?}");
        }
    }

    #[test]
    fn what_an_answer_says_itself_stays() {
        let own = [("access-control-allow-origin", "https://own.example")];
        let everybody = Cors::Always(HeaderValue::from_static("*"));
        assert_eq!(
            written(&everybody, None, &own),
            ["access-control-allow-origin: https://own.example"]
        );
    }
}
