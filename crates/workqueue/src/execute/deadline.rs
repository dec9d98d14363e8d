//! Deadlines by which a closure must have started.
//!
//! # The protocol
//!
//! An item whose deadline has passed never starts. The first thread that finds that the deadline
//! has passed records this in the item's outcome:
//!
//! ```text
//! runner: transition to running, as for any item;  deadline passed? drop the closure
//! joiner: deadline passed? cancel, with the outcome `Expired`;  too late? wait for the run
//! ```
//!
//! Both begin with a transition of the item's state word, as a cancel by the handle does, and only
//! one of these transitions succeeds. The closure is therefore moved out exactly once, and is
//! either called or dropped. If no thread joins the item, the worker that pops it finds that the
//! deadline has passed. A task that awaits the item is woken at the deadline, and polls
//! (`queues/expiry.rs`).

use std::task::Waker;

use item::internal::head::OfStrand;

pub(crate) trait StartBy: Send + 'static {
    const IS_LIMITED: bool;
    /// `true` if the item only brings a worker to a scope and was not queued by the user.
    const IS_TICKET: bool = false;
    const IN_STRAND: bool = false;

    /// Returns the time until the deadline. If the clock is paused, the deadline may not have
    /// passed after that time, so the caller checks again.
    fn left_ns(&self) -> u64 {
        u64::MAX
    }

    #[inline(always)]
    fn is_over(&self) -> bool {
        false
    }

    fn strand(&self) -> OfStrand {
        unreachable!("not in a strand")
    }

    /// Returns `true` if all items of the queue have been cancelled since the item was queued. Only
    /// the item's run calls this.
    #[inline(always)]
    fn is_cancelled(&self) -> bool {
        false
    }

    /// Registers `waker` to be fired at the deadline, in place of an earlier one. Returns `false`
    /// if an earlier one has already been fired. Only the handle's poll calls this.
    fn wake_then(&self, _waker: &Waker) -> bool {
        true
    }
}

pub(crate) struct AnyTime;

impl StartBy for AnyTime {
    const IS_LIMITED: bool = false;
}

/// The deadline type of the tickets of a scope, which have no deadline.
pub(crate) struct AsTicket;

impl StartBy for AsTicket {
    const IS_LIMITED: bool = false;
    const IS_TICKET: bool = true;
}
