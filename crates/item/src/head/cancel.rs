//! The transitions by which an item is popped, cancelled, reaped or disabled.

use sync::Backoff;

use super::{
    CLAIMED, COUNTED, DISABLE_ONE, HANDOFF, Head, LINKED, OWED, PENDING, Pop, RUNNING, State,
    WAITED,
};

impl State {
    /// Pops the item to cancel it. The cancel is a run that does not call the item's code.
    ///
    /// If the item is running, the caller receives the link as well. It is not handed to the run,
    /// because a later enqueue would inherit the position and the age of the cancelled one.
    pub fn pop_to_cancel(self) -> Pop {
        if self.has(CLAIMED) {
            return self.pop();
        }
        let popped = self.without(LINKED);
        if !self.has(PENDING) {
            Pop::Discard(popped)
        } else if self.has(RUNNING) && !sync::twin::armed("cancel all: ends a running item") {
            Pop::Discard(popped.cancelled().0)
        } else {
            // The panic flag of the last run is kept, because this is not a real run.
            Pop::Run(popped.without(PENDING | COUNTED).with(RUNNING))
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
    pub fn cancel(self) -> Option<(State, bool)> {
        // If the item is running, that run releases the count of such a link when it ends.
        let is_left_to_us = self.has(HANDOFF) && !self.has(RUNNING);
        (!is_left_to_us).then(|| self.without(CLAIMED).cancelled())
    }

    /// Cancels one enqueue; the flag is set if sleepers must be woken.
    fn cancelled(self) -> (State, bool) {
        let next = self.without(PENDING | COUNTED);
        if self.has(RUNNING) && !sync::twin::armed("item: a cancel ends the run") {
            // Sleepers continue to wait, at least for the end of the run.
            (next.with(OWED), false)
        } else {
            (next.without(WAITED).next_completion(), self.has(WAITED))
        }
    }

    /// Unlinks a tombstone. Returns `None` if the item is pending, running or claimed.
    pub fn reap(self) -> Option<State> {
        let alive = if sync::twin::armed("reap: overlooks an enqueuer") {
            RUNNING | CLAIMED
        } else {
            PENDING | RUNNING | CLAIMED
        };
        (self.has(LINKED) && !self.has(alive)).then(|| self.unlink())
    }

    /// Disables the item once more. Returns `None` if the depth would overflow.
    pub fn disable(self) -> Option<State> {
        (self.disable_depth() < u16::MAX).then(|| State(self.0 + DISABLE_ONE))
    }

    /// Undoes one `disable`. Returns `None` if there is none.
    pub fn enable(self) -> Option<State> {
        (self.disable_depth() > 0).then(|| State(self.0 - DISABLE_ONE))
    }
}

impl Head {
    /// Pops the item as `plan` decides. Returns the previous state and the decision, which has been
    /// applied. While `plan` returns `None`, another thread is about to change the state.
    #[inline]
    pub fn pop_by(&self, plan: impl Fn(State) -> Option<Pop>) -> (State, Pop) {
        let mut backoff = Backoff::new();
        loop {
            let from = self.load();
            let Some(pop) = plan(from) else {
                backoff.pause();
                continue;
            };
            let (Pop::Run(to) | Pop::Leave(to) | Pop::Discard(to)) = pop;
            if self.transition(from, to) {
                return (from, pop);
            }
        }
    }
}
