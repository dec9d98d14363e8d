//! Lends a thread's group seats while the thread waits inside an item.
//!
//! # The protocol
//!
//! A thread has at most one seat in each group: a worker acquires it for a batch, a helper for the
//! outermost run of the group on its stack. The thread releases these seats before it sleeps in one
//! of the library's waits, and reacquires them afterwards without waiting for them:
//!
//! ```text
//! wait:  leave each group of the runs on this stack;  sleep;  count in each group again
//! ```
//!
//! - *A waiter keeps no seat.* Otherwise an item that waits for an item of another queue of its
//!   group might wait for itself. Twin `group: a waiter keeps its seats`.
//! - *A returning thread does not wait for a seat*, because its item may hold a lock that the
//!   holder of the seat needs. More than `max_active` threads may therefore run for a while. The
//!   excess is at most the number of threads that have waited. No further item starts until the
//!   count has fallen below `max_active`. Twin `group: a returning thread asks`.
//!
//! A thread that blocks in another way, even in [`blocking`](crate::blocking), keeps its seats,
//! because a group limits the threads that use a disk or a device, and such threads block. The seat
//! of the queue itself is never lent to another thread, as in the kernel.
//!
//! The runs on this stack show which seats the thread has: each run that has a seat in its queue
//! also has one in the group, either its own or that of an outer run. A thread may continue the
//! runs of a thread that waits for it (`wait.rs`). The waiting thread has lent its seats, so a
//! helper acquires its own.

use std::cell::Cell;

use base::internal::wake::report;
use sync::fork::{self, Handler};
use sync::twin;
use sync::unmodelled::Arc;

use super::run::{self, depth};
use crate::pools::pwq::{Pwq, WaitingPwq};
use crate::pools::seats::{GroupGate, HelperSeats};

sync::thread_local! {
    /// The number of runs on this stack from before a fork. Their seats belong to the parent.
    static NR_OF_PARENT: Cell<u32> = Cell::new(0)
}

static HANDLER: Handler = Handler {
    settle: || {
        report::lend_by(lend);
    },
    child: || NR_OF_PARENT.with(|nr_runs| nr_runs.set(depth())),
    ..Handler::IDLE
};

pub(crate) fn begin() {
    fork::register(&HANDLER);
    report::lend_by(lend);
}

/// Returns the home of each run on this stack that has a seat there. Omits runs from before a fork.
fn own_homes<'a>() -> impl Iterator<Item = &'a Pwq> {
    run::own_homes(NR_OF_PARENT.with(Cell::get))
}

/// Acquires the seats that a helper needs to run an item of `home`. `lent` is `true` if an outer
/// run of the queue on this thread lends its seat.
#[inline]
pub(crate) fn try_help(home: &Pwq, lent: bool) -> Option<HelperSeats> {
    home.try_help(lent, |group| own_homes().any(|home| home.is_in(group)))
}

/// Releases this thread's group seats if `lends` is set; otherwise reacquires them.
fn lend(lends: bool) {
    if twin::armed("group: a waiter keeps its seats") {
        return;
    }
    // The runs do not change while the thread sleeps, so both calls find the same seats.
    let mut known: Vec<&GroupGate> = Vec::new();
    for home in own_homes() {
        let Some(group) = &home.group else { continue };
        if known.iter().any(|it| Arc::ptr_eq(it, group)) {
            continue;
        }
        known.push(group);
        if !lends {
            group.count();
        } else if let Some(waiter) = home.leave_group() {
            WaitingPwq::take_seat(waiter);
        }
    }
}
