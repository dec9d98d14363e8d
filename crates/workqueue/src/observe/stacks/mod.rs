//! The stacks of workers that are in an item while their pool stalls.
//!
//! A thread that another one wants the stack of may be anywhere, and so in the allocator or in the loader, under their locks.
//! To walk up a stack takes both. So the asked thread only copies: it is interrupted by a signal, and its handler leaves its
//! registers and what lies on the top of its stack on a desk (`desk.rs`). Whoever tells of the stall walks up the copy
//! (`walk.rs`). Names are looked up when a report is displayed, by who displays it.
//!
//! That is how sampling profilers do it; seastar's stall detector walks in the handler.

use std::fmt;

#[cfg(any(loom, all(feature = "stacks", not(any(shuttle, sim)))))]
pub(crate) mod desk;
#[cfg(all(feature = "stacks", not(any(loom, shuttle, sim))))]
mod take;
#[cfg(not(all(feature = "stacks", not(any(loom, shuttle, sim)))))]
mod untaken;
#[cfg(all(feature = "stacks", not(any(loom, shuttle, sim))))]
mod walk;

#[cfg(not(all(feature = "stacks", not(any(loom, shuttle, sim)))))]
pub(crate) use untaken::{add, enable, write_place};
#[cfg(all(feature = "stacks", not(any(loom, shuttle, sim))))]
pub(crate) use {
    take::{add, enable},
    walk::write_place,
};

/// Where a worker was when a stall was told: the functions that it was in.
///
/// Displayed, it is a line for each function up to the worker's own, the innermost first, and one for its place in the source where
/// that is known. The names are looked up then: the first time may take long, for it reads what the program has of debugging
/// information.
///
/// Taken where [`Params::stall_signal`](crate::params::Params::stall_signal) is set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stack {
    addresses: Vec<usize>,
    end: End,
}

/// How a stack ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(
    not(all(feature = "stacks", not(any(loom, shuttle, sim)))),
    expect(dead_code, reason = "nothing makes one")
)]
enum End {
    /// Where the thread began.
    Whole,
    /// Before that: it is too deep, or what leads on is not known.
    Cut,
    /// There is none, and why.
    Missing(&'static str),
}

impl Stack {
    /// Returns an address within each function, the innermost first: the instruction that was next, then those of the calls. Empty
    /// if the stack could not be taken.
    pub fn addresses(&self) -> &[usize] {
        &self.addresses
    }

    /// Returns why the stack could not be taken, if it could not.
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
            if write_place(f, nth, address)? {
                return Ok(());
            }
        }
        match self.end {
            End::Whole => Ok(()),
            End::Cut => f.write_str("\n      ... and more"),
            End::Missing(why) => write!(f, "\n      not taken: {why}"),
        }
    }
}
