//! Waits for a slot: spins, then yields the CPU, then sleeps until the slot's `door` is notified
//! (`slot.rs`), for short times.

use std::time::Duration;

use base::internal::wake::{machine_may_spin, report};
use sync::{hint, thread, time};

use super::leaked::{Checks, Due};

/// The number of spins before a waiter yields its CPU. They take a few microseconds.
pub(super) const NR_SPINS: u32 = 128;

/// The number of spins of an owner that waits for a call on its own slot: most of a millisecond,
/// because an owner should not lose its CPU.
pub(super) const NR_OWNER_SPINS: u32 = 1 << 14;

/// The maximum time for which an owner leaves its slot to announced callers before one operation:
/// 10 ms, about the time that a busy machine needs to schedule the caller. With a longer time, a
/// preempted caller would stop the owner.
pub(super) const HANDOFF_WAIT: Duration = Duration::from_millis(10);

/// The length of a waiter's short sleep in microseconds, about the cost of a wake-up. It bounds the
/// delay if a thread that releases the slot does not see the waiter.
pub(super) const SLEEP_US: u64 = 50;

#[derive(Debug)]
pub(super) struct Backoff {
    nr_checks: u32,
    nr_spins: u32,
}

/// The time at which a wait gives up. In a model, where no time passes, the number of checks before
/// the wait gives up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(u64);

#[derive(Debug, Default)]
pub(super) struct Turn {
    /// The time of the first poll in nanoseconds, or 0 before it. In a model, the thread's number.
    since_ns: u64,
    /// `true` if other threads may wait for the end of the call.
    pub(super) has_slept: bool,
    is_announced: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Step {
    /// Poll, and perform the check that is due.
    Look(Due),
    Nap,
}

/// Waits as a remote caller: calls `step` with [`Step::Look`] until it returns a value, and in a
/// long wait also with [`Step::Nap`]. Reports the wait after the spins, like every sleep.
pub(super) fn wait_for<R>(mut step: impl FnMut(Step) -> Option<R>) -> R {
    let mut backoff = Backoff::new(NR_SPINS);
    loop {
        if let Some(found) = step(Step::Look(Due::Nothing)) {
            return found;
        }
        if !backoff.spins() {
            break;
        }
        backoff.pass(nap);
    }
    report::while_asleep(|| {
        let mut checks = Checks::begin(time::now_ns());
        loop {
            backoff.pass(|| _ = step(Step::Nap));
            if let Some(found) = step(Step::Look(checks.due(time::now_ns()))) {
                return found;
            }
        }
    })
}

/// Waits as [`wait_for`] does, but unwinds only if `check` does, because another thread may still
/// be using the caller's stack. If the thread must not sleep here, it still sleeps for short times,
/// but does not report this.
pub(super) fn wait_out<R>(mut check: impl FnMut() -> Option<R>) -> R {
    if report::may_sleep() {
        return wait_for(|step| {
            let Step::Look(_) = step else {
                nap();
                return None;
            };
            check()
        });
    }
    let mut backoff = Backoff::new(NR_SPINS);
    loop {
        if let Some(found) = check() {
            return found;
        }
        backoff.pass(nap);
    }
}

pub(super) fn nap() {
    thread::sleep(Duration::from_micros(SLEEP_US));
}

impl Backoff {
    pub(super) fn new(nr_spins: u32) -> Self {
        Self { nr_checks: 0, nr_spins }
    }

    fn spins(&self) -> bool {
        self.nr_checks < self.nr_spins && machine_may_spin()
    }

    /// Spins once, or calls `nap` if the wait no longer spins.
    pub(super) fn pass(&mut self, nap: impl FnOnce()) {
        self.nr_checks = self.nr_checks.saturating_add(1);
        if self.spins() {
            hint::spin_loop();
        } else {
            nap();
        }
    }
}

impl Turn {
    pub(super) fn poll(&mut self) {
        if self.since_ns == 0 {
            self.since_ns = if cfg!(any(loom, shuttle)) {
                sync::identity::mine().get()
            } else {
                time::now_ns().max(1)
            };
        }
    }

    /// Records that the call, which has polled, is about to sleep. Returns the time to announce.
    pub(super) fn sleeps(&mut self) -> u32 {
        self.has_slept = true;
        self.is_announced = true;
        self.since()
    }

    /// If the call has slept, returns the time to announce.
    pub(super) fn announce(&mut self) -> Option<u32> {
        self.is_announced |= self.has_slept;
        self.has_slept.then(|| self.since())
    }

    pub(super) fn announced(&self) -> u32 {
        if self.is_announced { self.since() } else { 0 }
    }

    pub(super) fn withdraw(&mut self) -> u32 {
        let since = self.announced();
        self.is_announced = false;
        since
    }

    /// Returns the time at which the wait began, in units of about 0.1 ms, which is never 0, and
    /// wraps around after days.
    fn since(&self) -> u32 {
        if cfg!(any(loom, shuttle)) {
            return self.since_ns as u32;
        }
        (self.since_ns >> 16) as u32 | 1
    }
}

impl Deadline {
    /// In a model, the deadline passes at the second check, or at the first if `span` is zero.
    pub(super) fn after(span: Duration) -> Self {
        if cfg!(any(loom, shuttle)) {
            return Self(u64::from(!span.is_zero()));
        }
        Self(time::ns_after(span))
    }

    pub(super) fn is_over(&mut self) -> bool {
        if cfg!(any(loom, shuttle)) {
            let nr_left = self.0;
            self.0 = nr_left.saturating_sub(1);
            return nr_left == 0;
        }
        time::now_ns() >= self.0
    }
}
