//! The output of a chore: findings of checks, and failures.

use std::fmt;
use std::io::Write;
use std::process::ExitCode;

/// Writes `text` to stdout. A closed pipe is not an error.
pub fn data(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Writes `text` to stderr. A closed pipe is not an error.
pub fn talk(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

/// Reports why a chore did nothing, which is not an error.
pub fn skipped(name: &str, why: impl fmt::Display) -> ExitCode {
    talk(&format!("{name}: skipped: {why}\n"));
    ExitCode::SUCCESS
}

/// Returns the exit status of a chore. `is_good` is `true` if it found nothing wrong.
pub fn exit_code(is_good: bool) -> ExitCode {
    ExitCode::from(u8::from(!is_good))
}

#[derive(Debug, Default)]
pub struct Findings {
    pub broken: Vec<Finding>,
    /// The extent of the check, such as `41 files`.
    pub looked_at: String,
}

impl Findings {
    /// Prints the findings of the chore `name`. Returns `true` if there are none.
    pub fn report(&self, name: &str) -> bool {
        let Self { broken, looked_at } = self;
        broken.iter().for_each(|finding| data(&format!("{finding}\n")));
        match broken.len() {
            0 => data(&format!("{name}: good ({looked_at})\n")),
            nr => talk(&format!("{name}: {nr} broken ({looked_at})\n")),
        }
        broken.is_empty()
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub file: String,
    /// The line, counted from 1. 0 means the whole file.
    pub line: u32,
    /// The rule, and the remedy.
    pub rule: String,
}

impl Finding {
    pub fn new(file: impl Into<String>, line: u32, rule: impl Into<String>) -> Self {
        Self { file: file.into(), line, rule: rule.into() }
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

/// The reason why a chore could not run, in one line.
#[derive(Debug)]
pub struct Failure(String);

impl Failure {
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns a function that creates a failure from the error of an operation. `tried` is the
    /// operation, or the file.
    pub fn because<E: fmt::Display>(tried: impl fmt::Display) -> impl Fn(E) -> Self {
        move |error| Self(format!("{tried}: {error}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}
