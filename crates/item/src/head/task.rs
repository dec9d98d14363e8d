//! Transitions of futures; `future.rs` describes when they occur.
//!
//! ```text
//!            pop                    ready, cancelled
//!   PENDING ──────► RUNNING ────────────────────────► ended (sequence number 1)
//!   +LINKED           │  ▲ │
//!      ▲              │  │ │ wake: +PENDING, and the end of the poll links it
//!      │ wake         ▼  └─┘
//!      └─────────── waiting (no flag)
//! ```
//!
//! A future is linked by the thread that moves it from waiting to pending, or at the end of the
//! poll in which it was woken. It is therefore not linked while it is polled. A future that has
//! been polled is pinned in place: it is neither removed from a list nor claimed. A future that has
//! never been polled is claimed and cancelled like a closure, with the transitions of `head.rs`.

use super::{Completion, DISABLE_ONE, LINKED, PENDING, RUNNING, SEQ_MASK, State};

/// Set if the handle cancelled the future: the next run drops the future instead of polling it.
const CANCELLED: u64 = DISABLE_ONE;
/// Set if the handle has been dropped, so that the result is not needed.
const DETACHED: u64 = DISABLE_ONE << 1;
/// Set at the end of the first poll, if the future is not ready. From then on the future is pinned.
const POLLED: u64 = DISABLE_ONE << 2;

/// Set if the item has a token (`token.rs`). Closures use this flag too, and those that have it set
/// also use `CANCELLED`.
const WATCHED: u64 = DISABLE_ONE << 3;

impl State {
    /// Records that a closure was cancelled too late.
    pub fn cancel_started(self) -> Option<State> {
        let is_news = !self.has_ended() && !self.is_cancelled();
        is_news.then(|| self.with(CANCELLED))
    }
    /// Records that the item, which is running, has a token.
    pub(crate) fn watched(self) -> State {
        self.with(WATCHED)
    }
    pub fn is_watched(self) -> bool {
        self.has(WATCHED)
    }

    /// Returns `true` if a future has ended: it will not be pending or polled again.
    pub fn has_ended(self) -> bool {
        self.0 & SEQ_MASK != 0
    }
    pub fn is_cancelled(self) -> bool {
        self.has(CANCELLED)
    }
    pub fn is_detached(self) -> bool {
        self.has(DETACHED)
    }

    /// Wakes a future. The flag is set if the caller must push it. Returns `None` if the future has
    /// ended.
    ///
    /// Waking a pending future is a transition, too, so that the next poll sees everything that was
    /// written before this wake.
    pub fn wake(self) -> Option<(State, bool)> {
        if self.has_ended() {
            None
        } else if self.has(PENDING | RUNNING) {
            Some((self.with(PENDING), false))
        } else {
            Some((self.with(PENDING | LINKED), true))
        }
    }

    /// Claims a pending future that has never been polled, in order to cancel it.
    pub fn claim_unpolled(self) -> Option<State> {
        let is_begun = self.has(RUNNING)
            || self.has(POLLED) && !sync::twin::armed("future: a cancel moves a polled future");
        self.claim_pending().filter(|_| !is_begun)
    }

    pub fn wake_to_drop(self) -> Option<(State, bool)> {
        let cancelled = self.with(CANCELLED);
        if sync::twin::armed("future: a cancel is no wake") {
            return Some((cancelled, false));
        }
        cancelled.wake()
    }

    /// Records that the result of a future is not needed.
    pub fn detach(self) -> State {
        self.with(DETACHED)
    }

    /// Ends a poll after which the future is not ready.
    pub fn suspend(self) -> Completion {
        let idle = self.without(RUNNING).with(POLLED);
        let push = self.has(PENDING) && !sync::twin::armed("future: suspend forgets the wake");
        let next = if push { idle.with(LINKED) } else { idle };
        Completion {
            next,
            push,
            // Without a handle and a waker, no thread can ever wake the future.
            free: next.frees() && !sync::twin::armed("future: suspend never frees"),
            ..Completion::default()
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::{Ending, Pop, Rules};
    use super::*;

    const RULES: Rules = Rules { help: false, ordered: false, one_cpu: false, reclaim: false };

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
    fn wake_in_a_poll_is_deferred_to_its_end() {
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
        let Pop::Run(again) = pending.pop() else { panic!() };
        let end = again.complete(Ending::Returned);
        assert!(end.wake && end.wake_task);
    }

    #[test]
    fn unwakable_future_is_freed_when_it_suspends() {
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
    fn cancel_is_a_wake_with_a_flag() {
        let (cancelled, push) = polled().suspend().next.wake_to_drop().unwrap();
        assert!(push && cancelled.is_cancelled());
        let (cancelled, push) = polled().wake_to_drop().unwrap();
        assert!(!push && cancelled.is_cancelled() && cancelled.suspend().push);
    }
}
