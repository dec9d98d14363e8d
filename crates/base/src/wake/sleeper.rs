//! The wait of a producer for capacity, or of a caller for a reply.

use std::task::{Context, Waker};
use std::time::Duration;

use sync::time;

use super::Parker;
use super::spin::spin_as_waiter;
use crate::panics::Foreign;

/// A wake-up for a waiter whose turn has come. It must be dropped with no lock held, because it may
/// own a task's waker.
pub type OnTurn = Foreign<Waker>;

pub fn on_turn_of_task(cx: &Context<'_>) -> OnTurn {
    // FOREIGN(turn-waker): the clone of a task's waker, on the polling thread, to which a panic
    // propagates before any change. Also the drop of that clone, where a panic is caught.
    Foreign::new(cx.waker().clone())
}

/// A thread that waits for its turn.
#[derive(Debug)]
pub struct Sleeper {
    parker: Parker,
    end_ns: Option<u64>,
}

impl Sleeper {
    pub fn new(timeout: Option<Duration>) -> Self {
        Self {
            // `sleep` spins with the budget of the thread, which outlives this wait.
            parker: Parker::with_spin_limit(0),
            end_ns: timeout.map(time::ns_after),
        }
    }

    pub fn on_turn(&self) -> OnTurn {
        // FOREIGN(turn-waker): the drop of a thread's wake-up, which runs no user code.
        Foreign::new(self.parker.unparker().into())
    }

    /// Blocks until the thread that fires the result of [`on_turn`](Self::on_turn) wakes this one.
    /// Returns `false` if the timeout expired, which never happens in a model.
    pub fn sleep(&mut self) -> bool {
        let Self { parker, end_ns } = self;
        spin_as_waiter(|| parker.try_park()) || parker.park_until(|| *end_ns)
    }
}
