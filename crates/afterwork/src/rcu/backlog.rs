//! Bounds lists of callbacks: threads that hand over more than runs wait for a moment.
//!
//! A list is *above its mark* when it holds more callbacks than `rcu.qhimark`. A thread that adds
//! to such a list waits until a sweep takes the list, if the thread may wait. So threads that hand
//! over callbacks faster than they can be run go as fast as those run, and a list holds little more
//! than the mark while another list of that length runs.
//!
//! A wait for callbacks must not last for ever, because `call` is also for threads that hold a lock
//! that a callback or a reader wants. So each wait ends after a while ([`FIRST_NS`]), even if
//! nothing has moved. Then the list is given another mark's worth of callbacks before threads wait
//! again, twice as long, up to [`LONGEST_NS`]. That bounds how fast memory grows while a reader
//! holds callbacks up, and is reported. A sweep that takes the list brings the first mark back.
//!
//! The thread runs no callbacks itself: it may hold a lock that one of them takes.
//!
//! All numbers here are hints. If one is lost, a thread waits for a moment too long, or not at all.

use sync::{
    atomic::{AtomicU32, AtomicU64, Ordering},
    time,
};

use super::{stall, tunables};
use crate::wake::EventCount;

/// How long threads wait above the first mark. A sweep that has no reader in its way takes a list
/// within some milliseconds.
const FIRST_NS: u64 = 10_000_000;
/// The longest wait. A thread that holds up others for that long at each mark lets memory grow by
/// ten thousand callbacks a second, by the default mark.
const LONGEST_NS: u64 = 1_000_000_000;

/// How far a list is above its mark.
pub(super) struct Backlog {
    /// A: how many marks' worth of callbacks have been waited for without success.
    nr_passed: AtomicU32,
    /// A: when the present wait ends, by `time::now_ns`; 0 if no thread waits.
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

    /// Notes that the list has been taken. Returns `true` if threads may wait for that.
    pub(super) fn take(&self) -> bool {
        let has_waiters = self.until_ns.load(Ordering::Relaxed) != 0;
        if has_waiters || self.nr_passed.load(Ordering::Relaxed) != 0 {
            self.nr_passed.store(0, Ordering::Relaxed);
            self.until_ns.store(0, Ordering::Relaxed);
        }
        has_waiters
    }

    /// Waits for a while until the list, which holds `nr` callbacks, is at or below its mark. Does
    /// not wait unless this thread `may_wait`. `taken` is notified when the list is taken.
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
        // A thread that may not wait gives the list another mark's worth.
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
