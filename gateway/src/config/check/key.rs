//! `key` of a layer.

use super::{
    super::{
        KeyPart,
        place::Place,
        raw::{self, Scalar},
        suggest, units,
    },
    context::Context,
    matching::header_name,
};

const FORMS: &[&str] = &[
    "global",
    "ip",
    "path",
    "route",
    "method",
    "host",
    "header:NAME",
    "cookie:NAME",
    "query:NAME",
    "jwt:CLAIM",
];

/// `has_jwt`: whether the file says which tokens are believed.
pub(super) fn key(item: &Place<'_>, raw: &raw::Limit, has_jwt: bool, cx: &mut Context<'_>) -> Vec<KeyPart> {
    let place = item.key("key");
    if !raw.key.is_present() {
        cx.missing(item, "key", &format!("{}, or a list of these", suggest::list(FORMS)));
    }
    let mut parts: Vec<KeyPart> = Vec::new();
    if let Some(list) = cx.shape(&place, &raw.key) {
        cx.not_empty(&place, list, "at least one part");
        cx.each(&place, list, |cx, place, field| {
            let Some(part) = cx.read(place, field, part) else {
                return;
            };
            if parts.contains(&part) {
                cx.wrong(place, "the same part a second time, expected it once");
            }
            if matches!(part, KeyPart::Jwt { .. }) && !has_jwt {
                cx.wrong(
                    place,
                    "needs to know which tokens are believed, expected a section `jwt`",
                );
            }
            parts.push(part);
        });
    }
    parts
}

fn part(scalar: &Scalar) -> Result<KeyPart, String> {
    let text = units::text(scalar)?;
    let (kind, name) = match text.split_once(':') {
        Some((kind, name)) => (kind, Some(name)),
        None => (text, None),
    };
    Ok(match (kind, name) {
        ("global", None) => KeyPart::Global,
        ("ip", None) => KeyPart::Ip,
        ("path", None) => KeyPart::Path,
        ("route", None) => KeyPart::Route,
        ("method", None) => KeyPart::Method,
        ("host", None) => KeyPart::Host,
        ("header" | "cookie" | "query", None | Some("")) => {
            return Err(format!("`{text}` names no {kind}, expected `{kind}:NAME`"));
        }
        ("header", Some(name)) => {
            let name = header_name(name)?;
            let secret = is_secret(name.as_str());
            KeyPart::Header { name, secret }
        }
        ("cookie", Some(name)) => KeyPart::Cookie(cookie_name(name)?),
        ("query", Some(name)) => KeyPart::Query {
            secret: is_secret(&name.to_ascii_lowercase()),
            name: name.to_owned(),
        },
        ("jwt", None | Some("")) => return Err(format!("`{text}` names no claim, expected `jwt:CLAIM`")),
        ("jwt", Some(claim)) => KeyPart::Jwt {
            secret: is_secret(&claim.to_ascii_lowercase()),
            claim: claim.to_owned(),
        },
        _ => return Err(unknown(text)),
    })
}

fn unknown(text: &str) -> String {
    let (kind, name) = text.split_once(':').unwrap_or((text, "NAME"));
    let kinds = FORMS
        .iter()
        .map(|form| form.trim_end_matches(":NAME").trim_end_matches(":CLAIM"));
    match suggest::nearest(kind, kinds) {
        Some(meant @ ("header" | "cookie" | "query" | "jwt")) => {
            format!("`{text}` is no key, did you mean `{meant}:{name}`?")
        }
        Some(meant) => format!("`{text}` is no key, did you mean `{meant}`?"),
        None => format!("`{text}` is no key, expected {}", suggest::list(FORMS)),
    }
}

fn cookie_name(name: &str) -> Result<String, String> {
    // RFC 6265: a cookie's name is a token, as a header's is, but case-sensitive.
    let is_token = name
        .bytes()
        .all(|b| b.is_ascii_graphic() && !br#"()<>@,;:\"/[]?={}"#.contains(&b));
    if is_token {
        return Ok(name.to_owned());
    }
    Err(format!(
        "`{name}` is not the name of a cookie, expected one such as `session`"
    ))
}

/// Whether values under this name, in lower case, must not be seen in keys.
fn is_secret(name: &str) -> bool {
    ["authorization", "cookie", "key", "token", "secret"]
        .iter()
        .any(|word| name.contains(word))
}
