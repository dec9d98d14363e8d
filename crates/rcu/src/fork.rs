//! RCU in a child of `fork`.
//!
//! The child has the memory of its parent and one thread, the one that forked. Before any other
//! code runs in the child, the following happens:
//!
//! - Slots of other threads become free and parked. These threads do not exist, so their sections
//!   have ended.
//! - The slot of the thread that forked is unchanged, except that requests from a driver are
//!   removed. An open section stays open, even one that an exiting thread has left open.
//! - A running grace period is treated as if it had not begun: its number is revoked, and a section
//!   that has the number gets an older one. If the thread that forked drives it, it continues.
//! - The rights to drive and to sweep become free, unless the thread that forked holds them. A user
//!   thread that runs callbacks or a stall handler continues. On a library thread, the child exits
//!   when the callback returns (`sync::fork`).
//! - Callbacks that have not run are leaked with their captures, including those that come after a
//!   callback that forks.
//! - No thread runs callbacks until the next callback starts one. There is no executor, because its
//!   threads do not exist.
//!
//! Callbacks do not run in the child, because the parent runs them, and they might send a message
//! or write a file twice. The memory that they would have freed stays allocated.
//!
//! A revoked number is used again. This is safe: the grace period has not ended, so no waiter has
//! continued because of it. Only the section of the forking thread can carry the number, and
//! `Slot::inherit` makes that section older.
//!
//! The tunables are read before the fork (`tunables.rs`). Otherwise another thread could be reading
//! them, and the child would wait for it forever.

use sync::fork::{self, Handler};

use super::batch::place;
use super::callback::callbacks;
use super::local::global;
use super::{describe, srcu, stall};

static HANDLER: Handler = Handler {
    before: |held| {
        held.lock(&place().executor);
        held.lock(stall::handler());
        srcu::hold(held);
    },
    child: || {
        global().inherit();
        callbacks().inherit();
        srcu::inherit();
    },
    ..Handler::IDLE
};

/// Enables RCU's `fork` handler, and adds RCU to the page.
#[inline]
pub(super) fn watch() {
    // A thread that forks at the same time waits for `show`.
    register();
    describe::show();
}

pub(super) fn register() {
    fork::register(&HANDLER);
}
