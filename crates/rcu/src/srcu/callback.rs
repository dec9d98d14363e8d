//! The callbacks of a domain: a list of them, and a count for `barrier`. The threads that run them
//! serve all domains; see `runners.rs`.
//!
//! A callback runs after its grace period, or is leaked. It is never dropped without running,
//! because a reader may still see the memory that it would free. Rejected callbacks are leaked, and
//! so are those that a child of `fork` finds. If a callback forks on a library thread, the child
//! exits when the callback returns. On a thread that waits for callbacks, the child does not run
//! the rest of the batch.

use std::cell::Cell;
use std::ptr;

use base::internal::panics;
use base::internal::wake::{EventCount, report};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::unmodelled::Arc;
use sync::{Mutex, twin};

use super::domain::{Shared, refuse};
use super::runners::{Runners, Served};
use crate::bag::{self, Deferred};
use crate::callback::Backlog;
use crate::local::may_wait_for_callbacks;

#[derive(Default)]
pub(super) struct Callbacks {
    pub(super) list: Mutex<List>,
    /// A: set while the domain is aside or about to be moved aside (`runners.rs`). It is a hint.
    pub(super) is_aside: AtomicBool,
    /// A: the number of callbacks that have run. Written by the runner.
    nr_run: AtomicU64,
    /// A: statistics.
    pub(super) nr_panicked: AtomicU64,
    pub(super) backlog: Backlog,
    /// Notified when `nr_run` has grown, a list was taken, or the domain has lost its thread.
    pub(super) ran: EventCount,
}

/// The waiting callbacks. Their lock is a leaf.
#[derive(Default)]
pub(super) struct List {
    pub(super) waiting: Vec<Deferred>,
    nr_queued: u64,
    /// `true` if the domain is with the runners, or with a thread that waits for it.
    pub(super) is_served: bool,
}

sync::thread_local! {
    /// The domain whose callbacks this thread runs, or null.
    static RUNS: Cell<*const Shared> = Cell::new(ptr::null())
}

impl Shared {
    /// Returns the number of callbacks that are waiting.
    pub(super) fn call(shared: &Arc<Self>, callback: impl FnOnce() + Send + 'static) -> usize {
        if !shared.is_own_process() {
            if !twin::armed("srcu: a refused callback is dropped") {
                std::mem::forget(callback);
            }
            refuse();
        }
        let callback = Deferred::new(callback);
        let mut list = shared.callbacks.list.lock();
        bag::fetch_ahead(list.waiting.as_ptr_range().end);
        list.waiting.push(callback);
        list.nr_queued += 1;
        let nr = list.waiting.len();
        let is_served = std::mem::replace(&mut list.is_served, true);
        drop(list);
        if !is_served {
            Runners::add(Served::new(shared.clone()));
        }
        nr
    }

    /// If `nr` callbacks are too many, waits for a limited time (`Backlog`).
    #[inline]
    pub(super) fn slow_down(shared: &Arc<Self>, nr: usize) {
        let callbacks = &shared.callbacks;
        // Without a thread that runs callbacks, a wait would not help.
        if callbacks.backlog.is_above(nr) && !shared.runners.has_no_thread() {
            let nr = || callbacks.list.lock().waiting.len();
            callbacks.backlog.wait(may_wait_for_callbacks(), &callbacks.ran, nr);
        }
    }

    /// Returns `true` if callbacks will run without a further call. Starts a thread if needed.
    pub(super) fn is_served(shared: &Arc<Self>) -> bool {
        let mut list = shared.callbacks.list.lock();
        let (has_any, is_served) = (!list.waiting.is_empty(), list.is_served);
        list.is_served |= has_any;
        drop(list);
        if has_any && !is_served {
            Runners::add(Served::new(shared.clone()));
        }
        !has_any && !is_served || shared.runners.has_threads()
    }

    pub(super) fn barrier(shared: &Arc<Self>) {
        let runs_ours = RUNS.try_with(|runs| ptr::eq(runs.get(), &raw const **shared));
        assert!(
            !runs_ours.unwrap_or(false),
            "barrier inside a callback of its domain waits for itself"
        );
        shared.must_be_free_to_wait();
        let callbacks = &shared.callbacks;
        let target = callbacks.list.lock().nr_queued;
        // ORDER(srcu-barrier): publish and consume, other end in `run_batch`.
        //   run_batch: the callbacks; nr_run += n Release
        //   here:      nr_run Acquire; the caller relies on their effects
        // If the runner's addition comes first, we return, after the callbacks. If our load comes
        // first, we wait on `ran`, which the runner notifies after it.
        // Test: srcu_barrier_waits_for_every_callback
        let is_done = || callbacks.nr_run.load(Ordering::Acquire) >= target;
        while !is_done() {
            if let Some(served) = Self::to_help(shared) {
                // Thread creation failed, so this thread runs the callbacks.
                served.help(is_done);
            } else {
                callbacks.ran.wait_until(|| {
                    is_done()
                        || !callbacks.list.lock().is_served
                        || shared.runners.leaves_alone(shared)
                });
            }
            // In the child of a callback that forked, the lock may be held forever.
            shared.assert_own_process();
        }
    }

    /// Returns the domain if no other thread will run its callbacks.
    fn to_help(shared: &Arc<Self>) -> Option<Served> {
        let is_served = std::mem::replace(&mut shared.callbacks.list.lock().is_served, true);
        if is_served { Runners::take_out(shared) } else { Some(Served::new(shared.clone())) }
    }

    /// Runs and removes the callbacks in `batch`, whose grace period is over.
    pub(super) fn run_batch(&self, batch: &mut Vec<Deferred>) {
        let nr_run = batch.len() as u64;
        if twin::armed("srcu: a callback is lost") {
            batch.pop();
        }
        self.run_each(batch);
        // ORDER(srcu-barrier): other end in `barrier`.
        let order = twin::order("srcu: relaxed end of a batch", Ordering::Release);
        self.callbacks.nr_run.fetch_add(nr_run, order);
        self.callbacks.ran.notify_all();
    }

    fn run_each(&self, batch: &mut Vec<Deferred>) {
        let before = RUNS.try_with(|runs| runs.replace(self));
        report::as_callback(|| {
            for mut callback in batch.drain(..) {
                if !self.is_own_process() {
                    return;
                }
                // FOREIGN(srcu-callback): the user's callback, on a library thread, or on a thread
                // that waits in `barrier` or drops the last handle. It is contained.
                // SAFETY: the callback was moved out of the batch, which had the only copy.
                if panics::contain(|| unsafe { callback.run() }) {
                    self.callbacks.nr_panicked.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        if let Ok(before) = before {
            RUNS.try_with(|runs| runs.set(before)).ok();
        }
    }

    /// Runs the callbacks that remain because thread creation failed. The last handle is being
    /// dropped, so only a leaked guard can have a section open. Then the callbacks are leaked.
    pub(super) fn run_the_rest(&mut self) {
        let mut batch = std::mem::take(&mut self.callbacks.list.lock().waiting);
        if !batch.is_empty() && self.slots.all_drained() {
            self.run_each(&mut batch);
        }
    }
}
