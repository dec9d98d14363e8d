//! State guarded by the pool lock: the lists of items, the pwqs, the workers and the idle list.
//!
//! Nothing here wakes a thread, runs an item or blocks; `pool.rs` does all of this after it has
//! unlocked the pool.

use std::collections::{HashMap, VecDeque};
use std::ptr::{self, NonNull};

use base::internal::wake::Unparker;
use base::internal::wake::lane::Lane;
use item::internal::head::{Head, Home, State};
use item::internal::list::{Color, Injector, List};
use limit::internal::queue_core::QueueCore;
use limit::internal::tree::{Paid, Tree};
use sync::atomic::Ordering;
use sync::unmodelled::Arc;
use sync::{time, twin};

use super::mayday::{MaydayQueue, MaydayTimer};
use super::pace::Pace;
use super::pwq::{Counts, Observed, Pwq, PwqState};
use super::worker::{MAX_LEGS, Worker};
use crate::observe::concurrency::{Away, Seen};
use crate::observe::stall::StallDetector;
use crate::observe::tally::{Kept, Rest, Sampling};

mod shares;

/// A worker that is parked or about to park, with the start of its idle time.
pub(crate) struct IdleWorker {
    pub(crate) worker: Arc<Worker>,
    /// This is a clone, so that a kick accesses no memory of the worker under the lock.
    pub(crate) unparker: Unparker,
    pub(crate) since_ns: u64,
    /// Set if the worker has returned its stack's memory and has run no item since.
    pub(crate) is_lean: bool,
}

/// The registration of a worker. It has its own cache lines, because the worker writes most of it
/// for each batch.
#[repr(align(64))]
pub(crate) struct Enlisted {
    pub(crate) worker: Arc<Worker>,
    pub(crate) legs: [Leg; MAX_LEGS],
    /// The number of these legs; at least 1, even before the first batch.
    pub(crate) nr_legs: usize,
    /// Set if the item of that batch was handed over to an earlier run and has returned from it.
    pub(crate) returned: bool,
    /// The time that was paid in advance for that batch.
    pub(crate) paid: Paid,
    pub(crate) away: Away,
    /// The last sample of the worker's item.
    pub(crate) seen: Option<Seen>,
}

/// The items of one pwq in a worker's local batch; see `take.rs`.
#[derive(Default)]
pub(crate) struct Leg {
    /// The pwq whose items the worker runs.
    pub(crate) slot: Option<usize>,
    pub(crate) has_seat: bool,
    pub(crate) color: Color,
    /// The number of runs whose in-flight count has been released.
    pub(crate) nr_retired: u32,
    pub(crate) sampling: Sampling,
}

/// The part of a pool that its lock guards.
///
/// Each cache line that another CPU has written must be fetched. The fields that every batch writes
/// are therefore in the cache line of the lock, those that every batch reads in the next one, and
/// those that a kick changes in the third.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Dispatch {
    /// Adopted items for which no seat has been requested yet, oldest first.
    pub(crate) pending: List,
    pub(crate) nr_taken: u64,
    nr_with_lanes: usize,
    /// `true` if `ready` is served before `pending` next time. The two lists take turns.
    pub(crate) ready_first: bool,
    /// Set when the pool is being destroyed. Its workers then exit.
    pub(crate) dying: bool,

    /// The pwqs, indexed by slot.
    pwqs: Vec<Option<PwqState>>,
    /// The workers, indexed by worker number. Rescuers are included.
    workers: Vec<Option<Enlisted>>,
    /// The number of pwqs that are not retired and have shares, plus the number of those whose
    /// group has shares. If there are any, all items wait in the lists of their pwqs, and pwqs are
    /// served in the order of the time that they and their groups have used.
    nr_with_shares: usize,
    /// The approximate number of items of all pwqs that were cancelled since tombstones were last
    /// removed from `pending`; see `tombstones.rs`.
    pub(crate) nr_cancelled: usize,

    pub(crate) pace: Pace,

    nr_ready: usize,
    /// Pwqs that wait for their turn and hold a seat of their queue, oldest first. In a pool with
    /// shares, such pwqs are in the tree instead.
    ready: VecDeque<usize>,
    /// Pwqs whose turn came while their group was full, and that have all seats now. They are
    /// served before those in `ready`. In a pool with shares, they are in the tree, too.
    pub(crate) seated: VecDeque<usize>,
    /// Workers that are parked or about to park, in the order in which they parked.
    pub(crate) idle: Vec<IdleWorker>,
    /// The number of registered workers, including rescuers.
    pub(crate) nr_workers: usize,

    /// The number of workers that have been requested and are not registered yet.
    pub(crate) nr_creating: usize,
    pub(crate) mayday_timer: MaydayTimer,
    pub(crate) stall_detector: StallDetector,
    /// The number of times that items of each kind have hogged a CPU, by vtable.
    pub(crate) hogs: HashMap<usize, u64>,
    free_slots: Vec<usize>,
    /// The number of pwqs to which routes lead.
    nr_led: usize,
    /// The groups with pwqs in this pool, and the clocks that set initial accounts.
    tree: Tree,
    /// The sum of the counters of removed pwqs.
    gone: Counts,
}

/// Consecutive items of one pwq in an injector. They are counted together, because most items
/// arrive that way.
struct Adopted {
    /// The home pwq of the items. It is only compared, and never dereferenced.
    home: *const Home,
    slot: usize,
    lane: Lane,
    color: Color,
    count: usize,
}

/// The times at which the first and the last item of one adoption arrived, in cycles, if known.
type Arrival = Option<(u64, u64)>;

impl Dispatch {
    pub(crate) fn pwq(&self, slot: usize) -> &PwqState {
        self.pwqs[slot].as_ref().expect("a pwq in use")
    }

    pub(crate) fn pwq_mut(&mut self, slot: usize) -> &mut PwqState {
        self.pwqs[slot].as_mut().expect("a pwq in use")
    }

    pub(crate) fn add_pwq(&mut self, pwq: impl FnOnce(usize) -> Arc<Pwq>) -> Arc<Pwq> {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.pwqs.push(None);
            self.pwqs.len() - 1
        });
        let pwq = pwq(slot);
        let state = PwqState::new(pwq.clone());
        self.nr_led += 1;
        self.nr_with_lanes += usize::from(state.has_lanes);
        self.pwqs[slot] = Some(state);
        self.add_account(slot);
        pwq
    }

    /// Records whether routes lead to a pwq. Returns `true` if that is a change.
    pub(crate) fn lead(&mut self, slot: usize, led: bool) -> bool {
        let changed = self.pwq(slot).retired == led;
        if changed {
            self.pwq_mut(slot).retired = !led;
            self.nr_led = if led { self.nr_led + 1 } else { self.nr_led - 1 };
            self.count_shares(slot, led);
        }
        changed
    }

    /// Removes a pwq that has nothing in flight. A worker may still hold its seat, because seats
    /// are released lazily.
    pub(crate) fn remove_pwq(&mut self, slot: usize) {
        for enlisted in self.workers.iter_mut().flatten() {
            for (leg, counts) in enlisted.legs.iter_mut().zip(&enlisted.worker.legs) {
                if leg.slot == Some(slot) {
                    debug_assert_eq!(leg.nr_retired, counts.nr_done());
                    (leg.slot, leg.has_seat) = (None, false);
                }
                if leg.sampling.slot() == slot {
                    leg.sampling = Sampling::default();
                }
            }
        }
        self.remove_account(slot);
        let state = self.pwqs[slot].take().expect("a pwq in use");
        debug_assert!(state.in_flight.nr_in_flight() == 0 && !state.has_waiting());
        debug_assert_eq!((state.nr_listed(), state.deferred), (0, None));
        self.nr_led -= usize::from(!state.retired);
        self.nr_with_lanes -= usize::from(state.has_lanes);
        self.free_slots.push(slot);
        if self.free_slots.len() == self.pwqs.len() {
            // Clear the table, so that later walks do not visit empty slots.
            self.pwqs.clear();
            self.free_slots.clear();
        }
        self.gone.add(&state.counts);
    }

    /// Returns the sum of the counters of all pwqs, including removed ones.
    pub(crate) fn counts(&self) -> Counts {
        let mut all = self.gone;
        for pwq in self.pwqs() {
            all.add(&pwq.counts);
        }
        all
    }

    pub(crate) fn pwqs(&self) -> impl Iterator<Item = &PwqState> {
        self.pwqs.iter().flatten()
    }

    pub(crate) fn counts_mut(&mut self, worker: &Worker) -> Option<&mut Counts> {
        let slot = self.enlisted(worker).slot()?;
        Some(&mut self.pwq_mut(slot).counts)
    }

    pub(crate) fn workers(&self) -> impl Iterator<Item = &Enlisted> {
        self.workers.iter().flatten()
    }

    pub(crate) fn enlist(&mut self, unparker: Unparker) -> Arc<Worker> {
        let number = self.workers.iter().position(Option::is_none).unwrap_or_else(|| {
            self.workers.push(None);
            self.workers.len() - 1
        });
        let worker = Arc::new(Worker::new(number, unparker));
        self.workers[number] = Some(Enlisted {
            worker: worker.clone(),
            legs: Default::default(),
            nr_legs: 1,
            returned: false,
            paid: Paid::default(),
            away: Away::default(),
            seen: None,
        });
        self.nr_workers += 1;
        worker
    }

    /// Deregisters a worker whose local batch is empty. Records its remaining samples.
    pub(crate) fn discharge(&mut self, worker: &Worker) {
        let mut enlisted = self.workers[worker.number].take().expect("an enlisted worker");
        debug_assert!(enlisted.seats().next().is_none() && !enlisted.away.declared);
        for Leg { sampling, .. } in &mut enlisted.legs {
            self.record_rest(sampling.slot(), sampling.take_rest());
        }
        self.nr_workers -= 1;
    }

    pub(crate) fn has_work(&self) -> bool {
        !self.pending.is_empty() || self.has_ready()
    }

    /// Returns the number of workers that are known to sleep inside an item.
    pub(crate) fn nr_blocked(&self) -> usize {
        let blocked = |it: &&Enlisted| it.away.sleeps();
        self.workers().filter(blocked).count()
    }

    pub(crate) fn is_enlisted(&self, worker: &Arc<Worker>) -> bool {
        let enlisted = self.workers[worker.number].as_ref();
        enlisted.is_some_and(|it| Arc::ptr_eq(&it.worker, worker))
    }

    /// Returns the workers that are in an item and have not reported that it may sleep. For each
    /// one, also returns the last sample and whether the worker was asleep at that time.
    pub(crate) fn busy(&self) -> impl Iterator<Item = (Arc<Worker>, Option<Seen>, bool)> {
        let busy = self.workers().filter(|it| it.worker.is_inside() && !it.away.declared);
        busy.map(|it| (it.worker.clone(), it.seen, it.away.asleep))
    }

    /// Returns `true` if items in the injector may be served before adopted ones.
    #[inline]
    pub(crate) fn adopts_early(&self) -> bool {
        self.nr_with_lanes > 0 || self.is_shared()
    }

    /// Moves the items of the injector to the pool's lists, and counts them in flight.
    pub(crate) fn adopt(&mut self, injector: &Injector) {
        if !injector.is_empty() {
            self.adopt_at(time::cycles(), injector);
        }
    }

    /// Does the same as [`adopt`](Self::adopt), at the time `now` in cycles.
    pub(crate) fn adopt_at(&mut self, now: u64, injector: &Injector) {
        if injector.is_empty() {
            return;
        }
        let mut sorts = self.is_shared();
        let pwqs = &mut self.pwqs;
        let arrival = || injector.since().map(|since| (since, now));
        let mut run: Option<Adopted> = None;
        let mut list = injector.take(|item| {
            // SAFETY: the item is linked, so it is alive.
            let home = unsafe { item.as_ref() }
                .home
                // The home was written before the push through which we see the item, and is
                // unchanged while the item is linked.
                .load(Ordering::Relaxed)
                .cast_const();
            if let Some(run) = run.as_mut().filter(|run| ptr::eq(run.home, home)) {
                run.count += 1;
                return run.color;
            }
            if let Some(run) = run.take() {
                run.count_in(pwqs, arrival());
            }
            // SAFETY: a queue is drained before its pwqs are freed. This item is not counted yet,
            // so that drain has not ended.
            let &Home { slot, lane, .. } = unsafe { &*home };
            let pwq = pwqs[slot].as_ref().expect("a pwq in use");
            sorts |= pwq.has_lanes;
            let color = pwq.in_flight.present();
            run = Some(Adopted { home, slot, lane, color, count: 1 });
            color
        });
        if let Some(run) = run {
            run.count_in(pwqs, arrival());
        }
        if sorts {
            self.sort(list);
        } else {
            self.pending.append(&mut list);
        }
    }

    /// Puts adopted items, oldest first, into the lists where they wait.
    #[cold]
    fn sort(&mut self, mut items: List) {
        while let Some(item) = items.pop_front() {
            let &Home { slot, lane, .. } = home(item);
            if self.pwq(slot).has_lanes || self.is_shared() {
                self.set_aside(slot, |pwq| pwq.lane_mut(lane).push_back(item));
            } else {
                self.pending.push_back(item);
            }
        }
    }

    /// Makes the items of a pwq wait in its own lists from now on, so that urgent items can
    /// overtake ordinary ones.
    pub(crate) fn open_lanes(&mut self, slot: usize) {
        self.pwq_mut(slot).has_lanes = true;
        self.nr_with_lanes += 1;
        let pending = std::mem::take(&mut self.pending);
        self.sort(pending);
    }

    /// Calls `add`, which puts items into a pwq's own lists, and makes the pwq wait for them.
    fn set_aside(&mut self, slot: usize, add: impl FnOnce(&mut PwqState)) {
        add(self.pwq_mut(slot));
        if !twin::armed("lanes: forgets to request a seat") {
            self.request_seat(slot);
        }
    }

    /// Makes a pwq with items in its own lists wait for a seat of its queue, and then for its turn.
    pub(crate) fn request_seat(&mut self, slot: usize) {
        let pwq = self.pwq(slot);
        if pwq.has_waiting()
            && pwq.waits.is_none()
            && !twin::armed("take: forgets the inactive")
            && self.enter_queue(slot)
        {
            if !twin::armed("group: a seat is held while the pwq waits for its turn") {
                self.await_turn(slot);
            } else if self.climb(slot) {
                self.seat(slot);
            }
        }
    }

    /// Puts an item that is counted in flight back at the front of its list.
    pub(crate) fn put_back(&mut self, item: NonNull<Head>) {
        let &Home { slot, lane, .. } = home(item);
        let pwq = self.pwq_mut(slot);
        pwq.nr_listed[lane as usize] += 1;
        let waits_here = pwq.has_lanes || pwq.has_waiting();
        if waits_here || self.is_shared() {
            self.set_aside(slot, |pwq| pwq.lane_mut(lane).push_front(item));
        } else {
            self.pending.push_front(item);
        }
    }

    /// Removes an item that must not run from its list. Returns `false` if a worker has it in its
    /// local batch.
    pub(crate) fn unlink(&mut self, slot: usize, item: NonNull<Head>) -> bool {
        let found = self.pending.remove(item) || self.pwq_mut(slot).remove(item);
        if found {
            let pwq = self.pwq_mut(slot);
            pwq.remove_listed(home(item).lane, 1);
            // SAFETY: its state is still linked, so it is alive.
            unsafe { item.as_ref() }.update(|state| Some(State::unlink(state)));
        }
        found
    }

    /// Returns the pwqs that have items in flight and a rescuer: the queue, its mayday queue and
    /// the slot.
    pub(crate) fn rescuers(&self) -> Vec<(Arc<QueueCore>, Arc<MaydayQueue>, usize)> {
        let busy = self.pwqs.iter().enumerate().filter_map(|(slot, pwq)| {
            let pwq = pwq.as_ref().filter(|pwq| pwq.in_flight.nr_in_flight() > 0)?;
            Some((pwq.core.clone(), pwq.mayday_queue.clone()?, slot))
        });
        busy.collect()
    }

    /// Returns `true` if no route leads to this pool.
    pub(crate) fn is_deserted(&self) -> bool {
        self.nr_led == 0
    }

    /// Removes the recorded waits of `count` items of a leg that `worker` does not run.
    pub(crate) fn unrecord(&mut self, worker: &Worker, leg: usize, count: u64) {
        let leg = &mut self.enlisted_mut(worker).legs[leg];
        if let (Some(slot), Some(waited)) = (leg.slot, leg.sampling.gave_back(count))
            && let Some(times) = &mut self.pwq_mut(slot).observed
        {
            times.wait.take_back(waited, count);
        }
    }

    /// Records the remaining samples of a worker, unless the pwq has been removed.
    pub(crate) fn record_rest(&mut self, slot: usize, rest: Rest) {
        if let Some(times) = times_of(&mut self.pwqs, slot) {
            times.add_rest(rest);
        }
    }

    /// Lets a leg of `worker` continue the sampling of pwq `slot`. Its previous pwq keeps the
    /// state.
    pub(crate) fn sample_from(&mut self, worker: &Worker, leg: usize, slot: usize) {
        let Self { workers, pwqs, .. } = self;
        let enlisted = workers[worker.number].as_mut().expect("an enlisted worker");
        let sampling = &mut enlisted.legs[leg].sampling;
        if sampling.slot() == slot {
            return;
        }
        if let Some(before) = times_of(pwqs, sampling.slot()) {
            sampling.keep(&mut before.kept);
        }
        let kept = times_of(pwqs, slot).map(|times| &mut times.kept);
        sampling.resume(slot, kept.unwrap_or(&mut Kept::default()));
    }

    /// Records the remaining samples for a pwq: those that it keeps, and those of all legs whose
    /// items have started.
    pub(crate) fn record_rests(&mut self, slot: usize) {
        let Self { workers, pwqs, .. } = self;
        let Some(times) = times_of(pwqs, slot) else { return };
        let rest = times.kept.take_rest();
        times.add_rest(rest);
        for Enlisted { worker, legs, .. } in workers.iter_mut().flatten() {
            for (at, Leg { sampling, .. }) in legs.iter_mut().enumerate() {
                if sampling.slot() == slot && worker.nr_not_started(at) == 0 {
                    times.add_rest(sampling.take_rest());
                }
            }
        }
    }

    /// Returns the workers whose last batch contains items of a pwq, and the indices of the legs.
    pub(crate) fn holders(&self, slot: usize) -> impl Iterator<Item = (&Enlisted, usize)> {
        self.workers().filter_map(move |it| Some((it, it.leg_of(slot)?)))
    }

    pub(crate) fn enlisted(&self, worker: &Worker) -> &Enlisted {
        self.workers[worker.number].as_ref().expect("an enlisted worker")
    }

    pub(crate) fn enlisted_mut(&mut self, worker: &Worker) -> &mut Enlisted {
        self.workers[worker.number].as_mut().expect("an enlisted worker")
    }
}

impl Enlisted {
    fn leg_of(&self, slot: usize) -> Option<usize> {
        self.legs[..self.nr_legs].iter().position(|leg| leg.slot == Some(slot))
    }

    /// Returns the index of the leg of the item at a place of the local batch.
    pub(crate) fn leg_at(&self, place: usize) -> usize {
        let mut earlier = self.worker.legs[..self.nr_legs - 1].iter();
        earlier.position(|leg| place < leg.end() as usize).unwrap_or(self.nr_legs - 1)
    }

    /// Returns `true` if other items or queues wait for the item that the worker runs: items of its
    /// local batch, or the counts and seats of legs that have ended.
    pub(crate) fn delays_others(&self) -> bool {
        let has_ended_leg = || {
            let present = self.leg_at(self.worker.position());
            self.legs[..present].iter().any(|leg| leg.has_seat)
        };
        let overlooks = twin::armed("sample: overlooks ended legs");
        self.worker.has_items() || !overlooks && has_ended_leg()
    }

    /// Returns the pwq whose item the worker runs or ran last.
    pub(crate) fn slot(&self) -> Option<usize> {
        self.legs[self.leg_at(self.worker.position())].slot
    }

    pub(crate) fn seats(&self) -> impl Iterator<Item = usize> {
        self.legs.iter().filter(|leg| leg.has_seat).filter_map(|leg| leg.slot)
    }
}

/// Returns the wait and run times of a pwq, unless it has been removed.
fn times_of(pwqs: &mut [Option<PwqState>], slot: usize) -> Option<&mut Observed> {
    pwqs.get_mut(slot)?.as_mut()?.observed.as_deref_mut()
}

impl Adopted {
    fn count_in(self, pwqs: &mut [Option<PwqState>], arrival: Arrival) {
        let pwq = pwqs[self.slot].as_mut().expect("a pwq in use");
        pwq.in_flight.adopt(self.count);
        pwq.nr_adopted += self.count as u64;
        pwq.add_listed(self.lane, self.count, arrival);
    }
}

pub(crate) fn home_slot(item: NonNull<Head>) -> usize {
    home(item).slot
}

pub(crate) fn home<'a>(item: NonNull<Head>) -> &'a Home {
    // SAFETY: the item is linked, so it is alive. Its home is a pwq that is not removed before it.
    unsafe { &*item.as_ref().home.load(Ordering::Relaxed) }
}
