//! Capacity for a bounded number of entries, and the wait queue of the entries that find none.
//!
//! A mailbox counts items, and an item that finds no capacity waits itself. A workqueue counts the
//! items that have not started, and the producers wait.
//!
//! # The word
//!
//! `state` counts the entries *inside*: those that hold capacity. Its top bit, `AWAITED`, is set
//! while the wait queue is not empty.
//!
//! ```text
//! try to take:  full, or AWAITED?  rejected               otherwise state += 1
//! wait:         [lock] join the wait queue, AWAITED is set;   then let in
//! release:      state -= 1;  AWAITED was set?             then let in
//! let in:       [lock] while there is capacity: state += 1, and the first waiter is let in;
//!               the wait queue is empty: AWAITED is cleared
//! ```
//!
//! # Properties, and their proofs
//!
//! **No entry waits while there is capacity.** All changes of the word are read-modify-writes, so
//! they have one order. A thread that releases capacity after `AWAITED` was set reads the bit, and
//! lets in (twin `capacity: a release overlooks the waiters`). A waiter that sets the bit later than a
//! release reads the free capacity, because it lets in after that (twin `room: no check after
//! joining`).
//!
//! **First come, first in.** While the bit is set, the word is above every bound, so no taker gets
//! the capacity that was just released (twin `capacity: a taker overtakes a waiter`).
//!
//! **The bound holds.** Letting a waiter in takes capacity (twin `capacity: admits too many`).
//!
//! **A waiter that gives up holds no capacity.** It leaves the wait queue, and clears the bit if
//! the queue is then empty. Otherwise no taker would ever get capacity again (twin `room: an empty
//! wait queue is awaited`).
//!
//! **Closing ends every wait.** It marks the wait queue as closed under its lock, and wakes all
//! waiters. Each waiter leaves by itself (twin `capacity: closing leaves the waiters asleep`).

use sync::atomic::{AtomicUsize, Ordering};
use sync::fork::Process;
use sync::{Mutex, MutexGuard, twin};

use crate::numbered::Numbered;

/// Bit of `Admission::state`: the wait queue is not empty.
const AWAITED: usize = 1 << (usize::BITS - 1);

/// The largest bound; it is below the bit.
pub const MAX_CAPACITY: usize = AWAITED - 1;

/// A bound, the count of the entries inside, and the wait queue: each `W` waits until it is let in.
#[derive(Debug)]
pub struct Admission<W> {
    /// I: the bound.
    capacity: usize,
    /// I: the process whose threads take the lock. In a child, a thread that does not exist may
    /// hold it.
    process: Process,
    /// A: see the top of the file. Relaxed: it guards no memory.
    state: AtomicUsize,
    wait_queue: Mutex<WaitQueue<W>>,
}

#[derive(Debug)]
struct WaitQueue<W> {
    is_closed: bool,
    /// In the order of joining. A waiter that gives up may be anywhere.
    waiting: Numbered<W>,
}

/// Identifies a waiter.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(u64);

/// The place of a waiter.
#[derive(Debug)]
pub enum Position<W> {
    Waiting,
    /// It was let in.
    Inside,
    /// It was removed from the wait queue, because the room is closed.
    Closed(W),
}

impl<W> Admission<W> {
    pub fn new(capacity: usize) -> Self {
        Self {
            capacity,
            process: Process::this(),
            state: AtomicUsize::new(0),
            wait_queue: Mutex::new(WaitQueue {
                is_closed: false,
                waiting: Numbered::new(),
            }),
        }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn nr_inside(&self) -> usize {
        self.state.load(Ordering::Relaxed) & !AWAITED
    }

    /// Returns `true` if the wait queue is not empty.
    pub fn is_awaited(&self) -> bool {
        self.state.load(Ordering::Relaxed) & AWAITED != 0
    }

    /// Returns `false` in a child of `fork`.
    pub fn is_at_home(&self) -> bool {
        self.process.is_this()
    }

    /// Takes capacity for one entry. Returns `false` if there is none, or if another entry waits
    /// for it.
    #[inline]
    pub fn try_take(&self) -> bool {
        if twin::armed("capacity: a taker overtakes a waiter") {
            return self.take_before_others();
        }
        let more = |state| (state < self.capacity).then_some(state + 1);
        self.state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Takes capacity for one entry, even if others wait.
    fn take_before_others(&self) -> bool {
        let more = |state| (state & !AWAITED < self.capacity).then_some(state + 1);
        self.state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Releases the capacity of `count` entries. If it returns `true`, the caller must call
    /// [`let_in`](Self::let_in) next.
    #[inline]
    #[must_use]
    pub fn release(&self, count: usize) -> bool {
        let before = self.state.fetch_sub(count, Ordering::Relaxed);
        before & AWAITED != 0 && !twin::armed("capacity: a release overlooks the waiters")
    }

    /// Locks the wait queue. `None` in a child of `fork`.
    fn wait_queue(&self) -> Option<MutexGuard<'_, WaitQueue<W>>> {
        self.is_at_home().then(|| self.wait_queue.lock())
    }

    /// Adds a waiter, and calls `let_in`, which calls [`let_in`](Self::let_in). Returns the waiter
    /// if the room is closed, and in a child of `fork`.
    pub fn join(&self, waiter: W, let_in: impl FnOnce()) -> Result<Ticket, W> {
        let Some(mut wait_queue) = self.wait_queue().filter(|wait_queue| !wait_queue.is_closed)
        else {
            return Err(waiter);
        };
        let ticket = Ticket(wait_queue.waiting.add(waiter));
        self.state.fetch_or(AWAITED, Ordering::Relaxed);
        drop(wait_queue);
        if !twin::armed("capacity: no check after joining") {
            let_in();
        }
        Ok(ticket)
    }

    /// Passes the waiters for which there is capacity to `admit`, under the lock, in order.
    pub fn let_in(&self, mut admit: impl FnMut(W)) {
        let Some(mut wait_queue) = self.wait_queue().filter(|wait_queue| !wait_queue.is_closed)
        else {
            return;
        };
        while !wait_queue.waiting.is_empty()
            && (self.take_before_others() || twin::armed("capacity: admits too many"))
        {
            wait_queue
                .waiting
                .pop_first()
                .into_iter()
                .for_each(&mut admit);
            // Cleared only now: otherwise a taker could overtake a waiter that is not admitted yet.
            self.note_if_empty_locked(&wait_queue);
        }
    }

    /// Lets takers in again if the wait queue is empty.
    fn note_if_empty_locked(&self, wait_queue: &WaitQueue<W>) {
        if wait_queue.waiting.is_empty() {
            self.state.fetch_and(!AWAITED, Ordering::Relaxed);
        }
    }

    /// Returns the place of the waiter. If it is in the wait queue, passes it to `visit`, under the
    /// lock.
    pub fn find(&self, ticket: Ticket, visit: impl FnOnce(&mut W)) -> Position<W> {
        let Some(mut wait_queue) = self.wait_queue() else {
            // In a child of `fork`: the parent lets the waiter in.
            return Position::Inside;
        };
        if wait_queue.is_closed {
            return self
                .remove(wait_queue, ticket)
                .map_or(Position::Inside, Position::Closed);
        }
        let waiter = wait_queue.waiting.get_mut(ticket.0).map(visit);
        waiter.map_or(Position::Inside, |()| Position::Waiting)
    }

    /// Removes the waiter from the wait queue. Returns `None` if it was let in.
    pub fn leave(&self, ticket: Ticket) -> Option<W> {
        self.remove(self.wait_queue()?, ticket)
    }

    /// Removes a waiter and unlocks the wait queue, so that the waiter is dropped under no lock.
    fn remove(&self, mut wait_queue: MutexGuard<'_, WaitQueue<W>>, ticket: Ticket) -> Option<W> {
        let waiter = wait_queue.waiting.remove(ticket.0);
        if !twin::armed("capacity: an empty wait queue is awaited") {
            self.note_if_empty_locked(&wait_queue);
        }
        waiter
    }

    /// Removes the remaining waiters when no other thread can reach the room.
    pub fn forgotten(&mut self) -> impl Iterator<Item = W> + use<W> {
        let waiting = self
            .wait_queue()
            .map(|mut wait_queue| wait_queue.waiting.take_all());
        waiting.into_iter().flatten()
    }

    /// Closes the wait queue, and passes each waiter to `wake`, under the lock.
    pub fn close(&self, wake: impl FnMut(&mut W)) {
        let Some(mut wait_queue) = self.wait_queue() else {
            return;
        };
        wait_queue.is_closed = true;
        self.state.fetch_and(!AWAITED, Ordering::Relaxed);
        if !twin::armed("capacity: closing leaves the waiters asleep") {
            wait_queue.waiting.iter_mut().for_each(wake);
        }
    }
}

/// For tests.
impl<W> Admission<W> {
    pub fn nr_waiting(&self) -> usize {
        self.wait_queue()
            .map_or(0, |wait_queue| wait_queue.waiting.len())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    /// Lets waiters in, and returns them.
    fn let_in<W>(admission: &Admission<W>) -> Vec<W> {
        let mut inside = Vec::new();
        admission.let_in(|waiter| inside.push(waiter));
        inside
    }

    #[test]
    fn room_is_refused_at_the_bound_and_found_again_below_it() {
        let admission = Admission::<()>::new(2);
        assert!(admission.try_take() && admission.try_take());
        assert!(!admission.try_take());
        assert!(!admission.release(1));
        assert!(admission.try_take());
        assert!(!admission.try_take());
        assert_eq!(admission.nr_inside(), 2);
    }

    #[test]
    fn room_belongs_to_the_waiters_while_there_are_any() {
        let admission = Admission::new(1);
        assert!(admission.try_take());
        let first = admission.join(1, || ()).unwrap();
        let second = admission.join(2, || ()).unwrap();
        assert!(admission.is_awaited() && admission.release(1));
        assert!(!admission.try_take(), "the room is the first waiter's");
        assert_eq!(admission.leave(first), Some(1));
        admission.let_in(|waiter| {
            assert_eq!(waiter, 2);
            assert!(admission.is_awaited(), "until the waiter is admitted");
        });
        assert!(matches!(admission.find(second, |_| ()), Position::Inside));
        assert_eq!(admission.leave(second), None);
        assert!(!admission.is_awaited() && !admission.try_take());
    }

    #[test]
    fn a_wait_queue_that_all_have_left_refuses_no_taker() {
        let admission = Admission::new(1);
        let ticket = admission.join(1, || ()).unwrap();
        assert!(!admission.try_take());
        assert_eq!(admission.leave(ticket), Some(1));
        assert!(admission.try_take());
    }

    #[test]
    fn a_closed_room_gives_waiters_back_and_takes_none() {
        let admission = Admission::new(1);
        let ticket = admission.join(1, || ()).unwrap();
        let mut nr_woken = 0;
        admission.close(|_| nr_woken += 1);
        assert_eq!((nr_woken, let_in(&admission)), (1, vec![]));
        assert!(matches!(
            admission.find(ticket, |_| ()),
            Position::Closed(1)
        ));
        assert_eq!(admission.join(2, || ()), Err(2));
    }
}
