//! A worker pool: where items wait, and who gets up to run them.
//!
//! # The protocol of parking
//!
//! Producers leave items in the injector without a lock, so a worker that parks and a producer that leaves the
//! first item must not miss each other. Both write and then look:
//!
//! ```text
//! producer: leave the item;          fence;  look at the census: somebody searching? up to target?
//! worker:   leave the census (or the searchers);  fence;  look at the injector
//! ```
//!
//! Only the push that finds the injector empty looks: while it is not empty, somebody has already been found
//! who will come, or is being kicked. The watch (see `manager_loop.rs`) is for pools whose workers are all up and
//! stuck; nothing else depends on it.
//!
//! # Kicks claim
//!
//! A kick takes the worker off the idle list and counts it awake and searching, under the pool lock. The worker
//! may get its token much later: until then it is kicked, cannot be kicked again, and cannot be culled, for
//! culling looks at the idle list alone. docs/workqueue.md compares the rules under which that claim is
//! needed; twin `kick: no claim`.

use base::internal::{
    params::Params,
    trace,
    wake::{WakeQ, Wakeup},
};
use crossbeam_utils::CachePadded;
use std::{
    mem,
    ops::{Deref, DerefMut},
    ptr::NonNull,
};
use sync::{
    Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence},
    cpu, thread, time, twin,
    unmodelled::{self, Arc},
};
use topology::{CpuQuota, CpuSet};

use super::{
    dispatch::{Dispatch, IdleWorker},
    manager::Manager,
    pace::Wait,
    policy::{self, Census, Need},
    pwq::Seeker,
    worker::{Taken, Worker},
};
use crate::{
    item::{
        colour::{Colour, UpTo},
        head::Head,
        list::Injector,
    },
    limit::queue_core::QueueCore,
    observe::concurrency::Away,
};

/// What makes two pools the same.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PoolAttrs {
    /// Where its workers run.
    pub(crate) cpus: CpuSet,
    /// Whether they may never run elsewhere.
    pub(crate) strict: bool,
    pub(crate) nice: i8,
    /// Whether it is one thread whose items never sleep.
    pub(crate) bh: bool,
}

/// Workers that share a list of items.
#[derive(Debug)]
pub(crate) struct WorkerPool {
    /// A: items that producers left.
    pub(crate) injector: CachePadded<Injector>,
    /// A, raised under the pool lock: who is up.
    pub(crate) census: CachePadded<AtomicU32>,
    dispatch: CachePadded<Mutex<Dispatch>>,
    /// I
    pub(crate) number: usize,
    /// I
    pub(crate) attrs: PoolAttrs,
    /// A, rarely written: how many workers run at once.
    target: unmodelled::AtomicU32,
    /// A, rarely written: how workers wait, a [`Wait`].
    wait: unmodelled::AtomicU32,
    /// A: whether `attrs.cpus` is less than what the process may use.
    pub(crate) confined: AtomicBool,
    /// I
    pub(crate) params: Params,
    /// I
    pub(crate) manager: Arc<Manager>,
    pub(crate) counters: Counters,
    #[cfg(feature = "baselines")]
    pub(crate) hold: Mutex<crate::observe::histogram::Cycles>,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) nr_kicks: AtomicU64,
    pub(crate) nr_created: AtomicU64,
    pub(crate) nr_culled: AtomicU64,
    pub(crate) nr_seen_asleep: AtomicU64,
    pub(crate) nr_stalls: AtomicU64,
    pub(crate) nr_spawn_failed: AtomicU64,
    /// The most items that were ever shown as started, for that count never falls.
    pub(crate) nr_shown_started: AtomicU64,
}

/// What a worker does that took nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ParkDecision {
    /// It is on the idle list: park until a kick.
    Park,
    /// Work came: look again.
    Work,
    /// The pool is dying: leave.
    Leave,
}

/// The right to change a pool and to decide what others must do because of that. When it is dropped the pool is unlocked,
/// and then it is done: its fields are dropped in their order.
#[derive(Debug)]
pub(crate) struct PoolGuard<'a> {
    pub(crate) dispatch: MutexGuard<'a, Dispatch>,
    pub(crate) effects: DeferredEffects<'a>,
}

/// What was decided under the lock of a pool. It is done when this is dropped, with no lock held.
#[derive(Debug)]
pub(crate) struct DeferredEffects<'a> {
    pool: &'a Arc<WorkerPool>,
    /// Workers to wake.
    pub(crate) wakeq: WakeQ,
    /// One of them, let go of after the lock: its count is in a line of its own CPU.
    picked: Option<Arc<Worker>>,
    /// How many were picked, or asked for.
    nr_kicks: u64,
    /// A worker must be made.
    create: bool,
    /// Somebody must look after the pool.
    pub(crate) watch: bool,
    /// Queues of which somebody may wait for what has just ended.
    pub(crate) settled: Vec<Arc<QueueCore>>,
    /// Seats handed to links of other pools.
    pub(crate) seats: Vec<Seeker>,
    /// What was done with items.
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
            wait: unmodelled::AtomicU32::new(Wait::Looks as u32),
            attrs,
            confined: AtomicBool::new(confined),
            params,
            manager,
            counters: Counters::default(),
            #[cfg(feature = "baselines")]
            hold: Mutex::default(),
        }
    }

    /// Locks the pool for who decides nothing that others must be told. Lock order: pool, then a queue's gate; never two
    /// pools.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Dispatch> {
        self.dispatch.lock()
    }

    /// Locks the pool for who wakes workers, hands seats on, or ends what somebody waits for: all done after the lock.
    #[inline]
    pub(crate) fn lock_to_act(self: &Arc<Self>) -> PoolGuard<'_> {
        PoolGuard {
            dispatch: self.lock(),
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

    /// Returns how many workers run at once.
    #[inline]
    pub(crate) fn target(&self) -> u32 {
        self.target.load(Ordering::Relaxed)
    }

    /// Takes note of how much CPU time there is. Workers that are too many by that leave when they come for more.
    pub(crate) fn set_quota(self: &Arc<Self>, quota: Option<CpuQuota>) {
        let target = policy::target(self.attrs.cpus.len(), quota);
        let before = self.target.swap(target, Ordering::Relaxed);
        // What comes from here on finds the new target, and this finds what came before.
        if before < target {
            self.ask_again();
        }
    }

    pub(crate) fn census(&self) -> Census {
        Census(self.census.load(Ordering::Relaxed))
    }

    /// Leaves a linked item for the workers and sees to it that one will come.
    #[inline]
    pub(crate) fn push(self: &Arc<Self>, item: NonNull<Head>) {
        if self.injector.push(item) {
            self.look_for_worker();
        }
    }

    /// Leaves a chain of linked items; see [`Injector::push_chain`].
    pub(crate) fn push_chain(self: &Arc<Self>, newest: NonNull<Head>, oldest: NonNull<Head>) {
        if self.injector.push_chain(newest, oldest) {
            self.look_for_worker();
        }
    }

    /// Makes sure that a worker comes for what is in the injector.
    fn look_for_worker(self: &Arc<Self>) {
        // ORDER(lie-down): store buffering, other ends in `try_park` and `take`.
        //   here:     injector = item;  fence;  read census
        //   try_park: census -= me;     fence;  read injector
        //   take:     searchers -= me;  fence;  read injector
        // If our fence comes first, a worker that leaves the census finds our item. If the worker's fence comes first, we
        // read a census without it, and kick.
        // Test: an_item_is_never_left_to_sleeping_workers
        if !twin::armed("push: no fence") {
            fence(Ordering::SeqCst);
        }
        match policy::need(self.census(), self.target()) {
            // A worker searches, or was picked to search. It reads the injector when it stops searching.
            Need::Nothing => {}
            // The workers that left the census may have read the injector before our item was there, so we kick.
            Need::Worker => self.kick(),
            // ORDER(watch): other end in `ManagerLoop::tick`; the fence is the one above.
            // Test: stuck_work_is_seen_by_the_watch
            Need::Watch => self.manager.watch(),
        }
    }

    /// Gets one more worker up if the pool still needs one.
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
            self.hold
                .lock()
                .add(time::cycles().saturating_sub(since), 1);
        }
        drop(effects);
    }

    fn max_workers(&self) -> usize {
        if self.attrs.bh {
            1
        } else {
            self.params.max_workers.max(1)
        }
    }

    /// Takes note that a link of this pool has been handed a seat.
    pub(crate) fn take_seat(self: &Arc<Self>, slot: usize) {
        self.add_work(|dispatch| dispatch.seat(slot));
    }

    pub(crate) fn add_work(self: &Arc<Self>, add: impl FnOnce(&mut PoolGuard<'_>)) {
        let mut guard = self.lock_to_act();
        add(&mut guard);
        guard.pick_if_needed();
    }

    /// Gives back one in-flight count of a link.
    pub(crate) fn retire_one(self: &Arc<Self>, slot: usize, colour: Colour) {
        self.lock_to_act().retire_from(slot, colour, 1);
    }

    /// Removes an item that must not run from its list, or from a worker's local batch, and hands
    /// its in-flight count over to the caller. Returns `false` while a worker is about to pop the
    /// item.
    pub(crate) fn unlink(self: &Arc<Self>, slot: usize, item: NonNull<Head>) -> bool {
        let mut guard = self.lock_to_act();
        // No worker need ever come to this pool for it.
        if !twin::armed("cut out: forgets the injector") {
            guard.adopt(&self.injector);
        }
        if guard.unlink(slot, item) {
            return true;
        }
        // A worker may hold the item in its local batch, behind an item that blocks. The caller
        // must not wait for that item.
        guard.take_hands_back(slot);
        let found = guard.unlink(slot, item);
        guard.pick_if_needed();
        found
    }

    /// Returns how many items a link has ever adopted if none of them is in flight; else the queue's `settled` will
    /// tell.
    pub(crate) fn is_drained(&self, slot: usize) -> Option<u64> {
        let mut dispatch = self.lock();
        dispatch.adopt(&self.injector);
        let link = dispatch.link_mut(slot);
        link.drain_waits = link.in_flight.nr_in_flight() > 0;
        (!link.drain_waits).then_some(link.nr_adopted)
    }

    /// Separates what a link has in its injector or in flight from what comes later.
    pub(crate) fn close_colour(&self, slot: usize) -> UpTo {
        let mut dispatch = self.lock();
        if !twin::armed("flush: forgets the injector") {
            dispatch.adopt(&self.injector);
        }
        dispatch.link_mut(slot).in_flight.close()
    }

    /// Returns `true` if nothing is in flight any more that `up_to` tells from later items; else the queue's `settled`
    /// will tell.
    pub(crate) fn has_flushed(&self, slot: usize, up_to: UpTo) -> bool {
        self.lock().link_mut(slot).in_flight.has_reached(up_to)
    }

    // ---- the worker's side ----

    /// Gets `worker`, which is searching, its next batch.
    pub(crate) fn take(self: &Arc<Self>, worker: &Worker) -> Taken {
        let mut guard = self.lock_to_act();
        // Whatever a look thought of it, it is here.
        if !twin::armed("take: still asleep") {
            self.recount(&mut guard, worker, |away| *away = Away::default());
        }
        if self.has_surplus() {
            guard.take_all_back(worker);
            return Taken::Nothing;
        }
        guard.retire(worker);
        if !guard.effects.settled.is_empty() {
            // The wakers that this fires may wait for an item that needs the worker's seat.
            guard.take_all_back(worker);
            guard.effects.watch |= guard.has_work();
            drop(guard);
            return self.take(worker);
        }
        let taken = guard.take(worker);
        if let Taken::Items(count) = taken {
            worker.publish(count);
            if guard.is_cpu_intensive(worker) {
                self.recount(&mut guard, worker, |away| away.hogging = true);
            }
            self.census.fetch_sub(Census::SEARCHING, Ordering::Relaxed);
            // ORDER(lie-down): a producer that saw us searching did not kick; see `look_for_worker`.
            // Test: an_item_is_never_left_to_sleeping_workers
            if !twin::armed("take: no fence") {
                fence(Ordering::SeqCst);
            }
            // Empty: who pushes from here on sees that we search no more, and kicks. Else we kick in his place.
            let more = guard.has_work() || !self.injector.is_empty();
            if more && !twin::armed("take: no chained kick") {
                guard.pick_if_needed();
            }
            guard.effects.watch |= more || count > 1;
            guard.wake_under_lock();
        }
        taken
    }

    /// Lets `worker`, which is searching and takes no further batch, go with nothing of a link's.
    pub(crate) fn let_go(self: &Arc<Self>, worker: &Worker) {
        let mut guard = self.lock_to_act();
        // As in `take`: else who discharges it would take it out of the count a second time.
        if !twin::armed("let go: still asleep") {
            self.recount(&mut guard, worker, |away| *away = Away::default());
        }
        guard.take_all_back(worker);
    }

    /// Notes that a worker is done with its batch and searches again.
    pub(crate) fn search_again(&self) {
        self.census.fetch_add(Census::SEARCHING, Ordering::Relaxed);
    }

    /// Returns how a searching worker that took nothing waits.
    pub(crate) fn waits(&self) -> Wait {
        match self.wait.load(Ordering::Relaxed) {
            wait if wait == Wait::GivesWay as u32 => Wait::GivesWay,
            _ => Wait::Looks,
        }
    }

    /// Returns `true` if a searching worker that took nothing should look again. No promise either way.
    pub(crate) fn has_hint_of_work(&self) -> bool {
        !self.injector.is_empty() && !self.has_surplus()
    }

    /// Puts a searching worker on the idle list, to park then, unless the pool is dying, or has work and not more
    /// awake than it shall have.
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
        self.census
            .fetch_sub(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        // ORDER(lie-down): other end in `look_for_worker`.
        // Test: an_item_is_never_left_to_sleeping_workers
        if !twin::armed("lie down: no fence") {
            fence(Ordering::SeqCst);
        }
        // Empty: who pushes from here on sees the census without us, and kicks. Else we pick somebody in his place.
        // Before the lock is dropped: after it somebody may adopt the item, and the injector is empty then.
        if twin::armed("lie down: look after the lock") {
            drop(guard);
            guard = self.lock_to_act();
        }
        // Adopted work counts too: a surplus worker leaves some behind.
        let adopted = guard.has_work() && !twin::armed("lie down: look after the lock");
        let work = adopted || !self.injector.is_empty();
        if work && !twin::armed("lie down: no second look") {
            // Whoever this picks, often us, comes for the item.
            guard.pick_if_needed();
        }
        ParkDecision::Park
    }

    /// Notes that a worker is up, if its kick has not; the kernel's way, for the twin.
    #[cfg(any(loom, shuttle))]
    pub(crate) fn leave_idle(&self, worker: &Worker) {
        let mut dispatch = self.lock();
        if let Some(at) = dispatch
            .idle
            .iter()
            .position(|idle| idle.worker.number == worker.number)
        {
            dispatch.idle.remove(at);
            self.census
                .fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        }
    }

    /// Returns how often a worker looks for work before it parks.
    pub(crate) fn worker_spin_limit(&self) -> u32 {
        self.params.worker_spin_limit
    }

    /// Returns `true` if all workers share one CPU, so that whoever could bring work cannot run while one looks.
    pub(crate) fn has_one_cpu(&self) -> bool {
        self.attrs.cpus.len() <= 1
    }

    /// Brings this thread, a worker of this pool, home: to its CPUs and its nice value.
    pub(crate) fn settle(&self, worker: &Worker) {
        let fresh = worker.is_this_thread();
        let strays = worker.strays.swap(false, Ordering::Relaxed);
        if self.confined.load(Ordering::Relaxed) && (fresh || strays) {
            // Refused when the CPUs went away meanwhile: then anywhere is better than nowhere.
            if cpu::set_affinity(None, &self.attrs.cpus).is_ok() && strays {
                worker.has_returned();
            }
        }
        if fresh && self.attrs.nice != 0 {
            // Going below zero needs a right that the process may not have; the builder says so.
            let _ = thread::set_nice(self.attrs.nice);
        }
    }

    /// Brings this thread, a rescuer, to the pool's CPUs: what it runs may belong there. It stays until it visits the next pool.
    pub(crate) fn visit(&self) {
        // Refused as in `settle`; the nice value stays, for it could not be taken back.
        let _ = cpu::set_affinity(None, &self.attrs.cpus);
    }

    /// Enters a worker into the pool; `asked_for` when a kick has counted it already. `None` where it was not asked for, and
    /// a pool of bottom halves has its one worker, or gets it: two would run its items at once.
    pub(crate) fn enlist(
        &self,
        asked_for: bool,
        worker: impl FnOnce(usize) -> Arc<Worker>,
    ) -> Option<Arc<Worker>> {
        let mut dispatch = self.lock();
        let nr_workers = dispatch.nr_workers() + dispatch.nr_creating;
        if !asked_for && self.attrs.bh && nr_workers > 0 {
            return None;
        }
        if asked_for {
            dispatch.nr_creating -= 1;
            self.counters.nr_created.fetch_add(1, Ordering::Relaxed);
        } else {
            self.census
                .fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        }
        Some(dispatch.enlist(worker))
    }

    /// Enters a rescuer, which is no worker of the pool's and does not count.
    pub(crate) fn enlist_rescuer(&self, worker: impl FnOnce(usize) -> Arc<Worker>) -> Arc<Worker> {
        let mut dispatch = self.lock();
        let worker = dispatch.enlist(worker);
        dispatch.away_mut(&worker).rescuing = true;
        worker
    }

    /// Strikes a rescuer off the pool.
    pub(crate) fn discharge_rescuer(&self, worker: &Worker) {
        self.lock().discharge(worker);
    }

    /// Strikes a worker off the pool; `awake` when it was not on the idle list.
    pub(crate) fn discharge(self: &Arc<Self>, worker: &Worker, awake: bool) {
        let mut guard = self.lock_to_act();
        guard.discharge(worker);
        if awake {
            self.census
                .fetch_sub(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        }
        // ORDER(lie-down): a producer that counted us awake did not kick; see `look_for_worker`.
        // Test: an_item_is_never_left_to_sleeping_workers
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

    /// Unlocks, and leaves it to the caller when to do the rest: with no lock held.
    pub(crate) fn unlock(self) -> DeferredEffects<'a> {
        self.effects
    }

    /// Gets one more worker up if the pool needs one; returns `true` if it did.
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

    /// Claims the worker that parked last, or asks for a new one; returns `true` if either could be done.
    fn pick(&mut self) -> bool {
        let (pool, effects) = (self.effects.pool, &mut self.effects);
        let dispatch = &mut *self.dispatch;
        if let (true, Some(idle)) = (twin::armed("kick: no claim"), dispatch.idle.last()) {
            effects.wakeq.push(Wakeup::unpark(idle.unparker.clone()));
            return true;
        }
        match dispatch.idle.pop() {
            Some(idle) => {
                // The manager has nothing to look after where all are lean.
                effects.watch |= idle.is_lean;
                effects.wakeq.push(Wakeup::unpark(idle.unparker));
                effects.picked = Some(idle.worker);
            }
            None if dispatch.nr_workers() + dispatch.nr_creating < pool.max_workers() => {
                dispatch.nr_creating += 1;
                effects.create = true;
            }
            None => {
                effects.watch = true;
                return false;
            }
        }
        pool.census
            .fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
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

    /// Takes note of how many items have been taken at the time `now`, in cycles, and so of how workers are to wait.
    pub(crate) fn note_pace(&mut self, now: u64) {
        let (pool, nr_taken) = (self.pool(), self.nr_taken);
        if pool.target() > 1
            && let Some(wait) = self.pace.note(now, nr_taken)
        {
            pool.wait.store(wait as u32, Ordering::Relaxed);
        }
    }

    /// Takes from `worker` all that it has of a link's: counts and a seat.
    fn take_all_back(&mut self, worker: &Worker) {
        self.retire(worker);
        self.tell(worker);
        self.give_up_seat(worker);
    }
}

impl Deref for PoolGuard<'_> {
    type Target = Dispatch;
    #[inline]
    fn deref(&self) -> &Dispatch {
        &self.dispatch
    }
}

impl DerefMut for PoolGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Dispatch {
        &mut self.dispatch
    }
}

impl DeferredEffects<'_> {
    fn wake(&mut self) {
        if self.nr_kicks > 0 {
            let count = mem::take(&mut self.nr_kicks);
            self.pool
                .counters
                .nr_kicks
                .fetch_add(count, Ordering::Relaxed);
        }
        self.wakeq.fire();
    }

    #[cold]
    fn tell_other_pools(&mut self) {
        for core in self.settled.drain(..) {
            core.settled.notify_all();
        }
        for seeker in self.seats.drain(..) {
            seeker.take_seat();
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
        // Most trips of a worker's are of no consequence to others.
        if !(self.settled.is_empty() && self.seats.is_empty()) {
            self.tell_other_pools();
        }
        mem::take(&mut self.traced).tell();
    }
}
