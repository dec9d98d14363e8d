//! Events for the `tracing` crate, behind the feature `tracing`. They correspond to the kernel's
//! trace points of workqueues and RCU.
//!
//! Without the feature, and in a model, `off.rs` defines the same names. Its functions do nothing
//! and do not evaluate their arguments. With the feature, an event without a subscriber costs one
//! relaxed load and a comparison.
//!
//! # A subscriber is user code
//!
//! - It is called with no lock of the library held. Events that occur under the pool lock are
//!   recorded there ([`Noted`]) and emitted after the lock is released.
//! - Its panics are caught, because a panic must not end a worker's loop.
//! - It is called between the claim of an item and its push, inside an item, and inside a grace
//!   period. It must not wait there for the same item or grace period.
//! - It is not called while other threads wait for this one to leave a queue: during a visit
//!   (`queues/end.rs` of `crates/workqueue`), and between the two steps of an enqueue on an ordered
//!   queue (`route/routes.rs` there). During such a stay, a [`Held`] keeps the events of its thread
//!   and the spans that it drops, until after the stay. A subscriber may therefore cancel
//!   everything, change attributes, or drop last handles.
//! - It may drop the last handle to a queue or change attributes, because neither waits inside a
//!   subscriber. See [`is_emitting`].
//!
//! The data of an item's event is read while the item is known to exist: before it is pushed, under
//! the lock of the pool from which it is taken, or during its run.

#[cfg(not(all(feature = "tracing", not(any(loom, shuttle)))))]
#[macro_use]
#[path = "off.rs"]
mod on;
#[cfg(all(feature = "tracing", not(any(loom, shuttle))))]
#[macro_use]
mod on;

use std::fmt;

pub use on::*;

/// The data of an item that events report.
pub struct Item<'a> {
    /// Distinguishes it from other existing items.
    pub address: usize,
    /// Returns the type name of the item's function.
    pub func: fn() -> &'static str,
    pub queue: &'a str,
    /// The number of its pool, as in the names of workers.
    pub pool: usize,
}

// `on` and `off` each declare one function for each row. A row has a name, arguments, a target, a
// level, and the fields and message of the event.
events! {
    steps {
        /// An item has become pending and is about to be pushed to its pool.
        queue_work, "a work item is queued";
        /// An item has a seat of its queue. The thread that will run it has taken it.
        activate_work, "a work item has a seat of its queue";
        /// An item's function is about to be called.
        execute_start, "a work item starts to run";
        /// The item's function has returned, or panicked.
        execute_end, "a work item has run";
    }
    /// A rescuer is called to a pool.
    mayday(queue: &str, pool: usize), "afterwork::workqueue", DEBUG, { queue, pool, "a rescuer is called" };
    /// A rescuer has taken items.
    rescue(queue: &str, pool: usize, nr_items: usize), "afterwork::workqueue", DEBUG, { queue, pool, nr_items, "a rescuer has taken work items" };
    /// A problem is reported.
    report(kind: &'static str, queue: &str, text: &dyn fmt::Display), "afterwork::workqueue", WARN, { kind, queue, "{text}" };
    /// A grace period has begun.
    gp_start(flavor: &'static str, gp_seq: u64), "afterwork::rcu", DEBUG, { flavor, gp_seq, "a grace period has begun" };
    /// A grace period has ended.
    gp_end(flavor: &'static str, gp_seq: u64), "afterwork::rcu", DEBUG, { flavor, gp_seq, "a grace period has ended" };
    /// A reader delays a grace period.
    stall(thread: u32, text: &dyn fmt::Display), "afterwork::rcu", WARN, { thread, "{text}" };
}
