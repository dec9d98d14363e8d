//! A worker: the loop of its thread, the part of it that other threads use, and its local batch.
//!
//! A worker repeatedly *takes* a batch under the pool lock and *runs* its items. If there is no
//! item, it *busy-polls* for a while, then joins the idle list under the lock and *parks*. Only a
//! kick wakes it, and a kick claims it: it removes the worker from the idle list and counts it as
//! awake before the wake-up is sent. A worker is therefore never kicked twice, never culled while
//! it is kicked, and never exits by itself.
//!
//! Items in a local batch are still pending. They can be cancelled or helped. The manager can put
//! them back if the worker stays in the item that precedes them. The state word `local_batch`
//! decides between the worker and the manager. `take.rs` describes the legs of a batch.

use std::ops::Range;
use std::ptr::{self, NonNull};

use base::internal::wake::{MAX_POLL_AFTER_WORK_NS, Parker, SpinBudget, Unparker, report};
use crossbeam_utils::CachePadded;
use item::internal::head::{Head, Popped, VTable};
use item::internal::memory;
use sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use sync::unmodelled::Arc;
use sync::{thread, time};

use super::blocking::WorkerHook;
use super::policy::{Census, RunBudget};
use super::pool::{ParkDecision, WorkerPool};
use crate::observe::concurrency::Activity;
use crate::observe::tally::{CpuClock, Tally};

/// The maximum size of a local batch. `Params::max_batch` can lower it.
pub(crate) const MAX_LOCAL_BATCH: usize = 64;

/// The maximum number of legs of a local batch. The value is a guess. If items go to more queues in
/// turn, each leg of a batch has one item, and the cost of a leg is paid for each item. Each leg
/// takes 128 bytes of each worker.
pub(crate) const MAX_LEGS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 16 };

/// bits 0..32 index of the next item to run | bits 32..64 size of the local batch
#[derive(Clone, Copy)]
struct LocalBatch(u64);

impl LocalBatch {
    fn new(next: u32, len: u32) -> Self {
        Self(u64::from(len) << 32 | u64::from(next))
    }
    fn next(self) -> u32 {
        self.0 as u32
    }
    fn len(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The items of one pwq in the local batch, and the counts of their runs.
#[derive(Default)]
pub(crate) struct LegCounts {
    /// A, written by the owner with the pool locked: the index after the leg's last item.
    end: AtomicU32,
    /// A, written by the owner: the number of runs whose in-flight count must be released. It wraps
    /// around.
    nr_done: AtomicU32,
    /// A: counters that the worker has not added to the pwq yet.
    pub(crate) tally: Tally,
}

/// The leg whose items a worker runs, as seen by its owner.
struct RunningLeg<'a> {
    counts: &'a LegCounts,
    first: u32,
    /// The index before which the clock is read next: after the first run, and after the leg.
    mark: u32,
    nr_not_run: u32,
    start: u64,
    first_end: Option<u64>,
}

/// The part of a worker that other threads use.
pub(crate) struct Worker {
    /// I: the worker's number in the pool.
    pub(crate) number: usize,
    unparker: Unparker,
    /// A: the state word of the local batch. A thread updates it before it takes items from
    /// `items`. The owner refills it with the pool locked.
    local_batch: CachePadded<AtomicU64>,
    /// The local batch. The owner writes it before it publishes `local_batch`.
    items: [AtomicPtr<Head>; MAX_LOCAL_BATCH],
    pub(crate) legs: [LegCounts; MAX_LEGS],
    /// A, written by the owner: the average run time of an item.
    item_ns: AtomicU32,
    /// A, written under the pool lock: a parked worker that finds it set exits.
    pub(super) culled: AtomicBool,
    /// A, set under the pool lock: a parked worker that finds it set returns its stack's memory.
    pub(super) slims: AtomicBool,
    /// A, written by the owner: set if the worker has returned its stack's memory and has run no
    /// item since.
    lean: AtomicBool,
    /// A, written by the owner: the ID of its kernel thread, or 0 before it runs.
    pub(crate) thread: AtomicU32,
    /// A, written by the owner: the vtable of its current or last item.
    running: AtomicPtr<VTable>,
    /// A, written by the owner: the CPU time that it has recorded.
    pub(crate) cpu_clock: CpuClock,
    /// A: set when the manager lets it run outside its pod.
    pub(crate) strays: AtomicBool,
    /// A, written by the owner: set if its affinity has been restored since it last took items.
    pub(super) returned: AtomicBool,
    /// A, written by the owner: set if an item of its batch was handed over to another thread.
    handed_over: AtomicBool,
}

impl Worker {
    pub(crate) fn new(number: usize, unparker: Unparker) -> Self {
        Self {
            number,
            unparker,
            local_batch: CachePadded::new(AtomicU64::new(0)),
            items: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            legs: Default::default(),
            item_ns: AtomicU32::new(0),
            culled: AtomicBool::new(false),
            slims: AtomicBool::new(false),
            lean: AtomicBool::new(false),
            thread: AtomicU32::new(0),
            running: AtomicPtr::new(ptr::null_mut()),
            cpu_clock: CpuClock::default(),
            strays: AtomicBool::new(false),
            returned: AtomicBool::new(false),
            handed_over: AtomicBool::new(false),
        }
    }

    pub(crate) fn unparker(&self) -> Unparker {
        self.unparker.clone()
    }

    /// Assigns this thread to the worker. Returns `true` if the worker had none before.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.thread.swap(thread::current().0, Ordering::Relaxed) == 0
    }

    /// Returns `true`, once, if the worker's affinity has been restored since it last took items.
    /// Only the owner calls this.
    pub(crate) fn takes_after_return(&self) -> bool {
        take(&self.returned)
    }

    /// Returns `true`, once, if an item of the worker's last batch was handed over to another
    /// thread. Only the owner calls this.
    pub(crate) fn has_handed_over(&self) -> bool {
        take(&self.handed_over)
    }

    /// Returns `true` if the worker has been kicked and has not woken yet.
    pub(crate) fn is_kicked(&self) -> bool {
        self.unparker.is_given()
    }

    pub(crate) fn item_ns(&self) -> u64 {
        u64::from(self.item_ns.load(Ordering::Relaxed))
    }

    /// Returns this thread's stack memory to the system, if requested. The owner calls this before
    /// it searches.
    pub(crate) fn slim_if_asked(&self) {
        let slims = self.slims.load(Ordering::Relaxed);
        if slims {
            self.slims.store(false, Ordering::Relaxed);
            thread::give_stack_back();
        }
        self.lean.store(slims, Ordering::Relaxed);
    }

    /// Returns `true` if the worker has returned its stack's memory and has run no item since.
    pub(crate) fn is_lean(&self) -> bool {
        self.lean.load(Ordering::Relaxed)
    }

    /// Stores an item in the local batch. The owner calls this with the pool locked, to fill the
    /// batch.
    pub(crate) fn hold(&self, place: usize, item: NonNull<Head>) {
        self.items[place].store(item.as_ptr(), Ordering::Relaxed);
    }

    /// Sets the index after the last item of a leg. The owner calls this with the pool locked.
    pub(crate) fn set_leg_end(&self, leg: usize, end: usize) {
        self.legs[leg].end.store(end as u32, Ordering::Relaxed);
    }

    /// Publishes the local batch. The owner calls this with the pool locked.
    pub(crate) fn publish(&self, len: usize) {
        // This pairs with the Acquire in `disown`: a thread that sees this batch sees its items.
        self.local_batch.store(LocalBatch::new(0, len as u32).0, Ordering::Release);
    }

    /// Returns the index of an item that is running or has not started. The caller has locked the
    /// pool.
    pub(crate) fn find_unfinished(&self, item: *const Head) -> Option<usize> {
        let local_batch = LocalBatch(self.local_batch.load(Ordering::Relaxed));
        let from = (local_batch.next() as usize).saturating_sub(1);
        let mut items = self.held(0..local_batch.len() as usize).enumerate().skip(from);
        items.find(|(_, held)| ptr::eq(*held, item)).map(|(at, _)| at)
    }

    /// Returns the items at these places of the local batch. The caller has locked the pool.
    pub(crate) fn held(&self, places: Range<usize>) -> impl Iterator<Item = *const Head> {
        let places = self.items[places].iter();
        places.map(|place| place.load(Ordering::Relaxed).cast_const())
    }

    /// Returns the item at a place of the local batch. The caller has locked the pool.
    pub(crate) fn held_at(&self, place: usize) -> Option<NonNull<Head>> {
        NonNull::new(self.items[place].load(Ordering::Relaxed))
    }

    /// Returns the index of the running item or, before it has started, of the first item.
    pub(crate) fn position(&self) -> usize {
        // This pairs with `next`: the runs of all items before this one happened before.
        let local_batch = LocalBatch(self.local_batch.load(Ordering::Acquire));
        (local_batch.next() as usize).saturating_sub(1)
    }

    pub(crate) fn nr_items(&self) -> u32 {
        let local_batch = LocalBatch(self.local_batch.load(Ordering::Relaxed));
        local_batch.len().saturating_sub(local_batch.next())
    }

    /// Returns the number of items of a leg that the worker has taken but not started: those left
    /// in the local batch, and those found cancelled since they were taken. The batch is read
    /// first, so that an item that moves between the two counts twice. Such an item must not be
    /// reported as started.
    pub(crate) fn nr_not_started(&self, leg: usize) -> u64 {
        let local_batch = LocalBatch(self.local_batch.load(Ordering::Relaxed));
        let first = leg.checked_sub(1).map_or(0, |before| self.legs[before].end());
        let end = self.legs[leg].end().min(local_batch.len());
        let nr_items = end.saturating_sub(first.max(local_batch.next()));
        u64::from(nr_items) + u64::from(self.legs[leg].tally.nr_not_run())
    }

    pub(crate) fn has_items(&self) -> bool {
        self.nr_items() > 0
    }

    /// Returns `true` if it is in an item, or between an item and its pool.
    pub(crate) fn is_inside(&self) -> bool {
        let local_batch = LocalBatch(self.local_batch.load(Ordering::Relaxed));
        (1..=local_batch.len()).contains(&local_batch.next())
    }

    /// Returns the vtable of the worker's current or last item.
    pub(crate) fn running(&self) -> Option<&'static VTable> {
        // SAFETY: the pointer is null, or points to a vtable that is never freed.
        unsafe { self.running.load(Ordering::Relaxed).as_ref() }
    }

    pub(crate) fn activity(&self) -> Activity {
        Activity {
            local_batch: self.local_batch.load(Ordering::Relaxed),
            nr_done: self.legs[0].nr_done.load(Ordering::Relaxed),
        }
    }

    /// Takes the next item of the local batch. Only the owner calls this.
    fn next(&self) -> Option<NonNull<Head>> {
        // This pairs with `disown` on one word. If our update comes first, the item is ours; the
        // exchange in `disown` fails, and `disown` retries from the next item. If `disown` comes
        // first, we find the batch empty.
        let local_batch = LocalBatch(self.local_batch.fetch_add(1, Ordering::AcqRel));
        if local_batch.next() >= local_batch.len() {
            return None;
        }
        self.held_at(local_batch.next() as usize)
    }

    /// Removes all items that have not started from the local batch, and returns their places and
    /// the items, oldest first. The caller has locked the pool, so that the batch is not refilled
    /// at the same time.
    pub(crate) fn disown(&self) -> Vec<(usize, NonNull<Head>)> {
        // This pairs with `next` on one word. If our exchange comes first, the items from `next` on
        // are ours, and the owner finds its batch empty. If the owner's update comes first, our
        // exchange fails, and we retry from the item after the owner's. Acquire pairs with
        // `publish`: `items` contains the batch.
        let mut from = LocalBatch(self.local_batch.load(Ordering::Acquire));
        loop {
            if from.next() >= from.len() {
                return Vec::new();
            }
            match self.local_batch.compare_exchange_weak(
                from.0,
                LocalBatch::new(from.next(), from.next()).0,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => from = LocalBatch(now),
            }
        }
        (from.next() as usize..from.len() as usize)
            .filter_map(|place| Some((place, self.held_at(place)?)))
            .collect()
    }

    pub(crate) fn run_local_batch(&self) {
        if self.is_lean() {
            self.lean.store(false, Ordering::Relaxed);
        }
        let start = time::cycles();
        let (first, later) = self.legs.split_first().expect("a batch has a leg");
        let (mut leg, mut later) = (RunningLeg::new(first, 0, start), later.iter());
        let mut nr_taken = 0;
        while let Some(item) = self.next() {
            if nr_taken == leg.mark {
                leg.pass_mark(&mut later);
            }
            // SAFETY: `next` returned this item to this thread only, and it is linked, so it is
            // alive.
            let vtable = unsafe { item.as_ref() }.vtable();
            self.running.store(ptr::from_ref(vtable).cast_mut(), Ordering::Relaxed);
            // SAFETY: as above; the vtable was created for the item.
            let popped = unsafe { (vtable.run)(item) };
            if !popped.ran() {
                leg.nr_not_run += 1;
                leg.counts.tally.add_not_run();
            }
            if popped.counts() {
                leg.counts.add_done();
            } else if popped == Popped::Left {
                self.handed_over.store(true, Ordering::Relaxed);
            }
            nr_taken += 1;
        }
        memory::flush();
        let end = time::cycles();
        leg.end(nr_taken, end);
        // The counter of another CPU may be behind.
        let cycles = end.saturating_sub(start);
        if let Some(each) = cycles.checked_div(nr_taken.into()) {
            self.learn(each.saturating_mul(1000) / time::cycles_per_us());
        }
    }

    /// Adds the time of an item to the average, with a weight of an eighth.
    fn learn(&self, item_ns: u64) {
        let before = self.item_ns();
        let mixed = before - before / 8 + item_ns.min(u64::from(u32::MAX)) / 8;
        self.item_ns.store(mixed as u32, Ordering::Relaxed);
    }
}

/// Clears a flag that only this thread changes; returns its value.
fn take(flag: &AtomicBool) -> bool {
    let is_set = flag.load(Ordering::Relaxed);
    if is_set {
        flag.store(false, Ordering::Relaxed);
    }
    is_set
}

impl LegCounts {
    pub(crate) fn end(&self) -> u32 {
        self.end.load(Ordering::Relaxed)
    }

    pub(crate) fn nr_done(&self) -> u32 {
        // This pairs with the Release in `add_done`: runs that are counted here happened before.
        self.nr_done.load(Ordering::Acquire)
    }

    /// Counts a run. Only the owner calls this.
    fn add_done(&self) {
        let nr_done = self.nr_done.load(Ordering::Relaxed).wrapping_add(1);
        // This pairs with the Acquire in `nr_done`: a thread that counts the run sees its effects.
        self.nr_done.store(nr_done, Ordering::Release);
    }
}

impl<'a> RunningLeg<'a> {
    fn new(counts: &'a LegCounts, first: u32, start: u64) -> Self {
        Self { counts, first, mark: first + 1, nr_not_run: 0, start, first_end: None }
    }

    /// Reads the clock before the item at `mark`. If that item belongs to the next leg, ends this
    /// one, and begins the next, which is the first of `later`.
    fn pass_mark(&mut self, later: &mut impl Iterator<Item = &'a LegCounts>) {
        let (at, now) = (self.mark, time::cycles());
        if at == self.counts.end()
            && let Some(next) = later.next()
        {
            self.end(at, now);
            *self = Self::new(next, at, now);
            return;
        }
        if at - self.first > self.nr_not_run {
            self.first_end = Some(now);
        }
        self.mark = if self.first_end.is_some() { self.counts.end() } else { at + 1 };
    }

    /// Adds the counts of the leg, which ended before the item `at` at the time `now`, in cycles.
    fn end(&self, at: u32, now: u64) {
        // The counter of another CPU may be behind.
        let cycles = now.saturating_sub(self.start);
        let first_cycles = self.first_end.unwrap_or(now).saturating_sub(self.start);
        self.counts.tally.add(at - self.first, cycles, first_cycles);
    }
}

/// The path of this module. The stack trace of a worker ends at the first function in this module,
/// because outer frames contain nothing about an item.
#[cfg(feature = "stacks")]
pub(super) const PATH: &str = module_path!();

/// Makes this thread a worker of `pool` until it is culled or the pool dies.
///
/// The pool counted the worker as awake and searching when it requested it.
pub(crate) fn run(pool: &Arc<WorkerPool>) {
    let (mut parker, spin) = (Parker::with_spin_limit(0), SpinBudget::new());
    let worker = enlist(pool, &parker, true).expect("a requested worker is admitted");
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
            let limit = pool.params.worker_spin_limit;
            match pool.yields.load(Ordering::Relaxed) {
                false => spin.poll_and_spin(limit, MAX_POLL_AFTER_WORK_NS, hint),
                true => spin.spin(limit, hint),
            }
        };
        if comes {
            continue;
        }
        match pool.try_park(&worker) {
            ParkDecision::Work => continue,
            ParkDecision::Leave => return discharge(pool, &worker, true),
            ParkDecision::Park => report::unreported(|| parker.park()),
        }
        #[cfg(any(loom, shuttle))]
        if sync::twin::armed("kick: no claim") {
            pool.leave_idle(&worker);
        }
        if worker.culled.load(Ordering::Relaxed) {
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
    let worker = pool.enlist_rescuer(parker.unparker());
    worker.is_this_thread();
    pool.visit();
    answer_for(pool, &worker);
    let mut leaves = false;
    while pool.take_to_rescue(&worker, slot, leaves) > 0 {
        worker.run_local_batch();
        leaves = !go_on();
    }
    report::report_to(None);
    pool.lock().discharge(&worker);
    !leaves
}

fn enlist(pool: &Arc<WorkerPool>, parker: &Parker, asked_for: bool) -> Option<Arc<Worker>> {
    let worker = pool.enlist(asked_for, parker.unparker())?;
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
    while pool.take(worker) > 0 {
        worker.run_local_batch();
        pool.census.fetch_add(Census::SEARCHING, Ordering::Relaxed);
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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn with_legs(lens: &[usize]) -> Worker {
        let worker = Worker::new(0, Parker::with_spin_limit(0).unparker());
        let mut end = 0;
        for (leg, len) in lens.iter().enumerate() {
            (end..end + len).for_each(|place| worker.hold(place, NonNull::dangling()));
            end += len;
            worker.set_leg_end(leg, end);
        }
        worker.publish(end);
        worker
    }

    fn nr_not_started(worker: &Worker) -> [u64; 3] {
        std::array::from_fn(|leg| worker.nr_not_started(leg))
    }

    #[test]
    fn items_of_each_leg_are_counted_until_they_start() {
        let worker = with_legs(&[2, 1, 3]);
        assert_eq!((worker.position(), nr_not_started(&worker)), (0, [2, 1, 3]));
        (0..3).for_each(|_| assert!(worker.next().is_some()));
        assert_eq!((worker.position(), nr_not_started(&worker)), (2, [0, 0, 3]));
        worker.legs[2].tally.add_not_run();
        assert_eq!(nr_not_started(&worker), [0, 0, 4]);
    }

    #[test]
    fn worker_whose_batch_was_put_back_stays_in_its_leg() {
        let worker = with_legs(&[1, 2, 1]);
        (0..2).for_each(|_| assert!(worker.next().is_some()));
        let places: Vec<_> = worker.disown().into_iter().map(|(place, _)| place).collect();
        assert_eq!(places, [2, 3]);
        assert_eq!((worker.position(), nr_not_started(&worker)), (1, [0; 3]));
        assert!(worker.is_inside() && worker.disown().is_empty());
        assert!(worker.next().is_none());
        assert!(!worker.is_inside());
    }

    #[test]
    fn each_leg_counts_its_own_items() {
        let worker = with_legs(&[2, 1]);
        let (first, later) = worker.legs.split_first().unwrap();
        let (mut leg, mut later) = (RunningLeg::new(first, 0, time::cycles()), later.iter());
        leg.nr_not_run = 1;
        leg.pass_mark(&mut later);
        assert_eq!((leg.mark, leg.first_end), (2, None), "nothing has run");
        leg.pass_mark(&mut later);
        assert_eq!((leg.first, leg.mark, leg.nr_not_run), (2, 3, 0));
        leg.end(3, time::cycles());
        let taken = [0, 1].map(|leg| {
            let counts = worker.legs[leg].tally.take(&worker.cpu_clock, thread::current());
            counts.nr_run + counts.nr_not_run
        });
        assert_eq!(taken, [2, 1]);
    }
}
