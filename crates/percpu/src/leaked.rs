//! Owners that do not respond: leaked owners, and owners that neither operate nor poll nor park.
//!
//! An [`Owner`](super::Owner) that is leaked (`mem::forget`) keeps its slot. A remote caller that
//! has waited for some time asks the kernel whether its thread exists. If not, the caller *takes
//! over*:
//!
//! ```text
//! taker:  owner = word of X;  the thread of X has ended?   owner: word of X → mine, parked
//!         word: OWNED → HELD?  then run the calls, release;  then give up ownership, or keep it
//!         (attach)
//! ```
//!
//! - **Only one thread takes over.** The owner's word has a number of its thread that is never used
//!   again, so the exchange fails if another taker came first (twin `percpu: takes over without a
//!   claim`).
//! - **The data is whole.** A thread that has exited normally is not inside an operation, because
//!   even a panic ends the operation. If the thread was killed in the middle of an operation, the
//!   slot is never taken over. A slot that is lost to a child of `fork` stays lost.
//! - **The taker sees the owner's writes.** The kernel reports a thread as ended after the thread's
//!   last store.
//!
//! While the thread exists, its owner may be in use. After [`REPORT_NS`] the caller prints a
//! message that names the thread, once per wait, and keeps waiting.

use std::time::Duration;

use base::internal::panics;
use sync::atomic::Ordering;
use sync::{thread, twin};

use super::slot::{HELD, LOST, OWNED, OwnerWord, Slot, Want, take_order};

/// The time between two checks of the owner's thread, which take a system call each. A guess: no
/// program relies on a takeover.
const CHECK_NS: u64 = 100_000_000;

/// The time after which a waiting remote caller reports the owner. A guess: a shorter time would
/// report owners that sleep on purpose.
const REPORT_NS: u64 = 10_000_000_000;

/// The check of a waiting remote caller.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    Nothing,
    /// Check whether the owner's thread exists.
    Check,
    /// Check, and report an owner that has not responded for this time.
    Report(Duration),
}

#[derive(Debug)]
pub(super) struct Checks {
    begin_ns: u64,
    next_ns: u64,
    has_reported: bool,
}

impl Checks {
    pub(super) fn begin(now_ns: u64) -> Self {
        Self { begin_ns: now_ns, next_ns: now_ns.saturating_add(CHECK_NS), has_reported: false }
    }

    pub(super) fn due(&mut self, now_ns: u64) -> Due {
        if now_ns < self.next_ns {
            return Due::Nothing;
        }
        self.next_ns = now_ns.saturating_add(CHECK_NS);
        let waited_ns = now_ns.saturating_sub(self.begin_ns);
        if waited_ns < REPORT_NS || self.has_reported {
            return Due::Check;
        }
        self.has_reported = true;
        Due::Report(Duration::from_nanos(waited_ns))
    }
}

impl<T> Slot<T> {
    /// Makes the check that is due. Releases the slot of a leaked owner whose thread has exited.
    pub(super) fn check_owner(&self, due: Due) {
        if due == Due::Nothing {
            return;
        }
        if self.take_over() {
            self.disclaim();
        } else if let Due::Report(waited) = due
            && let Some(report) = self.describe_owner(waited)
        {
            panics::write_line(&report);
        }
    }

    /// If the owner's thread has exited, makes this thread the owner in its place, parked, and
    /// returns `true`.
    #[cold]
    pub(super) fn take_over(&self) -> bool {
        let owner = self.owner();
        let is_inside = self.busy.load(Ordering::Relaxed) != 0;
        let is_lost = self.word.load(Ordering::Relaxed) == LOST;
        let may_exist = || owner == OwnerWord::NONE || thread::exists(owner.thread());
        if is_inside || is_lost || may_exist() {
            return false;
        }
        let mine = OwnerWord::mine();
        // This acquires as in `claim`. The thread's writes precede the kernel's report of its end.
        let taken =
            self.far.owner.compare_exchange(owner.0, mine.0, Ordering::Acquire, Ordering::Relaxed);
        if taken.is_err() && !twin::armed("percpu: takes over without a claim") {
            return false;
        }
        // `AWAY` is set before the word leaves `OWNED`. Otherwise a thread that asks could leave
        // `want` at zero.
        self.want.fetch_or(Want::AWAY, Ordering::Relaxed);
        if self.word.compare_exchange(OWNED, HELD, take_order(), Ordering::Relaxed).is_ok() {
            self.run_queued_calls();
            self.release();
        }
        true
    }

    /// Describes the owner that holds the slot, if any. A remote caller has `waited` for it.
    fn describe_owner(&self, waited: Duration) -> Option<String> {
        let owner = self.owner();
        if self.word.load(Ordering::Relaxed) != OWNED || owner == OwnerWord::NONE {
            return None;
        }
        let thread = owner.thread();
        let name = thread::name(thread).unwrap_or_else(|| "?".into());
        let doing = thread::doing(thread).map_or(String::new(), |doing| format!(", {doing}"));
        Some(format!(
            "a remote call has waited {waited:.1?} for the slot of CPU {}: its owner, thread {} ({name}){doing}, neither operates, \
             polls nor parks, or was leaked",
            self.cpu(),
            thread.0
        ))
    }
}

#[cfg(all(test, not(any(loom, shuttle, sim, miri))))]
mod tests {
    use topology::CpuId;

    use super::super::choice::Kind;
    use super::*;

    #[test]
    fn a_wait_checks_at_times_and_reports_once() {
        let mut checks = Checks::begin(7);
        let mut due = |after_ns| checks.due(7 + after_ns);
        assert_eq!(due(CHECK_NS - 1), Due::Nothing);
        assert_eq!(due(CHECK_NS), Due::Check);
        assert_eq!(due(CHECK_NS + 1), Due::Nothing);
        assert_eq!(due(REPORT_NS), Due::Report(Duration::from_secs(10)));
        assert_eq!(due(2 * REPORT_NS), Due::Check);
    }

    #[test]
    fn an_owner_that_does_not_answer_is_reported_by_its_thread() {
        let slot = Slot::new(CpuId::new(3), Kind::Queue, 0);
        let waited = Duration::from_secs(10);
        assert_eq!(slot.describe_owner(waited), None);
        assert!(slot.claim());
        slot.take_back();
        let report = slot.describe_owner(waited).unwrap();
        let thread = thread::current();
        let names = format!("CPU 3: its owner, thread {} (", thread.0);
        assert!(report.contains(&names), "{report}");
        assert!(report.starts_with("a remote call has waited 10.0s"), "{report}");
        // Its thread exists.
        slot.check_owner(Due::Check);
        assert!(slot.is_mine());
        slot.give_up();
        assert_eq!(slot.describe_owner(waited), None);
    }
}
