//! Calls that change something: `POST /api/reload`, `PUT /api/config`, `DELETE /api/bans/…`.
//!
//! They are rare and may be large, so few are under way at once, and the body of one has bounds of size and time.

use std::{
    convert::Infallible,
    error::Error,
    hint::black_box,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use http::{
    HeaderMap, Request, StatusCode,
    header::{AUTHORIZATION, HOST, HeaderValue, ORIGIN, RETRY_AFTER, WWW_AUTHENTICATE},
};
use http_body_util::{BodyExt as _, LengthLimitError, Limited, combinators::UnsyncBoxBody};
use hyper::body::{Body, Bytes};
use serde_json::{Map, Value, json};
use tower::{ServiceBuilder, ServiceExt as _, util::BoxCloneSyncService};

use super::{Answer, JSON, Running, bans, problem, problem_with, respond};
use crate::{config, reload::ReloadOutcome};

/// Each may hold a body of [`config::MAX_BYTES`]; reloads themselves run one after the other.
const AT_ONCE: usize = 4;

/// For a body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

type BoxError = Box<dyn Error + Send + Sync>;

/// What is to be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Reads the file again.
    Reload,
    /// Replaces the file.
    Config,
    /// Ends a ban.
    Ban,
}

impl Change {
    /// What a path of the admin listener changes.
    pub(super) fn at(path: &str) -> Option<Self> {
        match path {
            "/api/reload" => Some(Self::Reload),
            "/api/config" => Some(Self::Config),
            _ if path.starts_with(bans::BANS) => Some(Self::Ban),
            _ => None,
        }
    }

    /// For the log.
    fn name(self) -> &'static str {
        match self {
            Self::Reload => "POST /api/reload",
            Self::Config => "PUT /api/config",
            Self::Ban => "DELETE /api/bans",
        }
    }

    /// The one method that it takes.
    pub(super) fn method(self) -> &'static str {
        match self {
            Self::Reload => "POST",
            Self::Config => "PUT",
            Self::Ban => "DELETE",
        }
    }
}

/// The client went away, or its framing was wrong.
#[derive(Debug, thiserror::Error)]
#[error("the body did not come whole")]
struct Broken;

/// A change, and the content that it brings.
#[derive(Debug)]
pub(super) struct Call {
    change: Change,
    path: String,
    body: UnsyncBoxBody<Bytes, Broken>,
}

/// Makes changes, a few at once; its only error is that it will not make another meanwhile.
pub(super) type Changes = BoxCloneSyncService<Call, Answer, BoxError>;

pub(super) fn changes(running: Arc<dyn Running>) -> Changes {
    let bounded = ServiceBuilder::new()
        .load_shed()
        .concurrency_limit(AT_ONCE)
        .service_fn(move |call: Call| {
            let running = Arc::clone(&running);
            async move { Ok::<_, Infallible>(make(call, running).await) }
        });
    BoxCloneSyncService::new(bounded)
}

/// Answers a call with the right method for its path, and logs it.
pub(super) async fn answer<B>(
    change: Change,
    request: Request<B>,
    client: SocketAddr,
    token: Option<&str>,
    changes: Changes,
) -> Answer
where
    B: Body<Data = Bytes> + Send + 'static,
{
    let answer = match token {
        Some(token) if !bears(request.headers(), token) => unauthorized(),
        None if is_of_a_foreign_page(request.headers()) => {
            let detail = "pages of other origins may change nothing; set a token of `admin`";
            problem(StatusCode::FORBIDDEN, detail)
        }
        _ => {
            let path = request.uri().path().to_owned();
            let body = request.into_body().map_err(|_| Broken).boxed_unsync();
            let made = changes.oneshot(Call { change, path, body }).await;
            made.unwrap_or_else(|_| overloaded())
        }
    };
    let (call, status) = (change.name(), answer.status().as_u16());
    if answer.status().is_success() {
        tracing::info!(%client, call, status, "admin call");
    } else {
        tracing::warn!(%client, call, status, "admin call failed");
    }
    answer
}

fn unauthorized() -> Answer {
    let detail = "expected `Authorization: Bearer` with the token of `admin`";
    let mut answer = problem(StatusCode::UNAUTHORIZED, detail);
    let scheme = HeaderValue::from_static("Bearer");
    answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    answer
}

/// Whether a browser sends this for a page that is not ours. A page may be given the name of a loopback address (DNS
/// rebinding), and then is of the same origin as this listener: hence only addresses, and `localhost`, are ours.
fn is_of_a_foreign_page(headers: &HeaderMap) -> bool {
    let Some(origin) = headers.get(ORIGIN) else {
        return false;
    };
    let host = headers
        .get(HOST)
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let is_ours = host.parse::<SocketAddr>().is_ok()
        || host.parse::<IpAddr>().is_ok()
        || host
            .split(':')
            .next()
            .is_some_and(|name| name.eq_ignore_ascii_case("localhost"));
    !is_ours || origin.as_bytes() != format!("http://{host}").as_bytes()
}

/// Whether the request has this token (RFC 6750, section 2.1).
fn bears(headers: &HeaderMap, token: &str) -> bool {
    let mut lines = headers.get_all(AUTHORIZATION).iter();
    let (Some(line), None) = (lines.next(), lines.next()) else {
        return false;
    };
    match line.as_bytes().split_at_checked(7) {
        Some((scheme, given)) if scheme.eq_ignore_ascii_case(b"Bearer ") => {
            is_same(given.trim_ascii(), token.as_bytes())
        }
        _ => false,
    }
}

/// Takes as long wherever the two differ, so that a token cannot be guessed byte by byte. Its length may be told.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
    given.len() == token.len() && differences == 0
}

async fn make(call: Call, running: Arc<dyn Running>) -> Answer {
    let Call { change, path, body } = call;
    let bytes = match read(body, BODY_TIMEOUT).await {
        Ok(bytes) => bytes,
        Err(answer) => return answer,
    };
    // Loading blocks, and may wait for Redis.
    let made = tokio::task::spawn_blocking(move || {
        let outcome = match change {
            Change::Reload => Ok(running.reload()),
            Change::Config => running.replace_config(bytes.into()),
            Change::Ban => return bans::lift(&*running, &path),
        };
        tell(outcome, running.status().config_version)
    });
    made.await.unwrap_or_else(|error| {
        tracing::error!(%error, "an admin call failed: a bug");
        problem(StatusCode::INTERNAL_SERVER_ERROR, "the call failed")
    })
}

async fn read(body: UnsyncBoxBody<Bytes, Broken>, within: Duration) -> Result<Bytes, Answer> {
    let whole = Limited::new(body, usize::try_from(config::MAX_BYTES).unwrap_or(usize::MAX)).collect();
    match tokio::time::timeout(within, whole).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let detail = format!("expected at most {} MiB", config::MAX_BYTES >> 20);
            Err(problem(StatusCode::PAYLOAD_TOO_LARGE, &detail))
        }
        Ok(Err(error)) => Err(problem(StatusCode::BAD_REQUEST, &error.to_string())),
        Err(_) => Err(problem(StatusCode::REQUEST_TIMEOUT, "the body did not come in time")),
    }
}

/// `version` is the one that runs.
fn tell(outcome: io::Result<ReloadOutcome>, version: u64) -> Answer {
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::error!(%error, "the configuration file cannot be written");
            let detail = format!("the configuration file cannot be written: {error}; nothing was changed");
            return problem(StatusCode::INTERNAL_SERVER_ERROR, &detail);
        }
    };
    let word = outcome.kind().as_str();
    let members = |name: &str, list: Value| -> Map<String, Value> {
        [("outcome", json!(word)), ("version", json!(version)), (name, list)]
            .map(|(name, value)| (name.to_owned(), value))
            .into_iter()
            .collect()
    };
    match &outcome {
        ReloadOutcome::Unchanged | ReloadOutcome::Applied { .. } => {
            let version = if let ReloadOutcome::Applied { version } = &outcome {
                *version
            } else {
                version
            };
            respond(
                StatusCode::OK,
                JSON,
                json!({"outcome": word, "version": version}).to_string(),
            )
        }
        ReloadOutcome::RestartRequired { fields } => {
            let detail = outcome.error().unwrap_or_default();
            problem_with(StatusCode::CONFLICT, &detail, members("fields", json!(fields)))
        }
        ReloadOutcome::Rejected(_) => {
            let members = members("problems", json!(outcome.problems()));
            problem_with(StatusCode::BAD_REQUEST, "the configuration cannot be used", members)
        }
    }
}

fn overloaded() -> Answer {
    let mut answer = problem(StatusCode::SERVICE_UNAVAILABLE, "other changes are under way");
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

#[cfg(test)]
mod tests {
    use std::{
        pin::Pin,
        task::{self, Poll},
    };

    use super::*;

    #[test]
    fn a_bearer_token_is_the_same_or_it_is_not() {
        let bears = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(AUTHORIZATION, line.parse().unwrap());
            }
            super::bears(&headers, "s3cret")
        };
        assert!(bears(&["Bearer s3cret"]) && bears(&["bearer  s3cret "]));
        for wrong in [
            &[][..],
            &["s3cret"],
            &["Bearer"],
            &["Bearer "],
            &["Bearer s3cre"],
            &["Bearer s3cret2"],
            &["Bearer S3cret"],
            &["Basic s3cret"],
            &["Bearer s3cret", "Bearer s3cret"],
        ] {
            assert!(!bears(wrong), "{wrong:?}");
        }
    }

    #[test]
    fn only_pages_of_this_listener_may_change_something() {
        let is_foreign = |host: &str, origin: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            if !origin.is_empty() {
                headers.insert(ORIGIN, origin.parse().unwrap());
            }
            is_of_a_foreign_page(&headers)
        };
        for (host, origin) in [
            ("gateway.test", ""),
            ("127.0.0.1:9090", "http://127.0.0.1:9090"),
            ("[::1]:9090", "http://[::1]:9090"),
            ("localhost:9090", "http://localhost:9090"),
        ] {
            assert!(!is_foreign(host, origin), "{host} {origin}");
        }
        for (host, origin) in [
            ("127.0.0.1:9090", "http://evil.test"),
            ("127.0.0.1:9090", "http://127.0.0.1:8080"),
            ("127.0.0.1:9090", "null"),
            ("rebound.test:9090", "http://rebound.test:9090"),
            ("localhost.evil.test:9090", "http://localhost.evil.test:9090"),
        ] {
            assert!(is_foreign(host, origin), "{host} {origin}");
        }
    }

    /// A body that never comes.
    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut task::Context<'_>,
        ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn a_body_that_does_not_come_is_given_up() {
        let body = Silent.map_err(|_| Broken).boxed_unsync();
        let answer = read(body, Duration::from_millis(1)).await.unwrap_err();
        assert_eq!(answer.status(), StatusCode::REQUEST_TIMEOUT);
    }
}
