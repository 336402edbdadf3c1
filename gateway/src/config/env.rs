//! `${NAME}` and `${NAME:-default}` in texts; `$$` is a dollar sign.

/// Looks environment variables up.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// `text` with its variables replaced; `None` where it has none.
///
/// # Errors
/// Where a variable without a default is not set, or a reference cannot be read.
pub(super) fn expand(text: &str, lookup: Lookup<'_>) -> Result<Option<String>, String> {
    if !text.contains('$') {
        return Ok(None);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some(after) = rest.strip_prefix('{') {
            let Some((reference, after)) = after.split_once('}') else {
                return Err("`${` without its `}`, expected `${NAME}`; a dollar sign is `$$`".into());
            };
            out.push_str(&resolve(reference, lookup)?);
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    Ok(Some(out))
}

fn resolve(reference: &str, lookup: Lookup<'_>) -> Result<String, String> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    let is_name = !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if !is_name {
        return Err(format!(
            "`${{{reference}}}` names no environment variable, expected `${{NAME}}` or `${{NAME:-default}}`"
        ));
    }
    // As in a shell, an empty variable takes the default of `:-`.
    match (
        lookup(name).filter(|value| default.is_none() || !value.is_empty()),
        default,
    ) {
        (Some(value), _) => Ok(value),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => Err(format!(
            "the environment variable `{name}` is not set, expected it or a default as in `${{{name}:-default}}`"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(text: &str) -> Result<String, String> {
        let lookup = |name: &str| match name {
            "A" => Some("alpha".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        expand(text, &lookup).map(|out| out.unwrap_or_else(|| text.to_owned()))
    }

    #[test]
    fn replaces_variables_and_defaults() {
        assert_eq!(expanded("x").unwrap(), "x");
        assert_eq!(expanded("<${A}>").unwrap(), "<alpha>");
        assert_eq!(expanded("${B:-b}${A:-x}").unwrap(), "balpha");
        assert_eq!(expanded("${EMPTY}|${EMPTY:-e}|${B:-}").unwrap(), "|e|");
        assert_eq!(expanded("$$A $5 ${A}$").unwrap(), "$A $5 alpha$");
    }

    #[test]
    fn says_what_is_wrong() {
        assert!(expanded("${B}").unwrap_err().contains("`B` is not set"));
        assert!(expanded("${A").unwrap_err().contains("without its `}`"));
        assert!(expanded("${1A}").unwrap_err().contains("names no environment variable"));
    }
}
