//! The loop of a worker's thread.
//!
//! A worker repeatedly *takes* a batch under the pool lock and *runs* its items. If there is no
//! item, it *busy-polls* for a while, then joins the idle list under the lock and *parks*. Only a
//! kick wakes it, and a kick claims it: it removes the worker from the idle list and counts it as
//! awake before the wake-up is sent. A worker is therefore never kicked twice, never culled while
//! it is kicked, and never exits by itself.

use base::internal::wake::{LONGEST_LOOK_AFTER_WORK_NS, Parker, SpinBudget, report};
use sync::{thread, time, unmodelled::Arc};

use super::{
    blocking::WorkerHook,
    pace::Wait,
    policy::RunBudget,
    pool::{ParkDecision, WorkerPool},
    worker::{Taken, Worker},
};

/// The path of this module. The stack trace of a worker ends here, because outer frames contain
/// nothing about an item.
#[cfg(feature = "stacks")]
pub(super) const PATH: &str = module_path!();

/// State that only the worker's thread uses.
#[derive(Debug)]
struct Private {
    parker: Parker,
    spin: SpinBudget,
}

/// Makes this thread a worker of `pool` until it is culled or the pool dies.
///
/// The pool counted it as awake and searching when it requested the worker.
pub(crate) fn run(pool: &Arc<WorkerPool>) {
    let mut private = Private {
        parker: Parker::with_spin_limit(0),
        spin: SpinBudget::new(),
    };
    let worker = enlist(pool, &private.parker, true).expect("who was asked for is let in");
    pool.settle(&worker);
    loop {
        serve(pool, &worker, || true);
        let comes = if pool.has_one_cpu() {
            // Producers of the pod may need this CPU. Let them run once, so that they do not have
            // to wake this thread for each item.
            thread::yield_now();
            pool.has_hint_of_work()
        } else {
            let hint = || pool.has_hint_of_work();
            let (spin, limit) = (&private.spin, pool.worker_spin_limit());
            match pool.waits() {
                Wait::Looks => spin.look_and_spin(limit, LONGEST_LOOK_AFTER_WORK_NS, hint),
                Wait::GivesWay => spin.spin(limit, hint),
            }
        };
        if comes {
            continue;
        }
        match pool.try_park(&worker) {
            ParkDecision::Work => continue,
            ParkDecision::Leave => return discharge(pool, &worker, true),
            ParkDecision::Park => report::unreported(|| private.parker.park()),
        }
        #[cfg(any(loom, shuttle))]
        if sync::twin::armed("kick: no claim") {
            pool.leave_idle(&worker);
        }
        if worker.is_culled() {
            return discharge(pool, &worker, false);
        }
        worker.slim_if_asked();
        pool.settle(&worker);
    }
}

/// Runs items of `pool` on this thread, which is not one of its workers, as long as `go_on` returns
/// `true` after a batch. Returns `true` unless `go_on` stopped it.
pub(crate) fn help_out(pool: &Arc<WorkerPool>, go_on: impl Fn() -> bool) -> bool {
    let parker = Parker::with_spin_limit(0);
    let Some(worker) = enlist(pool, &parker, false) else {
        return true;
    };
    worker.is_this_thread();
    pool.visit();
    let has_ended = serve(pool, &worker, go_on);
    discharge(pool, &worker, true);
    has_ended
}

/// Runs items of the pwq `slot` on this thread, like [`help_out`].
pub(crate) fn rescue(pool: &Arc<WorkerPool>, slot: usize, go_on: impl Fn() -> bool) -> bool {
    let parker = Parker::with_spin_limit(0);
    let worker = pool.enlist_rescuer(|number| Arc::new(Worker::new(number, parker.unparker())));
    worker.is_this_thread();
    pool.visit();
    answer_for(pool, &worker);
    let mut leaves = false;
    while let Taken::Items(_) = pool.take_to_rescue(&worker, slot, leaves) {
        worker.run_hand();
        leaves = !go_on();
    }
    report::report_to(None);
    pool.discharge_rescuer(&worker);
    !leaves
}

fn enlist(pool: &Arc<WorkerPool>, parker: &Parker, asked_for: bool) -> Option<Arc<Worker>> {
    let worker = pool.enlist(asked_for, |number| {
        Arc::new(Worker::new(number, parker.unparker()))
    })?;
    answer_for(pool, &worker);
    Some(worker)
}

/// Reports the waits of this thread as those of `worker`.
fn answer_for(pool: &Arc<WorkerPool>, worker: &Arc<Worker>) {
    let (pool, worker) = (pool.clone(), worker.clone());
    report::report_to(Some(Arc::new(WorkerHook { pool, worker })));
}

fn discharge(pool: &Arc<WorkerPool>, worker: &Arc<Worker>, awake: bool) {
    report::report_to(None);
    pool.discharge(worker, awake);
}

/// Runs batches until no item is left, or until `go_on` returns `false` after a batch. Returns
/// `true` if no item is left.
fn serve(pool: &Arc<WorkerPool>, worker: &Worker, go_on: impl Fn() -> bool) -> bool {
    let mut budget = pool.attrs.bh.then(|| RunBudget::new(time::now_ns()));
    while let Taken::Items(_) = pool.take(worker) {
        worker.run_hand();
        pool.search_again();
        if !go_on() {
            pool.let_go(worker);
            return false;
        }
        if let Some(budget) = &mut budget
            && budget.is_spent(time::now_ns())
        {
            thread::yield_now();
            *budget = RunBudget::new(time::now_ns());
        }
    }
    true
}
