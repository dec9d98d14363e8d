//! The bound of a mailbox, and the line of items that wait for room.
//!
//! # The word
//!
//! `state` counts the items that are in the mailbox or about to be posted, except wake-ups of local
//! futures. Its top bit, `AWAITED`, is set while items wait for capacity.
//!
//! ```text
//! post:     full, or AWAITED?  refused               else state += 1
//! waiter:   [lock] its item joins the line, AWAITED is set;   then it lets in
//! receipt:  state -= 1;  AWAITED was set?            then it lets in
//! let in:   [lock] while there is room: state += 1, and the first item in line goes into the queue;
//!           the line is empty: AWAITED is cleared;   then the waiters of these items are woken
//! ```
//!
//! # What holds, and why
//!
//! **No item stands in line while there is room.** All changes of the word are read-modify-writes, so they have one order. A
//! receipt that comes after `AWAITED` finds the bit and lets in. A receipt that comes before is found by the waiter, which
//! lets in after it has set the bit (twin `room: no look after joining`).
//!
//! **First come, first in.** While the bit is set, the word is above every bound, so no post takes the room that a receipt has
//! just made (twin `room: posts overtake the line`).
//!
//! **The item waits, not its thread.** Whoever makes room moves the item into the queue. So an item does not wait for its
//! waiter to be scheduled, and a waiter holds no room: one that gives up takes its item out of the line and passes on nothing.
//! It clears the bit if the line is empty then, or no post would ever be accepted again (twin `room: an empty line is
//! awaited`). An item is pushed under the lock: a waiter that learns of it posts its next item behind.
//!
//! **No owner sleeps on a waiter.** An owner that waits for more items than there is room for, or for lazy ones, would sleep for
//! ever: whoever stands in line cannot post. So joining wakes the owner as an eager post does, and an owner that finds
//! `AWAITED` and any item does not sleep (`Shared::wait_for_room`).
//!
//! **Closing ends every wait.** It marks the line as closed under its lock and wakes all. Each waiter takes its item back out of
//! the line (twin `room: closing leaves the line asleep`).

use std::mem;

use sync::atomic::{AtomicUsize, Ordering};
use sync::fork::Process;
use sync::{Mutex, MutexGuard, twin};

use super::sleeper::OnTurn;
use crate::numbered::Numbered;
use crate::wake::WakeQ;
use crate::wake::lane::Lane;

/// In `Room::state`: items stand in line.
const AWAITED: usize = 1 << (usize::BITS - 1);

/// The largest bound: below the bit.
pub(super) const MAX_CAPACITY: usize = AWAITED - 1;

/// Counts the items inside, if there is a bound.
#[derive(Debug)]
pub(super) struct Room<T> {
    /// I: the bound, if there is one.
    bound: Option<Bound>,
    /// A: see the top of the file. Relaxed: it guards no memory.
    state: AtomicUsize,
    line: Mutex<Line<T>>,
}

#[derive(Clone, Copy, Debug)]
struct Bound {
    capacity: usize,
    /// The process whose threads take the lock of the line. In a child it may be held by a thread that does not exist.
    process: Process,
}

/// The items that wait for room.
#[derive(Debug)]
pub(super) struct Line<T> {
    is_closed: bool,
    /// By the order of coming. Who leaves may stand anywhere.
    waiting: Numbered<Waiting<T>>,
}

/// Names an item in line.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Ticket(u64);

/// An item in line.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) item: T,
    /// Where it goes once there is room.
    pub(super) lane: Lane,
    /// What wakes its waiter. `None` once the line is closed.
    pub(super) on_turn: Option<OnTurn>,
}

/// Where an item is that joined the line.
#[derive(Debug)]
pub(super) enum Place<T> {
    InLine,
    /// In the queue, or received.
    Inside,
    /// Out again: the mailbox is closed.
    Closed(T),
}

impl<T> Room<T> {
    pub(super) fn new(capacity: Option<usize>) -> Self {
        let bound = |capacity| Bound {
            capacity,
            process: Process::this(),
        };
        Self {
            bound: capacity.map(bound),
            state: AtomicUsize::new(0),
            line: Mutex::new(Line {
                is_closed: false,
                waiting: Numbered::new(),
            }),
        }
    }

    /// Returns the bound.
    pub(super) fn capacity(&self) -> Option<usize> {
        self.bound.map(|bound| bound.capacity)
    }

    /// Returns how many items are inside or about to be posted, if there is a bound.
    pub(super) fn nr_inside(&self) -> Option<usize> {
        let nr_inside = || self.state.load(Ordering::Relaxed) & !AWAITED;
        self.bound.map(|_| nr_inside())
    }

    /// Returns `true` if items stand in line.
    pub(super) fn is_awaited(&self) -> bool {
        self.bound.is_some() && self.state.load(Ordering::Relaxed) & AWAITED != 0
    }

    /// Reserves room for one item. Returns `false` if there is none, or if it belongs to the line.
    #[inline]
    pub(super) fn reserve(&self) -> bool {
        let Some(bound) = self.bound else {
            return true;
        };
        if twin::armed("room: posts overtake the line") {
            return self.take_room(bound);
        }
        let more = |state| (state < bound.capacity).then_some(state + 1);
        self.state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Releases the room of `count` items. Returns `true` if the caller must let in who stands in line.
    #[inline]
    #[must_use]
    pub(super) fn release(&self, count: usize) -> bool {
        self.bound.is_some() && self.state.fetch_sub(count, Ordering::Relaxed) & AWAITED != 0
    }

    /// Locks the line. `None` without a bound, and in a child of `fork`.
    pub(super) fn line(&self) -> Option<MutexGuard<'_, Line<T>>> {
        let bound = self.bound.filter(|bound| bound.process.is_this());
        bound.map(|_| self.line.lock())
    }

    /// Adds an item to the line. The caller lets in next. Gives the item back if the mailbox is closed.
    pub(super) fn join(&self, item: T, lane: Lane, on_turn: OnTurn) -> Result<Ticket, T> {
        let Some(mut line) = self.line().filter(|line| !line.is_closed) else {
            return Err(item);
        };
        let on_turn = Some(on_turn);
        let waiting = Waiting {
            item,
            lane,
            on_turn,
        };
        let ticket = Ticket(line.waiting.add(waiting));
        self.state.fetch_or(AWAITED, Ordering::Relaxed);
        Ok(ticket)
    }

    /// Takes room for the first item in line, and the item out of the line. `None` if there is no room, or no item. The
    /// caller [notes](Self::note_if_empty_locked) that the line is empty when the item is in the queue: a post that found room
    /// before would overtake it.
    pub(super) fn next_in_locked(&self, line: &mut Line<T>) -> Option<Waiting<T>> {
        let bound = self.bound?;
        if line.is_closed || line.waiting.is_empty() || !self.take_room(bound) {
            return None;
        }
        line.waiting.pop_first()
    }

    /// Reserves room for one item, though others stand in line.
    fn take_room(&self, bound: Bound) -> bool {
        let more = |state| (state & !AWAITED < bound.capacity).then_some(state + 1);
        self.state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Lets posts in again if nobody stands in line.
    pub(super) fn note_if_empty_locked(&self, line: &Line<T>) {
        if line.waiting.is_empty() {
            self.state.fetch_and(!AWAITED, Ordering::Relaxed);
        }
    }

    /// Returns where the item is. If it still stands in line, its waiter is woken by `on_turn` from now on, and the former one
    /// is in its place.
    pub(super) fn find(&self, ticket: Ticket, on_turn: &mut Option<OnTurn>) -> Place<T> {
        let Some(mut line) = self.line() else {
            // In a child of `fork`: the parent lets the item in.
            return Place::Inside;
        };
        if line.is_closed {
            let removed = self.remove(line, ticket);
            return removed.map_or(Place::Inside, |waiting| Place::Closed(waiting.item));
        }
        let Some(waiting) = line.waiting.get_mut(ticket.0) else {
            return Place::Inside;
        };
        mem::swap(&mut waiting.on_turn, on_turn);
        Place::InLine
    }

    /// Takes the item out of the line. `None` if it is not there any more.
    pub(super) fn leave(&self, ticket: Ticket) -> Option<T> {
        let line = self.line()?;
        self.remove(line, ticket).map(|waiting| waiting.item)
    }

    /// Removes an item and unlocks the line, so that what wakes the waiter is dropped under no lock.
    fn remove(&self, mut line: MutexGuard<'_, Line<T>>, ticket: Ticket) -> Option<Waiting<T>> {
        let waiting = line.waiting.remove(ticket.0);
        if !twin::armed("room: an empty line is awaited") {
            self.note_if_empty_locked(&line);
        }
        waiting
    }

    /// Takes out what still stands in line when nobody has a poster any more: the items of sends that were leaked.
    pub(super) fn forgotten(&mut self) -> impl Iterator<Item = T> {
        let waiting = self.line().map(|mut line| line.waiting.take_all());
        let waiting = waiting.into_iter().flatten();
        waiting.map(|waiting| waiting.item)
    }

    /// Lets nobody in from here on, and wakes all who stand in line.
    pub(super) fn close(&self) {
        let Some(mut line) = self.line() else {
            return;
        };
        line.is_closed = true;
        self.state.fetch_and(!AWAITED, Ordering::Relaxed);
        let mut wakeq = WakeQ::new();
        if !twin::armed("room: closing leaves the line asleep") {
            let on_turns = line
                .waiting
                .iter_mut()
                .filter_map(|waiting| waiting.on_turn.take());
            on_turns.for_each(|on_turn| wakeq.push(on_turn.into_inner()));
        }
        drop(line);
        wakeq.fire();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl<T> Room<T> {
    pub(super) fn nr_waiting(&self) -> usize {
        self.line().map_or(0, |line| line.waiting.len())
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::super::sleeper::Sleeper;
    use super::*;

    #[test]
    fn room_is_refused_at_the_bound_and_found_again_below_it() {
        let room = Room::<()>::new(Some(2));
        assert!(room.reserve() && room.reserve());
        assert!(!room.reserve());
        assert!(!room.release(1));
        assert!(room.reserve());
        assert!(!room.reserve());
        assert_eq!(room.nr_inside(), Some(2));
    }

    #[test]
    fn without_a_bound_there_is_always_room() {
        let room = Room::<()>::new(None);
        assert!((0..1000).all(|_| room.reserve()));
        assert!(!room.release(1000));
        assert_eq!(room.nr_inside(), None);
    }

    #[test]
    fn room_belongs_to_the_line_while_there_is_one() {
        let room = Room::new(Some(1));
        assert!(room.reserve());
        let sleeper = Sleeper::new(None);
        let first = room.join(1, Lane::Ordinary, sleeper.on_turn()).unwrap();
        let second = room.join(2, Lane::Ordinary, sleeper.on_turn()).unwrap();
        assert!(room.is_awaited() && room.release(1));
        assert!(
            !room.reserve(),
            "the room that was just made is not a post's"
        );
        assert_eq!(room.leave(first), Some(1));
        let mut line = room.line().unwrap();
        let next = room.next_in_locked(&mut line).unwrap();
        assert!(room.is_awaited(), "until the item is in the queue");
        room.note_if_empty_locked(&line);
        assert!(room.next_in_locked(&mut line).is_none());
        drop(line);
        assert_eq!(next.item, 2);
        assert!(matches!(room.find(second, &mut None), Place::Inside));
        assert_eq!(room.leave(second), None);
        assert!(!room.is_awaited() && !room.reserve());
    }

    #[test]
    fn a_line_that_all_have_left_keeps_nobody_out() {
        let room = Room::new(Some(1));
        let ticket = room
            .join(1, Lane::Ordinary, Sleeper::new(None).on_turn())
            .unwrap();
        assert!(!room.reserve());
        assert_eq!(room.leave(ticket), Some(1));
        assert!(room.reserve());
    }

    #[test]
    fn a_closed_line_gives_items_back_and_takes_none() {
        let room = Room::new(Some(1));
        let sleeper = Sleeper::new(None);
        let ticket = room.join(1, Lane::Ordinary, sleeper.on_turn()).unwrap();
        room.close();
        assert!(matches!(room.find(ticket, &mut None), Place::Closed(1)));
        assert_eq!(room.join(2, Lane::Ordinary, sleeper.on_turn()), Err(2));
        let mut line = room.line().unwrap();
        assert!(room.next_in_locked(&mut line).is_none());
    }
}
