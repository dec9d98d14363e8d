//! The seats that a thread needs to run items of a pwq: one in its queue, and if the queue is in a
//! group, one in the group.
//!
//! # The protocol
//!
//! Each gate works as `limit/active.rs` describes. A pwq *climbs* from the gate of its queue to
//! that of its group, and holds the queue's seat while it waits for one in the group:
//!
//! ```text
//! climb:  enter the queue's gate, or wait there with nothing;
//!         enter the group's gate, or wait there with the queue's seat;  ready
//! passed: a pwq that gets a seat of its queue climbs on;  one that gets one of its group is ready
//! leave:  the group's seat, then the queue's, which keeps the pwq
//! help:   try the group, then the queue;  if the queue has no seat, leave the group.  Never wait
//! ```
//!
//! Each step of a climb is made with the pwq's pool locked. A seat is never free while a pwq waits
//! for it. Each gate guarantees this for its own waiters. A pwq between two gates is handled by one
//! thread, which locks the pwq's pool and climbs.
//!
//! Only a pwq that waits for its group holds a seat while it waits, and a group waits for nothing,
//! so seats alone cause no deadlock. No thread sleeps for a seat.
//!
//! # A pwq without items
//!
//! The items of a waiting pwq may be cancelled. If it waits at its queue's gate, it holds nothing.
//! When it gets that seat, it does not climb, and passes the seat on. If it waits at the group's
//! gate, it holds a seat that delays the queue's drain, which may have nothing else to wait for. A
//! drain check therefore withdraws it ([`WorkerPool::is_drained`]). If it gets the group's seat
//! first, a worker finds it without items and leaves both gates.
//!
//! # Rescuers
//!
//! A queue with a rescuer must make progress even if no worker can be started, and the seats of its
//! group may be held by pwqs that wait for a worker. Its rescuer therefore takes a seat in the
//! group even if none is free.
//!
//! # Lending
//!
//! `execute/lend.rs` returns the group's seat while the thread that holds it waits.

use std::mem;

use sync::{twin, unmodelled::Arc};

use super::{
    dispatch::Dispatch,
    pool::{PoolGuard, WorkerPool},
    pwq::{Pwq, WaitingPwq},
    worker::Worker,
};
use crate::limit::active::{Gate, Holds, ReleaseEffects};

/// The gate at which a pwq waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    Queue,
    Group,
}

/// The gate of a group.
pub(crate) type GroupGate = Arc<Gate<WaitingPwq>>;

/// The seats that a helper holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HelperSeats {
    pub(crate) of_queue: Holds,
    /// `true` if the helper acquired a seat in the group.
    pub(crate) of_group: bool,
}

/// The effects of a helper's release.
#[must_use = "waiters that got seats must be notified"]
pub(crate) struct HelperLeft {
    of_queue: ReleaseEffects<WaitingPwq>,
    of_group: Option<WaitingPwq>,
}

impl Pwq {
    /// Returns `true` if a worker may keep its seats for more items.
    pub(crate) fn may_stay(&self) -> bool {
        self.gate.may_stay() && self.group.as_ref().is_none_or(|group| group.may_stay())
    }

    /// Acquires a helper's seats. `lent` is `true` if an outer run of the queue on this thread
    /// lends its seat. `counts` returns `true` if this thread has a seat in the group.
    #[inline]
    pub(crate) fn try_help(
        &self,
        lent: bool,
        counts: impl FnOnce(&GroupGate) -> bool,
    ) -> Option<HelperSeats> {
        let group = self.group.as_ref().filter(|group| !counts(group));
        if group.is_some_and(|group| !group.try_enter(0)) {
            return None;
        }
        let of_queue = self.gate.try_help(self.node as usize, lent);
        if of_queue.is_none()
            && group.is_some()
            && !twin::armed("group: a refused helper keeps its seat")
            && let Some(waiter) = self.leave_group()
        {
            waiter.take_seat();
        }
        let of_group = group.is_some();
        of_queue.map(|of_queue| HelperSeats { of_queue, of_group })
    }

    /// Releases a helper's seats. The queue may be destroyed before this returns.
    ///
    /// # Safety
    ///
    /// 1. `this` is valid until the queue's seat has been released.
    #[inline]
    pub(crate) unsafe fn leave_last(this: *const Self, seats: HelperSeats) -> HelperLeft {
        // SAFETY: (1): we still have the queue's seat.
        let of_group = || unsafe { &*this }.leave_group();
        let of_group = seats.of_group.then(of_group).flatten();
        // SAFETY: (1).
        let of_queue = unsafe {
            let (gate, core) = (&raw const (*this).gate, &raw const (*this).core);
            Gate::leave_last(gate, core, (*this).node as usize, seats.of_queue)
        };
        HelperLeft { of_queue, of_group }
    }

    /// Returns `true` if the queue is in the group with this gate.
    pub(crate) fn is_in(&self, group: &GroupGate) -> bool {
        self.group.as_ref().is_some_and(|its| Arc::ptr_eq(its, group))
    }

    /// Releases a seat in the group, if the queue is in one. Returns the pwq that gets it.
    pub(crate) fn leave_group(&self) -> Option<WaitingPwq> {
        let group = self.group.as_ref()?;
        // No thread waits until a group has no seat in use, so `settled` is never notified.
        Gate::leave(group, &self.core, 0, Holds::Seat).waiter
    }

    fn waiter(&self, level: Level) -> WaitingPwq {
        WaitingPwq { pool: self.pool.clone(), slot: self.slot, level }
    }
}

impl HelperLeft {
    /// Applies the effects. Call it with no lock held.
    #[inline]
    pub(crate) fn apply(self) {
        let Self { of_queue: ReleaseEffects { waiter, settled }, of_group } = &self;
        if waiter.is_some() || settled.is_some() || of_group.is_some() {
            self.apply_any();
        } else {
            // There is nothing to drop either.
            mem::forget(self);
        }
    }

    #[cold]
    fn apply_any(self) {
        if let Some(core) = self.of_queue.settled {
            core.settled.notify_all();
        }
        let waiters = [self.of_group, self.of_queue.waiter];
        waiters.into_iter().flatten().for_each(WaitingPwq::take_seat);
    }
}

impl WaitingPwq {
    /// Notifies the pool that the pwq got a seat. The caller holds no pool lock.
    pub(crate) fn take_seat(self) {
        let mut next = Some(self);
        while let Some(waiter) = next.take() {
            let pool = waiter.pool.clone();
            pool.add_work(|guard| next = guard.accept(waiter));
        }
    }
}

impl Dispatch {
    /// Acquires the seats that a pwq needs, or makes it wait at the first gate without a free one.
    pub(crate) fn enter_or_queue(&self, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        pwq.gate.enter_or_queue(pwq.node as usize, || pwq.waiter(Level::Queue)) && self.climb(slot)
    }

    /// Acquires a seat in the group for a pwq that has one in its queue.
    fn climb(&self, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        let Some(group) = &pwq.group else {
            return true;
        };
        group.enter_in_turn(&pwq.core, || pwq.waiter(Level::Group))
    }

    /// Withdraws a pwq from the wait queue of its group. It keeps its seat in the queue.
    fn withdraw(&self, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        let is_it =
            |waiter: &WaitingPwq| waiter.slot == slot && Arc::ptr_eq(&waiter.pool, &pwq.pool);
        let group = pwq.group.as_ref();
        group.is_some_and(|group| group.withdraw(is_it))
    }
}

impl PoolGuard<'_> {
    /// Accepts a seat for a pwq of this pool. Returns the next waiter if the pwq does not need it.
    #[must_use = "the next waiter must be notified"]
    fn accept(&mut self, waiter: WaitingPwq) -> Option<WaitingPwq> {
        let WaitingPwq { slot, level, .. } = waiter;
        let pwq = self.pwq(slot);
        let climbs = level == Level::Queue && pwq.group.is_some();
        if climbs && !twin::armed("group: a passed seat does not climb") {
            if !pwq.has_waiting() && !twin::armed("group: an emptied pwq climbs") {
                return self.leave_queue(slot);
            }
            if !self.climb(slot) {
                return None;
            }
        }
        self.seat(slot);
        None
    }

    /// Releases a seat in a queue. Returns the pwq that gets it.
    #[must_use = "the next waiter must be notified"]
    fn leave_queue(&mut self, slot: usize) -> Option<WaitingPwq> {
        let pwq = self.dispatch.pwq(slot);
        let left = Gate::leave(&pwq.gate, &pwq.core, pwq.node as usize, Holds::Seat);
        self.effects.settled.extend(left.settled);
        left.waiter
    }

    /// Transfers a seat to a pwq: at once if it is in this pool, otherwise after the pool is
    /// unlocked.
    fn pass(&mut self, waiter: Option<WaitingPwq>) {
        let mut next = waiter;
        while let Some(waiter) = next.take() {
            if Arc::ptr_eq(self.pool(), &waiter.pool) {
                next = self.accept(waiter);
            } else {
                self.effects.seats.push(waiter);
            }
        }
    }

    pub(crate) fn give_up_seat(&mut self, worker: &Worker) {
        let Some(slot) = self.enlisted_mut(worker).seat.take() else {
            return;
        };
        let of_group = self.pwq(slot).leave_group();
        self.pass(of_group);
        let of_queue = self.leave_queue(slot);
        self.pass(of_queue);
        self.rest_group(slot);
    }

    /// Releases the seat that a pwq without items holds while it waits for one in its group.
    fn withdraw_emptied(&mut self, slot: usize) {
        while self.withdraw(slot) {
            let next = self.leave_queue(slot);
            self.pass(next);
        }
    }

    /// If a pwq waits for its group, takes a seat in the group for it, even if none is free. A
    /// rescuer calls this.
    pub(crate) fn seat_for_rescuer(&mut self, slot: usize) {
        if self.withdraw(slot) {
            if let Some(group) = &self.pwq(slot).group {
                group.count();
            }
            self.seat(slot);
        }
    }
}

impl WorkerPool {
    /// If no item of a pwq is in flight, returns how many items it has ever adopted. Otherwise the
    /// queue's `settled` is notified when no item is in flight any more.
    pub(crate) fn is_drained(self: &Arc<Self>, slot: usize) -> Option<u64> {
        let mut guard = self.lock_to_act();
        guard.adopt(&self.injector);
        let pwq = guard.pwq_mut(slot);
        pwq.drain_waits = pwq.in_flight.nr_in_flight() > 0;
        let (waits, nr_adopted) = (pwq.drain_waits, pwq.nr_adopted);
        if waits {
            return None;
        }
        if !twin::armed("group: an emptied pwq keeps its seat") {
            guard.withdraw_emptied(slot);
        }
        Some(nr_adopted)
    }
}
