//! `store`.

use std::time::Duration;

use limiter_core::{OnFailure, RedisUrl, Tls, store::UrlError};

use super::{
    super::{
        Redis, Store,
        place::Place,
        raw::{self, Scalar, Short},
        suggest, units,
    },
    context::{Context, within},
};

const DEFAULT_MAX_KEYS: u64 = 1_000_000;
/// What `on_failure` and `on_store_failure` can be.
pub(super) const ON_FAILURE: &[(&str, OnFailure)] = &[
    ("local", OnFailure::Local),
    ("open", OnFailure::Open),
    ("closed", OnFailure::Closed),
];

/// The store, and what layers do without it unless they say otherwise.
pub(super) fn store(raw: &raw::Config, cx: &mut Context<'_>) -> (Store, OnFailure) {
    let place = Place::Root.key("store");
    let memory = (memory(DEFAULT_MAX_KEYS), OnFailure::default());
    match cx.shape(&place, &raw.store) {
        None => memory,
        Some(Short::Short(word)) => {
            cx.scalar(&place, word, short);
            memory
        }
        Some(Short::Long(long)) => {
            cx.unknown_keys(&place, long);
            if long.memory.is_present() && long.redis.is_present() {
                cx.wrong_key(
                    &place.key("redis"),
                    "a second store, expected one of `memory` and `redis`",
                );
            } else if !long.memory.is_present() && !long.redis.is_present() {
                cx.missing_both(&place, ["memory", "redis"]);
            }
            let max_keys = max_keys(&place.key("memory"), long, cx);
            match redis(&place.key("redis"), long, cx) {
                Some((redis, on_failure)) => (Store::Redis(redis), on_failure),
                None => (self::memory(max_keys), OnFailure::default()),
            }
        }
    }
}

fn memory(max_keys: u64) -> Store {
    Store::Memory {
        max_keys: usize::try_from(max_keys).unwrap_or(usize::MAX),
    }
}

fn short(scalar: &Scalar) -> Result<(), String> {
    match scalar.to_string().as_str() {
        "memory" => Ok(()),
        "redis" => Err("`redis` needs a URL, expected `{redis: {url: \"redis://127.0.0.1:6379/0\"}}`".into()),
        other => Err(format!(
            "`{other}` is no store{}",
            suggest::hint(other, &["memory", "redis"])
        )),
    }
}

fn max_keys(place: &Place<'_>, raw: &raw::Store, cx: &mut Context<'_>) -> u64 {
    let Some(memory) = cx.mapping(place, &raw.memory) else {
        return DEFAULT_MAX_KEYS;
    };
    let read = within(1, u64::from(u32::MAX));
    cx.read(&place.key("max_keys"), &memory.max_keys, read)
        .unwrap_or(DEFAULT_MAX_KEYS)
}

fn redis(place: &Place<'_>, raw: &raw::Store, cx: &mut Context<'_>) -> Option<(Redis, OnFailure)> {
    let raw = cx.mapping(place, &raw.redis)?;
    let url = cx.required(place, "url", &raw.url, redis_url);
    let timeout = cx.read(&place.key("timeout"), &raw.timeout, units::positive_duration);
    let connections = cx.read(&place.key("connections"), &raw.connections, within(1, 64));
    let prefix = cx.read(&place.key("prefix"), &raw.prefix, prefix);
    let key_secret = cx.read(&place.key("key_secret"), &raw.key_secret, secret);
    let on_failure = cx.word(&place.key("on_failure"), &raw.on_failure, ON_FAILURE);
    let mut url = url?;
    encrypt(place, &mut url, cx);
    let redis = Redis {
        servers: url.servers,
        access: url.access,
        timeout: timeout.unwrap_or(Duration::from_millis(50)),
        connections: usize::try_from(connections.unwrap_or(2)).unwrap_or(usize::MAX),
        prefix: prefix.unwrap_or("gw").to_owned(),
        key_secret: key_secret.map(str::to_owned),
    };
    Some((redis, on_failure.unwrap_or_default()))
}

/// The messages do not show it: it may hold a password.
fn redis_url(scalar: &Scalar) -> Result<RedisUrl, String> {
    const FORM: &str = "expected one such as `redis://127.0.0.1:6379/0`";
    units::text(scalar)?
        .parse()
        .map_err(|error: UrlError| format!("{error}, {FORM}"))
}

/// Lets the connections be encrypted where the URL says so.
fn encrypt(place: &Place<'_>, url: &mut RedisUrl, cx: &mut Context<'_>) {
    if url.secure {
        match Tls::with_system_roots() {
            Ok(tls) => url.set_tls(&tls),
            Err(error) => cx.wrong(&place.key("url"), error.to_string()),
        }
    }
}

fn prefix(scalar: &Scalar) -> Result<&str, String> {
    let text = units::text(scalar)?;
    let is_fine = (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-' | b':'));
    if is_fine {
        return Ok(text);
    }
    Err(format!(
        "`{text}` cannot begin keys, expected 1 to 64 letters, digits, `_`, `.`, `-` or `:`"
    ))
}

fn secret(scalar: &Scalar) -> Result<&str, String> {
    match units::text(scalar).map_err(|_| "is not a text, expected one in quotes".to_owned())? {
        "" => Err("is empty, expected a secret".into()),
        secret => Ok(secret),
    }
}
