//! The ways in which the command ends.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// The meaning of the command's exit status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The command did its task.
    Good = 0,
    /// With `--check`, a claim was measured and does not hold.
    ClaimNotMet = 1,
    /// The command could not run, because of bad input or an error of the machine.
    CouldNotRun = 2,
    /// SIGINT ended the command. The results up to that point were printed.
    Interrupted = INTERRUPTED_CODE,
}

impl Exit {
    /// Returns the number that a shell sees.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }
}

/// The exit status 128 + SIGINT, with which shells report a program that this signal killed.
pub const INTERRUPTED_CODE: u8 = 130;

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// The reason why the command stopped early.
///
/// The function that returns it describes the failed operation in one line for the user. Callers
/// add nothing to this line.
#[derive(Debug)]
pub enum Stop {
    /// The reader closed standard output. This is not an error.
    ClosedPipe,
    /// The command cannot continue. The text is one line for the user.
    CouldNotRun(String),
}

impl Stop {
    /// Returns a function that creates a [`Stop::CouldNotRun`] from the reason why an operation
    /// failed. `tried` is the operation.
    pub fn because<E: Display>(tried: impl Display) -> impl Fn(E) -> Self {
        move |reason| Self::CouldNotRun(format!("{tried}: {reason}"))
    }
}

/// Converts an error that occurred while writing to standard output.
impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::ClosedPipe
        } else {
            Self::because("cannot write the results")(error)
        }
    }
}
