//! Who is at work on another thread's stack, and how the owner of that gets rid of them.
//!
//! # The protocol
//!
//! The owner makes a crew for work that lies on its stack, and leaves *tickets* to workers: items of the queue, which hold the
//! crew and not the work. A worker that comes to a ticket becomes a *guest*, if the crew is open:
//!
//! ```text
//! guest:  closed? then go, else guests += 1 (one step);  work;  guests -= 1;  the last one wakes the owner
//! owner:  its own share;  closed = true;  wait for guests = 0;  go on, and let the work go
//! ```
//!
//! What must never happen is that a guest is at the work when the owner goes on. A ticket that nobody came to is no guest, is
//! not waited for, and finds the crew closed whenever its turn comes: the owner takes tickets back when it goes on, but
//! nothing depends on that. So nothing of this can be broken by a handle that is leaked, a queue that is paused, or a worker
//! that never comes. A panic of a guest's ends in the work. Twins `crew: the end overlooks guests` and `crew: a guest comes
//! in after the end`.
//!
//! There are no more tickets than workers can come by at once, so whoever brings something sends none where there are enough. A
//! guest who is about to go still has one, and is no help any more. So it counts its ticket off and looks once more:
//!
//! ```text
//! guest:  nothing left;  tickets -= 1;  anything left?
//! bring:  the work;  tickets, by a step of the same word;  fewer than enough? send one
//! ```
//!
//! A sleeping owner can be roused for more than that, as when there is something new to start. `ASLEEP` is set and cleared by
//! steps of the word that guests count in, so that whoever rouses either sees it, or is seen by the step that sets it.

use std::fmt;

use base::internal::{
    panics::or_abort,
    wake::{report, spin_as_waiter, yield_as_waiter},
};
use sync::{
    Mutex,
    atomic::{AtomicU32, Ordering},
    futex::Futex,
    twin,
    unmodelled::Arc,
};

use crate::{execute::join::JoinHandle, queues::queue::Workqueue};

/// bits 0..29 guests | bit 29 there was one | bit 30 the owner sleeps | bit 31 closed
#[derive(Clone, Copy)]
struct Word(u32);

const GUEST_ONE: u32 = 1;
const VISITED: u32 = 1 << 29;
const ASLEEP: u32 = 1 << 30;
const CLOSED: u32 = 1 << 31;

impl Word {
    fn nr_guests(self) -> u32 {
        self.0 & (VISITED - 1)
    }
    fn has(self, flag: u32) -> bool {
        self.0 & flag != 0
    }
}

/// Lets workers come to work that lies on its owner's stack.
pub(crate) struct Crew {
    /// A: as `Word` says.
    word: Futex,
    /// A: tickets that have been sent and not counted off.
    nr_tickets: AtomicU32,
    /// I: looked at by guests alone.
    work: *const (),
    /// I
    visit: Visit,
}

/// Does what there is to be done of the work, as a guest of its crew; does not unwind.
pub(crate) type Visit = unsafe fn(work: *const (), ticket: &mut Ticket);

// SAFETY: what `work` points to is shared by guests and the owner, by (1) of `Crew::new`.
unsafe impl Send for Crew {}
// SAFETY: as above.
unsafe impl Sync for Crew {}

impl Crew {
    /// # Safety
    ///
    /// 1. `visit` may be called with `work` by several threads at once, until [`close`](Self::close) or
    ///    [`try_close`](Self::try_close) has closed the crew for the last time. Not after that.
    pub(crate) unsafe fn new(work: *const (), visit: Visit) -> Arc<Self> {
        Arc::new(Self {
            word: Futex::new(0),
            nr_tickets: AtomicU32::new(0),
            work,
            visit,
        })
    }

    /// Returns `true` if there are fewer than `limit` tickets, for what the caller has just brought.
    #[inline]
    pub(crate) fn wants_ticket(&self, limit: u32) -> bool {
        let tickets = &self.nr_tickets;
        if tickets.load(Ordering::Relaxed) < limit {
            return true;
        }
        // ORDER(ticket): publish and consume; both ends are steps of this word.
        //   here:  the work;  tickets, Release;  enough?
        //   guest: tickets -= 1, Acquire;  the work?
        // Whichever step is first, one side sees the other.
        // ORDER(ticket): the other end is in `count_off`.
        // Test: what_is_brought_while_a_guest_goes_is_started_by_it_or_gets_a_ticket
        !twin::armed("crew: tickets of guests who go are enough")
            && tickets.fetch_add(0, Ordering::Release) < limit
    }

    fn enter(&self) -> bool {
        let enter = |word: u32| {
            let closed = word & CLOSED != 0 && !twin::armed("crew: a guest comes in after the end");
            (!closed).then_some((word | VISITED) + GUEST_ONE)
        };
        // Relaxed: the work was published with the ticket, and what came later has an order of its own.
        let word = self.word.word();
        word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter)
            .is_ok()
    }

    fn leave(&self) {
        // ORDER(crew): publish and consume, other end in `load`.
        //   guest: the work;  guests -= 1, Release
        //   owner: guests = 0, Acquire;  the work goes
        // Test: a_closure_runs_once_whether_its_owner_or_a_worker_is_first
        let order = twin::order("crew: relaxed leave", Ordering::Release);
        let before = Word(self.word.word().fetch_sub(GUEST_ONE, order));
        if before.nr_guests() == 1
            && before.has(ASLEEP)
            && !twin::armed("crew: the last guest wakes nobody")
        {
            self.rouse();
        }
    }

    /// Makes the owner look again, if it sleeps in [`doze`](Self::doze).
    pub(crate) fn rouse(&self) {
        // ORDER(rouse): publish and consume; both ends are steps of this word.
        //   here:  item;  ASLEEP off, Release;  it was on? wake
        //   owner: ASLEEP on, Acquire;  item?
        // Whichever step is first, one side sees the other.
        // ORDER(rouse): the other end is in `doze`.
        // Test: an_owner_that_sleeps_starts_what_a_guest_brings
        let before = self.word.word().fetch_and(!ASLEEP, Ordering::Release);
        if Word(before).has(ASLEEP) {
            self.word.wake(1);
        }
    }

    /// Returns `true` if there ever was a guest.
    pub(crate) fn was_visited(&self) -> bool {
        Word(self.word.word().load(Ordering::Relaxed)).has(VISITED)
    }

    fn load(&self) -> Word {
        // ORDER(crew): other end in `leave`.
        // Test: a_closure_runs_once_whether_its_owner_or_a_worker_is_first
        Word(self.word.word().load(Ordering::Acquire))
    }

    /// Waits until there are no guests, or `is_called` says that somebody called [`rouse`](Self::rouse). The owner alone.
    ///
    /// # Blocking
    ///
    /// Until then; woken by the last guest, or by `rouse`.
    pub(crate) fn doze(&self, on_one_cpu: bool, is_called: impl Fn() -> bool) {
        if twin::armed("crew: the end overlooks guests") {
            return;
        }
        let is_over = || self.load().nr_guests() == 0 || is_called();
        let came = if on_one_cpu {
            yield_as_waiter(is_over)
        } else {
            spin_as_waiter(is_over)
        };
        if came {
            return;
        }
        let sleep = |word: u32| (Word(word).nr_guests() > 0).then_some(word | ASLEEP);
        let word = self.word.word();
        // ORDER(rouse): other end in `rouse`.
        // Test: an_owner_that_sleeps_starts_what_a_guest_brings
        while let Ok(before) = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, sleep) {
            if is_called() {
                break;
            }
            report::while_asleep(|| self.word.wait(before | ASLEEP));
        }
        word.fetch_and(!ASLEEP, Ordering::Relaxed);
        // The step that found no guests has seen nothing of what they did.
        self.load();
    }

    /// Lets no more guests in, and waits until those that are inside have gone. The owner alone.
    ///
    /// # Blocking
    ///
    /// Until then; woken by the last guest.
    pub(crate) fn close(&self, on_one_cpu: bool) {
        self.word.word().fetch_or(CLOSED, Ordering::Relaxed);
        while self.load().nr_guests() > 0 && !twin::armed("crew: the end overlooks guests") {
            self.doze(on_one_cpu, || false);
        }
    }

    /// Lets no more guests in, if there are none; returns `true` if so. The owner alone.
    pub(crate) fn try_close(&self) -> bool {
        let overlooks = twin::armed("crew: the end overlooks guests");
        let close = |word: u32| (Word(word).nr_guests() == 0 || overlooks).then_some(word | CLOSED);
        let word = self.word.word();
        // ORDER(crew): other end in `leave`.
        // Test: a_closure_runs_once_whether_its_owner_or_a_worker_is_first
        word.fetch_update(Ordering::Acquire, Ordering::Relaxed, close)
            .is_ok()
    }

    /// Lets guests in again. The owner alone.
    pub(crate) fn reopen(&self) {
        self.word.word().fetch_and(!CLOSED, Ordering::Relaxed);
    }
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.load();
        f.debug_struct("Crew")
            .field("nr_guests", &word.nr_guests())
            .field("closed", &word.has(CLOSED))
            .finish_non_exhaustive()
    }
}

/// What an item of the queue has that brings a worker to a crew.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) crew: Arc<Crew>,
    is_counted: bool,
}

impl Ticket {
    pub(crate) fn new(crew: Arc<Crew>) -> Self {
        crew.nr_tickets.fetch_add(1, Ordering::Relaxed);
        Self {
            crew,
            is_counted: true,
        }
    }

    /// Comes to the work, if that is still open to guests.
    pub(crate) fn use_up(mut self) {
        if self.crew.enter() {
            // SAFETY: (1) of `Crew::new`: we are a guest, so the crew is not closed for good before `leave`.
            unsafe { (self.crew.visit)(self.crew.work, &mut self) };
            self.crew.leave();
        }
    }

    /// Before a guest looks for the last time.
    pub(super) fn count_off(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            // ORDER(ticket): other end in `wants_ticket`.
            // Test: what_is_brought_while_a_guest_goes_is_started_by_it_or_gets_a_ticket
            self.crew.nr_tickets.fetch_sub(1, Ordering::Acquire);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if !twin::torn_down() {
            self.count_off();
        }
    }
}

/// Returns `true` if workers of `queue` may be guests.
///
/// Workers of a bottom-half queue may not: such a worker must not block, but the work may block if
/// its owner may. The behavior therefore does not depend on which thread runs a part.
#[inline]
pub(super) fn may_have_guests(queue: &Workqueue) -> bool {
    !queue.inner.core.bh && queue.inner.is_at_home()
}

/// Sends a ticket to the workers of `queue`. Returns `None` if the queue accepts no items or its
/// workers may not be guests.
pub(super) fn send(queue: &Workqueue, crew: &Arc<Crew>) -> Option<JoinHandle<()>> {
    if queue.inner.core.bh || !queue.admits() {
        return None;
    }
    let ticket = Ticket::new(crew.clone());
    Some(queue.spawn_ticket(move || ticket.use_up()))
}

/// Takes a ticket back, if nobody has come to it.
pub(super) fn take_back(mut ticket: JoinHandle<()>) {
    ticket.cancel();
}

/// The tickets of one crew.
#[derive(Debug)]
pub(super) struct Tickets {
    sent: Mutex<Vec<JoinHandle<()>>>,
    /// I: how many there are at most at a time, or a few more.
    limit: u32,
}

impl Tickets {
    pub(super) fn new(limit: u32) -> Self {
        Self {
            sent: Mutex::new(Vec::new()),
            limit,
        }
    }

    /// Sends one, unless there are enough of them.
    #[inline]
    pub(super) fn send(&self, queue: &Workqueue, crew: &Arc<Crew>) {
        if crew.wants_ticket(self.limit) {
            self.send_one(queue, crew);
        }
    }

    fn send_one(&self, queue: &Workqueue, crew: &Arc<Crew>) {
        let Some(ticket) = send(queue, crew) else {
            return;
        };
        let mut sent = self.sent.lock();
        // Of so many at least half are used up.
        let used_up = if sent.len() > 2 * self.limit as usize {
            sent.extract_if(.., |ticket| ticket.is_finished()).collect()
        } else {
            Vec::new()
        };
        sent.push(ticket);
        drop(sent);
        drop(used_up);
    }

    /// Takes back those that nobody has come to.
    pub(super) fn take_back(&self) {
        // The newest first: where no worker has looked yet, that one is on top.
        let sent = std::mem::take(&mut *self.sent.lock());
        sent.into_iter().rev().for_each(take_back);
    }
}

/// Does the owner's last steps, which leave nothing on its stack to anybody and therefore do not unwind.
pub(super) fn whole<R>(part: impl FnOnce() -> R) -> R {
    or_abort("the end of a scope panicked", part)
}
