//! `jwt`.

use std::sync::Arc;

use http::Uri;

use super::{
    super::{
        place::Place,
        raw::{self, Field, Scalar},
        units,
    },
    context::Context,
};
use crate::jwt::{Keys, KeysAt, Settings};

const FORM: &str = "expected one such as `https://id.example.com/jwks.json`";

pub(super) fn jwt(raw: &raw::Config, cx: &mut Context<'_>) -> Option<Settings> {
    let place = Place::Root.key("jwt");
    let raw = cx.mapping(&place, &raw.jwt)?;
    let (file_place, url_place) = (place.key("jwks_file"), place.key("jwks_url"));
    match (raw.jwks_file.is_present(), raw.jwks_url.is_present()) {
        (false, false) => cx.missing_both(&place, ["jwks_file", "jwks_url"]),
        (true, true) => cx.wrong_key(&url_place, "stands beside `jwks_file`, expected one of them"),
        _ => {}
    }
    let keys = cx.part(&file_place, &raw.jwks_file).and_then(|file| {
        let keys = Keys::parse(file.content());
        let name = file.path().display();
        keys.map_err(|error| cx.wrong(&file_place, format!("`{name}`: {error}")))
            .ok()
    });
    let url = cx.read(&url_place, &raw.jwks_url, url);
    let mut texts = |key: &str, field: &Field<raw::OneOrMany<raw::Text>>| {
        let place = place.key(key);
        let texts = cx.read_each(&place, field, "at least one text", text);
        texts.into_iter().map(str::to_owned).collect()
    };
    let (issuers, audiences) = (texts("issuer", &raw.issuer), texts("audience", &raw.audience));
    Some(Settings {
        keys: match url {
            Some(url) => KeysAt::Url(url),
            None => KeysAt::File(Arc::new(keys?)),
        },
        issuers,
        audiences,
    })
}

/// A URL of `http` or `https`, with any path.
fn url(scalar: &Scalar) -> Result<Uri, String> {
    let text = units::text(scalar)?;
    let not_a_url = || format!("`{text}` is not a URL, {FORM}");
    let uri: Uri = text.parse().map_err(|_| not_a_url())?;
    match uri.scheme_str() {
        Some("http" | "https") => {}
        _ => return Err(not_a_url()),
    }
    let authority = uri.authority().ok_or_else(not_a_url)?;
    if authority.as_str().contains('@') {
        return Err(format!("a URL with a user, {FORM}"));
    }
    let has_port = authority.host().len() != authority.as_str().len();
    if authority.host().is_empty() || (has_port && authority.port_u16().is_none_or(|port| port == 0)) {
        return Err(not_a_url());
    }
    Ok(uri)
}

fn text(scalar: &Scalar) -> Result<&str, String> {
    match units::text(scalar)? {
        "" => Err("is empty, expected a text".into()),
        text => Ok(text),
    }
}
