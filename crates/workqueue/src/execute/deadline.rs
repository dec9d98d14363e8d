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
//! moved out once. An item that nobody joins or awaits is found by the worker whose turn it is; a task that awaits one is woken at the
//! deadline, and polls (`queues/expiry.rs`).

use std::task::Waker;

/// What an item knows of when it must have started.
pub(crate) trait StartBy: Send + 'static {
    /// Whether there is a deadline.
    const IS_LIMITED: bool;
    /// `true` if the item only brings a worker to a scope and was not queued by the user.
    const IS_TICKET: bool = false;

    /// Returns the deadline by the clock.
    fn at_ns(&self) -> u64 {
        u64::MAX
    }

    /// Returns `true` if it is too late to start.
    #[inline(always)]
    fn is_over(&self) -> bool {
        false
    }

    /// Has `waker`, and no earlier one, fired at the deadline; false where an earlier one was, for it is over. The handle's poll
    /// alone.
    fn wake_then(&self, _waker: &Waker) -> bool {
        true
    }
}

/// No deadline.
#[derive(Debug)]
pub(crate) struct AnyTime;

impl StartBy for AnyTime {
    const IS_LIMITED: bool = false;
}

/// No deadline: the item is a ticket of a scope.
#[derive(Debug)]
pub(crate) struct AsTicket;

impl StartBy for AsTicket {
    const IS_LIMITED: bool = false;
    const IS_TICKET: bool = true;
}
