//! A captured stack, and its display.

use std::fmt;

use crate::walk::write_place;

/// The stack of a thread at the moment when [`capture`](crate::capture) interrupted it.
///
/// The display has a line for each function up to the root, innermost first, followed by a line
/// with its source location if that is known. The first display may take a long time, because it
/// reads the debugging information of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stack {
    pub(crate) addresses: Vec<usize>,
    pub(crate) end: End,
    pub(crate) root: &'static str,
}

/// The way in which a stack ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The stack reaches the beginning of the thread.
    Whole,
    /// The stack ends before that: it is too deep, or the caller of a function is not known.
    Cut,
    /// The stack is missing, for this reason.
    Missing(&'static str),
}

impl Stack {
    /// Returns an address within each function, the innermost first: the next instruction, then the
    /// addresses of the calls. The slice is empty if the stack could not be captured.
    pub fn addresses(&self) -> &[usize] {
        &self.addresses
    }

    /// If the stack could not be captured, returns the reason.
    pub fn missing(&self) -> Option<&'static str> {
        match self.end {
            End::Missing(why) => Some(why),
            End::Whole | End::Cut => None,
        }
    }
}

impl fmt::Display for Stack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (nth, &address) in self.addresses.iter().enumerate() {
            if write_place(f, nth, address, self.root)? {
                return Ok(());
            }
        }
        match self.end {
            End::Whole => Ok(()),
            End::Cut => f.write_str("\n      ... and more"),
            End::Missing(why) => write!(f, "\n      not captured: {why}"),
        }
    }
}
