//! The wait of a producer for capacity, or of a caller for a reply.

use std::task::{Context, Waker};
use std::time::Duration;

use sync::time;

use super::Parker;
use super::spin::spin_as_waiter;
use crate::panics::Foreign;

/// A wake-up for a waiter whose turn has come. It is stored with the data of the thread that grants
/// the turn. It must be dropped with no lock held, because it may own a task's waker.
pub type OnTurn = Foreign<Waker>;

/// Creates the wake-up of the task of `cx`.
pub fn on_turn_of_task(cx: &Context<'_>) -> OnTurn {
    // FOREIGN(turn-waker): the clone of a task's waker, on the polling thread. It has changed
    // nothing yet, and a panic propagates to it. Also the drop of that clone, on the last thread
    // that owns it, where a panic is caught.
    Foreign::new(cx.waker().clone())
}

/// A thread that waits for its turn.
#[derive(Debug)]
pub struct Sleeper {
    parker: Parker,
    /// The time at which the thread gives up, if it has a timeout.
    end_ns: Option<u64>,
}

impl Sleeper {
    /// Begins a wait of this thread, of at most `timeout`.
    pub fn new(timeout: Option<Duration>) -> Self {
        Self {
            // The parker does not spin. `sleep` spins with the budget of the thread, which outlives
            // this wait.
            parker: Parker::with_spin_limit(0),
            end_ns: timeout.map(time::ns_after),
        }
    }

    /// Creates the wake-up of this sleep.
    pub fn on_turn(&self) -> OnTurn {
        // FOREIGN(turn-waker): the drop of a thread's wake-up, which runs no user code.
        Foreign::new(self.parker.unparker().into())
    }

    /// Sleeps until the turn is granted. Returns `false` if the timeout expired.
    ///
    /// # Blocking
    ///
    /// Blocks until then. The thread that fires the result of [`on_turn`](Self::on_turn) wakes this
    /// one. Models never time out.
    pub fn sleep(&mut self) -> bool {
        let Self { parker, end_ns } = self;
        spin_as_waiter(|| parker.try_park()) || parker.park_until(|| *end_ns)
    }
}
