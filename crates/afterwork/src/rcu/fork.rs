//! RCU in a child of `fork`.
//!
//! The child has the memory of its parent, and one of its threads. So in the child, before anything else runs there:
//!
//! | state | becomes |
//! |---|---|
//! | slots of other threads | free and parked: their sections are not there to end |
//! | slots of the thread that forked | as they were, without what a driver had asked: a section that was open is open, also one whose slot the thread has left, as it ends |
//! | a grace period under way | one that has not begun: its number is taken back, and a section that had it is made older; but where the thread that forked drives it |
//! | rights to drive and to sweep | free, but where the thread that forked had one: a user's thread that runs callbacks, or a stall handler, goes on. On one of ours the child ends when the callback comes back (`sync::fork`) |
//! | callbacks that have not run | the parent's: forgotten, with what they hold, also those behind one that forks |
//! | the thread that runs them | started by the next callback |
//! | where they run | on that thread: the threads of an executor are not there |
//!
//! Callbacks are forgotten and not kept, for the parent runs them: what they do to the world outside of the process, a
//! message, a file, would be done twice. What they would have freed in the child stays there.
//!
//! A number that is taken back is given again. Nobody can have passed by it: the grace period has not ended, cookies that
//! it would have satisfied want it still, and the one section that may carry it, that of the thread that forked, is told
//! from those that will (`Slot::inherit`).
//!
//! What is made once, the tree of the machine or the tunables, is made before the fork: another thread may be at it, and
//! the child would wait for it. `tunables.rs` and `stall.rs`, which grace periods stand on, see to theirs. Nothing of this
//! costs a reader anything.

use sync::fork::{self, Handler};

use super::{batch::place, callback::callbacks, describe, local::global};

static HANDLER: Handler = Handler {
    settle: || {
        global().tree();
    },
    before: |held| held.lock(place().executor()),
    child: || {
        global().inherit();
        callbacks().inherit();
    },
};

/// Sees to it that children of this process are sane, from now on.
#[inline]
pub(super) fn watch() {
    // First: whoever forks while that is shown waits for it.
    register();
    describe::show();
}

/// As [`watch`], for whoever is about to say where callbacks run.
pub(super) fn register() {
    fork::register(&HANDLER);
}
