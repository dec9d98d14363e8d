//! By when a closure must have started.
//!
//! # The protocol
//!
//! An item with a deadline that has passed never starts. Whoever comes to it first says so, in the item's outcome:
//!
//! ```text
//! runner:  steps to running (as to any item);  deadline over? the closure is dropped in place of being called
//! joiner:  deadline over?  cancels (as any item is), the outcome is `Expired`;  too late? then somebody runs it: wait
//! ```
//!
//! Both go by the item's word, as a start and a cancel do. So either the item is started, or it expires, and its closure is
//! moved out once. No timer is armed for it: an item that nobody joins is found by the worker whose turn it is.

use sync::time;

/// What an item knows of when it must have started.
pub(crate) trait StartBy: Copy + Send + 'static {
    /// Whether there is a deadline.
    const IS_LIMITED: bool;

    /// Returns the deadline by the clock.
    fn at_ns(self) -> u64;

    /// Returns `true` if it is too late to start.
    fn is_over(self) -> bool;
}

/// No deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyTime;

impl StartBy for AnyTime {
    const IS_LIMITED: bool = false;

    fn at_ns(self) -> u64 {
        u64::MAX
    }

    #[inline(always)]
    fn is_over(self) -> bool {
        false
    }
}

/// A deadline, by the clock in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline(pub(crate) u64);

impl StartBy for Deadline {
    const IS_LIMITED: bool = true;

    fn at_ns(self) -> u64 {
        self.0
    }

    fn is_over(self) -> bool {
        time::now_ns() >= self.0
    }
}
