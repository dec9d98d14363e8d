//! Rare operations on a gate: changing the number of seats, pausing, and waiting for helpers. This
//! file also contains the operations of a group's gate, which many queues share.
//!
//! # Queues take turns
//!
//! At the gate of a group, a queue with many pwqs must not get more seats than one with a single
//! pwq and the same shares. Each entry of the wait queue therefore has a *turn*, and the lowest is
//! served first. An entry's turn is the last turn of its queue plus the price of a seat, which is
//! inversely proportional to the queue's shares. It is at least the turn of the entry that was
//! served last, so that a queue cannot save up turns. This is start-time fair queueing.

use std::ops::Deref;

use sync::atomic::Ordering;
use sync::unmodelled::Arc;
use sync::{thread, twin};

use super::{
    ACTIVE_MASK, ACTIVE_ONE, Closed, Entry, Gate, HELP_WAITS, PAUSED, Phase, STAY_CLOSED,
    WaitQueue, Word,
};
use crate::queue_core::QueueCore;

impl<S> Deref for Closed<S> {
    type Target = Gate<S>;

    fn deref(&self) -> &Gate<S> {
        &self.0
    }
}

impl<S> Drop for Closed<S> {
    fn drop(&mut self) {
        if !self.0.stocks.is_empty() && !twin::torn_down() {
            let mut wait_queue = self.0.wait_queue.lock();
            wait_queue.nr_closers -= 1;
            if wait_queue.nr_closers == 0 {
                self.0.word.fetch_and(!STAY_CLOSED, Ordering::Relaxed);
            }
        }
    }
}

impl<S> WaitQueue<S> {
    /// Adds an entry; see the top of this file.
    pub(super) fn add(&mut self, waiter: S, node: usize, queue: Option<&QueueCore>) {
        let turn = queue.map_or(0, |queue| {
            // Relaxed suffices, because `turn` is guarded by the lock of this wait queue.
            let next = queue.turn.load(Ordering::Relaxed) + queue.seat_price();
            let turn = self.turn.max(next);
            queue.turn.store(turn, Ordering::Relaxed);
            turn
        });
        let at = self.entries.partition_point(|entry| entry.turn <= turn);
        let entry = Entry { waiter, node, turn };
        self.entries.insert(at, entry);
    }

    pub(super) fn serve(&mut self, at: usize) -> Option<Entry<S>> {
        let entry = self.entries.remove(at)?;
        self.turn = self.turn.max(entry.turn);
        Some(entry)
    }
}

impl<S> Gate<S> {
    /// Acquires a seat, or joins the wait queue on behalf of `queue`. Call it with the waiter's
    /// pool locked.
    pub fn enter_in_turn(&self, queue: &QueueCore, waiter: impl FnOnce() -> S) -> bool {
        let queue = (!twin::armed("group: pwqs take turns")).then_some(queue);
        self.enter_or_queue_at(0, queue, waiter)
    }

    /// Acquires a seat even if none is free. Threads that must not wait for a seat call this.
    ///
    /// The count does not overflow: there are fewer than 65,536 threads, as in the pool's census.
    pub fn count(&self) {
        if twin::armed("group: a returning thread asks") {
            while !self.try_enter(0) {
                thread::yield_now();
            }
            return;
        }
        if self.try_enter(0) && !twin::armed("group: a returning thread counts twice") {
            return;
        }
        self.update(|from| {
            assert!(from.0 & ACTIVE_MASK < ACTIVE_MASK, "too many threads");
            Some((Word(from.0 + ACTIVE_ONE), ()))
        });
    }

    /// Removes a waiter from the wait queue. Returns `false` if no entry `matches`. Call it with
    /// the waiter's pool locked.
    pub fn withdraw(&self, matches: impl Fn(&S) -> bool) -> bool {
        if !self.load().has_waiters() {
            return false;
        }
        let mut wait_queue = self.wait_queue.lock();
        let mut entries = wait_queue.entries.iter();
        let at = entries.position(|entry| matches(&entry.waiter));
        at.is_some_and(|at| {
            wait_queue.entries.remove(at);
            self.note_waiters(&wait_queue);
            true
        })
    }

    pub fn nr_waiting(&self) -> usize {
        self.wait_queue.lock().entries.len()
    }
}

impl<S> Gate<S> {
    /// Closes the stocks until the result is dropped. Later helpers are counted in a phase.
    pub fn closed(gate: Arc<Self>) -> Closed<S> {
        if !gate.stocks.is_empty() {
            let mut wait_queue = gate.wait_queue.lock();
            wait_queue.nr_closers += 1;
            // Relaxed suffices, as in `Closed::drop`: the flag is read under the lock of the wait
            // queue.
            gate.word.fetch_or(STAY_CLOSED, Ordering::Relaxed);
            if !twin::armed("stock: a flush leaves it open") {
                gate.close(&mut wait_queue);
            }
        }
        Closed(gate)
    }

    /// Updates the number of CPUs that the queue uses on each node.
    pub fn set_cpus(&self, nr_cpus: &[u32]) {
        let _line = self.wait_queue.lock();
        for (node, &nr_cpus) in self.nodes.iter().zip(nr_cpus) {
            node.nr_cpus.store(nr_cpus, Ordering::Relaxed);
        }
        self.share_out();
    }

    /// Changes the number of seats. Returns the waiters that get a seat.
    #[must_use = "the waiters that got seats must be notified"]
    pub fn set_max(&self, max: u32) -> Vec<S> {
        let mut wait_queue = self.wait_queue.lock();
        self.close(&mut wait_queue);
        let paused = self.max.load(Ordering::Relaxed) & PAUSED;
        self.max.store((max * self.factor) | paused, Ordering::Relaxed);
        self.share_out();
        self.admit_from(&mut wait_queue)
    }

    /// Removes all seats, or restores them. Returns the waiters that get a seat.
    #[must_use = "the waiters that got seats must be notified"]
    pub fn set_paused(&self, paused: bool) -> Vec<S> {
        let mut wait_queue = self.wait_queue.lock();
        self.close(&mut wait_queue);
        let max = self.max() | if paused { PAUSED } else { 0 };
        self.max.store(max, Ordering::Relaxed);
        self.admit_from(&mut wait_queue)
    }

    fn admit_from(&self, wait_queue: &mut WaitQueue<S>) -> Vec<S> {
        let mut admitted = Vec::new();
        while let Some(at) = self.next(wait_queue)
            && self.try_enter_here(wait_queue.entries[at].node)
        {
            admitted.extend(wait_queue.serve(at).map(|entry| entry.waiter));
        }
        self.note_waiters(wait_queue);
        admitted
    }

    /// Returns `true` if all helpers that were active when `phase` was the current one have ended.
    /// Otherwise the last of them notifies `core.settled`. Call it while the stocks are
    /// [`closed`](Self::closed), so that the helpers counted in a stock are earlier ones.
    ///
    /// Phase numbers wrap. A flush that sleeps through 256 others may mistake the current phase for
    /// its own and wait for later helpers. It never ends too early.
    pub fn has_helped(&self, phase: Phase) -> bool {
        let of_stocks = self.stocks.iter().any(|stock| stock.nr_helpers() > 0);
        let mut from = self.load();
        loop {
            let present = from.phase();
            let is_empty = from.nr_helpers(present.before()) == 0;
            let to = if present == phase && from.nr_helpers(present) == 0 && is_empty && !of_stocks
            {
                return true;
            } else if present == phase && is_empty {
                // Advance even if only a stock has helpers. Otherwise later helpers would join this
                // phase.
                from.next_phase()
            } else if present != phase && (present != phase.next() || is_empty) {
                return !of_stocks;
            } else {
                from.with(HELP_WAITS)
            };
            match Self::transition(&self.word, from, to) {
                Ok(()) if to.phase() == present => return false,
                // Check the new phase, too. Reload the word, because a failed exchange does not
                // acquire the helpers' writes.
                Ok(()) | Err(_) => from = self.load(),
            }
        }
    }
}
