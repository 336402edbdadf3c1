//! docs/configuration.md: prose, and a table of keys for each mapping.

use std::fmt::Write as _;

use super::{
    super::raw::{Definitions, Key},
    definitions,
};

const TEMPLATE: &str = include_str!("configuration.md");

/// The page.
#[must_use]
pub fn docs() -> String {
    let (_, definitions) = definitions();
    let mut page = String::new();
    for line in TEMPLATE.lines() {
        match line
            .strip_prefix("<!-- keys: ")
            .and_then(|line| line.strip_suffix(" -->"))
        {
            Some(table) => page.push_str(&self::table(table, &definitions)),
            None => {
                page.push_str(line);
                page.push('\n');
            }
        }
    }
    page
}

/// The table that `Redis redis.` asks for: the keys of `Redis`, each with `redis.` before its name.
fn table(asked: &str, definitions: &Definitions) -> String {
    let (name, prefix) = asked.split_once(' ').unwrap_or((asked, ""));
    let keys = definitions.0.get(name).map(|definition| definition.keys.as_slice());
    let mut table = String::from("| key | meaning | value | default | example |\n|---|---|---|---|---|\n");
    for key in keys.unwrap_or_default() {
        let example = key.facts.example;
        let cells = [
            format!("`{prefix}{}`", key.name),
            key.meaning.trim_end_matches('.').to_owned(),
            key.kind.clone(),
            default(key),
            format!("`{}: {example}`", key.name),
        ];
        let cells: Vec<_> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        // Writing to a text cannot fail.
        writeln!(table, "| {} |", cells.join(" | ")).ok();
    }
    table
}

fn default(key: &Key) -> String {
    match (key.facts.required, key.facts.default) {
        (true, _) => "required".to_owned(),
        (false, "") => key.facts.otherwise.to_owned(),
        (false, default) => format!("`{default}`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/configuration.md");

    #[test]
    fn the_page_is_up_to_date() {
        let page = docs();
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(PAGE, &page).unwrap();
        }
        assert!(
            std::fs::read_to_string(PAGE).unwrap() == page,
            "docs/configuration.md differs: UPDATE_DOCS=1 cargo test -p gateway --lib docs"
        );
    }

    #[test]
    fn every_key_is_on_the_page() {
        let (_, definitions) = definitions();
        for (name, definition) in &definitions.0 {
            if !definition.keys.is_empty() {
                let mark = format!("<!-- keys: {name} ");
                assert_eq!(TEMPLATE.matches(&mark).count(), 1, "{name}");
            }
        }
    }
}
