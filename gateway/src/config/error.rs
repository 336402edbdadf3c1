//! Where a configuration is wrong, and how that is told.

use std::{fmt, sync::Arc};

use anstyle::{AnsiColor, Style};

use super::files::UsedFile;

/// Everything that is wrong with a configuration: at least one problem, in the order of the file; then those of the files
/// that it names.
#[derive(Clone)]
pub struct ConfigError {
    /// The file's name, as it was given.
    file: String,
    /// What the problems point into; empty where the file could not be read.
    text: Arc<str>,
    problems: Vec<Problem>,
    /// What is wrong with files that it names.
    elsewhere: Vec<ConfigError>,
    /// All files that it names, as far as it could be read.
    files: Vec<UsedFile>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where; `None` where the file as a whole is meant.
    pub spot: Option<Spot>,
    /// `limits[0].rate`; empty where the file as a whole is meant.
    pub path: String,
    /// What is wrong, what was expected.
    pub message: String,
}

/// Characters of a message that are told: it may quote any value of the file.
const LONGEST_MESSAGE: usize = 500;
/// Characters of a line of the file that are shown.
const LONGEST_EXCERPT: usize = 160;

/// A position in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Spot {
    /// From 1.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// Characters that are meant, at least 1.
    pub width: usize,
}

impl Spot {
    /// The first character.
    pub const START: Self = Self {
        line: 1,
        column: 1,
        width: 1,
    };
}

/// Keys whose values must not be seen.
const SECRET_KEYS: [&str; 2] = ["token", "key_secret"];

impl ConfigError {
    /// The problems found in `file`, whose content is `text`.
    #[must_use]
    pub fn new(file: impl Into<String>, text: impl Into<Arc<str>>, mut problems: Vec<Problem>) -> Self {
        problems.sort_by_key(|problem| problem.spot);
        Self {
            file: file.into(),
            text: text.into(),
            problems,
            elsewhere: Vec::new(),
            files: Vec::new(),
        }
    }

    /// With what is wrong `elsewhere`, in files that the configuration names, and all of these `files`.
    pub(super) fn with(mut self, elsewhere: Vec<Self>, files: Vec<UsedFile>) -> Self {
        (self.elsewhere, self.files) = (elsewhere, files);
        self
    }

    /// The files that the configuration names, as far as it could be read.
    pub(crate) fn files(&self) -> &[UsedFile] {
        &self.files
    }

    /// How many problems there are, in all files.
    #[must_use]
    pub fn count(&self) -> usize {
        self.problems.len() + self.elsewhere.iter().map(Self::count).sum::<usize>()
    }

    /// A file that could not be used as a whole.
    #[must_use]
    pub fn whole_file(file: impl Into<String>, message: impl Into<String>) -> Self {
        let problem = Problem {
            spot: None,
            path: String::new(),
            message: message.into(),
        };
        Self::new(file, "", vec![problem])
    }

    /// The problems of the file itself, in its order.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Each problem as `FILE:LINE:COL: path: what is wrong`.
    #[must_use]
    pub fn to_lines(&self) -> Vec<String> {
        let lines = self.problems.iter().map(|problem| format!("{}:{problem}", self.file));
        lines.chain(self.elsewhere.iter().flat_map(Self::to_lines)).collect()
    }

    /// For a terminal: each problem with its line of the file and a caret under the place.
    #[must_use]
    pub fn render(&self, is_colored: bool) -> String {
        let own = render(&self.file, &self.text, &self.problems, None, is_colored);
        let elsewhere = self.elsewhere.iter().map(|error| error.render(is_colored));
        std::iter::once(own).chain(elsewhere).collect()
    }
}

/// As [`ConfigError::render`], of what is only doubtful in `file`, whose content is `text`.
#[must_use]
pub fn render_warnings(file: &str, text: &str, warnings: &[Problem], is_colored: bool) -> String {
    render(file, text, warnings, Some(" warning:"), is_colored)
}

fn render(file: &str, text: &str, problems: &[Problem], word: Option<&str>, is_colored: bool) -> String {
    let color = if word.is_some() {
        AnsiColor::Yellow
    } else {
        AnsiColor::Red
    };
    let (bold, colored) = match is_colored {
        true => (Style::new().bold(), color.on_default()),
        false => (Style::new(), Style::new()),
    };
    let word = word
        .map(|word| format!("{colored}{word}{colored:#}{bold}"))
        .unwrap_or_default();
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().collect();
    let mut out = String::new();
    for problem in problems {
        let place = problem.place();
        let rest = problem.rest();
        out.push_str(&format!("{bold}{file}:{place}{word}{rest}{bold:#}\n"));
        let Some(spot) = problem.spot else { continue };
        let Some(line) = spot.line.checked_sub(1).and_then(|at| lines.get(at)) else {
            continue;
        };
        let number = spot.line.to_string();
        let (line, column) = excerpt(&without_secrets(line), spot.column - 1);
        let left = line.chars().count().saturating_sub(column);
        let carets = "^".repeat(spot.width.clamp(1, left.max(1)));
        // A tab before the caret stays a tab, so that the two lines keep step.
        let before = line.chars().take(column);
        let before: String = before.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
        let gap = " ".repeat(number.len());
        out.push_str(&format!(
            " {number} | {line}\n {gap} | {before}{colored}{carets}{colored:#}\n"
        ));
    }
    out
}

/// A line with asterisks in place of what must not be seen, character by character, so that columns stay what they are:
/// who is named before the host of a URL, and the values of keys that are secrets.
fn without_secrets(line: &str) -> String {
    let mut chars: Vec<char> = line.chars().collect();
    let mut hide = |from: usize, to: usize| chars.iter_mut().take(to).skip(from).for_each(|c| *c = '*');
    let place = |byte: usize| line.get(..byte).map_or(0, |before| before.chars().count());
    let mut rest = 0;
    while let Some(found) = line.get(rest..).and_then(|rest| rest.find("://")) {
        let begin = rest + found + 3;
        let word = line.get(begin..).unwrap_or_default();
        let word = word.split([' ', '\t', '"', '\'']).next().unwrap_or_default();
        if let Some(at) = word.rfind('@') {
            hide(place(begin), place(begin + at));
        }
        rest = begin;
    }
    for key in SECRET_KEYS {
        for (found, _) in line.match_indices(key) {
            let value = line.get(found + key.len()..).unwrap_or_default();
            let Some(value) = value.trim_start_matches(['"', '\'']).strip_prefix(':') else {
                continue;
            };
            let value = value.trim_start();
            let begin = line.len() - value.len();
            let len = value.find([',', '}']).unwrap_or(value.len());
            hide(place(begin), place(begin + len));
        }
    }
    chars.into_iter().collect()
}

/// As much of a line as fits a terminal, with `column` (from 0) in it, and where that is then. What would move the cursor
/// is replaced.
fn excerpt(line: &str, column: usize) -> (String, usize) {
    let is_long = line.chars().nth(LONGEST_EXCERPT).is_some();
    let start = if is_long {
        column.saturating_sub(LONGEST_EXCERPT / 3)
    } else {
        0
    };
    let shown = line.chars().skip(start).take(LONGEST_EXCERPT);
    let harmless = |c: char| {
        if c.is_control() && c != '\t' {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    };
    (shown.map(harmless).collect(), column - start)
}

/// A message as one line of bounded length, whatever it quotes: what is left out is in its middle.
fn one_line(message: &str) -> String {
    let count = message.chars().count();
    let cut = count > LONGEST_MESSAGE;
    let (begin, end) = (LONGEST_MESSAGE * 2 / 3, count.saturating_sub(LONGEST_MESSAGE / 3));
    let mut line = String::new();
    for (at, c) in message.chars().enumerate() {
        match c {
            _ if cut && at == begin => line.push('\u{2026}'),
            _ if cut && (begin..end).contains(&at) => {}
            _ if c.is_control() => line.extend(c.escape_default()),
            _ => line.push(c),
        }
    }
    line
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_lines().join("\n"))
    }
}

impl fmt::Debug for ConfigError {
    // Without the text, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConfigError")
            .field("file", &self.file)
            .field("problems", &self.problems)
            .field("elsewhere", &self.elsewhere)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.place(), self.rest())
    }
}

impl Problem {
    /// `24:5:`, or nothing.
    fn place(&self) -> String {
        let place = self.spot.map(|spot| format!("{}:{}:", spot.line, spot.column));
        place.unwrap_or_default()
    }

    /// ` limits[0].rate: what is wrong`
    fn rest(&self) -> String {
        let path = if self.path.is_empty() {
            String::new()
        } else {
            format!(" {}:", one_line(&self.path))
        };
        format!("{path} {}", one_line(&self.message))
    }
}

impl std::error::Error for ConfigError {}
