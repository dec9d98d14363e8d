//! How a producer or a caller waits for its turn: for room, or for a reply.

use std::task::Context;
use std::time::Duration;

use sync::time;

use super::{Parker, Wakeup, spin::spin_as_waiter};
use crate::panics::Foreign;

/// Wakes a waiter when its turn has come. Left where the turn is given; dropped, as a task's waker
/// may be, under no lock.
pub type OnTurn = Foreign<Wakeup>;

/// Makes what wakes the task of `cx`.
pub fn on_turn_of_task(cx: &Context<'_>) -> OnTurn {
    // FOREIGN(turn-waker): the clone of a task's waker, on the poller, which has changed nothing and gets the panic; and the drop
    // of that clone, on who has it last, where a panic ends.
    Foreign::new(Wakeup::waker(cx.waker().clone()))
}

/// A thread that waits for its turn.
#[derive(Debug)]
pub struct Sleeper {
    parker: Parker,
    /// When it gives up.
    end_ns: Option<u64>,
}

impl Sleeper {
    /// Begins a wait of this thread, of at most `timeout`.
    pub fn new(timeout: Option<Duration>) -> Self {
        let timeout_ns = |timeout: Duration| u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Self {
            // It spins by the budget of its thread, which lives longer than one wait.
            parker: Parker::with_spin_limit(0),
            // More than five hundred years from now is never.
            end_ns: timeout.map(|timeout| time::now_ns().saturating_add(timeout_ns(timeout))),
        }
    }

    /// Makes what ends a sleep.
    pub fn on_turn(&self) -> OnTurn {
        // FOREIGN(turn-waker): a thread's, which runs nothing of a user's.
        Foreign::new(Wakeup::unpark(self.parker.unparker()))
    }

    /// Sleeps until the turn was given; returns `false` if the time ran out.
    ///
    /// # Blocking
    ///
    /// Until then. Woken by whoever fires what [`on_turn`](Self::on_turn) returned. Models never time out.
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
