//! A rescuer: a thread in reserve for work that must make progress even if no worker can be
//! started.
//!
//! A queue built with [`with_rescuer`](crate::Builder::with_rescuer) has its own rescuer.
//! When work of a pool has waited 10 ms for a worker, the manager calls *mayday* for each such
//! queue with items there, and again every 100 ms. The rescuer registers with the pool, moves to
//! its CPUs, runs that queue's items in batches of 16, and parks again. It does not count as awake,
//! so the pool keeps requesting a worker.
//!
//! The registry has one more rescuer for all queues. It is called if a pool cannot get a worker and
//! none of its workers runs, because the pool has no worker, or because each worker sleeps in an
//! item or hogs the CPU. While work waits, the manager retries with pauses. Each worker that stops
//! running requests another one, so each failure calls the rescuer again. The rescuer is not the
//! manager's own thread, because an item that it runs may wait for another item of that pool. The
//! rescuer then blocks, and the manager still starts threads once that is possible.
//!
//! A third thread is the *fallback reaper* (`cleanups.rs`).
//!
//! # Pools take turns
//!
//! If another call waits, a rescuer leaves its pool after the next batch, and queues a call to that
//! pool behind the others. Otherwise a pool whose items queue themselves would keep the rescuer
//! forever.

use std::io;

use base::internal::panics::or_abort;
use base::internal::params::ThreadStyle;
use base::internal::trace;
use base::internal::wake::Parker;
use base::internal::wake::lane::Lane;
use item::internal::cleanups;
use item::internal::list::List;
use sync::unmodelled::Arc;
use sync::{thread, time, twin};

use super::dispatch::home_slot;
use super::mayday::{Call, MaydayQueue};
use super::policy::{self, Need};
use super::pool::{PoolGuard, WorkerPool};
use super::pwq::WaitsFor;
use super::worker::{self, Worker};

/// The maximum number of items in a rescuer's batch. Corresponds to the kernel's `RESCUER_BATCH`.
pub(crate) const BATCH: usize = 16;

/// A rescuer's thread. Dropping this makes the thread exit after it has served its calls, and waits
/// for the exit.
pub(crate) struct Rescuer {
    mayday_queue: Arc<MaydayQueue>,
    thread: Option<thread::JoinHandle>,
}

impl Rescuer {
    /// Starts a rescuer's thread, which first calls `begin`.
    pub(crate) fn start(
        name: &str,
        style: ThreadStyle,
        begin: impl FnOnce() + Send + 'static,
    ) -> io::Result<Self> {
        let parker = Parker::with_spin_limit(0);
        let mayday_queue = Arc::new(MaydayQueue::new(parker.unparker()));
        let body = mayday_queue.clone();
        let (name, stack_size) = (style.name(name), style.stack_size);
        let thread = thread::spawn_sized(&name, stack_size, move || {
            begin();
            let answer = || {
                cleanups::note_depended_on();
                answer(&body, parker);
            };
            or_abort("a rescuer panicked", || style.within(answer));
        })?;
        Ok(Self { mayday_queue, thread: Some(thread) })
    }

    pub(crate) fn mayday_queue(&self) -> Arc<MaydayQueue> {
        self.mayday_queue.clone()
    }

    /// Makes the thread end after it has served its calls. Returns `true` if it has ended.
    pub(crate) fn has_left(&self) -> bool {
        self.mayday_queue.quit();
        self.thread.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }
}

impl Drop for Rescuer {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take().filter(|_| !twin::torn_down()) {
            self.mayday_queue.quit();
            thread.join().expect("a rescuer does not panic");
        }
    }
}

/// Serves calls until [`MaydayQueue::quit`] was called and none is left.
fn answer(mayday_queue: &MaydayQueue, mut parker: Parker) {
    loop {
        let (next, quit) = mayday_queue.take();
        let Some(call) = next else {
            if quit {
                return;
            }
            parker.park();
            continue;
        };
        let is_last = || mayday_queue.is_empty();
        match call {
            Call::Pool(pool, slot) => {
                let has_ended = match slot {
                    Some(slot) => worker::rescue(&pool, slot, is_last),
                    None => worker::help_out(&pool, is_last),
                };
                if !has_ended {
                    mayday_queue.call(&pool, slot);
                }
            }
            Call::Cleanups(manager) => {
                while manager.cleanups.run_fallback(false) {
                    if !is_last() {
                        mayday_queue.call_for_cleanups(&manager);
                        break;
                    }
                }
                manager.note_cleanups_done();
            }
        }
    }
}

impl PoolGuard<'_> {
    /// Takes the next batch of the pwq `slot` for a rescuer: at most `max` items. Returns the size
    /// of the batch. If `max` is 0, the rescuer releases its seat and leaves.
    pub(crate) fn take_of(&mut self, worker: &Worker, slot: usize, max: usize) -> usize {
        self.end_batch(worker);
        if max == 0 {
            self.give_up_seat(worker);
            return 0;
        }
        let pool = self.pool();
        self.adopt(&pool.injector);
        // Move the pwq's pending items to its own list, from which `take_inactive` takes them.
        let mut items = List::default();
        self.pending.retain(|item| {
            let keeps = home_slot(item) != slot;
            if !keeps {
                items.push_back(item);
            }
            keeps
        });
        self.pwq_mut(slot).lane_mut(Lane::Ordinary).append(&mut items);
        self.request_seat(slot);
        loop {
            if self.seat_for_rescuer(slot) {
                self.give_up_seat(worker);
                let nr_taken = self.take_inactive(worker, slot, max);
                if nr_taken > 0 {
                    return self.note_leg(worker, time::cycles(), 0, 0..nr_taken);
                }
            }
            if !twin::armed("rescue: keeps its seat") {
                self.give_up_seat(worker);
            }
            if self.pwq(slot).waits != Some(WaitsFor::Turn) {
                return 0;
            }
        }
    }
}

impl WorkerPool {
    /// If items have waited too long for a worker of this pool, returns the passed seats of groups,
    /// and calls the rescuers of the queues that have one.
    pub(crate) fn mayday(self: &Arc<Self>, now_ns: u64) {
        let mut dispatch = self.lock_to_act();
        let waits = !self.injector.is_empty() || dispatch.has_work();
        let no_worker_starts =
            dispatch.nr_creating > 0 || policy::need(self.census(), self.target()) == Need::Worker;
        let wants = waits && dispatch.idle.is_empty() && no_worker_starts;
        if !dispatch.mayday_timer.calls(wants, now_ns) {
            return;
        }
        dispatch.adopt(&self.injector);
        // A queue with a rescuer may wait in another pool for one of these seats; see `seats.rs`.
        if !twin::armed("mayday: a pool without workers keeps its seats") {
            dispatch.return_passed_seats();
        }
        let rescuers = dispatch.rescuers();
        for (.., slot) in &rescuers {
            dispatch.pwq_mut(*slot).counts.nr_maydays += 1;
        }
        drop(dispatch);
        for (core, mayday_queue, slot) in rescuers {
            trace::mayday(&core.name, self.number);
            mayday_queue.call(self, Some(slot));
        }
    }

    /// Takes a rescuer's next batch of the pwq `slot`, or nothing if the rescuer `leaves`.
    pub(crate) fn take_to_rescue(
        self: &Arc<Self>,
        worker: &Worker,
        slot: usize,
        leaves: bool,
    ) -> usize {
        let max = if leaves { 0 } else { BATCH };
        let mut guard = self.lock_to_act();
        let count = guard.take_of(worker, slot, max);
        if count > 0 {
            worker.publish(count);
            guard.pwq_mut(slot).counts.nr_rescued += count as u64;
        }
        if guard.has_work() {
            // A released seat may have made another pwq ready.
            guard.pick_if_needed();
        }
        let core = guard.pwq(slot).core.clone();
        drop(guard);
        if count > 0 {
            trace::rescue(&core.name, self.number, count);
        }
        count
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use base::internal::params::Params;
    use topology::CpuSet;

    use super::*;
    use crate::pools::pool::PoolAttrs;

    #[test]
    fn no_rescuer_enters_a_bottom_half_pool_that_gets_its_worker() {
        let attrs = PoolAttrs { cpus: CpuSet::new(), strict: false, nice: 0, bh: true };
        let pool = WorkerPool::new(0, attrs, false, None, Params::default(), Arc::default());
        pool.lock().nr_creating = 1;
        assert!(pool.enlist(false, Parker::with_spin_limit(0).unparker()).is_none());
    }
}
