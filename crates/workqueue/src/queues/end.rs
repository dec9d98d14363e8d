//! How a queue ends: who keeps it, who only visits it, and who carries the end out.
//!
//! # The protocol
//!
//! Users have *handles*, which share one [`Lease`]. With the last handle the lease goes, once, and the queue ends. Timers
//! and callbacks of RCU have a [`WeakQueue`], which keeps nothing. To leave an item they *visit* the queue:
//!
//! ```text
//! visitor: closed? then go, else visitors += 1 (one step);  claim an item, push it;  visitors -= 1;  the last one tells
//! end:     closed = true;  resume;  wait for visitors = 0;  sweep timers;  wait until all is drained;  unlink
//! ```
//!
//! A visit is no handle: it neither keeps the queue open nor keeps the drop of the last handle from being that. The end
//! waits for visitors as it does for items. What must never happen is a push after the end has seen the queue drained:
//! the item would point at links that are gone. Twin `queue: a lease without its queue`.
//!
//! # Which thread ends the queue
//!
//! The thread that drops the last handle ends the queue, so that all items have run when the drop
//! returns. Some threads must not wait:
//!
//! - a thread in an item of the queue, or of a bottom-half queue;
//! - a thread in a callback of RCU or of a sleepable domain;
//! - a library thread on which other threads depend ([`errands::waits_for_nobody`]);
//! - a worker outside of an item: in a waker or in a thread hook that it calls;
//! - a thread in a `tracing` subscriber that the library calls;
//! - a caller of [`Workqueue::close_in_background`].
//!
//! These threads hand the end over to a reaper (`errands.rs`). If no reaper can be started, the
//! manager does the part of the end that does not block.
//!
//! Items held by timers are dropped once there are no visitors. The thread that ends the queue
//! drops them; if that thread is a reaper, another reaper does, so that a destructor that blocks
//! does not delay the end. A paused queue is resumed first, because the destructor may wait for an
//! item.
//!
//! The end does not unwind: a queue that it left half-way would be freed under its items. Twin `queue: an end unwinds`.

use std::{fmt, mem, ops::Deref};

use base::internal::{panics::or_abort, trace, wake::report};
use sync::{
    atomic::{AtomicU32, Ordering},
    twin,
    unmodelled::{Arc, Weak},
};

use super::{
    queue::{Inner, Workqueue},
    registry::Registry,
};
use crate::{
    errands::{self, Errand},
    execute::current::depth,
    item::{handles::Dead, lane::Lane},
    limit::queue_core::Handler,
};

/// What the handles of a queue share; its drop is the end of the queue.
pub(crate) struct Lease {
    inner: Arc<Inner>,
    registry: Registry,
    /// Whether whoever drops it does not wait.
    in_background: bool,
}

/// The end of a queue, still to be carried out.
struct End {
    inner: Arc<Inner>,
    registry: Registry,
}

/// Who is in the middle of leaving an item in a queue without having a handle of it.
///
/// bits 0..31 visitors | bit 31 closed
#[derive(Debug)]
pub(crate) struct Visits(AtomicU32);

const CLOSED: u32 = 1 << 31;

/// What becomes a visit, if the queue has not ended.
#[derive(Clone, Debug)]
pub(crate) struct WeakQueue(Weak<Inner>, Lane);

/// A short-lived use of a queue, which does not end before the visit is over. No user code runs
/// during a visit; events are emitted after it.
pub(crate) struct Visit<'a> {
    inner: &'a Inner,
    _held: trace::Held,
}

impl Lease {
    pub(crate) fn new(inner: &Arc<Inner>, registry: &Registry) -> Self {
        Self {
            inner: inner.clone(),
            registry: registry.clone(),
            in_background: false,
        }
    }

    pub(crate) fn registry(&self) -> &Registry {
        &self.registry
    }
}

impl Workqueue {
    /// Lets go of this handle; if it was the last, a reaper ends the queue.
    pub(crate) fn end_in_background(self) {
        let Self { inner, lease, .. } = self;
        drop(inner);
        if let Some(mut lease) = Arc::into_inner(lease) {
            lease.in_background = true;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        let end = End {
            inner: self.inner.clone(),
            registry: self.registry.clone(),
        };
        if !self.inner.is_at_home() {
            // Its workers are its parent's, and items that they had point at it.
            return mem::forget(end);
        }
        self.inner.visits.close();
        if !self.in_background && self.inner.may_end_here() {
            drop(end.sweep());
            // FOREIGN(on-panic-drop): on the thread that ends the queue, with no lock held; contained by `Foreign`.
            drop(end.carry_out());
        } else {
            let manager = self.inner.manager.clone();
            manager.leave_to_reapers([end]);
        }
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("End").field(&self.inner.core.name).finish()
    }
}

impl End {
    /// Waits until the last visitor has gone, and takes back what waits for its time: to be dropped where that may wait.
    fn sweep(&self) -> Vec<Dead> {
        whole(|| self.inner.sweep())
    }

    /// Ends the queue, after [`sweep`](Self::sweep). Returns what is a user's, to be dropped likewise.
    fn carry_out(&self) -> Option<Handler> {
        whole(|| self.inner.end(&self.registry));
        self.inner.core.take_handler()
    }

    /// Returns `true` if nothing is left to wait for. Does not wait.
    fn is_due(&self) -> bool {
        let inner = &*self.inner;
        inner.set_paused(false);
        if inner.visits.nr_visitors() > 0 || !inner.is_drained() {
            return false;
        }
        let rescuer = inner.rescuer.lock().take();
        // One that has left is not waited for: locals of its thread may yet be dropped, users' ones that wait for anything.
        let rescuer = rescuer.filter(|rescuer| !rescuer.has_left());
        let has_left = rescuer.is_none();
        *inner.rescuer.lock() = rescuer;
        has_left
    }
}

/// Does a part of an end, which does not unwind.
fn whole<R>(part: impl FnOnce() -> R) -> R {
    if twin::armed("queue: an end unwinds") {
        return part();
    }
    or_abort("the end of a workqueue panicked", part)
}

impl Errand for End {
    fn run(self: Box<Self>) {
        self.inner.manager.leave_to_reapers(self.sweep());
        // FOREIGN(on-panic-drop): as above, on a reaper.
        drop(self.carry_out());
    }

    fn waits(&self) -> bool {
        true
    }

    fn try_run(&mut self) -> bool {
        let is_due = self.is_due();
        if is_due {
            self.inner.manager.leave_to_reapers(self.sweep());
            self.inner.manager.leave_to_reapers(self.carry_out());
        }
        is_due
    }
}

// To drop a handler of panics is all there is to it.
impl Errand for Handler {}

impl Visits {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn enter(&self) -> bool {
        let enter = |word| (word & CLOSED == 0).then_some(word + 1);
        // ORDER(outlast): publish and consume; both ends are steps of this word.
        //   outlast: all is cancelled;  a step that changes nothing, Release;  visitors = 0?
        //   here:    visitors += 1, Acquire;  cancelled?
        // If our step comes first, we are counted, and waited for. If the other's step comes first, we see what came before it.
        // Test: what_was_armed_is_cancelled_or_fired_before
        self.0
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, enter)
            .is_ok()
    }

    /// Returns `true` if the end may wait for this.
    fn leave(&self) -> bool {
        // ORDER(visit): publish and consume, other end in `nr_visitors`.
        //   visit: push the item;  visitors -= 1, Release
        //   end:   visitors = 0, Acquire;  is the queue drained?
        // Test: a_queue_does_not_end_while_a_timer_leaves_an_item
        self.0.fetch_sub(1, Ordering::Release) & CLOSED != 0
    }

    fn close(&self) {
        self.0.fetch_or(CLOSED, Ordering::Relaxed);
    }

    fn is_closed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & CLOSED != 0
    }

    fn nr_visitors(&self) -> u32 {
        // ORDER(visit): other end in `leave`.
        // Test: a_queue_does_not_end_while_a_timer_leaves_an_item
        self.0.load(Ordering::Acquire) & !CLOSED
    }
}

impl WeakQueue {
    pub(crate) fn new(inner: &Arc<Inner>, lane: Lane) -> Self {
        Self(Arc::downgrade(inner), lane)
    }

    /// Returns the lane to which the handle led that it was made from.
    pub(crate) fn lane(&self) -> Lane {
        self.1
    }

    /// Returns the queue's inside if that is still there. Drop it with no lock held.
    pub(crate) fn upgrade(&self) -> Option<Arc<Inner>> {
        self.0.upgrade()
    }
}

impl Inner {
    /// Begins a visit; none when the queue has ended, or is about to.
    pub(crate) fn visit(&self) -> Option<Visit<'_>> {
        let visit = self.visits.enter().then(|| Visit {
            inner: self,
            _held: trace::hold_without_span(),
        });
        // Longer than a queue with few items takes to end.
        twin::linger("queue: a lease without its queue", 2, 1000);
        visit
    }

    /// Waits until nobody visits, for a moment at least: who comes later sees what the caller did before.
    pub(crate) fn outlast_visitors(&self) {
        // ORDER(outlast): the other end is in `Visits::enter`.
        // Test: what_was_armed_is_cancelled_or_fired_before
        self.visits.0.fetch_or(0, Ordering::Release);
        let mut patience = sync::Patience::new();
        while self.visits.nr_visitors() > 0 {
            patience.pause();
        }
    }

    /// Returns `true` if the last handle has gone.
    pub(crate) fn has_ended(&self) -> bool {
        self.visits.is_closed()
    }

    /// Returns `true` if this thread may wait for the end.
    fn may_end_here(&self) -> bool {
        // A worker that is in no item may be told of an end, or begin, or leave; and may have items in hand.
        let others_depend = || errands::others_depend(depth() > 0);
        let others_depend = || trace::is_telling() || others_depend();
        let may_wait = || report::may_wait_for_users() && !others_depend();
        !self.runs_here() && (twin::armed("queue: an end unwinds") || may_wait())
    }

    fn sweep(&self) -> Vec<Dead> {
        // No call pauses the queue again. The items held by timers are dropped after this, and
        // their destructors may wait for queued items.
        self.set_paused(false);
        if !twin::armed("queue: a lease without its queue") {
            let settled = &self.core.settled;
            settled.wait_until(|| self.visits.nr_visitors() == 0);
        }
        self.timers.sweep()
    }

    /// Waits until all has run, and lets go of the pools.
    fn end(self: &Arc<Self>, registry: &Registry) {
        self.drain();
        // Before the links go: it may still look into one.
        let rescuer = self.rescuer.lock().take();
        if let Some(rescuer) = rescuer {
            rescuer.end();
        }
        let machine = registry.machine();
        machine.remove_queue(Arc::<Inner>::as_ptr(self));
        let links = self.plan.lock().end();
        for link in links {
            link.pool.remove_link(link.slot);
            machine.release(&link.pool);
        }
    }
}

impl Deref for Visit<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        self.inner
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if !twin::torn_down() && self.inner.visits.leave() {
            self.inner.core.settled.notify_all();
        }
    }
}
