//! A captured stack, and its display.

use std::fmt;

use crate::walk::write_place;

/// The functions in which a thread was when [`capture`](crate::capture) asked it.
///
/// The display has a line for each function up to the root, the innermost first, and one for its
/// place in the source if that is known. The names are resolved when it is displayed. The first
/// display may take a long time, because it reads the debugging information of the program.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stack {
    pub(crate) addresses: Vec<usize>,
    pub(crate) end: End,
    pub(crate) root: &'static str,
}

/// The way in which a stack ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// At the beginning of the thread.
    Whole,
    /// Before the beginning of the thread: the stack is too deep, or the caller of a function is
    /// not known.
    Cut,
    /// The stack is missing, for this reason.
    Missing(&'static str),
}

impl Stack {
    /// Returns an address within each function, the innermost first: the next instruction, then the
    /// addresses of the calls. Empty if the stack could not be captured.
    pub fn addresses(&self) -> &[usize] {
        &self.addresses
    }

    /// Returns the reason if the stack could not be captured.
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
