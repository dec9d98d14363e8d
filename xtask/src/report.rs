//! How a chore speaks: what a check found, why it could not run.

use std::fmt;
use std::io::Write;

/// Writes `text` to stdout; a reader who has gone away is no error.
pub fn data(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Writes `text` to stderr; a reader who has gone away is no error.
pub fn talk(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// The outcome of a check.
#[derive(Debug, Default)]
pub struct Findings {
    /// One entry a place where a rule is broken.
    pub broken: Vec<Finding>,
    /// What was looked at, for a reader who wonders whether anything was: `41 files`.
    pub looked_at: String,
}

/// A place where a rule is broken.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// From the workspace's root.
    pub file: String,
    /// From 1; 0 when the file as a whole is meant.
    pub line: u32,
    /// Which rule, and what to do instead.
    pub rule: String,
}

impl Finding {
    /// Makes a finding.
    pub fn new(file: impl Into<String>, line: u32, rule: impl Into<String>) -> Self {
        Self {
            file: file.into(),
            line,
            rule: rule.into(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(out, "{}: {}", self.file, self.rule),
            line => write!(out, "{}:{line}: {}", self.file, self.rule),
        }
    }
}

/// Why a chore could not run, in one line.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    /// Makes a failure that says `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
