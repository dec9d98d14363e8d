//! A pool workqueue: what links one queue to one pool, and the side of it that the pool lock guards.

use std::{
    fmt,
    ops::Deref,
    ptr::{self, NonNull},
};

use sync::{OnceLock, atomic::AtomicU32, unmodelled::Arc};

use super::{anchors::Anchors, mayday::MaydayQueue, pool::WorkerPool};
use crate::{
    trace,
    workqueue::{
        item::colour::Colours,
        item::head::{Head, Home, VTable},
        item::list::List,
        item::probe::Probe,
        limit::active::Gate,
        limit::queue_core::QueueCore,
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
    /// A: how long its items wait.
    pub(crate) probe: Probe,
}

/// The pool's side of a link.
///
/// All of it belongs to the pool lock.
#[derive(Debug)]
pub(crate) struct PwqState {
    pwq: Arc<Pwq>,
    /// Items that found no seat, oldest first. While it is not empty the link stands in line at the gate, or in
    /// the pool's `ready` with a seat in hand.
    pub(crate) inactive: List,
    /// Links that were adopted and not given back.
    pub(crate) in_flight: Colours,
    /// Items that are in `inactive`, or in the pool's `pending`.
    pub(crate) nr_listed: usize,
    /// Links that were ever adopted.
    pub(crate) nr_adopted: u64,
    /// Somebody waits on `core.settled` for nothing to be in flight.
    pub(crate) drain_waits: bool,
    pub(crate) counts: Counts,
    /// How many items must have been started before a wait is sampled again.
    pub(crate) next_sample: u64,
    /// No table of the queue leads here any more, though late items may come.
    pub(crate) retired: bool,
    /// An ordered queue's former link has items: all that come here wait as inactive.
    pub(crate) plugged: bool,
    /// The link to unplug when no item is in flight here.
    pub(crate) heir: Option<Seeker>,
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
    pub(crate) fn of(home: *const Home) -> *const Pwq {
        home.cast()
    }

    /// Returns its first part, from which [`of`](Self::of) comes back to all of it.
    pub(crate) fn as_home(&self) -> *const Home {
        ptr::from_ref(self).cast()
    }

    /// Leaves a linked item for the workers of its pool.
    #[inline]
    pub(crate) fn push(&self, item: NonNull<Head>) {
        // Before the push: after it the item may be gone.
        // SAFETY: the caller made it pending and linked, so it stays until it is pushed.
        self.tell_queued(unsafe { item.as_ref() });
        self.probe.note(item);
        self.pool.push(item);
    }

    /// Tells that an item is queued here.
    #[inline]
    pub(crate) fn tell_queued(&self, head: &Head) {
        trace::queue_work(|| self.trace(head, head.vtable()));
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
    pub(crate) fn new(pwq: Arc<Pwq>, plugged: bool) -> Self {
        Self {
            pwq,
            inactive: List::new(),
            in_flight: Colours::default(),
            nr_listed: 0,
            nr_adopted: 0,
            drain_waits: false,
            counts: Counts::default(),
            next_sample: 0,
            retired: false,
            plugged,
            heir: None,
        }
    }

    /// Returns the link itself.
    pub(crate) fn handle(&self) -> &Arc<Pwq> {
        &self.pwq
    }

    /// Returns `true` if no item is in flight. A future that waits is none: it goes where the routes lead when it is woken.
    pub(crate) fn is_spent(&self) -> bool {
        self.in_flight.nr_in_flight()
            == self.anchors.get().map_or(0, |anchors| anchors.count()) as usize
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
