//! The end of a queue: its handles, the visits that delay the end, and the thread that destroys it.
//!
//! # The protocol
//!
//! Users have *handles*, which share one [`Lease`]. Dropping the last handle drops the lease, and
//! destroys the queue. Timers and RCU callbacks have a [`WeakQueue`], which keeps nothing alive.
//! They *visit* the queue to push an item:
//!
//! ```text
//! visitor: closed? then return;  otherwise visitors += 1 (one atomic update);
//!          claim an item, push it;  visitors -= 1;  the last visitor notifies
//! end:     closed = true;  resume;  wait for visitors = 0;  sweep timers;  drain;  remove the pwqs
//! ```
//!
//! A visit neither keeps the queue open nor prevents a handle from being the last. The end waits
//! for visitors as it waits for items. No visitor may push after the end has found the queue
//! drained, because the item would point to freed pwqs. Twin `queue: a lease without its queue`.
//!
//! # Which thread destroys the queue
//!
//! The thread that drops the last handle destroys the queue, so that all items have run when the
//! drop returns. Some threads must not wait:
//!
//! - a thread in an item of the queue, or of a bottom-half queue;
//! - a thread in a callback of RCU or of a sleepable domain;
//! - a library thread on which other threads depend ([`cleanups::note_depended_on`]);
//! - a worker outside of an item: in a waker or in a thread hook that it calls;
//! - a thread in a `tracing` subscriber that the library calls;
//! - a caller of [`Workqueue::close_in_background`](crate::Workqueue::close_in_background).
//!
//! These threads hand the end over to a reaper (`cleanups.rs`). If no reaper can be started, the
//! manager carries out the part of the end that does not block.
//!
//! The thread that destroys the queue drops the items held by timers, once there are no visitors.
//! If it is a reaper, another reaper drops them, so that a destructor that blocks does not delay
//! the end. A paused queue is resumed first, because a destructor may wait for an item. The end
//! does not unwind, because a partly destroyed queue would be freed while its items still use it.
//! Twin `queue: an end unwinds`.

use std::mem;
use std::ops::Deref;

use base::internal::panics::or_abort;
use base::internal::trace;
use base::internal::wake::lane::Lane;
use base::internal::wake::report;
use item::internal::cleanups::{self, Cleanup};
use item::internal::head::Dead;
use item::internal::panicked::Handler;
use sync::atomic::{AtomicU32, Ordering};
use sync::twin;
use sync::unmodelled::{Arc, Weak};

use super::queue::Inner;
use super::registry::Registry;
use crate::execute::run::depth;

/// The state that the handles to a queue share. Dropping it destroys the queue.
pub(crate) struct Lease {
    pub(super) inner: Arc<Inner>,
    pub(super) registry: Registry,
    /// Set if the thread that drops the lease must not wait.
    pub(crate) in_background: bool,
}

struct End {
    inner: Arc<Inner>,
    registry: Registry,
}

/// The number of visitors: threads that push an item without a handle to the queue.
///
/// bits 0..31 visitors | bit 31 closed
#[derive(Default)]
pub(crate) struct Visits(AtomicU32);

const CLOSED: u32 = 1 << 31;

/// A weak reference through which a thread can visit the queue until it is destroyed.
#[derive(Clone, Debug)]
pub(crate) struct WeakQueue {
    inner: Weak<Inner>,
    pub(super) lane: Lane,
}

/// A short-lived use of a queue. It delays the end of the queue. No user code runs during a visit;
/// events are emitted after it.
pub(crate) struct Visit<'a> {
    inner: &'a Inner,
    _held: trace::Held,
}

sync::on_drop!(Lease, lease => {
    let inner = &lease.inner;
    let end = End { inner: inner.clone(), registry: lease.registry.clone() };
    if !inner.is_at_home() {
        // The workers exist in the parent only, and their items still point to the queue.
        return mem::forget(end);
    }
    inner.visits.0.fetch_or(CLOSED, Ordering::Relaxed);
    if !lease.in_background && inner.may_end_here() {
        drop(end.sweep());
        // FOREIGN(on-panic-drop): the drop of the handler, on the thread that destroys the queue,
        // with no lock held; a panic is contained.
        drop(end.carry_out());
    } else {
        inner.manager.clone().leave_to_reapers([end]);
    }
});

impl End {
    /// Waits until the last visit has ended, and returns the items held by timers, to be dropped by
    /// a thread that may block.
    fn sweep(&self) -> Vec<Dead> {
        let inner = &*self.inner;
        whole(|| {
            // No later call pauses the queue again. The items held by timers are dropped after
            // this, and their destructors may wait for queued items.
            inner.pass_pauses();
            if !twin::armed("queue: a lease without its queue") {
                inner.core.settled.wait_until(|| inner.visits.nr_visitors() == 0);
            }
            inner.timers.sweep()
        })
    }

    /// Destroys the queue, after [`sweep`](Self::sweep). Returns the user's handler, to be dropped
    /// by a thread that may block.
    fn carry_out(&self) -> Option<Handler> {
        let inner = &*self.inner;
        whole(|| {
            inner.drain();
            // The rescuer may access a pwq, so it is stopped before the pwqs are removed.
            let rescuer = inner.rescuer.lock().take();
            drop(rescuer);
            let machine = self.registry.machine();
            machine.remove_queue(inner);
            let pwqs = inner.plan.lock().end();
            for pwq in pwqs {
                pwq.pool.lock().remove_pwq(pwq.slot);
                machine.release(&pwq.pool);
            }
            // This comes last, because a change of the group's shares reaches the pools' accounts
            // through the group's members.
            if let Some(group) = &inner.group {
                group.remove(inner);
            }
        });
        inner.core.take_handler()
    }

    /// Returns `true` if the end would not block. Does not wait.
    fn is_due(&self) -> bool {
        let inner = &*self.inner;
        inner.pass_pauses();
        if inner.visits.nr_visitors() > 0 || !inner.is_drained() {
            return false;
        }
        let rescuer = inner.rescuer.lock().take();
        // A rescuer thread that has left its loop is not waited for, because it may still be
        // dropping user thread-locals that block.
        let rescuer = rescuer.filter(|rescuer| !rescuer.has_left());
        let has_left = rescuer.is_none();
        *inner.rescuer.lock() = rescuer;
        has_left
    }
}

/// Runs a part of an end, and aborts the process if it unwinds.
fn whole<R>(part: impl FnOnce() -> R) -> R {
    if twin::armed("queue: an end unwinds") {
        return part();
    }
    or_abort("the end of a workqueue panicked", part)
}

impl Cleanup for End {
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

impl Visits {
    fn enter(&self) -> bool {
        let enter = |word| (word & CLOSED == 0).then_some(word + 1);
        // ORDER(outlast): publish and consume; both ends update this word.
        //   outlast: cancel all;  an update that changes nothing, Release;  visitors = 0?
        //   here:    visitors += 1, Acquire;  cancelled?
        // If our update comes first, the canceller counts this visit and waits for it. If the
        // canceller's update comes first, we see the cancel.
        // Test: armed_timer_is_cancelled_or_has_fired
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, enter).is_ok()
    }

    /// Returns `true` if the end may be waiting for this visit.
    fn leave(&self) -> bool {
        // ORDER(visit): publish and consume, other end in `nr_visitors`.
        //   visit: push the item;  visitors -= 1, Release
        //   end:   visitors = 0, Acquire;  is the queue drained?
        // Test: a_queue_does_not_end_while_a_timer_leaves_an_item
        self.0.fetch_sub(1, Ordering::Release) & CLOSED != 0
    }

    fn nr_visitors(&self) -> u32 {
        // ORDER(visit): other end in `leave`.
        // Test: a_queue_does_not_end_while_a_timer_leaves_an_item
        self.0.load(Ordering::Acquire) & !CLOSED
    }
}

impl WeakQueue {
    pub(crate) fn new(inner: &Arc<Inner>, lane: Lane) -> Self {
        Self { inner: Arc::downgrade(inner), lane }
    }

    /// Returns the state of the queue if it still exists. Drop the result with no lock held.
    pub(crate) fn upgrade(&self) -> Option<Arc<Inner>> {
        self.inner.upgrade()
    }
}

impl Inner {
    /// Begins a visit. Returns `None` if the queue is closed.
    pub(crate) fn visit(&self) -> Option<Visit<'_>> {
        let visit =
            self.visits.enter().then(|| Visit { inner: self, _held: trace::hold_without_span() });
        // The pause is longer than it takes to destroy a queue with few items.
        twin::linger("queue: a lease without its queue", 2, 1000);
        visit
    }

    /// Waits for a moment without visitors. Later visitors see the caller's earlier writes.
    pub(crate) fn outlast_visitors(&self) {
        // ORDER(outlast): other end in `Visits::enter`.
        // Test: armed_timer_is_cancelled_or_has_fired
        self.visits.0.fetch_or(0, Ordering::Release);
        let mut backoff = sync::Backoff::new();
        while self.visits.nr_visitors() > 0 {
            backoff.pause();
        }
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.visits.0.load(Ordering::Relaxed) & CLOSED != 0
    }

    fn may_end_here(&self) -> bool {
        // A worker outside of an item can get here from a waker or a thread hook, and may have
        // items in its local batch.
        let others_depend = || cleanups::others_depend(depth() > 0);
        let others_depend = || trace::is_emitting() || others_depend();
        let may_wait = || report::may_wait_for_users() && !others_depend();
        !self.waits_for_this_thread() && (twin::armed("queue: an end unwinds") || may_wait())
    }
}

impl Deref for Visit<'_> {
    type Target = Inner;
    fn deref(&self) -> &Inner {
        self.inner
    }
}

sync::on_drop!(Visit<'_>, it => if it.inner.visits.leave() {
    it.inner.core.settled.notify_all();
});
