//! A queue's capacity: how many items may wait in it, and the producers that wait until one more
//! may.
//!
//! An item that is counted has a *place* from before it is queued until it starts, or is cancelled.
//! `admission.rs` has the protocol. A producer that is let in has a place from then on. If it gives
//! up at the same time, it gives that place back (twin `room: a waiter that gives up keeps its
//! place`).

use std::{cell::RefCell, collections::VecDeque, mem, task::Waker, time::Duration};

use base::internal::{
    admission::{self, Place, Ticket},
    panics::Foreign,
    wake::sleeper::{OnTurn, Sleeper},
};
use sync::twin;

use crate::errands;

/// The places of one queue.
pub(crate) struct Room(admission::Room<OnTurn>);

sync::thread_local! {
    /// The wakers of the tasks that this thread has let in and not woken yet. A waker may drop the
    /// future of a producer that was let in, whose place then goes to the next one. So the tasks
    /// are woken by a loop, and not by nested calls.
    static TO_WAKE: RefCell<Option<VecDeque<Foreign<Waker>>>> = RefCell::new(None)
}

impl Room {
    pub(crate) fn new(capacity: usize) -> Self {
        Self(admission::Room::new(capacity))
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }

    /// Returns how many places are free now.
    pub(crate) fn nr_free(&self) -> usize {
        self.capacity().saturating_sub(self.0.nr_inside())
    }

    /// Takes a place if one is free.
    pub(crate) fn try_take(&self) -> bool {
        self.0.try_take()
    }

    /// Takes a place, or begins or continues to wait for one by `ticket`. Returns `true` if the
    /// caller has a place. Otherwise the result of `on_turn` is fired when it has one. Not in a
    /// child of `fork`.
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
        // The former one is dropped under no lock.
        let place = self.0.find(waits, |place| mem::swap(place, &mut on_turn));
        let has_place = matches!(place, Place::Inside);
        if has_place {
            *ticket = None;
        }
        has_place
    }

    /// Takes a place, or sleeps until there is one, at most for `timeout`. Returns `true` if the
    /// caller has a place.
    ///
    /// # Blocking
    ///
    /// Until then. Woken by [`give_back`](Self::give_back). Models never time out.
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

    /// Ends a wait. Gives the place back if the waiter was let in.
    pub(crate) fn leave(&self, ticket: Option<Ticket>) {
        let Some(ticket) = ticket.filter(|_| !twin::torn_down() && self.0.is_at_home()) else {
            return;
        };
        let is_inside = self.0.leave(ticket).is_none();
        if is_inside && !twin::armed("room: a waiter that gives up keeps its place") {
            self.give_back(1);
        }
    }

    /// Gives `count` places back, to the first waiters if there are any.
    ///
    /// # Blocking
    ///
    /// Never for long. It may wake a thread, or call the waker of a task, so no lock may be held.
    pub(crate) fn give_back(&self, count: usize) {
        if !twin::torn_down() && self.0.release(count) {
            self.let_in();
        }
    }

    /// Lets waiters in and wakes them: threads at once, because a waker of an outer call may wait
    /// for them; tasks one after the other.
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
        // A thread that ends may have no list any more: there the calls nest.
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
            // In a child that a waker made they are the parent's.
            next.ok().flatten().filter(|_| self.0.is_at_home())
        };
        match is_within {
            Ok(true) => {}
            Ok(false) => {
                std::iter::from_fn(next).for_each(errands::fire);
                let _ = TO_WAKE.try_with(|list| list.take());
            }
            Err(_) => wakers.into_iter().for_each(errands::fire),
        }
    }
}

impl std::fmt::Debug for Room {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room")
            .field("capacity", &self.capacity())
            .field("nr_free", &self.nr_free())
            .finish_non_exhaustive()
    }
}
