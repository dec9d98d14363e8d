//! What one work item is up to: a word of flags, and every step it can take.
//!
//! Each step is a plain function from one value of the word to the next; `work.rs` applies them by
//! compare-exchange. The steps are the item's whole protocol:
//!
//! ```text
//!            enqueue                    pop                     complete
//!   idle ──────────────► PENDING+LINKED ───────────► RUNNING ─────────────► idle
//!                           │     ▲                   │   ▲
//!                 cancel    ▼     │ enqueue           │   │ enqueue, pop: PENDING+HANDOFF
//!                         LINKED ─┘ (a tombstone)     └───┘ (runs again after this run)
//! ```
//!
//! - **Never twice at once.** `RUNNING` is set by one step only when it was clear. A pop that meets a running
//!   item leaves `HANDOFF` to the runner, who queues the item again when its run ends.
//! - **Lazy removal.** Cancelling and helping take an item by clearing `PENDING`; its link stays in whatever list
//!   holds it (a *tombstone*) until a worker pops it, or it is reaped (`tombstones.rs`). Enqueueing a tombstone only sets
//!   `PENDING` again. Whoever cancels claims the item first: the claim keeps the link, and so its home.
//! - **In-flight counts** are taken when a worker adopts the link and given back by whoever unlinks it, or inherits
//!   it with `HANDOFF`: the end of the run that was under way when the link was popped. A helper whose item was
//!   never adopted counts at the gate.
//! - **Turns** count the runs that have ended and the enqueues that were cancelled, in the order of their enqueues: a
//!   cancelled enqueue that was to run after the present run is `OWED` until that run has ended, for its turn must
//!   not be taken for the run's.
//! - **Freeing.** An item without handles (`ORPHAN`) is freed by the step after which it is neither linked, nor
//!   running, nor claimed.

/// bits 0..15 flags | bits 15..48 turns | bits 48..64 disable depth, or what only a future has: see `state/task.rs`
///
/// The low half, on which flushers sleep, thus holds seventeen bits of the turn as well: a run that ends between a
/// flusher's look and its sleep changes what it sleeps on.
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
/// It has a place of its queue's capacity until it starts or is cancelled; see `limit/room.rs`.
const COUNTED: u64 = 1 << 14;

/// Queued into a place that it had before, in which it may look older than it is. Of items that can be queued again, which no
/// task waits for.
const REVIVED: u64 = WAKER;

/// What [`Rules`] are.
const RULES: u64 = HELP | ORDERED | ONE_CPU | RECLAIM;

const TURN_SHIFT: u32 = 15;
const TURN_BITS: u32 = 33;
const TURN_ONE: u64 = 1 << TURN_SHIFT;
const TURN_MASK: u64 = ((1 << TURN_BITS) - 1) << TURN_SHIFT;
const DISABLE_SHIFT: u32 = 48;
const DISABLE_ONE: u64 = 1 << DISABLE_SHIFT;

/// What a queue lets happen to its items; part of the word while the item is queued there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Rules {
    /// A joiner may run it.
    pub(crate) help: bool,
    /// Its place in the line matters, for it may be queued again: cancelled, it is cut out instead of leaving a tombstone.
    pub(crate) ordered: bool,
    /// Its workers share one CPU: a waiter there must not keep them off it.
    pub(crate) one_cpu: bool,
    /// Its queue has a rescuer.
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

/// What an enqueuer has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Enqueue {
    /// Nothing: it is pending already.
    Pending,
    /// Nothing: it is disabled.
    Disabled,
    /// Set the state; the link is still in a list of this queue, where it will be found.
    Revive(State),
    /// Set the state and push the link.
    Push(State),
    /// Set the state, write the new home, publish, push.
    Claim(State),
    /// Set the state, get the link out of another queue's list or back from the run that was left it, and go on as for
    /// `Claim`.
    Elsewhere(State),
}

/// What a worker that unlinked an item has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pop {
    /// Set the state and run it.
    Run(State),
    /// Set the state; whoever runs or claims it inherits the link with its in-flight count.
    Leave(State),
    /// Set the state and give the in-flight count back: nobody wants it run.
    Discard(State),
}

/// How a run of an item's own code ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ending {
    /// It returned.
    Returned,
    /// It panicked.
    Panicked,
    /// It is a future that waits for its waker.
    Suspended {
        /// The link with which it was run stays counted in flight, until the future has ended.
        keeps_count: bool,
    },
}

/// What a runner has to do after its run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Completion {
    pub(crate) next: State,
    /// Push the link again, at the front: it was queued and popped during the run.
    pub(crate) relink: bool,
    /// That link is older than what was queued.
    pub(crate) revived: bool,
    /// Push the link: the future was woken while it was polled.
    pub(crate) push: bool,
    /// Give back the in-flight count of a link that was popped during the run and then cancelled.
    pub(crate) retire_handoff: bool,
    /// Wake who sleeps on the word.
    pub(crate) wake: bool,
    /// Wake the async task that polled the handle.
    pub(crate) wake_task: bool,
    /// Free the item.
    pub(crate) free: bool,
}

impl State {
    pub(crate) const IDLE: State = State(0);

    /// Returns the state of a one-shot item that is made to be pushed.
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
    /// Its place in the line matters.
    pub(crate) fn is_ordered(self) -> bool {
        self.has(ORDERED)
    }
    /// Returns `true` if a thread or a timer has claimed the item.
    #[inline]
    pub fn is_claimed(self) -> bool {
        self.has(CLAIMED)
    }
    /// Its link is older than what was queued last.
    pub(crate) fn is_revived(self) -> bool {
        self.has(REVIVED)
    }
    /// Its link is in no list: a run or a claim was left it.
    pub(crate) fn is_left(self) -> bool {
        self.has(HANDOFF)
    }
    /// Notes that it was queued again since it got its link.
    pub(crate) fn revived(self) -> State {
        self.with(REVIVED)
    }
    /// Returns `true` if a joiner may run the item.
    pub(crate) fn lets_help(self) -> bool {
        self.has(HELP)
    }
    /// Its workers share one CPU.
    pub(crate) fn is_on_one_cpu(self) -> bool {
        self.has(ONE_CPU)
    }
    /// Its queue has a rescuer.
    pub(crate) fn has_rescuer(self) -> bool {
        self.has(RECLAIM)
    }
    /// The last run panicked.
    pub(crate) fn has_panicked(self) -> bool {
        self.has(PANICKED)
    }
    /// Its last handle is gone.
    pub(crate) fn is_orphan(self) -> bool {
        self.has(ORPHAN)
    }
    /// Some list, or whoever runs or claims it, has its link.
    pub(crate) fn has_link(self) -> bool {
        self.has(LINKED | HANDOFF)
    }
    /// Neither queued nor running, nor about to be.
    pub(crate) fn is_idle(self) -> bool {
        !self.has(PENDING | RUNNING | CLAIMED)
    }
    /// Returns how often the item was disabled and not enabled again.
    #[inline]
    pub fn disable_depth(self) -> u16 {
        (self.0 >> DISABLE_SHIFT) as u16
    }
    /// How many runs have ended, or were cancelled; wraps.
    #[inline]
    pub fn completion_seq(self) -> u64 {
        (self.0 & TURN_MASK) >> TURN_SHIFT
    }
    /// The turn after which everything that is queued or running now has ended.
    pub(crate) fn last_turn(self) -> u64 {
        let nr_left = u64::from(self.has(RUNNING)) + u64::from(self.has(PENDING | CLAIMED));
        self.completion_seq().wrapping_add(nr_left) & (TURN_MASK >> TURN_SHIFT)
    }
    /// Returns `true` if `turn` has been reached; turns wrap, so a waiter must not sleep through half of them (2^32).
    pub(crate) fn has_reached(self, turn: u64) -> bool {
        let ahead = turn.wrapping_sub(self.completion_seq()) & (TURN_MASK >> TURN_SHIFT);
        ahead == 0 || ahead > 1 << (TURN_BITS - 1)
    }
    /// It is pending, and has a place of its queue's capacity: whoever starts or cancels it gives that back.
    pub(crate) fn is_counted(self) -> bool {
        self.has(COUNTED)
    }
    fn is_free(self) -> bool {
        self.has(ORPHAN) && !self.has(LINKED | RUNNING | CLAIMED | PENDING | HANDOFF)
    }

    /// Gives a pending item a place of its queue's capacity, if it `has_place`.
    #[inline]
    pub(crate) fn counted(self, has_place: bool) -> State {
        self.with(u64::from(has_place) * COUNTED)
    }

    /// Queues it: `here` when its home is the very list that will be used, `ours` when its home is a list of
    /// the same queue; with a place of the queue's capacity if it `has_place`.
    pub(crate) fn enqueue(
        self,
        here: bool,
        ours: impl FnOnce() -> bool,
        rules: Rules,
        has_place: bool,
    ) -> Enqueue {
        // What is queued now takes the place of what was cancelled behind the same run, and its turn.
        let queued = self.without(OWED).counted(has_place);
        let fresh = queued.without(RULES | REVIVED).with(rules.bits());
        if self.disable_depth() > 0 {
            Enqueue::Disabled
        } else if self.has(PENDING | CLAIMED) {
            Enqueue::Pending
        } else if self.has(LINKED | HANDOFF) {
            // What a run was left is in no list, where a cancel of all would find it.
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

    /// Ends the claim of an enqueuer that has written the new home.
    pub(crate) fn publish(self) -> State {
        self.without(CLAIMED).with(PENDING | LINKED)
    }

    /// Takes it off its list.
    pub(crate) fn pop(self) -> Pop {
        let popped = self.without(LINKED);
        let busy = self.has(RUNNING) && !sync::twin::armed("item: runs beside itself");
        // Also when it is not pending: the link that a helper left behind is counted until his run has ended.
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

    /// Takes it off its list to be cancelled: a run of it in which none of its code is called.
    ///
    /// Behind a run that goes on the link is the caller's as well. The run must not have it: what is queued later would take
    /// the place, and the age, of what was cancelled.
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
            // How the last run ended is not forgotten, for this is none.
            Pop::Run(popped.without(PENDING | COUNTED).with(RUNNING))
        }
    }

    /// Returns `true` if an item that was discarded, or whose last handle went, is to be freed now.
    pub(crate) fn frees(self) -> bool {
        self.is_free()
    }

    /// Ends a run that returned, if that leaves nothing to be done: nobody waits, and nothing came meanwhile. What most runs are.
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
        // Whoever claims the item sees to what was handed over.
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
            // It may be left to somebody else again, and is as young then.
            next = next.with(LINKED | self.0 & REVIVED);
        }
        if ending == Ending::Panicked {
            next = next.with(PANICKED);
        }
        if !next.has(LINKED | HANDOFF | CLAIMED) {
            // Woken in its last poll: a future that has ended is not polled again.
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

    /// Starts to help: the helper may now look at the home, which cannot go away. Whoever pops the link
    /// meanwhile leaves it, and its count, to the claim.
    pub(crate) fn claim(self) -> Option<State> {
        let helpable =
            self.has(PENDING) && self.has(LINKED) && self.has(HELP) && !self.has(RUNNING | CLAIMED);
        helpable.then(|| self.with(CLAIMED))
    }

    /// Turns a helper's claim into a run. A link that was popped meanwhile is the run's, and counted until it ends.
    pub(crate) fn run_claimed(self) -> State {
        self.without(PENDING | CLAIMED | PANICKED | COUNTED)
            .with(RUNNING)
    }

    /// Gives a helper's claim up; the flag says that the link was popped meanwhile and must be pushed again.
    pub(crate) fn unclaim(self) -> (State, bool) {
        let next = self.without(CLAIMED);
        if self.has(HANDOFF) {
            (next.without(HANDOFF).with(LINKED), true)
        } else {
            (next, false)
        }
    }

    /// Claims a pending item, to cancel it.
    #[inline]
    pub fn claim_pending(self) -> Option<State> {
        let cancels = self.has(PENDING) && !self.has(CLAIMED);
        cancels.then(|| self.with(CLAIMED))
    }

    /// Ends the claim of `claim_pending`, and takes the item out of the queue; a link that is in a list stays there. The
    /// flag says that sleepers must be woken. `None` when a link was left to the claim, which must be taken over first.
    pub(crate) fn cancel(self) -> Option<(State, bool)> {
        // A run that goes on gives the count of such a link back when it ends.
        let is_left_to_us = self.has(HANDOFF) && !self.has(RUNNING);
        (!is_left_to_us).then(|| self.without(CLAIMED).cancelled())
    }

    /// Takes a turn off the queue; the flag says that sleepers must be woken.
    fn cancelled(self) -> (State, bool) {
        let next = self.without(PENDING | COUNTED);
        if self.has(RUNNING) && !sync::twin::armed("item: a cancel ends the run") {
            // Sleepers wait at least for the run.
            (next.with(OWED), false)
        } else {
            (next.without(WAITED).next_turn(), self.has(WAITED))
        }
    }

    /// Unlinks an item that is in a list for nothing; `None` when somebody wants it run, runs or claims it.
    pub(crate) fn reap(self) -> Option<State> {
        let alive = if sync::twin::armed("reap: overlooks who queues") {
            RUNNING | CLAIMED
        } else {
            PENDING | RUNNING | CLAIMED
        };
        (self.has(LINKED) && !self.has(alive)).then(|| self.unlink())
    }

    /// Takes note that its link was cut out of its list.
    pub(crate) fn unlink(self) -> State {
        self.without(LINKED)
    }

    /// Takes over a link that was popped during a claim.
    pub(crate) fn take_handoff(self) -> Option<State> {
        self.has(HANDOFF).then(|| self.without(HANDOFF))
    }

    /// Refuses enqueueing once more; `None` when the depth would overflow.
    pub fn disable(self) -> Option<State> {
        (self.disable_depth() < u16::MAX).then(|| State(self.0 + DISABLE_ONE))
    }

    /// Takes one refusal back; `None` when there is none.
    pub fn enable(self) -> Option<State> {
        (self.disable_depth() > 0).then(|| State(self.0 - DISABLE_ONE))
    }

    pub(crate) fn wait(self) -> State {
        self.with(WAITED)
    }
    pub(crate) fn await_task(self) -> State {
        self.with(WAKER)
    }
    /// A task has polled its handle. Not of a `Work`, which no task waits for.
    pub(crate) fn awaits_task(self) -> bool {
        self.has(WAKER)
    }
    pub(crate) fn orphan(self) -> State {
        self.with(ORPHAN)
    }
    /// Takes an item back that its last handle has left; `None` while it has not.
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
