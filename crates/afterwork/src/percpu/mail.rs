//! What waits for the owner of one slot: letters in order, and how many were posted and are done.
//!
//! Letters are run one after another by whoever holds the slot, oldest first. `nr_posted` rises before a letter is
//! pushed and `nr_done` after it ran. A flush reads the first and waits until the second has come as far. That is
//! enough: take a letter X whose post ended before the flush began. Letters that are done before X were pushed before
//! X, so they were counted in what the flush read, and so was X itself. While X is not done, `nr_done` is therefore
//! less than what the flush waits for.

use mpscq::{Node, Stack};
use sync::atomic::{AtomicU64, Ordering};
use sync::fork::Process;
use sync::twin;

use crate::panics;

/// Work for a slot; never panics.
pub(super) type Letter<T> = Box<dyn FnOnce(&mut T) + Send>;

/// The letters of one slot.
pub(super) struct Mail<T> {
    letters: Stack<Node<Letter<T>>>,
    /// A: how many posts began.
    nr_posted: AtomicU64,
    /// A, written by whoever holds the slot: how many letters ran.
    nr_done: AtomicU64,
}

impl<T> Mail<T> {
    pub(super) fn new() -> Self {
        Self {
            letters: Stack::new(),
            nr_posted: AtomicU64::new(0),
            nr_done: AtomicU64::new(0),
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Adds a letter. The caller makes sure then that somebody will look.
    pub(super) fn push(&self, letter: Letter<T>) {
        self.nr_posted.fetch_add(1, Ordering::Relaxed);
        self.letters.push(Node::new(letter));
    }

    /// Runs what is there, by whoever holds the slot; `run` has the data. In a child of `fork` that a letter makes, what lies
    /// behind it is the parent's, and forgotten.
    pub(super) fn run_all(&self, mut run: impl FnMut(Letter<T>)) {
        let here = Process::now();
        for letter in self.letters.take_all_fifo() {
            let letter = letter.into_inner();
            if here.is_this() {
                // Else what lies behind it would be lost.
                panics::or_abort("a letter of per-CPU mail panicked", || run(letter));
            } else {
                std::mem::forget(letter);
            }
            // ORDER(percpu-done): publish and consume, other end in `is_done`.
            //   here:  the letter's effects;   nr_done += 1     Release
            //   flush: nr_done  Acquire;       the caller relies on the effects
            // Test: a_flush_sees_what_was_queued_before, finishing_a_letter_needs_its_release
            let order = twin::order("percpu: relaxed done", Ordering::Release);
            self.nr_done.fetch_add(1, order);
        }
    }

    /// Forgets what is there, in a child of `fork`; `is_idle` if nobody was running letters.
    pub(super) fn forget(&self, is_idle: bool) {
        let mut nr_forgotten = 0;
        for letter in self.letters.take_all_fifo() {
            std::mem::forget(letter);
            nr_forgotten += 1;
        }
        let nr_done = self.nr_done.load(Ordering::Relaxed) + nr_forgotten;
        let nr_done = if is_idle { self.nr_posted() } else { nr_done };
        self.nr_done.store(nr_done, Ordering::Relaxed);
    }

    /// Returns how many posts a flush that begins now waits for.
    pub(super) fn nr_posted(&self) -> u64 {
        self.nr_posted.load(Ordering::Relaxed)
    }

    /// Returns `true` if all of the first `nr_posted` letters ran.
    pub(super) fn is_done(&self, nr_posted: u64) -> bool {
        // ORDER(percpu-done): the acquire end; see `run_all`.
        // Test: a_flush_sees_what_was_queued_before
        self.nr_done.load(Ordering::Acquire) >= nr_posted
    }
}

impl<T> Drop for Mail<T> {
    /// Nothing is left but of an owner that was forgotten.
    fn drop(&mut self) {
        if !twin::torn_down() {
            for letter in self.letters.take_all() {
                // FOREIGN(percpu-unread): work that never ran, on who drops the data; a panic of its drop ends here.
                panics::contain(|| drop(letter));
            }
        }
    }
}
