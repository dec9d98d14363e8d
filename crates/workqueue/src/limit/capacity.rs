//! The capacity of a queue: the limit on waiting items, and the producers that wait for it.
//!
//! A counted item holds a *capacity permit* from before it is queued until it starts or is
//! cancelled. `crates/base/src/admission.rs` has the protocol. An admitted producer holds a permit
//! from its admission on. If it gives up at the same time, it releases that permit (twin `room: a
//! waiter that gives up keeps its place`).

use std::{cell::RefCell, collections::VecDeque, mem, task::Waker, time::Duration};

use base::internal::{
    admission::{self, Position, Ticket},
    panics::Foreign,
    wake::sleeper::{OnTurn, Sleeper},
};
use sync::twin;

use crate::cleanups;

pub(crate) struct Capacity(admission::Admission<OnTurn>);

sync::thread_local! {
    /// The wakers of the tasks that this thread has admitted and not woken yet. A waker may drop
    /// the future of an admitted producer, whose permit then goes to the next one. A loop therefore
    /// wakes the tasks, so that these calls do not nest.
    static TO_WAKE: RefCell<Option<VecDeque<Foreign<Waker>>>> = RefCell::new(None)
}

impl Capacity {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(admission::Admission::new(capacity))
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    pub(crate) fn nr_free(&self) -> usize {
        self.capacity().saturating_sub(self.0.nr_inside())
    }

    pub(crate) fn try_take(&self) -> bool {
        self.0.try_take()
    }

    /// Acquires a permit, or starts or continues to wait for one by `ticket`. Returns `true` if the
    /// caller has a permit. Otherwise the result of `on_turn` is fired when it gets one. Must not
    /// be called in a child of `fork`.
    pub(crate) fn poll(
        &self,
        ticket: &mut Option<Ticket>,
        on_turn: impl FnOnce() -> OnTurn,
    ) -> bool {
        let Some(waits) = *ticket else {
            if self.try_take() {
                return true;
            }
            *ticket = self.0.join(on_turn(), || self.let_in()).ok();
            return false;
        };
        let mut on_turn = on_turn();
        // The previous one is dropped with no lock held.
        let position = self
            .0
            .find(waits, |position| mem::swap(position, &mut on_turn));
        let has_permit = matches!(position, Position::Inside);
        if has_permit {
            *ticket = None;
        }
        has_permit
    }

    /// Acquires a permit, or sleeps for one, at most `timeout`. Returns `true` if it has one.
    ///
    /// # Blocking
    ///
    /// Until [`release`](Self::release) releases a permit. Models never time out.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        if self.try_take() {
            return true;
        }
        let (mut sleeper, mut ticket) = (Sleeper::new(timeout), None);
        let mut in_time = true;
        while !self.poll(&mut ticket, || sleeper.on_turn()) {
            if !in_time {
                self.leave(ticket);
                return false;
            }
            in_time = sleeper.sleep();
        }
        true
    }

    /// Ends a wait. Releases the permit if the waiter was admitted.
    pub(crate) fn leave(&self, ticket: Option<Ticket>) {
        let Some(ticket) = ticket.filter(|_| !twin::torn_down() && self.0.is_at_home()) else {
            return;
        };
        let is_inside = self.0.leave(ticket).is_none();
        if is_inside && !twin::armed("capacity: a leaving waiter keeps its permit") {
            self.release(1);
        }
    }

    /// Releases `count` permits, to the first waiters if there are any.
    ///
    /// # Blocking
    ///
    /// Only briefly. It may wake a thread or call the waker of a task, so no lock may be held.
    pub(crate) fn release(&self, count: usize) {
        if !twin::torn_down() && self.0.release(count) {
            self.let_in();
        }
    }

    /// Admits waiters and wakes them. Threads are woken at once, because a waker of an outer call
    /// may wait for them; tasks are woken one after the other.
    #[cold]
    fn let_in(&self) {
        let mut on_turns = Vec::new();
        self.0.let_in(|on_turn| on_turns.push(on_turn));
        let wakers = on_turns
            .into_iter()
            .filter_map(|on_turn| on_turn.into_inner().fire_unless_task());
        let mut wakers: VecDeque<_> = wakers.map(Foreign::new).collect();
        if wakers.is_empty() {
            return;
        }
        // The list may be destroyed already in a thread that exits. The calls nest there.
        let is_within = TO_WAKE.try_with(|list| match &mut *list.borrow_mut() {
            Some(list) => {
                list.append(&mut wakers);
                true
            }
            none => {
                *none = Some(mem::take(&mut wakers));
                false
            }
        });
        let next = || {
            let next = TO_WAKE.try_with(|list| list.borrow_mut().as_mut()?.pop_front());
            // In a forked child the wakers belong to the parent.
            next.ok().flatten().filter(|_| self.0.is_at_home())
        };
        match is_within {
            Ok(true) => {}
            Ok(false) => {
                std::iter::from_fn(next).for_each(cleanups::fire);
                let _ = TO_WAKE.try_with(|list| list.take());
            }
            Err(_) => wakers.into_iter().for_each(cleanups::fire),
        }
    }
}

impl std::fmt::Debug for Capacity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room")
            .field("capacity", &self.capacity())
            .field("nr_free", &self.nr_free())
            .finish_non_exhaustive()
    }
}
