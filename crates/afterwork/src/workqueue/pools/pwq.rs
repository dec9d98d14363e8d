//! A pool workqueue: what links one queue to one pool.

use std::{
    ops::Deref,
    ptr::{self, NonNull},
};

use sync::{
    atomic::{AtomicU32, Ordering},
    unmodelled::Arc,
};

use super::{
    link::{Counts, PwqState, Seeker},
    mayday::MaydayQueue,
    pool::WorkerPool,
};
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
#[derive(Debug)]
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
    /// A: how many of its in-flight counts belong to futures that have waited: no items of this link.
    pub(crate) nr_anchored: Arc<AtomicU32>,
    /// A: how many of its items were cancelled since tombstones were cut out of its inactive ones; see `tombstones.rs`.
    pub(crate) nr_cancelled: AtomicU32,
    /// A: how long its items wait.
    pub(crate) probe: Arc<Probe>,
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

impl Deref for Pwq {
    type Target = Home;

    #[inline]
    fn deref(&self) -> &Home {
        &self.home
    }
}
