//! Transitions of an item in the caller's memory.
//!
//! The item's function may free the item during its run, so the word does not record that the item
//! is running (`crates/raw/src/runs.rs` does), and the item is not accessed after its start. A
//! canceller removes the item from its list, so there are no tombstones.
//!
//! ```text
//!                 enqueue                      start
//!   idle ───────────────────► PENDING+LINKED ─────────► idle, and the item runs
//!     │   arm            fire    ▲    │ start, during an earlier run
//!     └──────► ARMED ────────────┘    ▼
//!          ◄──                PENDING+HANDOFF ──► PENDING+LINKED, when that run has ended
//!        disarm
//! ```
//!
//! If an item is moved to another time or queue, one transition changes it from claimed to `ARMED`
//! or `PENDING+LINKED`, so it is pending throughout.
//!
//! Claims work as for any item. An armed item has been claimed by its timer; it is also `PENDING`,
//! but not linked. C programs read that bit as the kernel's `WORK_STRUCT_PENDING`, which covers the
//! timer too.

use super::{CLAIMED, HANDOFF, LINKED, PENDING, RULES, Rules, State, WAKER};

/// Set while the item's timer is armed. No task waits for such an item, so `WAKER` is free for
/// this.
const ARMED: u64 = WAKER;

/// The action of a worker that popped an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Start {
    /// Run the item.
    Run,
    /// Hand the item to its current run.
    Behind,
    /// Hand the item to the thread that claims it.
    Claimed,
}

impl State {
    /// Pops the item. `runs` is set if the item is already executing.
    #[inline]
    pub fn start(self, runs: bool) -> (State, Start) {
        if self.has(CLAIMED) {
            (self.without(LINKED).with(HANDOFF), Start::Claimed)
        } else if runs {
            (self.without(LINKED).with(HANDOFF), Start::Behind)
        } else {
            (self.without(PENDING | LINKED).next_completion(), Start::Run)
        }
    }

    /// Starts an item that the caller claimed, removed from its list and will run.
    #[inline]
    pub fn start_claimed(self) -> State {
        self.without(PENDING | LINKED | CLAIMED).next_completion()
    }

    /// Takes the item back from the run that it was handed to, so that it can be put on its list
    /// again. Returns `None` if the item is claimed, because the claiming thread then does this.
    pub fn relink(self) -> Option<State> {
        let is_left = self.has(HANDOFF) && !self.has(CLAIMED);
        is_left.then(|| self.without(HANDOFF).with(LINKED))
    }

    /// Arms the timer of the item. Returns `None` if the item is pending or disabled.
    pub fn arm(self) -> Option<State> {
        let is_free = self.disable_depth() == 0 && !self.has(PENDING | CLAIMED);
        is_free.then(|| self.with(PENDING | CLAIMED | ARMED))
    }

    /// Returns `true` if the timer of the item is armed.
    #[inline]
    pub fn is_armed(self) -> bool {
        self.has(ARMED)
    }

    /// Queues an armed item whose home pwq has been written.
    pub fn fire(self, rules: Rules) -> State {
        let next = self.without(CLAIMED | ARMED | RULES);
        next.with(PENDING | LINKED | rules.bits())
    }

    /// Ends the claim of the timer, or of a thread that removed the item from its list. The item is
    /// then idle.
    pub fn disarm(self) -> State {
        self.without(PENDING | CLAIMED | ARMED).next_completion()
    }

    /// Arms the timer of an item that is armed, or claimed and in no list. Returns `None` if the
    /// item is disabled.
    pub fn rearm(self) -> Option<State> {
        let next = self.with(PENDING | CLAIMED | ARMED);
        (self.disable_depth() == 0).then_some(next)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    const RULES_OF_ALL: Rules = Rules { help: true, ordered: false, one_cpu: false, reclaim: true };

    fn queued() -> State {
        State::queued(RULES_OF_ALL)
    }

    #[test]
    fn start_clears_all_bits_of_the_previous_run() {
        let (started, start) = queued().start(false);
        assert_eq!(start, Start::Run);
        assert!(started.is_idle() && !started.has_link());
    }

    #[test]
    fn an_item_that_runs_waits_for_that_run() {
        let (left, start) = queued().start(true);
        assert_eq!(start, Start::Behind);
        assert!(left.is_pending() && left.has_link());
        let linked = left.relink().unwrap();
        assert_eq!(linked, queued());
        assert_eq!(linked.relink(), None, "it is in a list");
    }

    #[test]
    fn claiming_thread_gets_the_list_link() {
        for runs in [false, true] {
            let claimed = queued().claim_pending().unwrap();
            let (left, start) = claimed.start(runs);
            assert_eq!((start, left.relink()), (Start::Claimed, None));
            let taken = left.take_handoff().unwrap();
            let (idle, _) = taken.cancel().unwrap();
            assert!(idle.is_idle() && !idle.has_link());
        }
    }

    #[test]
    fn helper_starts_the_item_it_claimed() {
        let started = queued().claim().unwrap().start_claimed();
        assert!(started.is_idle() && !started.has_link());
    }

    #[test]
    fn an_armed_item_is_pending_to_all_but_its_timer() {
        let armed = State::IDLE.arm().unwrap();
        assert!(armed.is_armed() && armed.is_claimed() && armed.is_pending());
        assert_eq!((armed.arm(), armed.claim_pending()), (None, None));
        assert!(armed.disarm().is_idle() && !armed.disarm().is_armed());
        let fired = armed.fire(RULES_OF_ALL);
        assert!(fired.is_pending() && fired.has_rescuer() && !fired.is_armed());
        assert_eq!(fired.start(false).1, Start::Run);
        assert_eq!(State::IDLE.disable().unwrap().arm(), None);
        assert_eq!(queued().arm(), None);
    }

    #[test]
    fn item_that_is_queued_again_is_pending_throughout() {
        let cut_out = queued().claim_pending().unwrap().unlink();
        let armed = cut_out.rearm().unwrap();
        assert!(armed.is_armed() && armed.is_claimed() && armed.is_pending());
        assert_eq!(armed.rearm(), Some(armed));
        for state in [cut_out, armed] {
            assert_eq!(state.disable().unwrap().rearm(), None);
            assert!(state.disarm().is_idle() && !state.disarm().is_armed());
            let fired = state.fire(RULES_OF_ALL);
            assert!(fired.is_pending() && fired.has_link() && !fired.is_claimed());
        }
    }
}
