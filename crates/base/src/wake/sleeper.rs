//! The wait of a producer for capacity, or of a caller for a reply.

use std::task::Context;
use std::time::Duration;

use sync::time;

use super::{Parker, Wakeup, spin::spin_as_waiter};
use crate::panics::Foreign;

/// Wakes a waiter when its turn has come. It is stored where the turn is granted, and must be
/// dropped with no lock held, because it may own a task's waker.
pub type OnTurn = Foreign<Wakeup>;

/// Creates the wake-up of the task of `cx`.
pub fn on_turn_of_task(cx: &Context<'_>) -> OnTurn {
    // FOREIGN(turn-waker): the clone of a task's waker, on the poller, which has changed nothing
    // and gets the panic; and the drop of that clone, on the last thread that has it, where a panic
    // is caught.
    Foreign::new(Wakeup::waker(cx.waker().clone()))
}

/// A thread that waits for its turn.
#[derive(Debug)]
pub struct Sleeper {
    parker: Parker,
    /// The time at which it gives up.
    end_ns: Option<u64>,
}

impl Sleeper {
    /// Begins a wait of this thread, of at most `timeout`.
    pub fn new(timeout: Option<Duration>) -> Self {
        let timeout_ns = |timeout: Duration| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Self {
            // The thread's own budget is used for spinning, because it outlives this wait.
            parker: Parker::with_spin_limit(0),
            // The addition saturates after more than five hundred years.
            end_ns: timeout.map(|timeout| time::now_ns().saturating_add(timeout_ns(timeout))),
        }
    }

    /// Creates the wake-up of this sleep.
    pub fn on_turn(&self) -> OnTurn {
        // FOREIGN(turn-waker): a thread's wake-up, which runs no user code.
        Foreign::new(Wakeup::unpark(self.parker.unparker()))
    }

    /// Sleeps until the turn was granted. Returns `false` if the timeout expired.
    ///
    /// # Blocking
    ///
    /// Blocks until then. The thread that fires the result of [`on_turn`](Self::on_turn) wakes it.
    /// Models never time out.
    pub fn sleep(&mut self) -> bool {
        let parker = &mut self.parker;
        if spin_as_waiter(|| parker.try_park()) {
            return true;
        }
        let Some(end_ns) = self.end_ns else {
            parker.park();
            return true;
        };
        let left_ns = end_ns.saturating_sub(time::now_ns());
        left_ns > 0 && parker.park_timeout(Duration::from_nanos(left_ns))
    }
}
