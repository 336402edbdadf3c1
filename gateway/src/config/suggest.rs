//! The nearest known name for a misspelled one.

/// The known word that was probably meant by `word`.
pub(super) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let plain = plain(word);
    let (distance, best) = known
        .into_iter()
        .map(|name| (strsim::damerau_levenshtein(&plain, &self::plain(name)), name))
        .min_by_key(|(distance, _)| *distance)?;
    // A third of the letters may be wrong, one in a short word: further off, a guess misleads.
    let allowed = (plain.chars().count().max(best.chars().count()) / 3).max(1);
    (distance <= allowed && distance < plain.chars().count()).then_some(best)
}

/// `-`, `_` and capitals are what people mix up most.
fn plain(word: &str) -> String {
    let lower = word.chars().take(80).flat_map(char::to_lowercase);
    lower.map(|c| if c == '-' || c == ' ' { '_' } else { c }).collect()
}

/// `, did you mean `rate`?` or, where nothing is near, `, expected …` with all that is known.
pub(super) fn hint(word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(name) => format!(", did you mean `{name}`?"),
        None => format!(", expected {}", list(known)),
    }
}

/// `` `a`, `b` or `c` ``.
pub(super) fn list(words: &[&str]) -> String {
    match words {
        [] => "nothing".into(),
        [one] => format!("`{one}`"),
        [head @ .., last] => {
            let head: Vec<_> = head.iter().map(|word| format!("`{word}`")).collect();
            format!("{} or `{last}`", head.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_nearest_and_nothing_far() {
        let known = ["limit", "limits", "window", "on_failure", "key"];
        assert_eq!(nearest("limt", known), Some("limit"));
        assert_eq!(nearest("on-failure", known), Some("on_failure"));
        assert_eq!(nearest("WINDOW", known), Some("window"));
        assert_eq!(nearest("banana", known), None);
        assert_eq!(nearest("x", known), None);
    }
}
