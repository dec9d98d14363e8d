//! The seats that a thread needs to run items of a pwq: one in its queue, and if the queue is in a
//! group, one in the group.
//!
//! # The protocol
//!
//! Each gate works as `limit/active.rs` describes. A pwq that has items in its own lists *climbs*
//! from the gate of its queue to that of its group:
//!
//! ```text
//! wait:   enter the queue's gate, or wait there with nothing;  ready
//! turn:   a worker arrives, and the pwq is the first in ready:
//!         enter the group's gate, or wait there with the queue's seat;  the worker takes its items
//! passed: a pwq that gets a seat of its queue is ready;  one that gets one of its group is seated,
//!         and the next worker takes its items
//! leave:  the group's seat, then the queue's, which keeps the pwq
//! help:   try the group, then the queue;  if the queue has no seat, leave the group.  Never wait
//! ```
//!
//! *A ready pwq holds no seat in its group.* In a busy pool it may wait for a long time, and its
//! group may have queues in other pools. Twin `group: a seat is held while the pwq waits for its
//! turn`. A seated pwq had its turn before, so it is served before all ready ones. It keeps the
//! group's seat until a worker of its pool has ended a batch.
//!
//! *A passed seat is checked before its first use*, because the ceiling may have been lowered
//! since, or a thread that lent its seat may have returned. If more seats than the ceiling are in
//! use, the pwq exchanges its seat for the first position in the group's wait queue. Without this
//! check, a busy pool could start an item long after the group has exceeded its ceiling. Twin
//! `group: a passed seat overlooks the ceiling`. A rescuer does not check.
//!
//! In a busy pool, a passed seat is idle until a worker has ended its batch. This happens at most
//! once for each turn of the pwq in its group. The seat is not passed on to a pool that could use
//! it sooner. Otherwise a pwq whose pool is always busy would never have a seat of a full group
//! when a worker arrives.
//!
//! Each step of a climb is made with the pwq's pool locked. A seat is never free while a pwq waits
//! for it. Each gate guarantees this for its own waiters. A worker that finds the group of a pwq
//! full takes the pwq out of `ready`, so no worker visits the pwq again before it gets a seat.
//!
//! If no worker can be started for a pool, its seated pwqs return the seats of their groups, and
//! are ready again (`return_passed_seats`). This is because a queue with a rescuer may wait for one
//! of these seats in another pool. If that pool needs no worker, it does not call the rescuer. Twin
//! `mayday: a pool without workers keeps its seats`.
//!
//! A group waits for nothing, so seats alone cause no deadlock. No thread sleeps for a seat.
//!
//! # A pwq without items
//!
//! The items of a waiting pwq may be cancelled. The seats that it holds delay other pwqs and the
//! queue's drain, which may have nothing else to wait for. The thread that removes the last item
//! from the lists therefore releases them (`release_emptied`). If the pwq waits at its queue's
//! gate, it holds nothing, and remains there. If it gets a seat and still has no item, it passes
//! the seat on. Twins `seats: an emptied pwq keeps them` and `group: an emptied pwq climbs`.
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

use limit::internal::active::{Gate, Holds, ReleaseEffects};
use sync::twin;
use sync::unmodelled::Arc;

use super::dispatch::Dispatch;
use super::pool::{PoolGuard, WorkerPool};
use super::pwq::{Pwq, WaitingPwq, WaitsFor};
use super::worker::Worker;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Level {
    Queue,
    Group,
}

pub(crate) type GroupGate = Arc<Gate<WaitingPwq>>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct HelperSeats {
    pub(crate) of_queue: Holds,
    pub(crate) of_group: bool,
}

#[must_use = "waiters that got seats must be notified"]
pub(crate) struct HelperLeft {
    of_queue: ReleaseEffects<WaitingPwq>,
    of_group: Option<WaitingPwq>,
}

impl Pwq {
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
            // All parts are `None`, so nothing has to be dropped.
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
        let pool = self.pool.clone();
        pool.add_work(|guard| guard.accept(self));
    }
}

impl Dispatch {
    /// Acquires a seat in the queue of a pwq, or makes the pwq wait there.
    pub(crate) fn enter_queue(&mut self, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        let has_seat = pwq.gate.enter_or_queue(pwq.node as usize, || pwq.waiter(Level::Queue));
        self.note_entry(slot, has_seat)
    }

    /// Acquires a seat in the group for a pwq whose turn has come and that has a seat in its queue,
    /// or makes it wait there.
    pub(crate) fn climb(&mut self, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        let Some(group) = &pwq.group else {
            return true;
        };
        let has_seat = group.enter_in_turn(&pwq.core, || pwq.waiter(Level::Group));
        self.note_entry(slot, has_seat)
    }

    fn note_entry(&mut self, slot: usize, has_seat: bool) -> bool {
        if !has_seat {
            self.pwq_mut(slot).waits = Some(WaitsFor::Seat);
        }
        has_seat
    }

    /// Withdraws a pwq from the wait queue of its group. It keeps its seat in the queue.
    fn withdraw(&mut self, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        let is_it =
            |waiter: &WaitingPwq| waiter.slot == slot && Arc::ptr_eq(&waiter.pool, &pwq.pool);
        let withdrawn = pwq.group.as_ref().is_some_and(|group| group.withdraw(is_it));
        if withdrawn {
            self.pwq_mut(slot).waits = None;
        }
        withdrawn
    }

    /// If a pwq waits and has a seat in its queue, ends the wait, and returns the last gate at
    /// which it has a seat. Otherwise returns `None`.
    fn end_climb(&mut self, slot: usize) -> Option<Level> {
        match self.pwq(slot).waits? {
            WaitsFor::Turn if self.take_ready(slot) => Some(Level::Group),
            WaitsFor::Turn => Some(Level::Queue),
            WaitsFor::Seat => self.withdraw(slot).then_some(Level::Queue),
        }
    }
}

impl PoolGuard<'_> {
    /// Takes the pwq whose turn it is, and acquires its seats. `worker` first releases the seats
    /// that it holds.
    pub(crate) fn next_ready(&mut self, worker: &Worker) -> Option<usize> {
        loop {
            let seated = self.next_seated();
            let slot = seated.or_else(|| self.next_turn())?;
            self.give_up_seat(worker);
            let has_seats = match seated {
                Some(_) => self.recheck(slot),
                None => self.climb(slot),
            };
            if has_seats {
                return Some(slot);
            }
        }
    }

    /// Checks a passed seat of a group before its first use. If more seats than the ceiling are in
    /// use, exchanges the seat for the first position in the wait queue, and returns `false`.
    fn recheck(&mut self, slot: usize) -> bool {
        let pwq = self.pwq(slot);
        let exceeds = |group: &&GroupGate| {
            !group.may_start() && !twin::armed("group: a passed seat overlooks the ceiling")
        };
        let Some(group) = pwq.group.as_ref().filter(exceeds) else {
            return true;
        };
        // The entry names no queue, so its turn is 0, and it comes before those that name one.
        let has_seat = group.enter_or_queue(0, || pwq.waiter(Level::Group));
        let next = pwq.leave_group();
        self.note_entry(slot, has_seat);
        next.into_iter().for_each(|next| self.pass(next));
        has_seat
    }

    fn accept(&mut self, waiter: WaitingPwq) {
        let WaitingPwq { slot, level, .. } = waiter;
        if level == Level::Group || twin::armed("group: a passed seat does not climb") {
            self.seat(slot);
        } else {
            self.await_turn(slot);
        }
        if !twin::armed("group: an emptied pwq climbs") {
            self.release_emptied(slot);
        }
    }

    pub(crate) fn leave_queue(&mut self, slot: usize) {
        let pwq = self.dispatch.pwq(slot);
        let left = Gate::leave(&pwq.gate, &pwq.core, pwq.node as usize, Holds::Seat);
        if let Some(core) = left.settled {
            self.effects.settled.push(core);
        }
        left.waiter.into_iter().for_each(|next| self.pass(next));
    }

    /// Releases a seat in the group of a pwq, if it is in one, and passes it on.
    pub(crate) fn leave_group(&mut self, slot: usize) {
        let next = self.pwq(slot).leave_group();
        next.into_iter().for_each(|next| self.pass(next));
    }

    /// Transfers a seat to a pwq: at once if it is in this pool, otherwise after the pool is
    /// unlocked.
    fn pass(&mut self, waiter: WaitingPwq) {
        if Arc::ptr_eq(self.pool(), &waiter.pool) {
            self.accept(waiter);
        } else {
            self.effects.seats.push(waiter);
        }
    }

    /// Returns the group seats of all pwqs that have all seats and wait for a worker.
    pub(crate) fn return_passed_seats(&mut self) {
        // Collect the pwqs first, because a returned seat may be passed to a pwq of this pool,
        // which is then seated.
        let seated: Vec<_> = std::iter::from_fn(|| self.next_seated()).collect();
        for slot in seated {
            self.await_turn(slot);
            self.leave_group(slot);
        }
    }

    pub(crate) fn give_up_seat(&mut self, worker: &Worker) {
        self.end_leg(worker, 0);
    }

    pub(crate) fn end_leg(&mut self, worker: &Worker, leg: usize) {
        self.leave_leg(worker, leg);
        self.enlisted_mut(worker).legs[leg].slot = None;
    }

    pub(crate) fn leave_leg(&mut self, worker: &Worker, leg: usize) {
        let its = &mut self.enlisted_mut(worker).legs[leg];
        if mem::take(&mut its.has_seat)
            && let Some(slot) = its.slot
        {
            self.leave(slot, Level::Group);
            self.rest_group(slot);
        }
    }

    /// Releases the seats of a pwq. `last` is the last gate at which it has one.
    fn leave(&mut self, slot: usize, last: Level) {
        if last == Level::Group {
            self.leave_group(slot);
        }
        self.leave_queue(slot);
    }

    /// If a pwq has no items and waits, releases its seats. If it waits for a seat in its queue, it
    /// has none, and continues to wait.
    pub(crate) fn release_emptied(&mut self, slot: usize) {
        if !self.pwq(slot).has_waiting()
            && !twin::armed("seats: an emptied pwq keeps them")
            && let Some(last) = self.end_climb(slot)
        {
            self.leave(slot, last);
            if self.has_work() {
                self.pick_if_needed();
            }
        }
    }

    /// Takes a pwq that has a seat in its queue and waits, with a seat in its group even if none is
    /// free. A rescuer calls this.
    pub(crate) fn seat_for_rescuer(&mut self, slot: usize) -> bool {
        let last = self.end_climb(slot);
        if last == Some(Level::Queue)
            && let Some(group) = &self.pwq(slot).group
        {
            group.count();
        }
        last.is_some()
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
        Some(nr_adopted)
    }
}
