//! Cancels items that were removed from the lists of pool workqueues.
//!
//! # The order
//!
//! Cancelling many items takes five steps. Each step is done for all items of all pool workqueues
//! before the next one begins:
//!
//! 1. *Begin.* Each item makes the transition that begins a run, so no worker or joiner starts it.
//! 2. *End.* Each item makes the transition that ends a run. Threads that wait for it are woken.
//! 3. *Release.* The items' capacity and their in-flight counts are released. Threads that wait for
//!    capacity, a flush or a drain are woken.
//! 4. *Wake.* The wakers of tasks that waited for any of these are called. Wakers that never
//!    block come first: those of futures, of task sets, and of threads in `block_on`.
//! 5. *Drop.* Closures, futures and items without handles are dropped.
//!
//! The first three steps run no user code. A waker or a destructor that waits for another of the
//! items, for capacity or for a flush therefore never waits for a later step of its own thread.
//! Steps 2 and 3 set aside the wakers that they collect ([`cleanups::with_wakers_aside`]).

use std::ptr::NonNull;
use std::task::Waker;

use base::internal::panics::Foreign;
use item::internal::cleanups::{self, Cleanup};
use item::internal::deferred_drops::{DeferredDrops, deferred_drop};
use item::internal::head::{Dead, Ending, Head};
use item::internal::list::{self, Color, NR_COLORS};
use item::internal::memory;
use item::internal::revival::Revivable;
use sync::unmodelled::Arc;

use super::run;
use crate::pools::cut::Cut;
use crate::pools::pool::WorkerPool;
use crate::pools::pwq::Pwq;

/// Items that are being cancelled, and whose runs have begun. They still count as in flight.
#[derive(Default)]
#[must_use = "threads wait for them until they have been ended"]
pub(crate) struct Cancelled {
    parts: Vec<Part>,
    pub(crate) rest: Aftermath,
    /// The number of users' pending and delayed items that have been cancelled.
    pub(crate) nr_items: usize,
}

struct Part {
    pwq: Arc<Pwq>,
    deferred_drops: DeferredDrops,
    nr_ended: [usize; NR_COLORS],
}

/// User code that remains to be called after items have been cancelled.
#[derive(Default)]
#[must_use = "tasks wait until it has been called"]
pub(crate) struct Aftermath {
    /// The wakers, which are called before anything is dropped.
    pub(crate) wakers: Vec<Foreign<Waker>>,
    pub(crate) dropped: Vec<Box<dyn Cleanup>>,
}

impl Cancelled {
    /// Counts a delayed item that was removed from the wheel. If it is `dead`, it is freed later.
    pub(crate) fn add_due(&mut self, dead: Option<Dead>) {
        self.nr_items += 1;
        self.rest.dropped.extend(dead.map(deferred_drop));
    }

    /// Begins the cancellation of items. None of them starts after this. Runs no user code.
    pub(crate) fn add(&mut self, mut cut: Cut) {
        let mut deferred_drops = DeferredDrops::default();
        let mut nr_ended = [0; NR_COLORS];
        while let Some(item) = cut.items.pop_front() {
            let color = list::color(item);
            // SAFETY: the item is linked, or has no state, so it is alive. We hold its only link.
            let popped = unsafe { (item.as_ref().vtable().cancel)(item, &mut deferred_drops) };
            nr_ended[usize::from(color.0)] += usize::from(popped.counts());
            self.nr_items += usize::from(popped.ran());
        }
        self.nr_items = self.nr_items.saturating_add_signed(deferred_drops.nr_more);
        self.parts.push(Part { pwq: cut.pwq, deferred_drops, nr_ended });
    }

    /// Ends the items, releases capacity and counts, and runs no user code. Call it with no lock
    /// held.
    pub(crate) fn end(self) -> Aftermath {
        let Self { mut parts, mut rest, .. } = self;
        let ((), wakers) = cleanups::with_wakers_aside(|| {
            for part in &mut parts {
                rest.dropped.append(&mut part.deferred_drops.dropped);
                for item in std::mem::take(&mut part.deferred_drops.taken) {
                    // SAFETY: `add` began the item's run, which is ours to end.
                    rest.add(unsafe { run::end(item, Ending::Returned) });
                }
            }
            for Part { pwq, deferred_drops, .. } in &parts {
                if let Some(capacity) = pwq.core.capacity.as_deref() {
                    capacity.release(deferred_drops.nr_places);
                }
            }
            memory::flush();
            // The queue may be destroyed once the last count of a part is released.
            for Part { pwq, nr_ended, .. } in parts {
                let mut guard = pwq.pool.lock_to_act();
                for (place, count) in nr_ended.into_iter().enumerate() {
                    if count > 0 {
                        guard.retire_from(pwq.slot, Color(place as u8), count);
                    }
                }
            }
        });
        rest.wakers.extend(wakers);
        rest
    }
}

impl Aftermath {
    fn add(&mut self, rest: run::Rest) {
        self.wakers.extend(rest.waker);
        self.dropped.extend(rest.dead.map(deferred_drop));
        if let Some(mut other) = rest.cancelled {
            self.wakers.append(&mut other.wakers);
            self.dropped.append(&mut other.dropped);
        }
    }

    /// Calls the remaining user code, beginning with all wakers. Call it with no lock held.
    pub(crate) fn run(self) {
        if cleanups::fire_all(self.wakers) {
            self.dropped.into_iter().for_each(|what| what.run());
            memory::flush();
        } else {
            std::mem::forget(self.dropped);
        }
    }
}

/// Puts an item that is counted in flight back at the front of its pwq's list. Cancels it instead
/// if it was queued before the pwq's last bulk cancel. A `revived` item was queued more recently
/// than its list position suggests. Call this function with no lock held.
pub(crate) fn put_back(
    pool: &Arc<WorkerPool>,
    item: NonNull<Head>,
    revived: Option<&Revivable>,
) -> Option<Box<Aftermath>> {
    let cut = pool.put_back(item, revived)?;
    let mut cancelled = Cancelled::default();
    cancelled.add(cut);
    Some(Box::new(cancelled.end()))
}
