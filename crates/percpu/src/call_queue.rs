//! The queued calls of one slot in order. The thread that holds the slot runs them, oldest first.
//!
//! `nr_posted` rises before a call is pushed, and `nr_done` after it ran. A flush reads the first
//! count and waits until the second reaches it. Consider a call X whose post ended before the flush
//! began. Calls that run before X were pushed before X, so the count that the flush reads includes
//! them and X. Until X has run, `nr_done` is below it.

use base::internal::panics;
use mpscq::{Node, Stack};
use sync::atomic::{AtomicU64, Ordering};
use sync::fork::Process;
use sync::twin;

/// Work for a slot. It never panics.
pub(super) type QueuedCall<T> = Box<dyn FnOnce(&mut T) + Send>;

pub(super) struct CallQueue<T> {
    calls: Stack<Node<QueuedCall<T>>>,
    /// A: the posts that have begun.
    nr_posted: AtomicU64,
    /// A: the calls that have run. Written by the thread that holds the slot.
    nr_done: AtomicU64,
}

impl<T> CallQueue<T> {
    pub(super) fn new() -> Self {
        Self { calls: Stack::new(), nr_posted: AtomicU64::new(0), nr_done: AtomicU64::new(0) }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    /// The caller then ensures that a thread will run the call.
    pub(super) fn push(&self, call: QueuedCall<T>) {
        self.nr_posted.fetch_add(1, Ordering::Relaxed);
        self.calls.push(Node::new(call));
    }

    /// Passes each call to `run`, in a held slot. If a call forks, the child leaks the next calls,
    /// because the parent runs them.
    pub(super) fn run_all(&self, mut run: impl FnMut(QueuedCall<T>)) {
        let here = Process::now();
        for call in self.calls.take_all_fifo() {
            let call = call.into_inner();
            if here.is_this() {
                // An unwinding panic would lose the next calls.
                panics::or_abort("a queued call of per-CPU data panicked", || run(call));
            } else {
                std::mem::forget(call);
            }
            // ORDER(percpu-done): publish and consume, other end in `is_done`.
            //   here:  the call's effects;     nr_done += 1     Release
            //   flush: nr_done  Acquire;       the caller relies on the effects
            // If our addition comes first, the flush counts the call and sees its effects. If its
            // load comes first, it keeps waiting.
            // Test: flush_sees_earlier_calls
            let order = twin::order("percpu: relaxed done", Ordering::Release);
            self.nr_done.fetch_add(1, order);
        }
    }

    /// Leaks all calls, in a child of `fork`. `is_idle` is `true` if no thread was running them.
    pub(super) fn forget(&self, is_idle: bool) {
        let mut nr_forgotten = 0;
        for call in self.calls.take_all_fifo() {
            std::mem::forget(call);
            nr_forgotten += 1;
        }
        let nr_done = self.nr_done.load(Ordering::Relaxed) + nr_forgotten;
        let nr_done = if is_idle { self.nr_posted() } else { nr_done };
        self.nr_done.store(nr_done, Ordering::Relaxed);
    }

    /// The number of posts for which a flush that begins now waits.
    pub(super) fn nr_posted(&self) -> u64 {
        self.nr_posted.load(Ordering::Relaxed)
    }

    pub(super) fn is_done(&self, nr_posted: u64) -> bool {
        // ORDER(percpu-done): the acquire end; see `run_all`.
        self.nr_done.load(Ordering::Acquire) >= nr_posted
    }
}

// Calls remain only if an owner was leaked (`mem::forget`).
sync::on_drop!(CallQueue[T], it => for call in it.calls.take_all() {
    // FOREIGN(percpu-unread): work that never ran. A panic in its drop is caught.
    panics::contain(|| drop(call));
});
