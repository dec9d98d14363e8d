//! Lets a pool replace a worker that sleeps inside an item.
//!
//! # The protocol
//!
//! A pool keeps `target` workers awake. A worker that may sleep inside an item removes itself from
//! the census. Like a worker that parks, it must then check for work, because a producer that
//! counted it as awake did not kick:
//!
//! ```text
//! producer: injector = item;                        fence;  read census: below target?
//! sleeper:  put the local batch back; census -= me; fence;  read injector: kick another worker
//! ```
//!
//! When the worker wakes, it counts as awake again, and the pool may be above its target. The pool
//! stops no worker because of that. The next worker that ends a batch and finds too many workers
//! awake parks even if work waits (`WorkerPool::take`, `try_park`). `policy::has_surplus` decides
//! how many are too many. The awake count decreases only under the pool lock, and that worker
//! decides under the same lock, so two workers cannot park for one surplus.

use base::internal::wake::report::{self, BlockingObserver};
use sync::atomic::{Ordering, fence};
use sync::twin;
use sync::unmodelled::Arc;

use super::pool::{PoolGuard, WorkerPool};
use super::worker::Worker;

/// Calls `body`, which may block, and lets the pool run another worker in the meantime.
///
/// Use it in a work item around an operation that sleeps or waits: file and network I/O, locks that
/// are held for a long time, or waits for another process. The waits in this library (joining,
/// flushing, draining, `Parker`, [`EventCount`](base::wake::EventCount), mailboxes) report
/// themselves. If an item blocks without reporting it, the pool notices that after a millisecond or
/// two, as long as work waits.
///
/// # Guarantees
///
/// - While `body` runs, this worker does not count toward the number of workers that the pool keeps
///   running.
/// - No worker is stopped when `body` returns or panics. A pool of one CPU runs one worker too many
///   until one of them ends an item. A pool of several CPUs may keep up to three workers awake per
///   CPU while work waits, so that no CPU idles while two workers share another one.
/// - On a thread that runs no work item, and inside another `blocking`, it only calls `body`.
/// - The thread keeps its seats, including those of a [`Group`](crate::Group).
///
/// # Cost
///
/// The call acquires the pool lock twice for a short time, which takes some tens of nanoseconds. If
/// work waits, it also wakes another worker.
///
/// # Blocking
///
/// Blocks if `body` does.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{self, Workqueue};
///
/// let queue = Workqueue::builder("example").build()?;
/// let handle = queue.spawn(|| workqueue::blocking(|| std::fs::read("/proc/self/comm")));
/// assert!(handle.join()?.is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn blocking<R>(body: impl FnOnce() -> R) -> R {
    report::while_blocked(body)
}

/// A worker as seen by its own thread, to which the thread's waits are reported.
pub(crate) struct WorkerHook {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) worker: Arc<Worker>,
}

impl BlockingObserver for WorkerHook {
    fn falls_asleep(&self) {
        assert!(self.may_sleep(), "{}", report::ABOUT_TO_SLEEP);
        let mut guard = self.pool.lock_to_act();
        guard.reclaim(&self.worker);
        self.pool.recount(&mut guard, &self.worker, |away| away.declared = true);
        // ORDER(worker-park): a producer that counted us awake did not kick; see `find_worker`.
        // Test: item_is_never_stranded_at_a_blocked_worker
        if !twin::armed("blocking: no fence") {
            fence(Ordering::SeqCst);
        }
        let work = guard.has_work() || !self.pool.injector.is_empty();
        if work && !twin::armed("blocking: no recheck") {
            guard.replace(&self.worker);
        }
    }

    fn is_back(&self) {
        let mut dispatch = self.pool.lock();
        self.pool.recount(&mut dispatch, &self.worker, |away| {
            away.declared = false;
            away.asleep = false;
        });
    }

    fn may_sleep(&self) -> bool {
        !self.pool.attrs.bh
    }
}

impl PoolGuard<'_> {
    /// Replaces a worker that sleeps in an item: if the pool needs another worker, wakes or
    /// requests one, and counts that for the item's pwq.
    pub(crate) fn replace(&mut self, worker: &Worker) {
        if self.pick_if_needed()
            && let Some(counts) = self.counts_mut(worker)
        {
            counts.nr_cm_wakeups += 1;
        }
    }
}
