//! Rare operations on a gate: changing the number of seats, pausing, and waiting for helpers.

use std::ops::Deref;

use sync::{atomic::Ordering, twin, unmodelled::Arc};

use super::{Closed, Gate, HELP_WAITS, PAUSED, Phase, STAY_CLOSED, WaitQueue};

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

impl<S> Gate<S> {
    /// Closes the stocks until the result is dropped. Later helpers are counted in a phase.
    pub(crate) fn closed(gate: Arc<Self>) -> Closed<S> {
        if !gate.stocks.is_empty() {
            let mut wait_queue = gate.wait_queue.lock();
            wait_queue.nr_closers += 1;
            // Relaxed, as in `Closed::drop`: the flag is read under the lock of the wait queue.
            gate.word.fetch_or(STAY_CLOSED, Ordering::Relaxed);
            if !twin::armed("stock: a flush leaves it open") {
                gate.close(&mut wait_queue);
            }
        }
        Closed(gate)
    }

    /// Updates the number of CPUs that the queue uses on each node.
    pub(crate) fn set_cpus(&self, nr_cpus: &[u32]) {
        let _line = self.wait_queue.lock();
        for (node, &nr_cpus) in self.nodes.iter().zip(nr_cpus) {
            node.nr_cpus.store(nr_cpus, Ordering::Relaxed);
        }
        self.share_out();
    }

    /// Changes the number of seats. Returns the waiters that get a seat.
    #[must_use = "the waiters that got seats must be notified"]
    pub(crate) fn set_max(&self, max: u32) -> Vec<S> {
        let mut wait_queue = self.wait_queue.lock();
        self.close(&mut wait_queue);
        let paused = self.max.load(Ordering::Relaxed) & PAUSED;
        self.max
            .store((max * self.factor) | paused, Ordering::Relaxed);
        self.share_out();
        self.admit_from(&mut wait_queue)
    }

    /// Removes all seats, or restores them. Returns the waiters that get a seat.
    #[must_use = "the waiters that got seats must be notified"]
    pub(crate) fn set_paused(&self, paused: bool) -> Vec<S> {
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
            admitted.extend(wait_queue.entries.remove(at).map(|entry| entry.waiter));
        }
        self.note_waiters(wait_queue);
        admitted
    }

    /// Returns `true` if all helpers that were active when `phase` was the current one have ended.
    /// Otherwise the last of them notifies `core.settled`. Call it while the stocks are
    /// [`closed`](Self::closed), so that the helpers counted in a stock are earlier ones.
    ///
    /// The phase wraps. A flush that sleeps through 256 others may confuse the current phase with
    /// its own, and wait for later helpers. It never ends too early.
    pub(crate) fn has_helped(&self, phase: Phase) -> bool {
        let of_stocks = self.stocks.iter().any(|stock| stock.nr_helpers() > 0);
        let mut from = self.load();
        loop {
            let present = from.phase();
            let is_empty = from.nr_helpers(present.before()) == 0;
            let to = if present == phase && from.nr_helpers(present) == 0 && is_empty && !of_stocks
            {
                return true;
            } else if present == phase && is_empty {
                // Advance even if only a stock has helpers. Otherwise later ones join this phase.
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
