//! How a queue ends: who keeps it, who only visits it, and who carries the end out.
//!
//! # The protocol
//!
//! Users have *handles*, which share one [`Lease`]. With the last handle the lease goes, once, and the queue ends. Timers
//! and callbacks of RCU have a [`WeakQueue`], which keeps nothing. To leave an item they *visit* the queue:
//!
//! ```text
//! visitor: closed? then go, else visitors += 1 (one step);  claim an item, push it;  visitors -= 1;  the last one tells
//! end:     closed = true;  wait for visitors = 0;  wait until all is drained;  unlink
//! ```
//!
//! A visit is no handle: it neither keeps the queue open nor keeps the drop of the last handle from being that. The end
//! waits for visitors as it does for items. What must never happen is a push after the end has seen the queue drained:
//! the item would point at links that are gone. Twin `queue: a lease without its queue`.
//!
//! # Who carries it out
//!
//! The thread that drops the last handle, for then all items have run when the drop returns. But some threads must not
//! wait: one inside an item of the queue, or of a bottom-half queue; one in a callback of RCU; one of ours on which others
//! depend ([`waits_for_nobody`]). They leave the end to a thread of its own. Where that is refused, the manager asks for
//! one again, and carries out itself what need not wait any more.
//!
//! The end does not unwind: a queue that it left half-way would be freed under its items. Twin `queue: an end unwinds`.

use std::{cell::Cell, fmt, mem, ops::Deref};

use sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
    thread, twin,
    unmodelled::{Arc, Weak},
};

use super::{manager::Manager, queue::Inner, queue_core::Handler, registry::Registry};
use crate::{panics::or_abort, rcu, wake::report};

/// The first and the longest pause before a thread is asked for again. Those of the manager for its workers.
const RETRY_NS: u64 = 10_000_000;
const RETRY_MAX_NS: u64 = 1_000_000_000;

/// What the handles of a queue share; its drop is the end of the queue.
pub(super) struct Lease {
    inner: Arc<Inner>,
    registry: Registry,
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
pub(super) struct Visits(AtomicU32);

const CLOSED: u32 = 1 << 31;

/// What becomes a visit, if the queue has not ended.
#[derive(Clone, Debug)]
pub(super) struct WeakQueue(Weak<Inner>);

/// A stay in a queue, which does not end before it is over. It is short: no user's code runs in it.
pub(super) struct Visit<'a>(&'a Inner);

sync::thread_local! {
    /// Whether others depend on this thread.
    static WAITS_FOR_NOBODY: Cell<bool> = Cell::new(false)
}

/// Notes that others depend on this thread, so that it must wait for no queue's end.
pub(super) fn waits_for_nobody() {
    WAITS_FOR_NOBODY.with(|place| place.set(true));
}

impl Lease {
    pub(super) fn new(inner: &Arc<Inner>, registry: &Registry) -> Self {
        Self {
            inner: inner.clone(),
            registry: registry.clone(),
        }
    }

    pub(super) fn registry(&self) -> &Registry {
        &self.registry
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
        if self.inner.may_end_here() {
            // FOREIGN(on-panic-drop): on the thread that ends the queue, with no lock held; contained by `Foreign`.
            drop(end.carry_out());
        } else {
            end.hand_over();
        }
    }
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("End").field(&self.inner.core.name).finish()
    }
}

impl End {
    /// Ends the queue. Returns what is a user's, to be dropped where that may wait.
    fn carry_out(self) -> Option<Handler> {
        let end = || self.inner.end(&self.registry);
        if twin::armed("queue: an end unwinds") {
            end();
        } else {
            or_abort("the end of a workqueue panicked", end);
        }
        self.inner.core.take_handler()
    }

    /// Leaves it to another thread.
    fn hand_over(self) {
        let manager = self.inner.manager.clone();
        manager.ends.0.lock().waiting.push(self);
        if !manager.start_reaper() {
            manager.ends.0.lock().refused.get_or_insert((0, 0));
            manager.wake();
        }
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

/// Ends that were handed over and that no thread has taken.
#[derive(Debug, Default)]
pub(super) struct Ends(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    waiting: Vec<End>,
    /// What is left of queues that the manager has ended: to drop it is users' code, which may wait for the manager.
    left: Vec<Handler>,
    /// A thread for them was refused: when to ask again, after what pause.
    refused: Option<(u64, u64)>,
}

impl Ends {
    /// Returns when to call [`Manager::see_to_ends`] next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        self.0.lock().refused.map(|(next_ns, _)| next_ns)
    }

    /// Returns `true` if it is time to ask again for a thread, and puts the next time off.
    fn is_time(&self, now_ns: u64) -> bool {
        let mut ends = self.0.lock();
        if ends.waiting.is_empty() && ends.left.is_empty() {
            ends.refused = None;
        }
        let Some((next_ns, pause_ns)) = &mut ends.refused else {
            return false;
        };
        let is_time = now_ns >= *next_ns;
        if is_time {
            *pause_ns = (*pause_ns * 2).clamp(RETRY_NS, RETRY_MAX_NS);
            *next_ns = now_ns.saturating_add(*pause_ns);
        }
        is_time
    }
}

impl Manager {
    /// Starts a thread for the ends that wait; returns `true` if it could be had.
    fn start_reaper(self: &Arc<Self>) -> bool {
        let manager = self.clone();
        let reap = move || {
            loop {
                let mut ends = manager.ends.0.lock();
                let (next, left) = (ends.waiting.pop(), ends.left.pop());
                drop(ends);
                if next.is_none() && left.is_none() {
                    return;
                }
                // FOREIGN(on-panic-drop): as above, on a reaper.
                drop((left, next.map(End::carry_out)));
            }
        };
        !self.refuses_threads() && thread::spawn("aw/reaper", reap).is_ok()
    }

    /// Asks again for a thread for the ends that wait, and carries out those that need not wait where none can be had.
    pub(super) fn see_to_ends(self: &Arc<Self>, now_ns: u64) {
        if !self.ends.is_time(now_ns) || self.start_reaper() {
            return;
        }
        let waiting = mem::take(&mut self.ends.0.lock().waiting);
        let (due, others): (Vec<_>, Vec<_>) = waiting.into_iter().partition(End::is_due);
        self.ends.0.lock().waiting.extend(others);
        for end in due {
            let left = end.carry_out();
            self.ends.0.lock().left.extend(left);
        }
    }
}

impl Visits {
    pub(super) fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    fn enter(&self) -> bool {
        let enter = |word| (word & CLOSED == 0).then_some(word + 1);
        self.0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
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
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self(Arc::downgrade(inner))
    }

    /// Returns the queue's inside if that is still there. Drop it with no lock held.
    pub(super) fn upgrade(&self) -> Option<Arc<Inner>> {
        self.0.upgrade()
    }
}

impl Inner {
    /// Begins a visit; none when the queue has ended, or is about to.
    pub(super) fn visit(&self) -> Option<Visit<'_>> {
        let visit = self.visits.enter().then(|| Visit(self));
        twin::linger("queue: a lease without its queue");
        visit
    }

    /// Returns `true` if the last handle has gone.
    pub(super) fn has_ended(&self) -> bool {
        self.visits.is_closed()
    }

    /// Returns `true` if this thread may wait for the end.
    fn may_end_here(&self) -> bool {
        let others_depend = || WAITS_FOR_NOBODY.try_with(Cell::get).unwrap_or(false);
        let may_wait = || report::may_sleep() && !rcu::in_callback() && !others_depend();
        !self.runs_here() && (twin::armed("queue: an end unwinds") || may_wait())
    }

    /// Waits until all has run, and lets go of the pools.
    fn end(self: &Arc<Self>, registry: &Registry) {
        if !twin::armed("queue: a lease without its queue") {
            let settled = &self.core.settled;
            settled.wait_until(|| self.visits.nr_visitors() == 0);
        }
        self.set_paused(false);
        self.drain();
        // Before the links go: it may still look into one.
        let rescuer = self.rescuer.lock().take();
        if let Some(rescuer) = rescuer {
            rescuer.end();
        }
        let machine = registry.machine();
        machine.remove_queue(self);
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
        self.0
    }
}

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        if !twin::torn_down() && self.0.visits.leave() {
            self.0.core.settled.notify_all();
        }
    }
}
