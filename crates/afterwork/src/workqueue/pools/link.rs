//! The pool's side of a link to a queue: what waits, what is in flight, what has been counted.

use sync::{
    atomic::{AtomicU32, Ordering},
    unmodelled::Arc,
};

use super::{mayday::MaydayQueue, pool::WorkerPool};
use crate::workqueue::{
    item::colour::Colours, item::list::List, item::probe::Probe, limit::active::Gate,
    limit::queue_core::QueueCore,
};

/// A pool's link to a queue that waits for a seat.
#[derive(Clone, Debug)]
pub(crate) struct Seeker {
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) slot: usize,
}

impl Seeker {
    /// Tells it that it has been handed a seat. Call it with no pool locked.
    pub(crate) fn take_seat(self) {
        self.pool.take_seat(self.slot);
    }
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

/// The pool's side of a link.
///
/// All of it belongs to the pool lock.
#[derive(Debug)]
pub(crate) struct PwqState {
    pub(crate) core: Arc<QueueCore>,
    /// That of the `Pwq`, as are those below of which nothing else is said.
    pub(crate) gate: Arc<Gate<Seeker>>,
    pub(crate) mayday_queue: Option<Arc<MaydayQueue>>,
    pub(crate) node: usize,
    /// Items that found no seat, oldest first. While it is not empty the link stands in line at the gate, or in
    /// the pool's `ready` with a seat in hand.
    pub(crate) inactive: List,
    /// Links that were adopted and not given back.
    pub(crate) in_flight: Colours,
    /// Links that were ever adopted.
    pub(crate) nr_adopted: u64,
    /// Somebody waits on `core.settled` for nothing to be in flight.
    pub(crate) drain_waits: bool,
    pub(crate) counts: Counts,
    pub(crate) probe: Arc<Probe>,
    /// How many items must have been started before a wait is sampled again.
    pub(crate) next_sample: u64,
    /// No table of the queue leads here any more, though late items may come.
    pub(crate) retired: bool,
    /// An ordered queue's former link has items: all that come here wait as inactive.
    pub(crate) plugged: bool,
    /// The link to unplug when no item is in flight here.
    pub(crate) heir: Option<Seeker>,
    pub(crate) nr_anchored: Arc<AtomicU32>,
}

impl PwqState {
    /// Returns `true` if no item is in flight. A future that waits is none: it goes where the routes lead when it is woken.
    pub(crate) fn is_spent(&self) -> bool {
        self.in_flight.nr_in_flight() == self.nr_anchored.load(Ordering::Relaxed) as usize
    }
}
