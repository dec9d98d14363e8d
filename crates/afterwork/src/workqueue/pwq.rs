//! A pool workqueue: what links one queue to one pool.

use std::ptr::NonNull;

use sync::{
    atomic::{AtomicU32, Ordering},
    unmodelled::Arc,
};

use super::{
    active::Gate,
    colour::Colours,
    head::{Head, VTable},
    link::{Counts, PwqState, Seeker},
    list::List,
    mayday::MaydayQueue,
    pool::WorkerPool,
    probe::Probe,
    queue_core::QueueCore,
    state::Rules,
};
use crate::trace;

/// Links a queue to one of its pools; items point at it as their home.
#[derive(Debug)]
pub(crate) struct Pwq {
    /// I
    pub(crate) pool: Arc<WorkerPool>,
    /// I: its place in the pool's table.
    pub(crate) slot: usize,
    /// I
    pub(crate) core: Arc<QueueCore>,
    /// I: what its items need a seat of.
    pub(crate) gate: Arc<Gate<Seeker>>,
    /// I: where the rescuer of the queue is called, if it has one.
    pub(crate) mayday_queue: Option<Arc<MaydayQueue>>,
    /// I: the NUMA node of the pool, as the gate counts them.
    pub(crate) node: usize,
    /// A: how many of its in-flight counts belong to futures that have waited: no items of this link.
    pub(crate) nr_anchored: Arc<AtomicU32>,
    /// A: how many of its items were cancelled since tombstones were cut out of its inactive ones; see `tombstones.rs`.
    pub(crate) nr_cancelled: AtomicU32,
    /// A: how long its items wait.
    pub(crate) probe: Arc<Probe>,
    /// I: what its items are told to let happen to them.
    pub(crate) rules: Rules,
}

impl Pwq {
    /// Leaves a linked item for the workers of its pool.
    #[inline]
    pub(crate) fn push(&self, item: NonNull<Head>) {
        // Before the push: after it the item may be gone.
        // SAFETY: the caller made it pending and linked, so it stays until it is pushed.
        trace::queue_work(|| self.trace(item.as_ptr(), unsafe { item.as_ref() }.vtable()));
        self.probe.note(item);
        self.pool.push(item);
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
    pub(crate) fn hold_for_future(&self) {
        self.nr_anchored.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note that a future is about to give its in-flight count back.
    pub(crate) fn release(&self) {
        self.nr_anchored.fetch_sub(1, Ordering::Relaxed);
    }

    /// Makes the pool's side of this link, whose place is not known yet.
    pub(crate) fn state(&self, plugged: bool) -> PwqState {
        PwqState {
            core: self.core.clone(),
            gate: self.gate.clone(),
            mayday_queue: self.mayday_queue.clone(),
            node: self.node,
            inactive: List::new(),
            in_flight: Colours::default(),
            nr_adopted: 0,
            drain_waits: false,
            counts: Counts::default(),
            probe: self.probe.clone(),
            next_sample: 0,
            retired: false,
            plugged,
            heir: None,
            nr_anchored: self.nr_anchored.clone(),
        }
    }
}
