//! A worker that is about to sleep gives its place away, and gets it back.
//!
//! # The protocol
//!
//! A pool keeps `target` workers awake. A worker that may sleep inside an item takes itself out of the census, and
//! must then look for work like one that parks: a producer that counted it as awake has kicked nobody.
//!
//! ```text
//! producer: leave the item;                  fence;  look at the census: up to target?
//! sleeper:  put the hand back; census -= me; fence;  look at the injector: kick another
//! ```
//!
//! When it comes back it counts again, so the pool may be above its target. Nobody is stopped for that. The next
//! worker that ends a batch and finds too many awake parks although work waits (`WorkerPool::take`, `try_park`);
//! how many are too many, `policy::has_surplus` says.
//! The census falls under the pool lock alone, where that worker decides too, so two cannot leave for one too many.

use base::internal::wake::report::{self, BlockingObserver};
use sync::{
    atomic::{Ordering, fence},
    twin,
    unmodelled::Arc,
};

use super::{
    dispatch::Dispatch,
    policy::{self, Census},
    pool::{PoolGuard, WorkerPool},
    worker::Worker,
};
use crate::observe::concurrency::Away;

/// Calls `body`, which may block, having told the pool of the work item around it that another worker must run.
///
/// Use it in a work item around what sleeps or waits: file and network I/O, locks that are held for long, a wait for
/// another process. The waits of this library (joining, flushing, draining, `Parker`,
/// [`EventCount`](base::wake::EventCount), mailboxes) report themselves. Who blocks without a word is found all the
/// same, a millisecond or two later, as long as work waits.
///
/// # Guarantees
///
/// - While `body` runs, the pool runs as many other workers as if this one were not there.
/// - Nothing is stopped when `body` returns or panics: a pool of one CPU runs one more until one of them ends
///   an item. A pool of several may keep up to three a CPU while work waits, so that no CPU idles while two share one.
/// - On a thread that runs no work item, and inside another `blocking`, it calls `body` and does nothing else.
///
/// # Cost
///
/// Twice a short lock of the pool, some tens of nanoseconds, and the wake-up of another worker when work waits.
///
/// # Blocking
///
/// As `body` does.
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
    report::while_asleep(body)
}

/// A worker, to its own thread: where its waits are reported.
pub(crate) struct WorkerHook {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) worker: Arc<Worker>,
}

impl BlockingObserver for WorkerHook {
    fn falls_asleep(&self) {
        assert!(self.may_sleep(), "{}", report::ABOUT_TO_SLEEP);
        self.pool.falls_asleep(&self.worker);
    }
    fn is_back(&self) {
        self.pool.is_back(&self.worker);
    }
    fn may_sleep(&self) -> bool {
        !self.pool.attrs.bh
    }
}

impl WorkerPool {
    /// Notes that a running worker is about to sleep inside an item.
    fn falls_asleep(self: &Arc<Self>, worker: &Worker) {
        let mut guard = self.lock_to_act();
        guard.retire(worker);
        guard.reclaim(worker);
        self.recount(&mut guard, worker, |away| away.declared = true);
        // ORDER(lie-down): a producer that counted us awake did not kick; see `look_for_worker`.
        // Test: an_item_is_never_left_to_a_worker_that_blocks
        if !twin::armed("blocking: no fence") {
            fence(Ordering::SeqCst);
        }
        let work = guard.has_work() || !self.injector.is_empty();
        if work && !twin::armed("blocking: no look") {
            guard.replace(worker);
        }
    }

    /// Notes that a worker that may have slept inside an item runs again.
    fn is_back(&self, worker: &Worker) {
        let mut dispatch = self.lock();
        self.recount(&mut dispatch, worker, |away| {
            away.declared = false;
            away.asleep = false;
        });
    }

    /// Changes why a worker does not count as awake, and the census with it.
    pub(crate) fn recount(
        &self,
        dispatch: &mut Dispatch,
        worker: &Worker,
        change: impl FnOnce(&mut Away),
    ) {
        let away = dispatch.away_mut(worker);
        let before = away.counts_as_awake();
        change(away);
        match (before, away.counts_as_awake()) {
            (true, false) => self.census.fetch_sub(Census::AWAKE, Ordering::Relaxed),
            (false, true) => self.census.fetch_add(Census::AWAKE, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Returns `true` if more are awake than may stay. Call it with the pool locked, and act before it is unlocked.
    pub(crate) fn has_surplus(&self) -> bool {
        policy::has_surplus(self.census(), self.target())
    }
}

impl PoolGuard<'_> {
    /// Gets another worker up, if one is needed, for one that sleeps in an item; and charges the item's queue with that.
    pub(crate) fn replace(&mut self, worker: &Worker) {
        if self.pick_if_needed()
            && let Some(counts) = self.counts_mut(worker)
        {
            counts.nr_cm_wakeups += 1;
        }
    }
}
