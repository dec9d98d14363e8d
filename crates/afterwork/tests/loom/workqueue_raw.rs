//! Items in user memory: queued, freed by their own runs, and freed after cancels and flushes.

use crate::support::*;

/// A user's structure: an item, and a count of its runs that the model checks for races.
#[repr(C)]
struct Job {
    work: RawWork,
    nr_runs: Arc<Plain>,
    /// Number of times that the item queues itself again.
    nr_again: AtomicU32,
    queue: Option<Workqueue>,
}

#[derive(Clone, Copy)]
struct There(NonNull<Job>);

// SAFETY: the parts of a job are atomic, or checked by the model.
unsafe impl Send for There {}

impl There {
    fn work(self) -> NonNull<RawWork> {
        self.0.cast()
    }

    fn queue(self, queue: &Workqueue) -> bool {
        // SAFETY: each model frees its jobs only when they are idle.
        unsafe { RawWork::queue(self.work(), queue, None) }.unwrap()
    }

    fn flush(self) -> bool {
        // SAFETY: as above.
        unsafe { RawWork::flush(self.work()) }.unwrap()
    }

    fn cancel(self) -> bool {
        // SAFETY: as above.
        unsafe { RawWork::cancel(self.work()) }.unwrap()
    }

    fn cancel_sync(self) -> bool {
        // SAFETY: as above.
        unsafe { RawWork::cancel_sync(self.work()) }.unwrap()
    }

    fn free(self) -> Arc<Plain> {
        // SAFETY: `job` created the box, and no other thread accesses the job, as the model checks.
        unsafe { Box::from_raw(self.0.as_ptr()) }.nr_runs.clone()
    }
}

unsafe extern "C-unwind" fn count(work: *mut RawWork) {
    // SAFETY: the item is part of a job, which is valid while it runs.
    let job = unsafe { &*work.cast::<Job>() };
    job.nr_runs.set(job.nr_runs.get() + 1);
    let again = job.nr_again.load(Ordering::Relaxed);
    if let (Some(left), Some(queue)) = (again.checked_sub(1), &job.queue) {
        job.nr_again.store(left, Ordering::Relaxed);
        There(NonNull::new(work.cast()).unwrap()).queue(queue);
    }
}

unsafe extern "C-unwind" fn count_and_free(work: *mut RawWork) {
    let job = There(NonNull::new(work.cast()).unwrap());
    let nr_runs = job.free();
    nr_runs.set(nr_runs.get() + 1);
}

fn job(func: raw::WorkFn, again: Option<&Workqueue>) -> There {
    let job = Box::new(Job {
        // SAFETY: `func` may be called on any thread.
        work: unsafe { RawWork::new(func) },
        nr_runs: Arc::default(),
        nr_again: AtomicU32::new(u32::from(again.is_some())),
        queue: again.cloned(),
    });
    There(NonNull::from(Box::leak(job)))
}

/// An item is flushed, perhaps by helping. If `requeues`, it is queued again, possibly during its
/// run.
fn flush_then_free(help: bool, requeues: bool) {
    let (_machine, queue) = queue(1, help);
    let job = job(count, None);
    assert!(job.queue(&queue));
    let again = requeues && job.queue(&queue);
    job.flush();
    let nr_runs = job.free();
    assert_eq!(nr_runs.get(), 1 + u32::from(again));
    wind_up(queue);
}

fn cancel_then_free() {
    let (_machine, queue) = queue(1, false);
    let job = job(count, None);
    assert!(job.queue(&queue));
    let cancelled = job.cancel_sync();
    let nr_runs = job.free();
    assert_eq!(nr_runs.get(), u32::from(!cancelled));
    wind_up(queue);
}

fn freed_by_its_run() {
    let (_machine, queue) = queue(1, false);
    let job = job(count_and_free, None);
    // SAFETY: the job is not queued yet.
    let nr_runs = unsafe { job.0.as_ref() }.nr_runs.clone();
    assert!(job.queue(&queue));
    drop(queue);
    assert_eq!(nr_runs.get(), 1);
}

fn two_enqueuers() {
    let (_machine, queue) = queue(2, false);
    let job = job(count, None);
    let other = spawn_with(queue.clone(), move |queue| job.queue(&queue));
    let mine = job.queue(&queue);
    let theirs = other.join().unwrap();
    assert!(mine || theirs);
    drop(queue);
    let nr_runs = job.free();
    assert_eq!(nr_runs.get(), u32::from(mine) + u32::from(theirs));
}

/// The item queues itself again until `cancel_sync` stops it. Then it is freed.
fn cancel_ends_requeueing(nr_workers: usize) {
    let (_machine, queue) = queue(nr_workers, false);
    let job = job(count, Some(&queue));
    assert!(job.queue(&queue));
    job.cancel_sync();
    // Races with any run that has not ended.
    job.free().set(0);
    wind_up(queue);
}

fn cancelled_during_a_flush() {
    let (_machine, queue) = queue(1, false);
    let job = job(count, None);
    assert!(job.queue(&queue));
    let other = spawn(move || job.cancel());
    job.flush();
    let cancelled = other.join().unwrap();
    let nr_runs = job.free();
    assert_eq!(nr_runs.get(), u32::from(!cancelled));
    wind_up(queue);
}

models! {
    fn a_raw_item_that_was_flushed_has_run_and_may_be_freed() =
        bounded(2, || flush_then_free(false, false))
            .detects(["raw: a start forgets its waiters", "raw: a waiter makes no transition"]);
    fn raw_item_run_by_its_flusher_may_be_freed() = bounded(2, || flush_then_free(true, false));
    fn raw_item_is_not_helped_during_its_run() =
        bounded(2, || flush_then_free(true, true)).detects(["raw: a run is noted after its start"]);
    fn a_raw_item_that_was_cancelled_does_not_run_and_may_be_freed() = bounded(2, cancel_then_free);
    fn a_raw_item_may_be_freed_by_its_run() = bounded(2, freed_by_its_run);
    fn raw_item_runs_once_for_each_enqueue_without_overlap() =
        bounded(1, two_enqueuers)
            .detects(["raw: runs overlap", "raw: an end forgets a deferred item"]);
    fn a_raw_item_that_queues_itself_is_idle_after_cancel_sync() =
        bounded(1, || cancel_ends_requeueing(1)), bounded(1, || cancel_ends_requeueing(2));
    fn a_flush_of_a_raw_item_ends_when_it_is_cancelled() =
        bounded(1, cancelled_during_a_flush).detects(["raw: a cancel forgets the waiters"]);
}
