//! Capacity for a bounded number of entries, and the wait queue of the entries that do not fit.
//!
//! A mailbox counts items, and an item that finds no capacity joins the wait queue itself. A
//! workqueue counts the items that have not started, and their producers wait.
//!
//! # The two words
//!
//! Entries arrive and leave on different threads, so each side has a word of its own. `left` counts
//! the entries that have left, and wraps around. `state` counts the admitted entries, minus those
//! that had left when it was last *recounted*, and contains `left` at that time. The bit `AWAITED`
//! of both words is set while the wait queue is not empty.
//!
//! ```text
//! try to take:  AWAITED?  rejected;   below the bound?  state += 1
//!               otherwise read `left`: no entry has left since the last recount?  rejected
//!               recount, and state += 1, in one transition
//! wait:         [lock] join the wait queue, AWAITED is set in state, then in left;    then let in
//! release:      left += count;  AWAITED was set?              then let in
//! let in:       [lock] while there is capacity: state += 1, and the first waiter is let in;
//!               the wait queue is empty: AWAITED is cleared
//! ```
//!
//! A thread that takes capacity therefore reads the other word only once per `capacity` entries,
//! unless the capacity stays exhausted.
//!
//! # Properties, and their proofs
//!
//! **No entry waits while there is capacity.** All changes of `left` are read-modify-writes, so
//! they have one order. A thread that releases capacity after `AWAITED` was set there reads the bit
//! and admits waiters (twin `capacity: a release overlooks the waiters`). A waiter that sets the
//! bit after a release sees that release when it admits waiters itself (twin `capacity: no check
//! after joining`).
//!
//! **No capacity is lost or counted twice.** A recount and the acquisition that needs it are one
//! transition of `state`. The value that a taker reads from `left` is never older than the value in
//! `state` (twin `capacity: a recount reads an old count`).
//!
//! **First come, first served.** While the bit is set in `state`, no taker gets capacity that was
//! just released (twin `capacity: a taker overtakes a waiter`).
//!
//! **The bound holds.** Admitting a waiter takes capacity (twin `capacity: admits too many`).
//!
//! **A waiter that gives up holds no capacity.** It leaves the wait queue, and clears the bit if
//! the queue is then empty. Otherwise no taker would ever get capacity again (twin `capacity: an
//! empty wait queue is awaited`).
//!
//! **Closing ends every wait.** It marks the wait queue as closed under its lock, and wakes all
//! waiters, each of which then leaves (twin `capacity: closing leaves the waiters asleep`).

use crossbeam_utils::CachePadded;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::fork::Process;
use sync::{Mutex, MutexGuard, twin};

use crate::numbered::Numbered;

/// A bit of both words, set while the wait queue is not empty.
const AWAITED: u32 = 1;
/// One entry in `left`.
const ONE_LEFT: u32 = 2;

/// The largest bound: the number of entries that `left` can distinguish.
pub const MAX_CAPACITY: usize = (u32::MAX / ONE_LEFT) as usize;

/// The word of the takers.
///
/// bit 0 `AWAITED` | bits 1..32 count of `left` at the last recount | bits 32..64 entries inside at
/// that recount
#[derive(Clone, Copy)]
struct State(u64);

impl State {
    const ONE_INSIDE: u64 = 1 << 32;

    fn is_awaited(self) -> bool {
        self.0 as u32 & AWAITED != 0
    }

    fn nr_inside(self) -> usize {
        (self.0 / Self::ONE_INSIDE) as usize
    }

    /// Subtracts the entries that have left since the last recount.
    fn recounted(self, left: u32) -> Self {
        let low = self.0 as u32;
        let nr_left = (left & !AWAITED).wrapping_sub(low & !AWAITED) / ONE_LEFT;
        let nr_inside = (self.nr_inside() as u32).saturating_sub(nr_left);
        let low = (left & !AWAITED) | (low & AWAITED);
        Self((u64::from(nr_inside) * Self::ONE_INSIDE) | u64::from(low))
    }
}

/// A bound, the count of the entries inside, and the wait queue of `W`s.
#[derive(Debug)]
pub struct Admission<W> {
    /// A: see the top of the file. Relaxed, because it guards no memory.
    left: CachePadded<AtomicU32>,
    /// A: see [`State`].
    state: AtomicU64,
    capacity: usize,
    /// I: the process of the threads that acquire the lock. In a child of `fork`, a thread that
    /// does not exist may hold it.
    process: Process,
    wait_queue: Mutex<WaitQueue<W>>,
}

#[derive(Debug)]
struct WaitQueue<W> {
    is_closed: bool,
    /// The waiters, in the order in which they joined. Any of them can give up.
    waiting: Numbered<W>,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Ticket(u64);

#[derive(Debug)]
pub enum Position<W> {
    Waiting,
    /// The waiter was admitted.
    Inside,
    /// The waiter was removed, because admission was closed.
    Closed(W),
}

impl<W> Admission<W> {
    pub fn new(capacity: usize) -> Self {
        assert!(capacity <= MAX_CAPACITY, "the builders check it");
        Self {
            left: CachePadded::new(AtomicU32::new(0)),
            state: AtomicU64::new(0),
            capacity,
            process: Process::this(),
            wait_queue: Mutex::new(WaitQueue { is_closed: false, waiting: Numbered::new() }),
        }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    pub fn nr_inside(&self) -> usize {
        self.look().recounted(self.left.load(Ordering::Relaxed)).nr_inside()
    }

    pub fn is_free(&self) -> bool {
        !self.is_awaited() && self.nr_inside() < self.capacity
    }

    pub fn is_awaited(&self) -> bool {
        State(self.state.load(Ordering::Relaxed)).is_awaited()
    }

    /// Returns `true`, except in a child of the creator.
    pub fn is_at_home(&self) -> bool {
        self.process.is_this()
    }

    /// Reads `state`. Must be called before `left` is read.
    #[inline]
    fn look(&self) -> State {
        // ORDER(recount): the acquire end; see `take`. If the update of `take` comes first, a later
        // load of `left` is not older than the value that the update contains. If our load comes
        // first, it finds an older value of `left` in `state`, and our own update fails if `state`
        // has changed.
        let order = twin::order("capacity: a recount reads an old count", Ordering::Acquire);
        State(self.state.load(order))
    }

    /// Takes capacity for one entry. Returns `false` if there is none, or if another entry waits
    /// for it.
    #[inline]
    pub fn try_take(&self) -> bool {
        self.take(twin::armed("capacity: a taker overtakes a waiter"))
    }

    /// Takes capacity for one entry. If `before_others` is set, does so even if other entries wait.
    #[inline]
    fn take(&self, before_others: bool) -> bool {
        let mut state = self.look();
        loop {
            if state.is_awaited() && !before_others {
                return false;
            }
            let mut next = state;
            if state.nr_inside() >= self.capacity {
                next = state.recounted(self.left.load(Ordering::Relaxed));
                if next.nr_inside() >= self.capacity {
                    return false;
                }
            }
            // ORDER(recount): message passing, other end in `look`.
            //   here:  left is read;  state = its value   Release
            //   other: state is read  Acquire;            left is read
            // If our update comes first, the other thread reads a value of `left` that is not older
            // than ours. If its load comes first, its own update fails.
            // Test: loom released_permit_is_granted_once
            let taken = self.state.compare_exchange_weak(
                state.0,
                next.0 + State::ONE_INSIDE,
                Ordering::Release,
                Ordering::Relaxed,
            );
            if taken.is_ok() {
                return true;
            }
            state = self.look();
        }
    }

    /// Releases the capacity of `count` entries. If this returns `true`, the caller must call
    /// [`let_in`](Self::let_in) next.
    #[inline]
    #[must_use]
    pub fn release(&self, count: usize) -> bool {
        let before = self.left.fetch_add(count as u32 * ONE_LEFT, Ordering::Relaxed);
        before & AWAITED != 0 && !twin::armed("capacity: a release overlooks the waiters")
    }

    fn wait_queue(&self) -> Option<MutexGuard<'_, WaitQueue<W>>> {
        self.is_at_home().then(|| self.wait_queue.lock())
    }

    /// Returns `None` if the queue is closed, or in a child of `fork`.
    fn open_wait_queue(&self) -> Option<MutexGuard<'_, WaitQueue<W>>> {
        self.wait_queue().filter(|wait_queue| !wait_queue.is_closed)
    }

    /// Adds a waiter, and calls the closure `let_in`, which must call the method
    /// [`let_in`](Self::let_in). Returns the waiter as the error if admission is closed, or in a
    /// child of `fork`.
    pub fn join(&self, waiter: W, let_in: impl FnOnce()) -> Result<Ticket, W> {
        let Some(mut wait_queue) = self.open_wait_queue() else {
            return Err(waiter);
        };
        let ticket = Ticket(wait_queue.waiting.add(waiter));
        self.state.fetch_or(AWAITED.into(), Ordering::Relaxed);
        self.left.fetch_or(AWAITED, Ordering::Relaxed);
        drop(wait_queue);
        if !twin::armed("capacity: no check after joining") {
            let_in();
        }
        Ok(ticket)
    }

    /// Passes the waiters for which there is capacity to `admit`, in order, under the lock.
    pub fn let_in(&self, mut admit: impl FnMut(W)) {
        let Some(mut wait_queue) = self.open_wait_queue() else {
            return;
        };
        while !wait_queue.waiting.is_empty()
            && (self.take(true) || twin::armed("capacity: admits too many"))
        {
            wait_queue.waiting.pop_first().into_iter().for_each(&mut admit);
            // The bit is cleared only now: otherwise a taker could overtake a waiter that has not
            // been admitted yet.
            self.note_if_empty_locked(&wait_queue);
        }
    }

    fn note_if_empty_locked(&self, wait_queue: &WaitQueue<W>) {
        if wait_queue.waiting.is_empty() {
            self.note_not_awaited_locked();
        }
    }

    fn note_not_awaited_locked(&self) {
        self.left.fetch_and(!AWAITED, Ordering::Relaxed);
        self.state.fetch_and(!u64::from(AWAITED), Ordering::Relaxed);
    }

    /// Returns the state of the waiter. If it is still in the wait queue, passes it to `visit`,
    /// under the lock.
    pub fn find(&self, ticket: Ticket, visit: impl FnOnce(&mut W)) -> Position<W> {
        let Some(mut wait_queue) = self.wait_queue() else {
            // In a child of `fork`, the parent admits the waiter.
            return Position::Inside;
        };
        if wait_queue.is_closed {
            return self.remove(wait_queue, ticket).map_or(Position::Inside, Position::Closed);
        }
        let waiter = wait_queue.waiting.get_mut(ticket.0).map(visit);
        waiter.map_or(Position::Inside, |()| Position::Waiting)
    }

    /// Removes the waiter. Returns `None` if it was admitted.
    pub fn leave(&self, ticket: Ticket) -> Option<W> {
        self.remove(self.wait_queue()?, ticket)
    }

    /// Removes a waiter, which is dropped with no lock held.
    fn remove(&self, mut wait_queue: MutexGuard<'_, WaitQueue<W>>, ticket: Ticket) -> Option<W> {
        let waiter = wait_queue.waiting.remove(ticket.0);
        if !twin::armed("capacity: an empty wait queue is awaited") {
            self.note_if_empty_locked(&wait_queue);
        }
        waiter
    }

    /// Removes and returns the remaining waiters.
    pub fn forgotten(&mut self) -> impl Iterator<Item = W> + use<W> {
        let waiting = self.wait_queue().map(|mut wait_queue| wait_queue.waiting.take_all());
        waiting.into_iter().flatten()
    }

    /// Closes the wait queue, and passes each waiter to `wake`, under the lock.
    pub fn close(&self, mut wake: impl FnMut(&mut W)) {
        let Some(mut wait_queue) = self.wait_queue() else {
            return;
        };
        wait_queue.is_closed = true;
        self.note_not_awaited_locked();
        if !twin::armed("capacity: closing leaves the waiters asleep") {
            wait_queue.waiting.iter_mut().for_each(|(_, waiter)| wake(waiter));
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn let_in<W>(admission: &Admission<W>) -> Vec<W> {
        let mut inside = Vec::new();
        admission.let_in(|waiter| inside.push(waiter));
        inside
    }

    #[test]
    fn permits_are_denied_at_the_bound_and_granted_below_it() {
        let admission = Admission::<()>::new(2);
        assert!(admission.try_take() && admission.try_take());
        assert!(!admission.try_take());
        assert!(!admission.release(1));
        assert!(admission.try_take());
        assert!(!admission.try_take());
        assert_eq!(admission.nr_inside(), 2);
    }

    #[test]
    fn capacity_belongs_to_the_waiters_while_there_are_any() {
        let admission = Admission::new(1);
        assert!(admission.try_take());
        let first = admission.join(1, || ()).unwrap();
        let second = admission.join(2, || ()).unwrap();
        assert!(admission.is_awaited() && admission.release(1));
        assert!(!admission.try_take(), "the capacity belongs to the first waiter");
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
    fn empty_wait_queue_rejects_no_taker() {
        let admission = Admission::new(1);
        let ticket = admission.join(1, || ()).unwrap();
        assert!(!admission.try_take());
        assert_eq!(admission.leave(ticket), Some(1));
        assert!(admission.try_take());
    }

    #[test]
    fn closing_capacity_returns_waiters_and_accepts_none() {
        let admission = Admission::new(1);
        let ticket = admission.join(1, || ()).unwrap();
        let mut nr_woken = 0;
        admission.close(|_| nr_woken += 1);
        assert_eq!((nr_woken, let_in(&admission)), (1, vec![]));
        assert!(matches!(admission.find(ticket, |_| ()), Position::Closed(1)));
        assert_eq!(admission.join(2, || ()), Err(2));
    }
}
