//! Waiting for a slot: look, then give the CPU away, then nap.

use std::time::Duration;

use sync::{hint, thread};

use crate::wake::{machine_may_spin, report};

/// How often a waiter looks at once before it gives its CPU away: a few microseconds, several short operations.
const NR_SPINS: u32 = 128;

/// How often an owner looks that waits for a section on its own slot: most of a millisecond. Longer than any section
/// should take, for an owner that gives its CPU away loses the peace that all this is for.
const NR_OWNER_SPINS: u32 = 1 << 14;

/// How often it gives its CPU away before it naps. A guess: about as many turns as threads may share a CPU.
const NR_YIELDS: u32 = 32;

/// How long a nap is, in microseconds: of the order of a wake-up, which it replaces.
const NAP_US: u64 = 50;

/// One wait.
#[derive(Debug)]
pub(super) struct Patience {
    nr_looks: u32,
    nr_spins: u32,
}

/// When a wait is given up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    #[cfg(not(any(loom, shuttle)))]
    limit_ns: u64,
    /// In a model, where no time passes: how often it was asked.
    #[cfg(any(loom, shuttle))]
    nr_asked: u32,
}

/// Looks until there is something to return, as a remote caller.
///
/// When it has spun enough it says so, as all waits do that may sleep.
pub(super) fn wait_for<R>(mut look: impl FnMut() -> Option<R>) -> R {
    let mut patience = Patience::of_caller();
    loop {
        if let Some(found) = look() {
            return found;
        }
        if !patience.spins() {
            break;
        }
        patience.pass_time();
    }
    report::while_asleep(|| {
        loop {
            patience.pass_time();
            if let Some(found) = look() {
                return found;
            }
        }
    })
}

/// Looks as [`wait_for`] does, and does not unwind if `look` does not: for a caller whose stack somebody else is at.
///
/// One that may not sleep here naps without a word.
pub(super) fn wait_out<R>(mut look: impl FnMut() -> Option<R>) -> R {
    if report::may_sleep() {
        return wait_for(look);
    }
    let mut patience = Patience::of_caller();
    loop {
        if let Some(found) = look() {
            return found;
        }
        patience.pass_time();
    }
}

impl Patience {
    /// Begins the wait of a remote caller.
    fn of_caller() -> Self {
        Self {
            nr_looks: 0,
            nr_spins: NR_SPINS,
        }
    }

    /// Begins the wait of an owner for its own slot.
    pub(super) fn of_owner() -> Self {
        Self {
            nr_looks: 0,
            nr_spins: NR_OWNER_SPINS,
        }
    }

    fn spins(&self) -> bool {
        self.nr_looks < self.nr_spins && machine_may_spin()
    }

    /// Lets a little time pass before the next look.
    ///
    /// # Blocking
    ///
    /// At most 50 µs and what the system adds; nobody has to end a nap.
    pub(super) fn pass_time(&mut self) {
        self.nr_looks = self.nr_looks.saturating_add(1);
        if self.spins() {
            hint::spin_loop();
        } else if self.nr_looks < self.nr_spins + NR_YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(NAP_US));
        }
    }
}

impl Deadline {
    /// Makes one that is over `span` from now; a model's is over when it is asked for the second time, or at once
    /// if that is now.
    pub(super) fn after(span: Duration) -> Self {
        #[cfg(not(any(loom, shuttle)))]
        {
            let span_ns = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
            Self {
                limit_ns: sync::time::now_ns().saturating_add(span_ns),
            }
        }
        #[cfg(any(loom, shuttle))]
        {
            let nr_asked = u32::from(span.is_zero());
            Self { nr_asked }
        }
    }

    pub(super) fn is_over(&mut self) -> bool {
        #[cfg(any(loom, shuttle))]
        {
            self.nr_asked += 1;
            self.nr_asked > 1
        }
        #[cfg(not(any(loom, shuttle)))]
        {
            sync::time::now_ns() >= self.limit_ns
        }
    }
}
