//! A worker pool: a list of waiting items and the workers that run them.
//!
//! # The protocol of parking
//!
//! Producers push to the injector without a lock. A worker that parks and a producer that pushes
//! the first item must not miss each other, so each writes its own state and then reads the
//! other's:
//!
//! ```text
//! producer: push the item;                     fence;  read census: a searcher? at target?
//! worker:   leave census (or stop searching);  fence;  read injector
//! ```
//!
//! Only a push to an empty injector reads the census. If the injector is not empty, an earlier push
//! has already found or kicked a worker. The monitor (`manager_loop.rs`) handles pools whose
//! workers are all awake and stuck. Nothing else depends on it.
//!
//! # Kicks claim
//!
//! A kick removes a worker from the idle list and counts it as awake and searching, under the pool
//! lock. The worker may get its token much later. Until then it cannot be kicked again or culled,
//! because both only consider workers on the idle list. docs/deferral.md compares the rules under
//! which this claim is needed. Twin `kick: no claim`.

use std::mem;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use base::internal::params::Params;
use base::internal::trace;
use base::internal::wake::{Unparker, WakeQ};
use crossbeam_utils::CachePadded;
use item::internal::cleanups;
use item::internal::head::Head;
use item::internal::list::{Color, Injector, UpTo};
use limit::internal::queue_core::QueueCore;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use sync::slice::Section;
use sync::unmodelled::{self, Arc};
use sync::{Mutex, MutexGuard, cpu, thread, time, twin};
use topology::{CpuQuota, CpuSet};

use super::dispatch::{Dispatch, IdleWorker};
use super::manager::Manager;
use super::policy::{self, Census, Need};
use super::pwq::WaitingPwq;
use super::worker::Worker;
use crate::observe::concurrency::Away;

/// The attributes that identify a pool. Queues with equal attributes share one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PoolAttrs {
    pub(crate) cpus: CpuSet,
    /// `true` if its workers must never run on other CPUs.
    pub(crate) strict: bool,
    pub(crate) nice: i8,
    /// `true` for bottom halves: one thread, whose items never sleep.
    pub(crate) bh: bool,
}

pub(crate) struct WorkerPool {
    /// A: items that producers have pushed and no thread has adopted.
    pub(crate) injector: CachePadded<Injector>,
    /// A: the [`Census`]. Its awake count changes under the pool lock only.
    pub(crate) census: CachePadded<AtomicU32>,
    dispatch: CachePadded<Mutex<Dispatch>>,
    /// I
    pub(crate) number: usize,
    /// I
    pub(crate) attrs: PoolAttrs,
    /// A, rarely written: the number of workers that the pool keeps awake.
    target: unmodelled::AtomicU32,
    /// A, rarely written: set if workers that found no item yield instead of busy-polling.
    pub(super) yields: unmodelled::AtomicBool,
    /// A: set if the process may use CPUs that are not in `attrs.cpus`.
    pub(crate) confined: AtomicBool,
    /// I
    pub(crate) params: Params,
    /// I
    pub(crate) manager: Arc<Manager>,
    pub(crate) counters: Counters,
    #[cfg(feature = "baselines")]
    pub(crate) hold: Mutex<crate::observe::tally::Cycles>,
    /// A: the CPU time that threads have spent waiting for the pool lock.
    #[cfg(feature = "baselines")]
    lock_wait_ns: unmodelled::AtomicU64,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) nr_kicks: AtomicU64,
    pub(crate) nr_created: AtomicU64,
    pub(crate) nr_culled: AtomicU64,
    pub(crate) nr_seen_asleep: AtomicU64,
    pub(crate) nr_stalls: AtomicU64,
    pub(crate) nr_spawn_failed: AtomicU64,
    /// The highest number of started items that was reported. Reports never decrease.
    pub(crate) nr_shown_started: AtomicU64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParkDecision {
    /// Park until a kick. The worker is on the idle list.
    Park,
    /// Take items: work has arrived.
    Work,
    /// Exit: the pool is dying.
    Leave,
}

/// A locked pool, with the effects on other threads that are decided under the lock. `E` is `()` if
/// there are none. Dropping this unlocks the pool, ends the section, and then applies the effects,
/// because fields are dropped in declaration order.
pub(crate) struct PoolGuard<'a, E = DeferredEffects<'a>> {
    pub(crate) dispatch: MutexGuard<'a, Dispatch>,
    _section: Section,
    pub(crate) effects: E,
}

/// Effects that were decided under the lock of a pool. Dropping this applies them, with no lock
/// held.
pub(crate) struct DeferredEffects<'a> {
    pool: &'a Arc<WorkerPool>,
    pub(crate) wakeq: WakeQ,
    /// A worker that `wakeq` wakes. It is dropped after the lock is released, because its reference
    /// count is in a cache line of its own CPU.
    picked: Option<Arc<Worker>>,
    /// The number of workers picked or requested.
    nr_kicks: u64,
    create: bool,
    pub(crate) watch: bool,
    /// Queues whose `settled` waiters must be notified.
    pub(crate) settled: Vec<Arc<QueueCore>>,
    /// Pwqs of other pools to which a seat was transferred.
    pub(crate) seats: Vec<WaitingPwq>,
    pub(crate) traced: trace::Noted,
}

impl WorkerPool {
    pub(crate) fn new(
        number: usize,
        attrs: PoolAttrs,
        confined: bool,
        quota: Option<CpuQuota>,
        params: Params,
        manager: Arc<Manager>,
    ) -> Self {
        Self {
            injector: CachePadded::new(Injector::new(params.wait_sample > 0)),
            census: CachePadded::new(AtomicU32::new(0)),
            dispatch: CachePadded::new(Mutex::new(Dispatch::default())),
            number,
            target: unmodelled::AtomicU32::new(policy::target(attrs.cpus.len(), quota)),
            yields: unmodelled::AtomicBool::new(false),
            attrs,
            confined: AtomicBool::new(confined),
            params,
            manager,
            counters: Counters::default(),
            #[cfg(feature = "baselines")]
            hold: Mutex::default(),
            #[cfg(feature = "baselines")]
            lock_wait_ns: unmodelled::AtomicU64::new(0),
        }
    }

    /// Locks the pool for operations without effects on other threads. In the lock order, a pool
    /// comes before the gate of a queue, and no thread locks two pools.
    pub(crate) fn lock(&self) -> PoolGuard<'_, ()> {
        PoolGuard { dispatch: self.lock_dispatch(), _section: Section::enter(), effects: () }
    }

    #[inline(always)]
    fn lock_dispatch(&self) -> MutexGuard<'_, Dispatch> {
        #[cfg(feature = "baselines")]
        if self.params.lock_stat {
            return self.lock_and_count();
        }
        self.dispatch.lock()
    }

    /// Locks the pool, and counts the CPU time of the wait. A wait reads the CPU clock twice.
    #[cfg(feature = "baselines")]
    #[cold]
    fn lock_and_count(&self) -> MutexGuard<'_, Dispatch> {
        if let Some(guard) = self.dispatch.try_lock() {
            return guard;
        }
        let used_ns = || sync::usage::cpu_ns(thread::current()).unwrap_or(0);
        let before = used_ns();
        let guard = self.dispatch.lock();
        let waited_ns = used_ns().saturating_sub(before);
        self.lock_wait_ns.fetch_add(waited_ns, Ordering::Relaxed);
        guard
    }

    #[cfg(feature = "baselines")]
    pub(crate) fn lock_wait_ns(&self) -> u64 {
        self.lock_wait_ns.load(Ordering::Relaxed)
    }

    /// Locks the pool for operations that wake workers, transfer seats or complete a wait. These
    /// effects are applied after the lock is released.
    #[inline]
    pub(crate) fn lock_to_act(self: &Arc<Self>) -> PoolGuard<'_> {
        PoolGuard {
            dispatch: self.lock_dispatch(),
            _section: Section::enter(),
            effects: DeferredEffects {
                pool: self,
                wakeq: WakeQ::new(),
                picked: None,
                nr_kicks: 0,
                create: false,
                watch: false,
                settled: Vec::new(),
                seats: Vec::new(),
                traced: Default::default(),
            },
        }
    }

    #[inline]
    pub(crate) fn target(&self) -> u32 {
        self.target.load(Ordering::Relaxed)
    }

    /// Sets the CPU quota. Surplus workers park when they next take a batch.
    pub(crate) fn set_quota(self: &Arc<Self>, quota: Option<CpuQuota>) {
        let target = policy::target(self.attrs.cpus.len(), quota);
        let before = self.target.swap(target, Ordering::Relaxed);
        // Later pushes read the new target. This wakes workers for items that were pushed before.
        if before < target {
            self.ask_again();
        }
    }

    pub(crate) fn census(&self) -> Census {
        Census(self.census.load(Ordering::Relaxed))
    }

    /// Pushes a linked item, and ensures that a worker will find it.
    #[inline]
    pub(crate) fn push(self: &Arc<Self>, item: NonNull<Head>) {
        if self.injector.push(item) {
            self.find_worker();
        }
    }

    pub(crate) fn push_chain(self: &Arc<Self>, newest: NonNull<Head>, oldest: NonNull<Head>) {
        if self.injector.push_chain(newest, oldest) {
            self.find_worker();
        }
    }

    pub(crate) fn find_worker(self: &Arc<Self>) {
        // ORDER(worker-park): store buffering, other ends in `try_park` and `take`.
        //   here:     injector = item;  fence;  read census
        //   try_park: census -= me;     fence;  read injector
        //   take:     searchers -= me;  fence;  read injector
        // If our fence comes first, a worker that leaves the census finds our item. If the worker's
        // fence comes first, we read a census without it, and kick.
        // Test: item_is_never_stranded_at_sleeping_workers
        if !twin::armed("push: no fence") {
            fence(Ordering::SeqCst);
        }
        match policy::need(self.census(), self.target()) {
            // A worker searches, or was picked to search. It reads the injector when it stops
            // searching.
            Need::Nothing => {}
            // The workers that left the census may have read the injector before our push.
            Need::Worker => self.kick(),
            // ORDER(watch): other end in `ManagerLoop::tick`; the fence is the one above.
            // Test: stuck_work_is_seen_by_the_monitor
            Need::Watch => self.manager.watch(),
        }
    }

    /// Wakes or requests one more worker, if the pool still needs one.
    #[cold]
    fn kick(self: &Arc<Self>) {
        let mut guard = self.lock_to_act();
        #[cfg(feature = "baselines")]
        let held_since = self.params.lock_stat.then(time::cycles);
        guard.pick_if_needed();
        guard.wake_under_lock();
        let effects = guard.unlock();
        #[cfg(feature = "baselines")]
        if let Some(since) = held_since {
            self.hold.lock().add(time::cycles().saturating_sub(since), 1);
        }
        drop(effects);
    }

    pub(crate) fn add_work(self: &Arc<Self>, add: impl FnOnce(&mut PoolGuard<'_>)) {
        let mut guard = self.lock_to_act();
        add(&mut guard);
        guard.pick_if_needed();
    }

    pub(crate) fn retire_one(self: &Arc<Self>, slot: usize, color: Color) {
        self.lock_to_act().retire_from(slot, color, 1);
    }

    /// Records that a canceller has taken an item back from the run that it was handed over to.
    pub(crate) fn note_return(self: &Arc<Self>, slot: usize, item: NonNull<Head>) {
        self.lock_to_act().note_return(slot, item);
    }

    /// Removes an item that must not run from its list, or from a worker's local batch, and hands
    /// its in-flight count over to the caller. Returns `false` while a worker is about to pop the
    /// item.
    pub(crate) fn unlink(self: &Arc<Self>, slot: usize, item: NonNull<Head>) -> bool {
        let mut guard = self.lock_to_act();
        // Adopt the injector first, because a worker may never adopt it for this item.
        if !twin::armed("cut out: forgets the injector") {
            guard.adopt(&self.injector);
        }
        if guard.unlink(slot, item) {
            guard.release_emptied(slot);
            return true;
        }
        // A worker may hold the item in its local batch, behind an item that blocks. The caller
        // must not wait for that item.
        guard.recall_local_batches(slot);
        let found = guard.unlink(slot, item);
        guard.release_emptied(slot);
        // The caller repeats this until the worker has popped the item. A worker that was woken for
        // no item would repeat its search as often.
        if guard.has_work() {
            guard.pick_if_needed();
        }
        found
    }

    /// Returns the number of items that workers have taken; `None` if a worker is awake, in an
    /// item, or needed.
    #[cfg(not(any(loom, shuttle)))]
    pub(crate) fn at_rest(&self) -> Option<u64> {
        let dispatch = self.lock();
        let is_busy = |worker: &Worker| worker.is_inside() || worker.has_items();
        let rests = self.census().nr_awake() == 0
            && self.injector.is_empty()
            && !dispatch.has_work()
            && !dispatch.workers().any(|it| is_busy(&it.worker));
        rests.then_some(dispatch.nr_taken)
    }

    /// Separates the items of a pwq that are in the injector or in flight from later ones.
    pub(crate) fn close_color(&self, slot: usize) -> UpTo {
        let mut dispatch = self.lock();
        if !twin::armed("flush: forgets the injector") {
            dispatch.adopt(&self.injector);
        }
        dispatch.pwq_mut(slot).in_flight.close()
    }

    /// Returns `true` if no flush has closed `color`, which has an item in flight. Items that the
    /// caller has pushed before then have this color, too.
    pub(crate) fn is_open(&self, slot: usize, color: Color) -> bool {
        let mut dispatch = self.lock();
        // A flush that found all colors in use closes this one later, without an adoption.
        if !twin::armed("strand: leaves its count to a later color") {
            dispatch.adopt(&self.injector);
        }
        dispatch.pwq(slot).in_flight.present() == color
    }

    /// Makes the items of a pwq wait in its own lists from now on. Items in local batches are put
    /// back there too.
    pub(crate) fn open_lanes(self: &Arc<Self>, slot: usize) {
        self.add_work(|guard| {
            if !guard.pwq(slot).has_lanes {
                guard.recall_local_batches(slot);
                guard.open_lanes(slot);
            }
        });
    }

    /// Retires a pwq: routes no longer lead to it. Late items may still arrive.
    pub(crate) fn retire_pwq(&self, slot: usize) {
        let mut dispatch = self.lock();
        dispatch.lead(slot, false);
        let deserted = dispatch.is_deserted();
        drop(dispatch);
        if deserted {
            // The manager can cull the pool's workers now.
            self.manager.wake();
        }
    }

    /// Updates the pool for the CPUs that the process may use now.
    pub(crate) fn confine(&self, allowed: &CpuSet) {
        let confined = self.attrs.cpus != *allowed;
        if !self.confined.swap(confined, Ordering::Relaxed) && confined {
            for enlisted in self.lock().workers() {
                // Workers apply their affinity again when they next wake.
                enlisted.worker.strays.store(true, Ordering::Relaxed);
            }
        }
    }

    // ---- called by workers ----

    /// Takes the next batch for `worker`, which is searching. Returns the size of the batch, which
    /// is 0 if no item is available or too many workers are awake.
    pub(crate) fn take(self: &Arc<Self>, worker: &Worker) -> usize {
        let mut guard = self.lock_to_act();
        // A sample may have found the worker asleep or hogging, but it is awake now.
        if !twin::armed("take: still asleep") {
            self.recount(&mut guard, worker, |away| *away = Away::default());
        }
        if self.has_surplus() {
            guard.take_all_back(worker);
            return 0;
        }
        let count = guard.take(worker);
        if count > 0 {
            worker.publish(count);
            let first = guard.enlisted(worker).legs[0].slot;
            if first.is_some_and(|slot| guard.pwq(slot).core.cpu_intensive) {
                self.recount(&mut guard, worker, |away| away.hogging = true);
            }
            self.census.fetch_sub(Census::SEARCHING, Ordering::Relaxed);
            // ORDER(worker-park): other end in `find_worker`, which does not kick if it saw us
            // searching.
            // Test: item_is_never_stranded_at_sleeping_workers
            if !twin::armed("take: no fence") {
                fence(Ordering::SeqCst);
            }
            // If the injector is empty here, the next push sees that we no longer search, and kicks
            // a worker. If it is not empty, that push may have relied on us, so we kick instead.
            let more = guard.has_work() || !self.injector.is_empty();
            if more && !twin::armed("take: no chained kick") {
                guard.pick_if_needed();
            }
            guard.effects.watch |= more || count > 1;
            guard.wake_under_lock();
        }
        count
    }

    /// Releases the counts and the seat of `worker`, which is searching and takes no further batch.
    pub(crate) fn let_go(self: &Arc<Self>, worker: &Worker) {
        let mut guard = self.lock_to_act();
        // This is the same as in `take`. Otherwise `discharge` would remove the worker from the
        // census a second time.
        if !twin::armed("let go: still asleep") {
            self.recount(&mut guard, worker, |away| *away = Away::default());
        }
        guard.take_all_back(worker);
    }

    /// Changes the reasons why a worker does not count as awake, and updates the census.
    pub(crate) fn recount(
        &self,
        dispatch: &mut Dispatch,
        worker: &Worker,
        change: impl FnOnce(&mut Away),
    ) {
        let away = &mut dispatch.enlisted_mut(worker).away;
        let before = away.counts_as_awake();
        change(away);
        match (before, away.counts_as_awake()) {
            (true, false) => self.census.fetch_sub(Census::AWAKE, Ordering::Relaxed),
            (false, true) => self.census.fetch_add(Census::AWAKE, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Returns `true` if more workers are awake than may stay awake. The caller holds the pool lock
    /// and acts on the result before it unlocks.
    pub(crate) fn has_surplus(&self) -> bool {
        policy::has_surplus(self.census(), self.target())
    }

    /// Returns `true` if a searching worker should try to take a batch again. This is only a hint.
    pub(crate) fn has_hint_of_work(&self) -> bool {
        !self.injector.is_empty() && !self.has_surplus()
    }

    /// Puts a searching worker on the idle list, so that it parks. Does nothing if the pool is
    /// dying, or if work waits and the pool has no surplus of awake workers.
    pub(crate) fn try_park(self: &Arc<Self>, worker: &Arc<Worker>) -> ParkDecision {
        let mut guard = self.lock_to_act();
        let work = guard.has_work() || !self.injector.is_empty();
        if work && !self.has_surplus() {
            return ParkDecision::Work;
        }
        if guard.dying {
            return ParkDecision::Leave;
        }
        guard.idle.push(IdleWorker {
            worker: worker.clone(),
            unparker: worker.unparker(),
            since_ns: time::now_ns(),
            is_lean: worker.is_lean(),
        });
        self.census.fetch_sub(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        // ORDER(worker-park): other end in `find_worker`.
        // Test: item_is_never_stranded_at_sleeping_workers
        if !twin::armed("worker park: no fence") {
            fence(Ordering::SeqCst);
        }
        // If the injector is empty here, the next push reads the census without us, and kicks. If
        // it is not empty, that push may have relied on us, so we pick a worker instead. This read
        // happens before the lock is released: later, another thread may adopt the item, and the
        // injector would be empty.
        if twin::armed("worker park: checks after the lock") {
            drop(guard);
            guard = self.lock_to_act();
        }
        // Adopted work counts too, because a surplus worker parks while work waits.
        let adopted = guard.has_work() && !twin::armed("worker park: checks after the lock");
        let work = adopted || !self.injector.is_empty();
        if work && !twin::armed("worker park: no second check") {
            // This often picks this worker again.
            guard.pick_if_needed();
        }
        ParkDecision::Park
    }

    /// Records that a worker is awake, if its kick has not recorded it. This is the kernel's rule,
    /// which the twin uses.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn leave_idle(&self, worker: &Worker) {
        let mut dispatch = self.lock();
        if let Some(at) = dispatch.idle.iter().position(|idle| idle.worker.number == worker.number)
        {
            dispatch.idle.remove(at);
            self.census.fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        }
    }

    /// Returns `true` if all workers share one CPU, so that no producer of the pod can run while a
    /// worker busy-polls.
    pub(crate) fn has_one_cpu(&self) -> bool {
        self.attrs.cpus.len() <= 1
    }

    /// Applies the pool's affinity and nice value to this thread, a worker of the pool.
    pub(crate) fn settle(&self, worker: &Worker) {
        let fresh = worker.is_this_thread();
        let strays = worker.strays.swap(false, Ordering::Relaxed);
        if self.confined.load(Ordering::Relaxed) && (fresh || strays) {
            // This fails if the CPUs of the pool went offline in the meantime. The worker then runs
            // on any CPU.
            if cpu::set_affinity(None, &self.attrs.cpus).is_ok() && strays {
                worker.returned.store(true, Ordering::Relaxed);
            }
        }
        if fresh && self.attrs.nice != 0 {
            // This fails if the value is below zero and the process lacks the privilege; see the
            // builder.
            let _ = thread::set_nice(self.attrs.nice);
        }
    }

    /// Applies the pool's affinity to this thread, a rescuer, because items may depend on the
    /// affinity. The rescuer keeps it until it visits another pool.
    pub(crate) fn visit(&self) {
        // This may fail, as in `settle`. The nice value is not changed, because it could not be
        // restored.
        let _ = cpu::set_affinity(None, &self.attrs.cpus);
    }

    /// Registers a worker. `asked_for` is `true` if a kick has already counted it. Otherwise
    /// returns `None` if this is a bottom-half pool that has its one worker or has requested it,
    /// because two workers would run its items at the same time.
    pub(crate) fn enlist(&self, asked_for: bool, unparker: Unparker) -> Option<Arc<Worker>> {
        let mut dispatch = self.lock();
        let nr_workers = dispatch.nr_workers + dispatch.nr_creating;
        if !asked_for && self.attrs.bh && nr_workers > 0 {
            return None;
        }
        if asked_for {
            dispatch.nr_creating -= 1;
            self.counters.nr_created.fetch_add(1, Ordering::Relaxed);
        } else {
            self.census.fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        }
        Some(dispatch.enlist(unparker))
    }

    /// Registers a rescuer, which does not count as a worker of the pool.
    pub(crate) fn enlist_rescuer(&self, unparker: Unparker) -> Arc<Worker> {
        let mut dispatch = self.lock();
        let worker = dispatch.enlist(unparker);
        dispatch.enlisted_mut(&worker).away.rescuing = true;
        worker
    }

    /// Deregisters a worker. `awake` is `true` if it was not on the idle list.
    pub(crate) fn discharge(self: &Arc<Self>, worker: &Worker, awake: bool) {
        let mut guard = self.lock_to_act();
        guard.discharge(worker);
        if awake {
            self.census.fetch_sub(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        }
        // ORDER(worker-park): a producer that counted us awake did not kick; see `find_worker`.
        // Test: item_is_never_stranded_at_sleeping_workers
        fence(Ordering::SeqCst);
        if guard.has_work() || !self.injector.is_empty() {
            guard.pick_if_needed();
        }
    }

    pub(crate) fn thread_name(&self) -> String {
        let kind = if self.attrs.bh { 'b' } else { 'u' };
        format!("{kind}{}", self.number)
    }
}

impl<'a> PoolGuard<'a> {
    pub(crate) fn pool(&self) -> &'a Arc<WorkerPool> {
        self.effects.pool
    }

    /// Unlocks the pool. The caller drops the returned effects with no lock held.
    pub(crate) fn unlock(self) -> DeferredEffects<'a> {
        self.effects
    }

    /// Picks or requests one more worker if the pool needs one. Returns `true` if it did.
    pub(crate) fn pick_if_needed(&mut self) -> bool {
        let pool = self.pool();
        match policy::need(pool.census(), pool.target()) {
            Need::Nothing => false,
            Need::Worker => self.pick(),
            Need::Watch => {
                self.effects.watch = true;
                false
            }
        }
    }

    /// Claims the worker that parked last, or requests a new one. Returns `true` on success.
    fn pick(&mut self) -> bool {
        let (pool, effects) = (self.effects.pool, &mut self.effects);
        let max_workers = if pool.attrs.bh { 1 } else { pool.params.max_workers.max(1) };
        let dispatch = &mut *self.dispatch;
        if let (true, Some(idle)) = (twin::armed("kick: no claim"), dispatch.idle.last()) {
            effects.wakeq.push(idle.unparker.clone());
            return true;
        }
        match dispatch.idle.pop() {
            Some(idle) => {
                // A lean worker needs upkeep again after it has run. The manager skips pools whose
                // workers are all lean.
                effects.watch |= idle.is_lean;
                effects.wakeq.push(idle.unparker);
                effects.picked = Some(idle.worker);
            }
            None if dispatch.nr_workers + dispatch.nr_creating < max_workers => {
                dispatch.nr_creating += 1;
                effects.create = true;
            }
            None => {
                effects.watch = true;
                return false;
            }
        }
        pool.census.fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        effects.nr_kicks += 1;
        true
    }

    /// Wakes the picked workers now, if the registry is a baseline that wakes under the lock.
    fn wake_under_lock(&mut self) {
        #[cfg(feature = "baselines")]
        if self.pool().params.wake == base::internal::params::WakeMode::UnderLock {
            self.effects.wake();
        }
    }

    /// Records the items taken up to `now`, in cycles, and updates how workers wait.
    pub(crate) fn note_pace(&mut self, now: u64) {
        let (pool, nr_taken) = (self.pool(), self.nr_taken);
        if pool.target() > 1
            && let Some(yields) = self.pace.note(now, nr_taken)
        {
            pool.yields.store(yields, Ordering::Relaxed);
        }
    }

    fn take_all_back(&mut self, worker: &Worker) {
        self.end_batch(worker);
        self.give_up_seat(worker);
    }
}

impl<E> Deref for PoolGuard<'_, E> {
    type Target = Dispatch;
    #[inline]
    fn deref(&self) -> &Dispatch {
        &self.dispatch
    }
}

impl<E> DerefMut for PoolGuard<'_, E> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Dispatch {
        &mut self.dispatch
    }
}

impl DeferredEffects<'_> {
    fn wake(&mut self) {
        if self.nr_kicks > 0 {
            let count = mem::take(&mut self.nr_kicks);
            self.pool.counters.nr_kicks.fetch_add(count, Ordering::Relaxed);
        }
        self.wakeq.fire();
    }

    #[cold]
    fn seat_in_other_pools(&mut self) {
        for waiter in self.seats.drain(..) {
            waiter.take_seat();
        }
        let settled = self.settled.drain(..);
        let notify = || settled.for_each(|core| core.settled.notify_all());
        let left = cleanups::without_blocking(notify);
        if !left.is_empty() {
            self.pool.manager.leave_to_reapers(left);
        }
    }
}

impl Drop for DeferredEffects<'_> {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        let pool = self.pool;
        if twin::armed("wake queue: forgets to fire") {
            mem::forget(mem::take(&mut self.wakeq));
        }
        self.wake();
        if self.create {
            pool.manager.create_worker(pool);
        }
        if self.watch {
            pool.manager.watch();
        }
        // Most batches have no effect on other pools.
        if !(self.settled.is_empty() && self.seats.is_empty()) {
            self.seat_in_other_pools();
        }
        mem::take(&mut self.traced).emit();
    }
}
