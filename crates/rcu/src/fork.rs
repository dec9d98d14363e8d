//! RCU in a child of `fork`.
//!
//! The child has the memory of its parent and one thread, the one that forked. Before anything else
//! runs in the child:
//!
//! - Slots of other threads become free and parked: the threads do not exist, so their sections
//!   have ended.
//! - The slot of the thread that forked is unchanged, except that requests of a driver are removed.
//!   An open section stays open, even one that the exiting thread left open.
//! - A running grace period becomes one that has not begun: its number is revoked, and a section
//!   that has the number gets an older one. If the thread that forked drives the grace period, it
//!   continues.
//! - The rights to drive and to sweep become free, unless the thread that forked holds one: a user
//!   thread that runs callbacks, or a stall handler, continues. On a thread of the library the
//!   child exits when the callback returns (`sync::fork`).
//! - Callbacks that have not run are leaked with their captures, including those behind a callback
//!   that forks.
//! - There is no thread that runs callbacks. The next callback starts it.
//! - There is no executor, because its threads do not exist.
//!
//! Callbacks are dropped from the child because the parent runs them. In the child they would run a
//! second time, and send a message or write a file twice. The memory that they would have freed
//! stays allocated in the child.
//!
//! A revoked number is used again. That is safe: the grace period has not ended, so no waiter has
//! passed because of it, and cookies that ask for it remain valid. Only the section of the forking
//! thread can carry the number, and `Slot::inherit` makes it older.
//!
//! The tree of the machine and the tunables are created before the fork. Otherwise another thread
//! could be creating them, and the child would wait for it forever. `tunables.rs` and `stall.rs`
//! register handlers of their own. None of this costs a reader anything.

use sync::fork::{self, Handler};

use super::{batch::place, callback::callbacks, describe, local::global, srcu};

static HANDLER: Handler = Handler {
    settle: || {
        global().tree();
    },
    before: |held| {
        held.lock(place().executor());
        srcu::hold(held);
    },
    child: || {
        global().inherit();
        callbacks().inherit();
        srcu::inherit();
    },
};

/// Enables RCU's `fork` handler, and adds RCU to the page.
#[inline]
pub(super) fn watch() {
    // Registered first, so that a thread that forks at the same time waits for `show`.
    register();
    describe::show();
}

/// Registers RCU's handler of `fork`.
pub(super) fn register() {
    fork::register(&HANDLER);
}
