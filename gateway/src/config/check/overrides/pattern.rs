//! `values` of an override: text → the keys that it names.
//!
//! The text is a key as it is printed, so that what `explain`, the log or Redis show can be copied. Only values that are
//! hashed there may also be written as requests have them.

use std::net::IpAddr;

use ipnet::IpNet;
use limiter_core::Key;

use super::super::{
    super::{ClientIp, KeyPart, KeyPattern, KeyValue},
    sections,
};

/// The keys of a layer that `text` names, which counts apart by `key`.
pub(super) fn pattern(text: &str, key: &[KeyPart], client_ip: &ClientIp) -> Result<KeyPattern, String> {
    let parts: Vec<&str> = match key {
        [_] => vec![text],
        _ => split(text),
    };
    let Some((last, head)) = parts.split_last().filter(|_| !text.is_empty()) else {
        return Err("is empty, expected a value".into());
    };
    let begin = last.strip_suffix('*').filter(|begin| !ends_in_escape(begin));
    if parts.len() > key.len() || (parts.len() < key.len() && begin.is_none()) {
        return Err(format!(
            "`{text}` has {} of the {} parts of the key, expected all, joined by `|`",
            parts.len(),
            key.len()
        ));
    }
    let values = head.iter().zip(key).map(|(text, part)| value(text, part, client_ip));
    let mut values = values.collect::<Result<Vec<_>, _>>()?;
    let Some(part) = key.get(head.len()) else {
        return Err("names no key".into());
    };
    match begin {
        Some(begin) if *part != KeyPart::Global => {
            let begin = beginning(begin, part, values.is_empty())?;
            return Ok(KeyPattern::Prefix(values, begin));
        }
        _ => {}
    }
    if let [KeyPart::Ip] = key {
        let network = network(last, client_ip)?;
        if network.prefix_len() < counted(&network, client_ip) {
            return Ok(KeyPattern::Network(network));
        }
    }
    values.push(value(last, part, client_ip)?);
    Ok(KeyPattern::Exact(values))
}

/// A whole value.
fn value(text: &str, part: &KeyPart, client_ip: &ClientIp) -> Result<KeyValue, String> {
    let plain = || match unescape(text)? {
        value if value.is_empty() => Err("has an empty part, expected a value".to_owned()),
        value => Ok(value),
    };
    let secret = match part {
        KeyPart::Global if text == "*" => return Ok(KeyValue::Printed(text.to_owned())),
        KeyPart::Global => return Err(format!("`{text}` is no value of `global`, expected `*`")),
        KeyPart::Ip => {
            let network = network(text, client_ip)?;
            if network.prefix_len() < counted(&network, client_ip) {
                return Err(format!(
                    "`{network}` is wider than what is counted apart, expected {}",
                    forms(client_ip)
                ));
            }
            return Ok(KeyValue::Value(printed(&network).into_bytes()));
        }
        KeyPart::Path | KeyPart::Route | KeyPart::Method => return plain().map(KeyValue::Value),
        KeyPart::Host => return Ok(KeyValue::Value(plain()?.to_ascii_lowercase())),
        KeyPart::Header { secret, .. } | KeyPart::Query { secret, .. } | KeyPart::Jwt { secret, .. } => *secret,
        KeyPart::Cookie(_) => true,
    };
    if let Some(address) = text.strip_prefix("~ip:") {
        let network = network(address, client_ip)?;
        return Ok(KeyValue::Printed(format!("~ip:{}", printed(&network))));
    }
    if is_hash(text) {
        return Ok(KeyValue::Printed(text.to_owned()));
    }
    plain().map(if secret { KeyValue::Secret } else { KeyValue::Value })
}

/// What a value begins with; `is_first` where no whole value goes before.
fn beginning(text: &str, part: &KeyPart, is_first: bool) -> Result<KeyValue, String> {
    if text.is_empty() && is_first {
        return Err("`*` is every key, expected some text before it".into());
    }
    if text.starts_with("~ip:") {
        return Ok(KeyValue::Printed(text.to_owned()));
    }
    let is_secret = matches!(
        part,
        KeyPart::Cookie(_)
            | KeyPart::Header { secret: true, .. }
            | KeyPart::Query { secret: true, .. }
            | KeyPart::Jwt { secret: true, .. }
    );
    if is_secret && !text.is_empty() {
        return Err("values of this key are hashed, expected whole ones".into());
    }
    match unescape(text)? {
        value if value.len() > Key::BARE_MAX => Err(format!(
            "values of more than {} bytes are hashed, expected a shorter prefix",
            Key::BARE_MAX
        )),
        value if *part == KeyPart::Host => Ok(KeyValue::Value(value.to_ascii_lowercase())),
        value => Ok(KeyValue::Value(value)),
    }
}

/// An address or range that is not narrower than what is counted apart.
fn network(text: &str, client_ip: &ClientIp) -> Result<IpNet, String> {
    let network = sections::network_of(text)?;
    if network.prefix_len() > counted(&network, client_ip) {
        return Err(format!(
            "`{text}` is narrower than what is counted apart, expected {}",
            forms(client_ip)
        ));
    }
    Ok(network)
}

/// Bits of an address of this kind that are counted apart.
fn counted(network: &IpNet, client_ip: &ClientIp) -> u8 {
    match network {
        IpNet::V4(_) => client_ip.ipv4_prefix.min(32),
        IpNet::V6(_) => client_ip.ipv6_prefix.min(128),
    }
}

fn forms(client_ip: &ClientIp) -> String {
    format!(
        "`/{}` of IPv4, `/{}` of IPv6",
        client_ip.ipv4_prefix, client_ip.ipv6_prefix
    )
}

/// As keys have it.
fn printed(network: &IpNet) -> String {
    if network.prefix_len() == network.max_prefix_len() {
        IpAddr::to_string(&network.addr())
    } else {
        network.to_string()
    }
}

/// `#` and 32 hex digits.
fn is_hash(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or_default().as_bytes();
    digits.len() == 32 && digits.iter().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
}

/// The parts between bars that no backslash escapes.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '|' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn ends_in_escape(text: &str) -> bool {
    text.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// The bytes that a printed value stands for.
fn unescape(text: &str) -> Result<Vec<u8>, String> {
    let hex = |digit: &u8| char::from(*digit).to_digit(16);
    let mut value = Vec::with_capacity(text.len());
    let mut left = text.as_bytes();
    while let [first, rest @ ..] = left {
        left = rest;
        match (first, rest) {
            (b'\\', [escaped @ (b'|' | b'\\' | b'~' | b'#' | b'*'), rest @ ..]) => {
                value.push(*escaped);
                left = rest;
            }
            (b'\\', [b'x', high, low, rest @ ..]) if let (Some(high), Some(low)) = (hex(high), hex(low)) => {
                value.extend(u8::try_from(high << 4 | low));
                left = rest;
            }
            (b'\\', _) => {
                return Err(format!(
                    "`{text}` has a backslash that escapes nothing, expected `\\\\` for one"
                ));
            }
            (b'*', _) => {
                return Err(format!(
                    "`{text}` has a `*` that is not at its end, expected `\\*` for one"
                ));
            }
            (byte, _) => value.push(*byte),
        }
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
