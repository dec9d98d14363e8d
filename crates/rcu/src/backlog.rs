//! Bounds lists of callbacks: threads that add callbacks faster than they run wait for a moment.
//!
//! A list is *above its mark* if it holds more callbacks than `rcu.qhimark`. A thread that adds to
//! such a list waits until a sweep takes the list, if the thread may wait. Threads that add
//! callbacks faster than they can run are thus slowed down to the speed at which callbacks run, and
//! while one list of callbacks runs, the next one grows little beyond the mark.
//!
//! A wait for callbacks must not last forever, because `call` may be used under a lock that a
//! callback or a reader needs. Each wait therefore ends after a limited time ([`FIRST_NS`]), even
//! if nothing has changed. The list may then grow by another mark's worth of callbacks before
//! threads wait again, twice as long, up to [`LONGEST_NS`]. This bounds the growth of memory while
//! a reader delays callbacks, and it is reported. A sweep that takes the list resets it to the
//! first mark.
//!
//! The waiting thread runs no callbacks itself, because it may hold a lock that one of them takes.
//!
//! All numbers here are hints. If an update is lost, a thread waits for a moment too long, or not
//! at all.

use base::internal::wake::EventCount;
use sync::{
    atomic::{AtomicU32, AtomicU64, Ordering},
    time,
};

use super::{stall, tunables};

/// Length of a wait above the first mark. If no reader is in its way, a sweep takes a list within a
/// few milliseconds.
const FIRST_NS: u64 = 10_000_000;
/// The longest wait. With this wait at each mark, and the default mark, memory grows by ten
/// thousand callbacks a second for each thread that adds them.
const LONGEST_NS: u64 = 1_000_000_000;

/// The state of a list that is above its mark.
pub(super) struct Backlog {
    /// A: number of marks at which threads have waited without success.
    nr_passed: AtomicU32,
    /// A: the end of the current wait, by `time::now_ns`; 0 if no thread waits.
    until_ns: AtomicU64,
}

impl Backlog {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self {
                nr_passed: AtomicU32::new(0),
                until_ns: AtomicU64::new(0),
            }
        }
    }

    /// Returns `true` if a list of `nr` callbacks is above its mark. Costs two loads.
    #[inline]
    pub(super) fn is_above(&self, nr: usize) -> bool {
        let mark = tunables::QHIMARK.get() as usize;
        let nr_passed = self.nr_passed.load(Ordering::Relaxed) as usize;
        nr > mark.saturating_mul(nr_passed + 1) && mark > 0 && !cfg!(any(loom, shuttle))
    }

    /// Records that the list was taken. Returns `true` if threads may be waiting for this.
    pub(super) fn take(&self) -> bool {
        let has_waiters = self.until_ns.load(Ordering::Relaxed) != 0;
        if has_waiters || self.nr_passed.load(Ordering::Relaxed) != 0 {
            self.nr_passed.store(0, Ordering::Relaxed);
            self.until_ns.store(0, Ordering::Relaxed);
        }
        has_waiters
    }

    /// If this thread `may_wait`, waits for a limited time until the list, whose length `nr`
    /// returns, is at or below its mark. `taken` is notified when the list is taken.
    #[cold]
    pub(super) fn wait(&self, may_wait: bool, taken: &EventCount, nr: impl Fn() -> usize) {
        let nr_passed = self.nr_passed.load(Ordering::Relaxed);
        if may_wait {
            let span_ns = (FIRST_NS << nr_passed.min(10)).min(LONGEST_NS);
            let own_ns = time::now_ns() + span_ns;
            let claimed =
                self.until_ns
                    .compare_exchange(0, own_ns, Ordering::Relaxed, Ordering::Relaxed);
            let until_ns = claimed.map_or_else(|theirs_ns| theirs_ns, |_| own_ns);
            if taken.wait_until_by(until_ns, || !self.is_above(nr())) {
                return;
            }
        }
        let passed = self.nr_passed.compare_exchange(
            nr_passed,
            nr_passed + 1,
            Ordering::Relaxed,
            Ordering::Relaxed,
        );
        if passed.is_ok() {
            self.until_ns.store(0, Ordering::Relaxed);
            stall::report_flood(nr());
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const MARK: usize = 10_000;

    #[test]
    fn a_list_that_is_taken_has_its_first_mark_again() {
        let (backlog, event) = (Backlog::new(), EventCount::new());
        assert!(!backlog.is_above(MARK) && backlog.is_above(MARK + 1));
        // If a thread may not wait, the list may grow by another mark's worth.
        backlog.wait(false, &event, || MARK + 1);
        assert!(!backlog.is_above(2 * MARK) && backlog.is_above(2 * MARK + 1));
        assert!(!backlog.take(), "no thread waits");
        assert!(backlog.is_above(MARK + 1));
    }

    #[test]
    fn a_wait_ends_when_the_list_is_taken_or_after_a_while() {
        let (backlog, event) = (Backlog::new(), EventCount::new());
        backlog.wait(true, &event, || 0);
        assert!(backlog.is_above(MARK + 1), "the list was taken");
        let start_ns = time::now_ns();
        for nr_passed in 1..=3 {
            backlog.wait(true, &event, || nr_passed * MARK + 1);
            assert!(!backlog.is_above((nr_passed + 1) * MARK));
        }
        // Each wait is twice as long as the one before.
        assert!(time::now_ns() - start_ns >= (1 + 2 + 4) * FIRST_NS);
    }
}
