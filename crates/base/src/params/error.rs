//! The errors of tunables.

use std::fmt;

use super::VARIABLE;

/// The error of reading tunables.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ParamError {
    /// No tunable has this name.
    UnknownKey {
        /// The name.
        key: String,
        /// A similar name, which the user may have meant.
        nearest: Option<&'static str>,
    },
    /// The tunable does not accept this value.
    BadValue {
        /// The tunable.
        key: &'static str,
        /// The value.
        value: String,
        /// The values that it accepts.
        expects: String,
    },
    /// The pair has no `=`.
    NoValue {
        /// The pair.
        pair: String,
    },
    /// The tunable is set twice.
    Twice {
        /// The tunable.
        key: &'static str,
    },
    /// The environment variable is not UTF-8.
    NotUnicode,
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownKey { key, nearest } => {
                write!(f, "unknown key {key:?}")?;
                nearest.iter().try_for_each(|nearest| write!(f, "; did you mean {nearest}?"))
            }
            Self::BadValue { key, value, expects } => {
                write!(f, "{key}={}: expected {expects}", value.escape_debug())
            }
            Self::NoValue { pair } => write!(f, "{pair:?} has no value: expected key=value"),
            Self::Twice { key } => write!(f, "{key} is set twice"),
            Self::NotUnicode => write!(f, "the environment variable {VARIABLE} is not UTF-8"),
        }
    }
}

impl std::error::Error for ParamError {}

topology::into_io_error!(ParamError, |_| ErrorKind::InvalidInput);
