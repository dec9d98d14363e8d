//! The steps that only a future's item takes; `future.rs` tells when.
//!
//! ```text
//!            pop                    ready, cancelled
//!   PENDING ──────► RUNNING ────────────────────────► ended (turn 1)
//!   +LINKED           │  ▲ │
//!      ▲              │  │ │ wake: +PENDING, and the end of the poll links it
//!      │ wake         ▼  └─┘
//!      └─────────── waiting (no flag)
//! ```
//!
//! A future is linked by whoever takes it from waiting to pending, or by the end of the poll in which it was woken.
//! So it is never linked while it is polled. One that was polled is never cut out of a list, and
//! never claimed: it stays where it is pinned. One that was never polled is claimed and cancelled as
//! a closure is, by the steps of `state.rs`.

use super::{Completion, DISABLE_ONE, LINKED, PENDING, RUNNING, State, TURN_MASK};

/// Its handle cancelled it: the next run drops the future instead of polling it.
const CANCELLED: u64 = DISABLE_ONE;
/// Its handle is gone: nobody wants the result.
const DETACHED: u64 = DISABLE_ONE << 1;
/// Set at the end of its first poll, if that was not its last: it is pinned.
const POLLED: u64 = DISABLE_ONE << 2;

impl State {
    /// Returns `true` if a future has ended: it is not polled, or pending, ever again.
    pub(crate) fn has_ended(self) -> bool {
        self.0 & TURN_MASK != 0
    }
    pub(crate) fn is_cancelled(self) -> bool {
        self.has(CANCELLED)
    }
    pub(crate) fn is_detached(self) -> bool {
        self.has(DETACHED)
    }

    /// Wakes a future; the flag says that its link must be pushed. `None` when it has ended.
    ///
    /// A future that is pending already makes a step, too: the poll that is to come must see what was written before
    /// this wake.
    pub(crate) fn wake(self) -> Option<(State, bool)> {
        if self.has_ended() {
            None
        } else if self.has(PENDING | RUNNING) {
            Some((self.with(PENDING), false))
        } else {
            Some((self.with(PENDING | LINKED), true))
        }
    }

    /// Claims a pending future that was never polled, to cancel it.
    pub(crate) fn claim_unpolled(self) -> Option<State> {
        let is_begun = self.has(RUNNING)
            || self.has(POLLED) && !sync::twin::armed("future: a cancel moves what was polled");
        self.claim_pending().filter(|_| !is_begun)
    }

    /// Wakes a future so that it is dropped.
    pub(crate) fn wake_to_drop(self) -> Option<(State, bool)> {
        let cancelled = self.with(CANCELLED);
        if sync::twin::armed("future: a cancel is no wake") {
            return Some((cancelled, false));
        }
        cancelled.wake()
    }

    /// Notes that nobody wants a future's result.
    pub(crate) fn detach(self) -> State {
        self.with(DETACHED)
    }

    /// Ends a poll that did not bring the future to its end.
    pub(crate) fn suspend(self) -> Completion {
        let idle = self.without(RUNNING).with(POLLED);
        let push = self.has(PENDING) && !sync::twin::armed("future: suspend forgets the wake");
        let next = if push { idle.with(LINKED) } else { idle };
        Completion {
            next,
            relink: false,
            revived: false,
            push,
            retire_handoff: false,
            wake: false,
            wake_task: false,
            // No handle, and no waker: nobody can ever wake it.
            free: next.is_free() && !sync::twin::armed("future: suspend never frees"),
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{
        super::{Ending, Pop, Rules},
        *,
    };

    const RULES: Rules = Rules {
        help: false,
        ordered: false,
        one_cpu: false,
        reclaim: false,
    };

    fn polled() -> State {
        match State::queued(RULES).pop() {
            Pop::Run(state) => state,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_wake_queues_a_waiting_future_once() {
        let waiting = polled().suspend().next;
        assert!(waiting.is_idle());
        let (pending, push) = waiting.wake().unwrap();
        assert!(push && pending.is_pending());
        assert_eq!(pending.wake(), Some((pending, false)));
    }

    #[test]
    fn a_wake_in_a_poll_is_left_to_its_end() {
        let (woken, push) = polled().wake().unwrap();
        assert!(!push && woken.is_running() && woken.is_pending());
        let end = woken.suspend();
        assert!(end.push && !end.free);
        assert!(matches!(end.next.pop(), Pop::Run(_)));
    }

    #[test]
    fn a_future_that_ended_is_never_woken() {
        let (woken, _) = polled().wake().unwrap();
        let ended = woken.complete(Ending::Returned);
        assert!(!ended.push && !ended.relink && ended.next.has_ended());
        assert!(!ended.next.is_pending());
        assert_eq!(ended.next.wake(), None);
        assert_eq!(ended.next.wake_to_drop(), None);
    }

    #[test]
    fn a_suspend_keeps_the_sleepers() {
        let waited = polled().wait().await_task();
        let suspended = waited.suspend();
        assert!(!suspended.wake && !suspended.wake_task);
        let (pending, _) = suspended.next.wake().unwrap();
        let Pop::Run(again) = pending.pop() else {
            panic!()
        };
        let end = again.complete(Ending::Returned);
        assert!(end.wake && end.wake_task);
    }

    #[test]
    fn a_future_that_nobody_can_wake_is_freed_when_it_waits() {
        assert!(polled().orphan().suspend().free);
        let (woken, _) = polled().orphan().wake().unwrap();
        assert!(!woken.suspend().free);
        assert!(polled().suspend().next.orphan().frees());
    }

    #[test]
    fn only_a_future_that_was_never_polled_is_claimed() {
        let queued = State::queued(RULES);
        let claimed = queued.claim_unpolled().unwrap();
        assert_eq!(claimed.claim_unpolled(), None);
        assert!(matches!(claimed.pop(), Pop::Leave(_)));
        let (woken, _) = polled().wake().unwrap();
        assert_eq!(woken.claim_unpolled(), None);
        assert_eq!(woken.suspend().next.claim_unpolled(), None);
    }

    #[test]
    fn a_second_cancel_of_a_claimed_future_wakes_nothing() {
        let claimed = State::queued(RULES).claim_unpolled().unwrap();
        let (again, push) = claimed.wake_to_drop().unwrap();
        let (ended, _) = again.cancel().unwrap();
        assert!(!push && ended.has_ended() && !ended.is_pending());
        assert_eq!(ended.wake_to_drop(), None);
    }

    #[test]
    fn a_cancel_is_a_wake_that_says_so() {
        let (cancelled, push) = polled().suspend().next.wake_to_drop().unwrap();
        assert!(push && cancelled.is_cancelled());
        let (cancelled, push) = polled().wake_to_drop().unwrap();
        assert!(!push && cancelled.is_cancelled() && cancelled.suspend().push);
    }
}
