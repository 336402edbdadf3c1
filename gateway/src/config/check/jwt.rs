//! `jwt`.

use std::sync::Arc;

use super::{
    super::{
        place::Place,
        raw::{self, Field, Scalar},
        units,
    },
    context::Context,
};
use crate::jwt::{Keys, Settings};

pub(super) fn jwt(raw: &raw::Config, cx: &mut Context<'_>) -> Option<Settings> {
    let place = Place::Root.key("jwt");
    let raw = cx.mapping(&place, &raw.jwt)?;
    if !raw.jwks_file.is_present() {
        cx.missing(&place, "jwks_file", "the path of a file");
    }
    let file_place = place.key("jwks_file");
    let keys = cx.part(&file_place, &raw.jwks_file).and_then(|file| {
        let keys = Keys::parse(file.content());
        let name = file.path().display();
        keys.map_err(|error| cx.wrong(&file_place, format!("`{name}`: {error}")))
            .ok()
    });
    let mut texts = |key: &str, field: &Field<raw::OneOrMany<raw::Text>>| {
        let place = place.key(key);
        let texts = cx.read_each(&place, field, "at least one text", text);
        texts.into_iter().map(str::to_owned).collect()
    };
    let (issuers, audiences) = (texts("issuer", &raw.issuer), texts("audience", &raw.audience));
    Some(Settings {
        keys: Arc::new(keys?),
        issuers,
        audiences,
    })
}

fn text(scalar: &Scalar) -> Result<&str, String> {
    match units::text(scalar)? {
        "" => Err("is empty, expected a text".into()),
        text => Ok(text),
    }
}
