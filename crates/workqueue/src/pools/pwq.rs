//! A pool workqueue: what links one queue to one pool, and the side of it that the pool lock guards.

use std::{
    fmt,
    ops::Deref,
    ptr::{self, NonNull},
};

use base::internal::trace;
use sync::{
    Mutex, OnceLock,
    atomic::{AtomicU32, Ordering},
    unmodelled::Arc,
};

use super::{anchors::Anchors, mayday::MaydayQueue, pool::WorkerPool};
use crate::{
    item::{
        colour::Colours,
        head::{Head, Home, VTable},
        lane::{Lane, Turns},
        list::List,
    },
    limit::{account::Account, active::Gate, queue_core::QueueCore},
    observe::{
        arrivals::Arrivals,
        histogram::Cycles,
        tally::{Ran, Rest},
    },
};

/// Links a queue to one of its pools.
///
/// Items, of which pools have lists, lie below links: they point at its first part alone.
#[repr(C)]
pub(crate) struct Pwq {
    /// I
    pub(crate) home: Home,
    /// I
    pub(crate) pool: Arc<WorkerPool>,
    /// I
    pub(crate) core: Arc<QueueCore>,
    /// I: what its items need a seat of.
    pub(crate) gate: Arc<Gate<Seeker>>,
    /// I: where the rescuer of the queue is called, if it has one.
    pub(crate) mayday_queue: Option<Arc<MaydayQueue>>,
    /// I: the NUMA node of the pool, as the gate counts them.
    pub(crate) node: usize,
    /// A: the in-flight counts that belong to futures that have waited: no items of this link. In memory of its own,
    /// lest each such future takes the rest from the caches of who queues, which only a queue with such futures has.
    pub(crate) anchors: OnceLock<Box<Anchors>>,
    /// A: how many of its items were cancelled since tombstones were cut out of its inactive ones; see `tombstones.rs`.
    pub(crate) nr_cancelled: AtomicU32,
    /// A: the same link for urgent items, made for the first of them: it has the same place in the pool's table, and so the
    /// same counts.
    pub(crate) urgent: OnceLock<Box<Pwq>>,
    /// A: made by who queues here first, and taken by the pool, which allocates nothing under its lock. An idle link has none.
    pub(crate) observed: OnceLock<Mutex<Option<Box<Observed>>>>,
}

/// The pool's side of a link.
///
/// All of it belongs to the pool lock. What each batch changes lies in the first two lines: see [`Dispatch`](super::dispatch).
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct PwqState {
    pub(crate) counts: Counts,
    /// Items that are in `inactive` or the pool's `pending`, and those that are in `urgent`.
    nr_listed: [usize; 2],
    /// Links that were ever adopted.
    pub(crate) nr_adopted: u64,
    /// Links that were adopted and not given back.
    pub(crate) in_flight: Colours,
    pwq: Arc<Pwq>,
    /// Nothing as long as nothing was queued.
    observed: Option<Box<Observed>>,
    /// The queue has an urgent lane: all its items wait in `urgent` and `inactive`, and none in the pool's `pending`.
    pub(crate) has_lanes: bool,
    /// Somebody waits on `core.settled` for nothing to be in flight.
    pub(crate) drain_waits: bool,
    /// A walk did not find all that had been cancelled; see `tombstones.rs`.
    pub(crate) missed: bool,
    /// No table of the queue leads here any more, though late items may come.
    pub(crate) retired: bool,
    turns: Turns,
    /// Items that found no seat, and ordinary ones that urgent ones may overtake, oldest first. While this or `urgent` is not
    /// empty the link stands in line at the gate, or in the pool's `ready` with a seat in hand.
    pub(crate) inactive: List,
    /// Urgent items, oldest first.
    pub(crate) urgent: List,
    /// The number of the last cancel of all that it has had.
    pub(crate) last_cancel: u64,
    /// What it has used of the pool, where queues have shares of that.
    pub(crate) account: Account,
}

/// Since when those wait that are in lists, by lane, and how long others waited and ran.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    arrivals: [Arrivals; 2],
    pub(crate) times: LinkTimes,
}

/// How long items waited and ran, sampled.
#[derive(Debug, Default)]
pub(crate) struct LinkTimes {
    pub(crate) wait: Cycles,
    pub(crate) run: Cycles,
}

impl LinkTimes {
    /// Adds what was told of no batch.
    pub(crate) fn add_rest(&mut self, rest: Rest) {
        // Nothing is measured here.
        let Some(waited) = rest.waited else { return };
        self.wait.add(waited, rest.nr_taken);
        let Ran { count, cycles } = rest.ran;
        if let Some(each) = cycles.checked_div(count) {
            self.run.add_measured(each, count, cycles);
        }
    }
}

/// A pool's link to a queue that waits for a seat.
#[derive(Clone, Debug)]
pub(crate) struct Seeker {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) slot: usize,
}

/// What a link has counted, under the pool lock. The kernel's `pwq_stats`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Items taken to be run, without those that then were not.
    pub(crate) nr_started: u64,
    /// Items that have run to their end.
    pub(crate) nr_completed: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) nr_cpu_intensive: u64,
    pub(crate) nr_cm_wakeups: u64,
    pub(crate) nr_repatriated: u64,
    pub(crate) nr_maydays: u64,
    pub(crate) nr_rescued: u64,
}

impl Pwq {
    /// Returns the link whose first part `home` is, as all homes are parts of one.
    ///
    /// It takes what [`as_home`](Self::as_home) made, and no `&Home`, which would reach that part alone.
    pub(crate) fn of(home: *mut Home) -> *const Pwq {
        home.cast()
    }

    /// Returns its first part, from which [`of`](Self::of) comes back to all of it.
    pub(crate) fn as_home(&self) -> *mut Home {
        ptr::from_ref(self).cast_mut().cast()
    }

    /// Returns the same link for the items of `lane`. Call it on the ordinary one.
    #[inline]
    pub(crate) fn in_lane(&self, lane: Lane) -> &Pwq {
        match lane {
            Lane::Ordinary => self,
            Lane::Urgent => self.urgent.get_or_init(|| {
                let link = Box::new(self.in_urgent_lane());
                self.gate.add_home(link.as_home().addr());
                link
            }),
        }
    }

    #[cold]
    fn in_urgent_lane(&self) -> Pwq {
        Pwq {
            home: Home {
                lane: Lane::Urgent,
                ..self.home
            },
            pool: self.pool.clone(),
            core: self.core.clone(),
            gate: self.gate.clone(),
            mayday_queue: self.mayday_queue.clone(),
            node: self.node,
            anchors: OnceLock::new(),
            nr_cancelled: AtomicU32::new(0),
            urgent: OnceLock::new(),
            observed: OnceLock::new(),
        }
    }

    /// Returns the link and, if there were urgent items, that for these.
    pub(crate) fn lanes(&self) -> impl Iterator<Item = &Pwq> {
        [Some(self), self.urgent.get().map(|it| &**it)]
            .into_iter()
            .flatten()
    }

    /// Leaves a linked item for the workers of its pool.
    #[inline]
    pub(crate) fn push(&self, item: NonNull<Head>) {
        // Before the push: after it the item may be gone.
        // SAFETY: the caller made it pending and linked, so it stays until it is pushed.
        unsafe { self.tell_queued(item) };
        self.pool.push(item);
    }

    /// Tells that an item is queued here.
    ///
    /// # Safety
    ///
    /// 1. The caller has made it pending and keeps it.
    #[inline]
    pub(crate) unsafe fn tell_queued(&self, item: NonNull<Head>) {
        // No model measures.
        if !cfg!(any(loom, shuttle)) && self.observed.get().is_none() {
            self.observe();
        }
        // SAFETY: (1).
        let vtable = || unsafe { item.as_ref() }.vtable();
        // SAFETY: (1), so it is not polled either, and the table is its own.
        let begun = || unsafe { (vtable().has_begun)(item) };
        trace::remember(item.as_ptr().addr(), begun);
        trace::queue_work(|| self.trace(item.as_ptr(), vtable()));
    }

    #[cold]
    fn observe(&self) {
        self.observed
            .get_or_init(|| Mutex::new(Some(Box::default())));
    }

    /// Returns what is told of `item`, which is only named, and does what `vtable` says.
    pub(crate) fn trace(&self, item: *const Head, vtable: &VTable) -> trace::Item<'_> {
        trace::Item {
            address: item.addr(),
            func: vtable.name,
            queue: &self.core.name,
            pool: self.pool.number,
        }
    }

    /// Takes note that a future keeps the in-flight count of the run that it is in.
    pub(crate) fn hold_for_future(&self, table: &'static VTable) {
        self.anchors.get_or_init(Box::default).add(table);
    }

    /// Takes note that a future is about to give its in-flight count back.
    pub(crate) fn release(&self, table: &'static VTable) {
        self.anchors.get_or_init(Box::default).remove(table);
    }
}

impl fmt::Debug for Pwq {
    // Not its pool, which has it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pwq")
            .field("queue", &self.core.name)
            .field("slot", &self.home.slot)
            .finish_non_exhaustive()
    }
}

impl Deref for Pwq {
    type Target = Home;

    #[inline]
    fn deref(&self) -> &Home {
        &self.home
    }
}

impl PwqState {
    pub(crate) fn new(pwq: Arc<Pwq>) -> Self {
        Self {
            has_lanes: pwq.core.has_lanes.load(Ordering::Relaxed),
            pwq,
            inactive: List::new(),
            urgent: List::new(),
            turns: Turns::default(),
            account: Account::default(),
            in_flight: Colours::default(),
            last_cancel: 0,
            nr_listed: [0; 2],
            nr_adopted: 0,
            drain_waits: false,
            counts: Counts::default(),
            observed: None,
            missed: false,
            retired: false,
        }
    }

    /// Returns the link itself.
    pub(crate) fn handle(&self) -> &Arc<Pwq> {
        &self.pwq
    }

    /// Returns `true` if items wait for this link's turn.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.inactive.is_empty() || !self.urgent.is_empty()
    }

    /// Returns how many do.
    pub(crate) fn nr_waiting(&self) -> usize {
        self.inactive.len() + self.urgent.len()
    }

    /// Returns those that do, urgent ones first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = NonNull<Head>> {
        self.urgent.iter().chain(self.inactive.iter())
    }

    /// Cuts an item out that waits here; false when it does not.
    pub(crate) fn remove(&mut self, item: NonNull<Head>) -> bool {
        self.inactive.remove(item) || self.urgent.remove(item)
    }

    /// Returns the list of a lane.
    pub(crate) fn lane_mut(&mut self, lane: Lane) -> &mut List {
        match lane {
            Lane::Ordinary => &mut self.inactive,
            Lane::Urgent => &mut self.urgent,
        }
    }

    /// Returns the list whose turn it is, and takes that turn.
    pub(crate) fn next_lane(&mut self) -> &mut List {
        let (urgent, ordinary) = (!self.urgent.is_empty(), !self.inactive.is_empty());
        let lane = self.turns.take(urgent, ordinary);
        self.lane_mut(lane)
    }

    /// Returns how many items are in the lists.
    pub(crate) fn nr_listed(&self) -> usize {
        self.nr_listed.iter().sum()
    }

    /// Takes note that `count` items have come to the lists of a lane, from when to when, in cycles, if that is known.
    pub(crate) fn join_line(&mut self, lane: Lane, count: usize, came: Option<(u64, u64)>) {
        if self.observed.is_none() {
            let mut made = self.pwq.lanes().filter_map(|it| it.observed.get());
            self.observed = made.find_map(|it| it.lock().take());
        }
        let nr_listed = &mut self.nr_listed[lane as usize];
        if let (Some(observed), Some((from, to))) = (&mut self.observed, came) {
            observed.arrivals[lane as usize].came(*nr_listed, count, from, to);
        }
        *nr_listed += count;
    }

    /// Takes note that an item is back at the front.
    pub(crate) fn rejoin_line(&mut self, lane: Lane) {
        self.nr_listed[lane as usize] += 1;
    }

    /// Takes note that `count` items were taken from the front.
    pub(crate) fn pass_line(&mut self, lane: Lane, count: usize) {
        self.nr_listed[lane as usize] -= count;
    }

    /// Takes note that `count` items have left the lists from anywhere but the front.
    pub(crate) fn leave_line(&mut self, lane: Lane, count: usize) {
        let nr_listed = &mut self.nr_listed[lane as usize];
        if let Some(observed) = &mut self.observed {
            observed.arrivals[lane as usize].cut(*nr_listed, count);
        }
        *nr_listed -= count;
    }

    /// Returns when the `nth` of the items that wait in a lane was queued, in cycles.
    pub(crate) fn came_at(&self, lane: Lane, nth: usize) -> Option<u64> {
        let nr_listed = self.nr_listed[lane as usize];
        let nth = (nth < nr_listed).then_some(nth)?;
        self.observed.as_ref()?.arrivals[lane as usize].came_at(nr_listed, nth)
    }

    /// Returns how long its items waited and ran; nothing if none was ever queued.
    pub(crate) fn times(&self) -> Option<&LinkTimes> {
        self.observed.as_ref().map(|it| &it.times)
    }

    /// As [`times`](Self::times), to add to.
    pub(crate) fn times_mut(&mut self) -> Option<&mut LinkTimes> {
        self.observed.as_mut().map(|it| &mut it.times)
    }
}

impl Deref for PwqState {
    type Target = Pwq;

    #[inline]
    fn deref(&self) -> &Pwq {
        &self.pwq
    }
}

impl Seeker {
    /// Tells it that it has been handed a seat. Call it with no pool locked.
    pub(crate) fn take_seat(self) {
        self.pool.take_seat(self.slot);
    }
}

impl Counts {
    /// Leaves out items that workers have taken and not started.
    pub(crate) fn leave_out(&mut self, nr_not_started: u64) {
        self.nr_started = self.nr_started.saturating_sub(nr_not_started);
    }

    /// Adds another link's.
    pub(crate) fn add(&mut self, other: &Counts) {
        let Counts {
            nr_started,
            nr_completed,
            cpu_ns,
            nr_cpu_intensive,
            nr_cm_wakeups,
            nr_repatriated,
            nr_maydays,
            nr_rescued,
        } = other;
        self.nr_started += nr_started;
        self.nr_completed += nr_completed;
        self.cpu_ns += cpu_ns;
        self.nr_cpu_intensive += nr_cpu_intensive;
        self.nr_cm_wakeups += nr_cm_wakeups;
        self.nr_repatriated += nr_repatriated;
        self.nr_maydays += nr_maydays;
        self.nr_rescued += nr_rescued;
    }
}
