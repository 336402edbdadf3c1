//! `/api/bans`.

use http::{Response, StatusCode};
use http_body_util::Full;
use hyper::body::Bytes;
use limiter_core::{Ban, decision::ceil_secs};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

use super::{Answer, Running, json, problem, status::rfc_3339};

/// What the path of a ban begins with; the names of its layer and key follow.
pub(super) const BANS: &str = "/api/bans/";

/// All that are in force.
pub(super) fn list(bans: &[Ban]) -> Answer {
    let one = |ban: &Ban| {
        json!({
            "limit": *ban.limit,
            "key": *ban.key,
            "until": rfc_3339(ban.until),
            "seconds_left": ceil_secs(ban.left),
        })
    };
    json(bans.iter().map(one).collect::<Value>().to_string())
}

/// Ends the ban that `path` names. Blocks.
pub(super) fn lift(running: &dyn Running, path: &str) -> Answer {
    let Some((limit, key)) = named(path) else {
        return problem(StatusCode::NOT_FOUND, "expected `/api/bans/LIMIT/KEY`");
    };
    match running.lift_ban(&limit, &key) {
        Ok(true) => {
            let mut answer = Response::new(Full::new(Bytes::new()));
            *answer.status_mut() = StatusCode::NO_CONTENT;
            answer
        }
        Ok(false) => problem(StatusCode::NOT_FOUND, "there is no such ban"),
        Err(error) => {
            let detail = format!("the ban is lifted on this gateway only: {error}; ask again when it is back");
            problem(StatusCode::SERVICE_UNAVAILABLE, &detail)
        }
    }
}

/// The names of a layer and of a key in it, each percent-encoded.
fn named(path: &str) -> Option<(String, String)> {
    let (limit, key) = path.strip_prefix(BANS)?.split_once('/')?;
    let decoded = |text| percent_decode_str(text).decode_utf8().ok().map(String::from);
    Some((decoded(limit)?, decoded(key)?)).filter(|(limit, key)| !limit.is_empty() && !key.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_percent_encoded() {
        let names = |path: &str| named(path).map(|(limit, key)| format!("{limit} {key}"));
        assert_eq!(names("/api/bans/ip/203.0.113.7").as_deref(), Some("ip 203.0.113.7"));
        assert_eq!(
            names("/api/bans/ip/2001:db8::%2F64").as_deref(),
            Some("ip 2001:db8::/64")
        );
        assert_eq!(
            names("/api/bans/api/%2Fv1%2Forders%7Ca%5C%7Cb").as_deref(),
            Some("api /v1/orders|a\\|b")
        );
        assert_eq!(names("/api/bans/api//v1/orders").as_deref(), Some("api /v1/orders"));
        for path in [
            "/api/bans/",
            "/api/bans/ip",
            "/api/bans/ip/",
            "/api/bans//x",
            "/api/bans/ip/%ff",
        ] {
            assert_eq!(names(path), None, "{path}");
        }
    }
}
