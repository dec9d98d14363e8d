//! RCU in a child of `fork`.
//!
//! The child has the memory of its parent and one thread, the one that forked. Before anything else runs in the child:
//!
//! | state | becomes |
//! |---|---|
//! | slots of other threads | free and parked: the threads do not exist, so their sections have ended |
//! | the slot of the thread that forked | unchanged, but for questions of a driver, which are removed. An open section stays open, also one that the thread left open as it ends |
//! | a running grace period | one that has not begun: its number is taken back, and a section that has the number gets an older one. Unless the thread that forked drives it |
//! | the rights to drive and to sweep | free, unless the thread that forked has one: a user's thread that runs callbacks, or a stall handler, goes on. On a thread of the library the child ends when the callback returns (`sync::fork`) |
//! | callbacks that have not run | forgotten, with what they hold, also those behind a callback that forks |
//! | the thread that runs them | none: the next callback starts it |
//! | the executor | none: its threads do not exist |
//!
//! Callbacks are forgotten because the parent runs them. In the child they would run a second time, and send a message or
//! write a file twice. What they would have freed stays allocated in the child.
//!
//! A number that is taken back is used again. That is safe: the grace period has not ended, so no waiter has passed by it,
//! and cookies that ask for it still do. One section may carry the number, that of the thread that forked, and
//! `Slot::inherit` makes it older.
//!
//! The tree of the machine and the tunables are made before the fork. Otherwise another thread could be making them, and
//! the child would wait for it for ever. `tunables.rs` and `stall.rs` register handlers of their own. A reader pays nothing
//! for all of this.

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

/// Registers RCU's handler of `fork`, and shows RCU on the page.
#[inline]
pub(super) fn watch() {
    // First, so that a thread that forks meanwhile waits for `show`.
    register();
    describe::show();
}

/// Registers RCU's handler of `fork`.
pub(super) fn register() {
    fork::register(&HANDLER);
}
