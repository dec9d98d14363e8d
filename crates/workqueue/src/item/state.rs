//! The state of a work item: a word of flags, and all its transitions.
//!
//! Each transition is a function from one value of the word to the next; `head.rs` applies them by
//! compare-exchange. The transitions are the whole protocol of an item:
//!
//! ```text
//!            enqueue                    pop                     complete
//!   idle ──────────────► PENDING+LINKED ───────────► RUNNING ─────────────► idle
//!                           │     ▲                   │   ▲
//!                 cancel    ▼     │ enqueue           │   │ enqueue, pop: PENDING+HANDOFF
//!                         LINKED ─┘ (a tombstone)     └───┘ (runs again after this run)
//! ```
//!
//! - **Runs never overlap.** `RUNNING` is set only by a transition that finds it clear. A worker
//!   that pops a running item sets `HANDOFF`; the running thread puts the item back on the list
//!   when its run ends, if the item is still pending.
//! - **Lazy removal.** Cancelling and helping take an item by clearing `PENDING`. Its link stays in
//!   its list (a *tombstone*) until a worker pops it or it is reaped (`tombstones.rs`). Enqueueing
//!   a tombstone only sets `PENDING` again. A canceller claims the item first: the claim keeps the
//!   link in place, which keeps the home pwq alive.
//! - **In-flight counts** are incremented when a worker adopts the item. They are decremented by
//!   the thread that unlinks the item or, after `HANDOFF`, at the end of the run that was executing
//!   when the item was popped. A helper that takes an item before its adoption is counted at the
//!   gate.
//! - The **completion sequence number** counts completed runs and cancelled enqueues, in enqueue
//!   order. If an enqueue is cancelled while an earlier run is executing, the item is marked `OWED`
//!   and the cancel is counted when that run ends. Counted immediately, it would be mistaken for
//!   the end of that run.
//! - **Freeing.** An item without handles (`ORPHAN`) is freed after the transition that leaves it
//!   neither linked, nor running, nor claimed.

/// The state word: bits 0..15 flags | bits 15..48 completion sequence number | bits 48..64 disable
/// depth, or the flags of a future: see `state/task.rs`
///
/// The low half, on which flushers sleep, contains seventeen bits of the sequence number. A run
/// that ends between a flusher's check and its sleep therefore changes the futex word, and the
/// flusher does not sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct State(pub(crate) u64);

const PENDING: u64 = 1 << 0;
const LINKED: u64 = 1 << 1;
const RUNNING: u64 = 1 << 2;
const HANDOFF: u64 = 1 << 3;
const OWED: u64 = 1 << 4;
const CLAIMED: u64 = 1 << 5;
const WAITED: u64 = 1 << 6;
const ORPHAN: u64 = 1 << 7;
const PANICKED: u64 = 1 << 8;
const WAKER: u64 = 1 << 9;
const HELP: u64 = 1 << 10;
const ORDERED: u64 = 1 << 11;
const ONE_CPU: u64 = 1 << 12;
const RECLAIM: u64 = 1 << 13;
/// Set while the item owns a capacity permit of its queue, until it starts or is cancelled; see
/// `limit/room.rs`.
const COUNTED: u64 = 1 << 14;

/// Set if the item was queued into its old position, where it may look older than it is. Only for
/// items that can be queued again; no task waits for these.
const REVIVED: u64 = WAKER;

/// All flags of [`Rules`].
const RULES: u64 = HELP | ORDERED | ONE_CPU | RECLAIM;

const TURN_SHIFT: u32 = 15;
const TURN_BITS: u32 = 33;
const TURN_ONE: u64 = 1 << TURN_SHIFT;
const TURN_MASK: u64 = ((1 << TURN_BITS) - 1) << TURN_SHIFT;
const DISABLE_SHIFT: u32 = 48;
const DISABLE_ONE: u64 = 1 << DISABLE_SHIFT;

/// The rules of a queue for its items; part of the state word while an item is queued there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    /// A joiner may run the item.
    pub(crate) help: bool,
    /// The item's position in its list matters because it can be queued again. A cancel removes it
    /// from the list instead of leaving a tombstone.
    pub(crate) ordered: bool,
    /// The queue's workers share one CPU, so a waiter yields instead of busy-polling.
    pub(crate) one_cpu: bool,
    /// The queue has a rescuer.
    pub(crate) reclaim: bool,
}

impl Rules {
    fn bits(self) -> u64 {
        let flag = |on, flag| if on { flag } else { 0 };
        flag(self.help, HELP)
            | flag(self.ordered, ORDERED)
            | flag(self.one_cpu, ONE_CPU)
            | flag(self.reclaim, RECLAIM)
    }
}

/// The action of an enqueuer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Enqueue {
    /// Nothing: the item is already pending.
    Pending,
    /// Nothing: the item is disabled.
    Disabled,
    /// Set the state; the link is still in a list of this queue, where a worker will find it.
    Revive(State),
    /// Set the state and push the item.
    Push(State),
    /// Set the state, write the new home pwq, publish, push.
    Claim(State),
    /// Set the state, remove the link from another queue's list or take it back from the run that
    /// it was handed to, and continue as for `Claim`.
    Elsewhere(State),
}

/// The action of a worker that unlinked an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pop {
    /// Set the state and run the item.
    Run(State),
    /// Set the state; the thread that runs or claims the item inherits link and in-flight count.
    Leave(State),
    /// Set the state and release the in-flight count: the item is not pending.
    Discard(State),
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// The code returned.
    Returned,
    /// The code panicked.
    Panicked,
    /// The item is a future that waits for its waker.
    Suspended {
        /// The item stays counted in flight on the pwq on which it ran, until the future has ended.
        keeps_count: bool,
    },
}

/// The state after a run, and the remaining work of the thread that ran the item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Completion {
    pub(crate) next: State,
    /// Push the item again, at the front: it was queued and popped during the run.
    pub(crate) relink: bool,
    /// The item's position is older than its last enqueue.
    pub(crate) revived: bool,
    /// Push the item: the future was woken while it was polled.
    pub(crate) push: bool,
    /// Release the in-flight count of an item that was popped during the run and then cancelled.
    pub(crate) retire_handoff: bool,
    /// Wake the threads that sleep on the word.
    pub(crate) wake: bool,
    /// Wake the async task that polled the handle.
    pub(crate) wake_task: bool,
    /// Free the item.
    pub(crate) free: bool,
}

impl State {
    pub(crate) const IDLE: State = State(0);

    /// Returns the state of a new one-shot item that is about to be pushed.
    pub(crate) fn queued(rules: Rules) -> State {
        State(PENDING | LINKED | rules.bits())
    }

    /// Returns the state of a one-shot item that will never run.
    pub(crate) fn ended() -> State {
        State::IDLE.next_turn()
    }

    #[inline]
    fn has(self, flags: u64) -> bool {
        self.0 & flags != 0
    }
    #[inline]
    fn with(self, flags: u64) -> State {
        State(self.0 | flags)
    }
    #[inline]
    fn without(self, flags: u64) -> State {
        State(self.0 & !flags)
    }
    #[inline]
    fn next_turn(self) -> State {
        State((self.0 & !TURN_MASK) | (self.0.wrapping_add(TURN_ONE) & TURN_MASK))
    }

    /// Returns `true` if the item is queued, or its timer is armed.
    #[inline]
    pub fn is_pending(self) -> bool {
        self.has(PENDING)
    }
    pub(crate) fn is_running(self) -> bool {
        self.has(RUNNING)
    }
    /// Returns `true` if the position in the list matters.
    pub(crate) fn is_ordered(self) -> bool {
        self.has(ORDERED)
    }
    /// Returns `true` if a thread or a timer has claimed the item.
    #[inline]
    pub fn is_claimed(self) -> bool {
        self.has(CLAIMED)
    }
    /// Returns `true` if the position is older than the last enqueue.
    pub(crate) fn is_revived(self) -> bool {
        self.has(REVIVED)
    }
    /// Returns `true` if the link is in no list, but was handed to a run or a claim.
    pub(crate) fn is_left(self) -> bool {
        self.has(HANDOFF)
    }
    /// Records that the item was queued again into its old position.
    pub(crate) fn revived(self) -> State {
        self.with(REVIVED)
    }
    /// Returns `true` if a joiner may run the item.
    pub(crate) fn lets_help(self) -> bool {
        self.has(HELP)
    }
    /// Returns `true` if the queue's workers share one CPU.
    pub(crate) fn is_on_one_cpu(self) -> bool {
        self.has(ONE_CPU)
    }
    /// Returns `true` if the queue has a rescuer.
    pub(crate) fn has_rescuer(self) -> bool {
        self.has(RECLAIM)
    }
    /// Returns `true` if the last run panicked.
    pub(crate) fn has_panicked(self) -> bool {
        self.has(PANICKED)
    }
    /// Returns `true` if the last handle was dropped.
    pub(crate) fn is_orphan(self) -> bool {
        self.has(ORPHAN)
    }
    /// Returns `true` if a list, or the thread that runs or claims the item, holds its link.
    pub(crate) fn has_link(self) -> bool {
        self.has(LINKED | HANDOFF)
    }
    /// Returns `true` if the item is neither queued nor running nor claimed.
    pub(crate) fn is_idle(self) -> bool {
        !self.has(PENDING | RUNNING | CLAIMED)
    }
    /// Returns how often the item was disabled and not enabled again.
    #[inline]
    pub fn disable_depth(self) -> u16 {
        (self.0 >> DISABLE_SHIFT) as u16
    }
    /// Returns the number of completed runs and cancelled enqueues; wraps.
    #[inline]
    pub fn completion_seq(self) -> u64 {
        (self.0 & TURN_MASK) >> TURN_SHIFT
    }
    /// Returns the completion sequence number at the end of everything queued or running now.
    pub(crate) fn last_turn(self) -> u64 {
        let nr_left = u64::from(self.has(RUNNING)) + u64::from(self.has(PENDING | CLAIMED));
        self.completion_seq().wrapping_add(nr_left) & (TURN_MASK >> TURN_SHIFT)
    }
    /// Returns `true` if `turn` has been reached. Numbers wrap, so a waiter must not sleep through
    /// half of them (2^32).
    pub(crate) fn has_reached(self, turn: u64) -> bool {
        let ahead = turn.wrapping_sub(self.completion_seq()) & (TURN_MASK >> TURN_SHIFT);
        ahead == 0 || ahead > 1 << (TURN_BITS - 1)
    }
    /// Returns `true` if the item is pending and owns a capacity permit, which is released when the
    /// item starts or is cancelled.
    pub(crate) fn is_counted(self) -> bool {
        self.has(COUNTED)
    }
    fn is_free(self) -> bool {
        self.has(ORPHAN) && !self.has(LINKED | RUNNING | CLAIMED | PENDING | HANDOFF)
    }

    /// Gives a pending item a capacity permit of its queue if `has_place` is set.
    #[inline]
    pub(crate) fn counted(self, has_place: bool) -> State {
        self.with(u64::from(has_place) * COUNTED)
    }

    /// Plans an enqueue. `here` is set if the home pwq is the one that will be used; `ours` returns
    /// `true` if the home pwq belongs to the same queue. The item receives a capacity permit if
    /// `has_place` is set.
    pub(crate) fn enqueue(
        self,
        here: bool,
        ours: impl FnOnce() -> bool,
        rules: Rules,
        has_place: bool,
    ) -> Enqueue {
        // The new enqueue takes the sequence number of one that was cancelled during the same run.
        let queued = self.without(OWED).counted(has_place);
        let fresh = queued.without(RULES | REVIVED).with(rules.bits());
        if self.disable_depth() > 0 {
            Enqueue::Disabled
        } else if self.has(PENDING | CLAIMED) {
            Enqueue::Pending
        } else if self.has(LINKED | HANDOFF) {
            // A link that was handed to a run is in no list, where a bulk cancel could find it.
            if !self.has(HANDOFF) && ours() {
                Enqueue::Revive(queued.with(PENDING | REVIVED))
            } else {
                Enqueue::Elsewhere(fresh.with(CLAIMED))
            }
        } else if here {
            Enqueue::Push(fresh.with(PENDING | LINKED))
        } else {
            Enqueue::Claim(fresh.with(CLAIMED))
        }
    }

    /// Ends the claim of an enqueuer that has written the new home pwq.
    pub(crate) fn publish(self) -> State {
        self.without(CLAIMED).with(PENDING | LINKED)
    }

    /// Pops the item.
    pub(crate) fn pop(self) -> Pop {
        let popped = self.without(LINKED);
        let busy = self.has(RUNNING) && !sync::twin::armed("item: runs beside itself");
        // Also if it is not pending: the link that a helper left in the list is counted until the
        // helper's run has ended.
        let busy =
            busy && (self.has(PENDING) || !sync::twin::armed("item: forgets a helper's link"));
        if self.has(CLAIMED) || busy {
            Pop::Leave(popped.with(HANDOFF))
        } else if self.has(PENDING) {
            Pop::Run(popped.without(PENDING | PANICKED | COUNTED).with(RUNNING))
        } else {
            Pop::Discard(popped)
        }
    }

    /// Pops the item to cancel it. The cancel is a run that does not call the item's code.
    ///
    /// If the item is running, the caller receives the link as well. It is not handed to the run,
    /// because a later enqueue would inherit the position and the age of the cancelled one.
    pub(crate) fn pop_to_cancel(self) -> Pop {
        if self.has(CLAIMED) {
            return self.pop();
        }
        let popped = self.without(LINKED);
        if !self.has(PENDING) {
            Pop::Discard(popped)
        } else if self.has(RUNNING) && !sync::twin::armed("cancel all: ends what runs") {
            Pop::Discard(popped.cancelled().0)
        } else {
            // The panic flag of the last run is kept, because this is not a real run.
            Pop::Run(popped.without(PENDING | COUNTED).with(RUNNING))
        }
    }

    /// Returns `true` if an item must be freed, which was discarded or has lost its last handle.
    pub(crate) fn frees(self) -> bool {
        self.is_free()
    }

    /// Ends a run that returned, if no other work is left: no thread waits, and the item was not
    /// queued again. This is the common case.
    #[inline]
    pub(crate) fn complete_alone(self) -> Option<State> {
        let others = PENDING | LINKED | HANDOFF | OWED | CLAIMED | WAITED | ORPHAN | WAKER;
        (!self.has(others)).then(|| self.without(RUNNING).next_turn())
    }

    /// Ends a run.
    pub(crate) fn complete(self, ending: Ending) -> Completion {
        if matches!(ending, Ending::Suspended { .. }) {
            return self.suspend();
        }
        // The thread that claims the item handles the link that was handed over.
        let handed_over = self.has(HANDOFF) && !self.has(CLAIMED);
        let relink = handed_over && self.has(PENDING);
        let mut next = self.without(RUNNING | OWED | WAITED | WAKER).next_turn();
        if self.has(OWED) {
            next = next.next_turn();
        }
        if handed_over {
            next = next.without(HANDOFF);
        }
        if relink {
            // The link may be handed to another run, and keeps its age.
            next = next.with(LINKED | self.0 & REVIVED);
        }
        if ending == Ending::Panicked {
            next = next.with(PANICKED);
        }
        if !next.has(LINKED | HANDOFF | CLAIMED) {
            // A future that was woken in its last poll has ended, and is not polled again.
            next = next.without(PENDING);
        }
        Completion {
            next,
            relink,
            revived: self.is_revived(),
            push: false,
            retire_handoff: handed_over && !relink,
            wake: self.has(WAITED),
            wake_task: self.has(WAKER),
            free: next.is_free() && !sync::twin::armed("item: completion never frees"),
        }
    }

    /// Starts to help: the claim keeps the home pwq alive, so the helper can access it. A worker
    /// that pops the link before the claim ends hands it, with its count, to the claim.
    pub(crate) fn claim(self) -> Option<State> {
        let helpable =
            self.has(PENDING) && self.has(LINKED) && self.has(HELP) && !self.has(RUNNING | CLAIMED);
        helpable.then(|| self.with(CLAIMED))
    }

    /// Turns a helper's claim into a run. If the link was popped during the claim, the run owns it,
    /// and it is counted until the run ends.
    pub(crate) fn run_claimed(self) -> State {
        self.without(PENDING | CLAIMED | PANICKED | COUNTED)
            .with(RUNNING)
    }

    /// Releases a helper's claim; the flag is set if the link was popped since and must be pushed
    /// again.
    pub(crate) fn unclaim(self) -> (State, bool) {
        let next = self.without(CLAIMED);
        if self.has(HANDOFF) {
            (next.without(HANDOFF).with(LINKED), true)
        } else {
            (next, false)
        }
    }

    /// Claims a pending item in order to cancel it.
    #[inline]
    pub fn claim_pending(self) -> Option<State> {
        let cancels = self.has(PENDING) && !self.has(CLAIMED);
        cancels.then(|| self.with(CLAIMED))
    }

    /// Ends the claim of `claim_pending` and cancels the item; a link in a list stays there. The
    /// flag is set if sleepers must be woken. Returns `None` if the link was handed to the claim,
    /// which must first take it over.
    pub(crate) fn cancel(self) -> Option<(State, bool)> {
        // If the item is running, that run releases the count of such a link when it ends.
        let is_left_to_us = self.has(HANDOFF) && !self.has(RUNNING);
        (!is_left_to_us).then(|| self.without(CLAIMED).cancelled())
    }

    /// Cancels one enqueue; the flag is set if sleepers must be woken.
    fn cancelled(self) -> (State, bool) {
        let next = self.without(PENDING | COUNTED);
        if self.has(RUNNING) && !sync::twin::armed("item: a cancel ends the run") {
            // Sleepers wait at least for the run.
            (next.with(OWED), false)
        } else {
            (next.without(WAITED).next_turn(), self.has(WAITED))
        }
    }

    /// Unlinks a tombstone; returns `None` if the item is pending, running or claimed.
    pub(crate) fn reap(self) -> Option<State> {
        let alive = if sync::twin::armed("reap: overlooks who queues") {
            RUNNING | CLAIMED
        } else {
            PENDING | RUNNING | CLAIMED
        };
        (self.has(LINKED) && !self.has(alive)).then(|| self.unlink())
    }

    /// Records that the link was removed from its list.
    pub(crate) fn unlink(self) -> State {
        self.without(LINKED)
    }

    /// Takes over a link that was popped during a claim.
    pub(crate) fn take_handoff(self) -> Option<State> {
        self.has(HANDOFF).then(|| self.without(HANDOFF))
    }

    /// Disables the item once more; `None` if the depth would overflow.
    pub fn disable(self) -> Option<State> {
        (self.disable_depth() < u16::MAX).then(|| State(self.0 + DISABLE_ONE))
    }

    /// Undoes one `disable`; `None` if there is none.
    pub fn enable(self) -> Option<State> {
        (self.disable_depth() > 0).then(|| State(self.0 - DISABLE_ONE))
    }

    pub(crate) fn wait(self) -> State {
        self.with(WAITED)
    }
    pub(crate) fn await_task(self) -> State {
        self.with(WAKER)
    }
    /// Returns `true` if a task has polled the handle. Not for a `Work`, which no task waits for.
    pub(crate) fn awaits_task(self) -> bool {
        self.has(WAKER)
    }
    pub(crate) fn orphan(self) -> State {
        self.with(ORPHAN)
    }
    /// Clears `ORPHAN`; `None` while it is not set.
    pub(crate) fn adopt(self) -> Option<State> {
        self.has(ORPHAN).then(|| self.without(ORPHAN))
    }
}

// Models have no timers of raw items.
#[cfg_attr(any(loom, shuttle), allow(dead_code))]
pub(crate) mod raw;
mod task;

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        const NAMES: [(u64, &str); 15] = [
            (PENDING, "pending"),
            (LINKED, "linked"),
            (RUNNING, "running"),
            (HANDOFF, "handoff"),
            (OWED, "owes a turn"),
            (CLAIMED, "claimed"),
            (WAITED, "waited"),
            (ORPHAN, "orphan"),
            (PANICKED, "panicked"),
            (WAKER, "waker or revived"),
            (HELP, "helpable"),
            (ORDERED, "ordered"),
            (ONE_CPU, "on one cpu"),
            (RECLAIM, "rescued"),
            (COUNTED, "counted"),
        ];
        write!(f, "turn {}", self.completion_seq())?;
        for (flag, name) in NAMES {
            if self.has(flag) {
                write!(f, " {name}")?;
            }
        }
        if self.disable_depth() > 0 {
            write!(f, " disabled×{}", self.disable_depth())?;
        }
        Ok(())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests;
