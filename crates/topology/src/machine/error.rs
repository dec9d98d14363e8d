//! The errors of this crate.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use crate::cpuset::CpuSet;
#[cfg(feature = "synthetic")]
use crate::synthetic::SyntheticError;
use crate::text::{Mismatch, one_line, position};

/// The error of building a topology: the file, the position in it, and the fault, in one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A file or directory cannot be read, or a required one is missing.
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file or directory of a snapshot cannot be written.
    Unwritable {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The text of a file is not in the kernel's format.
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// The column in that line, counted in characters from 1.
        column: usize,
        /// The text that would have been valid at that position.
        expected: String,
        /// The text at that position, quoted, or `the end`.
        found: String,
    },
    /// A file contradicts itself or another one.
    Inconsistent {
        /// The file or directory.
        path: PathBuf,
        /// The contradiction.
        what: String,
    },
    /// The description of a synthetic machine is invalid.
    #[cfg(feature = "synthetic")]
    Synthetic(SyntheticError),
    /// None of the online CPUs is allowed.
    NothingAllowed {
        /// The CPUs that are online.
        online: CpuSet,
        /// The CPUs that may be used.
        allowed: CpuSet,
    },
}

impl Error {
    pub(crate) fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), source }
    }

    pub(crate) fn unwritable(path: &Path, source: io::Error) -> Self {
        Self::Unwritable { path: path.to_owned(), source }
    }

    /// Creates an error from `mismatch`, whose offset is relative to the whole file, `text`.
    pub(crate) fn malformed(path: &Path, text: &[u8], mismatch: Mismatch) -> Self {
        let (line, column) = position(text, mismatch.at);
        let Mismatch { expected, found, .. } = mismatch;
        Self::Malformed { path: path.to_owned(), line, column, expected, found }
    }

    pub(crate) fn inconsistent(path: &Path, what: impl Into<String>) -> Self {
        Self::Inconsistent { path: path.to_owned(), what: what.into() }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, source } if source.kind() == io::ErrorKind::NotFound => {
                write!(f, "{}: there is no such file", show(path))
            }
            Self::Unreadable { path, source } => {
                write!(f, "{}: cannot be read: {source}", show(path))
            }
            Self::Unwritable { path, source } => {
                write!(f, "{}: cannot be written: {source}", show(path))
            }
            Self::Malformed { path, line, column, expected, found } => {
                write!(f, "{}:{line}:{column}: expected {expected}, found {found}", show(path))
            }
            Self::Inconsistent { path, what } => write!(f, "{}: {what}", show(path)),
            #[cfg(feature = "synthetic")]
            Self::Synthetic(error) => fmt::Display::fmt(error, f),
            Self::NothingAllowed { online, allowed } => {
                let [online, allowed] = [online, allowed].map(or_none);
                write!(f, "no CPU is both online ({online}) and allowed ({allowed})")
            }
        }
    }
}

// There is no `source`, because the text already includes it.
impl std::error::Error for Error {}

into_io_error!(Error, |error| match error {
    Error::Unreadable { source, .. } | Error::Unwritable { source, .. } => source.kind(),
    _ => ErrorKind::InvalidData,
});

#[cfg(feature = "synthetic")]
impl From<SyntheticError> for Error {
    fn from(error: SyntheticError) -> Self {
        Self::Synthetic(error)
    }
}

fn show(path: &Path) -> String {
    one_line(&path.to_string_lossy())
}

fn or_none(cpus: &CpuSet) -> String {
    if cpus.is_empty() { "none".to_owned() } else { cpus.to_string() }
}
