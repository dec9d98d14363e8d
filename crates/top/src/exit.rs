//! How the command ends.

use std::io;
use std::process::ExitCode;

/// What the exit status of the command says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It did what was asked.
    Good,
    /// With `--check`: a claim was measured and does not hold.
    ClaimNotMet,
    /// It could not run: bad input, or a machine that refuses.
    CouldNotRun,
    /// SIGINT ended it; what had been measured by then was printed.
    Interrupted,
}

impl Exit {
    /// Returns the number that a shell sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Good => 0,
            Self::ClaimNotMet => 1,
            Self::CouldNotRun => 2,
            Self::Interrupted => INTERRUPTED_CODE,
        }
    }
}

/// 128 + SIGINT, as shells report a program that a signal ended.
pub const INTERRUPTED_CODE: u8 = 130;

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// Why the command stopped before its end.
///
/// Whatever returns one says in it, in a line for the user, what could not be done; no function of the lab repeats that.
#[derive(Debug)]
pub enum Stop {
    /// Whoever read standard output has enough: no error.
    ClosedPipe,
    /// It cannot go on; the text is one line for the user.
    CouldNotRun(String),
}

impl Stop {
    /// Makes a [`Stop::CouldNotRun`] of what was tried and what came of it.
    pub fn because(tried: &str, reason: impl std::fmt::Display) -> Self {
        Self::CouldNotRun(format!("{tried}: {reason}"))
    }
}

/// Of a write to standard output.
impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::because("cannot write the results", error)
        }
    }
}
