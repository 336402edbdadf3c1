//! `store`.

use std::time::Duration;

use limiter_core::{
    OnFailure, RedisUrl, Servers, Tls,
    store::{ClientIdentity, TlsError, UrlError},
};

use super::{
    super::{
        Redis, Store, UsedFile,
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
                Some((redis, on_failure)) => (Store::Redis(Box::new(redis)), on_failure),
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
    let mut url = cx.required(place, "url", &raw.url, redis_url);
    let timeout = cx.read(&place.key("timeout"), &raw.timeout, units::positive_duration);
    let connections = cx.read(&place.key("connections"), &raw.connections, within(1, 64));
    let prefix = cx.read(&place.key("prefix"), &raw.prefix, prefix);
    let key_secret = cx.read(&place.key("key_secret"), &raw.key_secret, secret);
    let on_failure = cx.word(&place.key("on_failure"), &raw.on_failure, ON_FAILURE);
    encrypt(place, raw, url.as_mut(), cx);
    let url = url?;
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
fn encrypt(item: &Place<'_>, raw: &raw::Redis, url: Option<&mut RedisUrl>, cx: &mut Context<'_>) {
    let place = item.key("tls");
    let tls = cx.mapping(&place, &raw.tls);
    if let Some(url) = url.as_deref().filter(|url| !url.secure && raw.tls.is_present()) {
        cx.wrong_key(
            &place,
            format!("nothing is encrypted, expected {} in the URL", encrypted(url)),
        );
    }
    let ca = tls.and_then(|tls| cx.file(&place.key("ca"), &tls.ca));
    let cert = tls.and_then(|tls| cx.file(&place.key("cert"), &tls.cert));
    let key = tls.and_then(|tls| cx.file(&place.key("key"), &tls.key));
    if let Some(tls) = tls {
        match (tls.cert.is_present(), tls.key.is_present()) {
            (true, false) => cx.missing(&place, "key", "the file of the certificate's private key"),
            (false, true) => cx.missing(&place, "cert", "the file of the key's certificate"),
            _ => {}
        }
        let unread = |field: &raw::Field<_>, file: &Option<UsedFile>| field.is_present() && file.is_none();
        if unread(&tls.ca, &ca) || unread(&tls.cert, &cert) || unread(&tls.key, &key) {
            return;
        }
    }
    let Some(url) = url.filter(|url| url.secure) else {
        return;
    };
    let identity = cert.as_ref().zip(key.as_ref());
    let identity = identity.map(|(cert, key)| ClientIdentity {
        cert: cert.content(),
        key: key.content(),
    });
    match Tls::new(ca.as_ref().map(UsedFile::content), identity) {
        Ok(tls) => url.set_tls(&tls),
        Err(error) => cx.wrong(&at(&error, item, &place), error.to_string()),
    }
}

/// The scheme that the URL would have with TLS.
fn encrypted(url: &RedisUrl) -> &'static str {
    match url.servers {
        Servers::Standalone(_) => "`rediss://`",
        Servers::Sentinel { .. } => "`rediss-sentinel://`",
        Servers::Cluster(_) => "`rediss-cluster://`",
    }
}

/// Where that stands of which an error tells.
fn at<'a>(error: &TlsError, item: &'a Place<'a>, tls: &'a Place<'a>) -> Place<'a> {
    match error {
        TlsError::Ca(_) => tls.key("ca"),
        TlsError::Cert(_) => tls.key("cert"),
        TlsError::Key(_) | TlsError::KeyMismatch => tls.key("key"),
        _ => item.key("url"),
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
