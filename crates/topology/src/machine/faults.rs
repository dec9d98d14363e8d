//! Decides whether a fault in a tree is an error or a quirk.
//!
//! A saved tree can be repaired, so its first fault is an error. The tree of the running machine
//! cannot: sandboxes show parts of it, and firmware contradicts itself. Detection therefore drops
//! each part that it cannot use, counts it, and keeps the rest.

use crate::machine::error::Error;
use crate::machine::quirk::Quirk;

/// The way in which faults in one tree are handled.
#[derive(Debug)]
pub(crate) enum Faults {
    Refuse,
    /// Each fault is ignored. The first one is kept as text.
    Ignore {
        first: Option<String>,
        /// The number of faults after the first one.
        nr_more: usize,
    },
}

impl Faults {
    pub(crate) fn ignored() -> Self {
        Self::Ignore { first: None, nr_more: 0 }
    }

    /// Returns the value of `read`, or `instead` if `read` failed and faults are ignored.
    pub(crate) fn or<T>(&mut self, read: Result<T, Error>, instead: T) -> Result<T, Error> {
        match read {
            Ok(value) => Ok(value),
            Err(error) => self.refuse(error).map(|()| instead),
        }
    }

    /// Returns the error, unless faults are ignored.
    pub(crate) fn refuse(&mut self, error: Error) -> Result<(), Error> {
        match self {
            Self::Refuse => return Err(error),
            Self::Ignore { first: Some(_), nr_more } => *nr_more += 1,
            Self::Ignore { first, .. } => *first = Some(error.to_string()),
        }
        Ok(())
    }

    /// Returns a quirk for the ignored faults, if there were any.
    pub(crate) fn quirk(self) -> Option<Quirk> {
        match self {
            Self::Refuse => None,
            Self::Ignore { first, nr_more } => first.map(|first| Quirk::Ignored { first, nr_more }),
        }
    }
}
