//! Where a configuration is wrong, and how that is told.

use std::fmt;

/// Everything that is wrong with a configuration: at least one problem, in the order of the file.
#[derive(Clone, Debug)]
pub struct ConfigError {
    /// The file's name, as it was given.
    file: String,
    problems: Vec<Problem>,
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// From 1; 0 where the file as a whole is meant.
    pub line: usize,
    /// From 1, in characters.
    pub column: usize,
    /// `limits[0].rate`; empty where the file as a whole is meant.
    pub path: String,
    /// What is wrong, what was expected.
    pub message: String,
}

impl ConfigError {
    /// The problems found in `file`.
    #[must_use]
    pub fn new(file: impl Into<String>, problems: Vec<Problem>) -> Self {
        Self {
            file: file.into(),
            problems,
        }
    }

    /// The problems, in the order of the file.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("\n")?;
            }
            write!(f, "{}:{problem}", self.file)?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.line > 0 {
            write!(f, "{}:{}:", self.line, self.column)?;
        }
        if !self.path.is_empty() {
            write!(f, " {}:", self.path)?;
        }
        write!(f, " {}", self.message)
    }
}

impl std::error::Error for ConfigError {}
