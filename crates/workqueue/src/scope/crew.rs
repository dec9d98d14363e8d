//! Lets workers run work on a thread's stack, and revokes their access before that thread returns.
//!
//! # The protocol
//!
//! The owner creates a crew for work on its stack, and sends *tickets* to workers. A ticket is an
//! item of the queue that refers to the crew, and not to the work. A worker that runs a ticket
//! becomes a *guest* if the crew is open:
//!
//! ```text
//! guest:  open? guests += 1 (one update);  work;  guests -= 1;  the last guest wakes the owner
//! owner:  its own share;  closed = true;  wait for guests = 0;  continue, drop the work
//! ```
//!
//! No guest may access the work after the owner continues. A ticket that no worker has run is not a
//! guest: a worker that runs it later finds the crew closed. The owner cancels such tickets when it
//! continues, but correctness does not depend on that, so a leaked handle, a paused queue or a
//! worker that never arrives cannot break the protocol. A guest's panic is caught inside `Visit`.
//! The twins are `crew: the end overlooks guests` and `crew: a guest enters after the end`.
//!
//! The number of tickets is limited to about the number of workers that can run at once. At that
//! limit, a thread that adds work sends no ticket. A guest that is about to leave still holds a
//! ticket, but takes no more work. It therefore releases the ticket first, then checks for work:
//!
//! ```text
//! guest:  no work left;  tickets -= 1;  any work now?
//! spawn:  add work;  tickets, by an update of the same word;  below the limit? send one
//! ```
//!
//! A sleeping owner is also woken if a new item can start. `ASLEEP` is set and cleared by
//! transitions of the word that counts guests, so the waking thread either sees the flag, or its
//! transition precedes the one that sets it.

use std::panic::resume_unwind;

use base::internal::panics::{Payload, contain, discard, or_abort};
use base::internal::wake::{report, spin_as_waiter, yield_as_waiter};
use item::internal::head::Name;
use limit::internal::queue_core::QueueCore;
use sync::atomic::{AtomicU32, Ordering};
use sync::futex::Futex;
use sync::unmodelled::Arc;
use sync::{Mutex, twin};

use crate::execute::deadline::AsTicket;
use crate::execute::join::{self, JoinHandle};
use crate::queues::queue::Workqueue;

/// bits 0..29 guests | bit 29 had a guest | bit 30 the owner sleeps | bit 31 closed
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

/// Admits workers to the work on its owner's stack. Only the owner waits on, closes and reopens it.
pub(crate) struct Crew {
    /// A: a `Word`.
    word: Futex,
    /// A: the number of tickets that have been sent but not yet released by `count_off`.
    nr_tickets: AtomicU32,
    /// I: accessed by guests only.
    work: *const (),
    /// I
    visit: Visit,
}

/// Runs available parts of the work, as a guest of its crew; does not unwind.
pub(crate) type Visit = unsafe fn(work: *const (), ticket: &mut Ticket);

// SAFETY: the data that `work` points to is shared by guests and the owner, by (1) of `Crew::new`.
unsafe impl Send for Crew {}
// SAFETY: as above.
unsafe impl Sync for Crew {}

impl Crew {
    /// # Safety
    ///
    /// 1. Several threads may call `visit` with `work` at the same time, until
    ///    [`close`](Self::close) or [`try_close`](Self::try_close) has closed the crew for the last
    ///    time. No thread calls it after that.
    pub(crate) unsafe fn new(work: *const (), visit: Visit) -> Arc<Self> {
        Arc::new(Self { word: Futex::new(0), nr_tickets: AtomicU32::new(0), work, visit })
    }

    /// Returns `true` if the caller, which has added work, should send one of `limit` tickets.
    #[inline]
    pub(crate) fn wants_ticket(&self, limit: u32) -> bool {
        let tickets = &self.nr_tickets;
        if tickets.load(Ordering::Relaxed) < limit {
            return true;
        }
        // ORDER(ticket): publish and consume; both ends update this word, the other end in
        // `count_off`.
        //   here:  the work;  tickets, Release;  below the limit?
        //   guest: tickets -= 1, Acquire;  the work?
        // If our update comes first, the guest acquires it and its last check finds the work. If
        // the guest's comes first, we read the lower count and send a ticket.
        // Test: item_added_as_a_guest_leaves_is_run_or_gets_a_ticket
        !twin::armed("crew: tickets of leaving guests are enough")
            && tickets.fetch_add(0, Ordering::Release) < limit
    }

    fn enter(&self) -> bool {
        let enter = |word: u32| {
            let closed = word & CLOSED != 0 && !twin::armed("crew: a guest enters after the end");
            (!closed).then_some((word | VISITED) + GUEST_ONE)
        };
        // Relaxed suffices: the ticket published earlier work, and later work has its own ordering.
        let word = self.word.word();
        word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enter).is_ok()
    }

    fn leave(&self) {
        // ORDER(crew): publish and consume, other end in `load`.
        //   guest: the work;  guests -= 1, Release
        //   owner: guests = 0, Acquire;  drop the work
        // If the guest's decrement comes first, the owner sees all its writes. Otherwise it waits.
        // Test: a_closure_runs_once_whether_its_owner_or_a_worker_is_first
        let order = twin::order("crew: relaxed leave", Ordering::Release);
        let before = Word(self.word.word().fetch_sub(GUEST_ONE, order));
        if before.nr_guests() == 1
            && before.has(ASLEEP)
            && !twin::armed("crew: the last guest does not wake the owner")
        {
            self.wake_owner();
        }
    }

    /// Wakes the owner in [`sleep_while_empty`](Self::sleep_while_empty), to check for items again.
    pub(crate) fn wake_owner(&self) {
        // ORDER(wake-owner): publish and consume; both ends update this word, the other end in
        // `sleep_while_empty`.
        //   here:  item;  ASLEEP off, Release;  was it on? wake
        //   owner: ASLEEP on, Acquire;  item?
        // If our update comes first, the owner acquires it and finds the item. If the owner's comes
        // first, we see `ASLEEP` and wake it.
        // Test: sleeping_owner_starts_an_item_added_by_a_guest
        let before = self.word.word().fetch_and(!ASLEEP, Ordering::Release);
        if Word(before).has(ASLEEP) {
            self.word.wake(1);
        }
    }

    pub(crate) fn was_visited(&self) -> bool {
        Word(self.word.word().load(Ordering::Relaxed)).has(VISITED)
    }

    fn load(&self) -> Word {
        // ORDER(crew): other end in `leave`.
        // Test: a_closure_runs_once_whether_its_owner_or_a_worker_is_first
        Word(self.word.word().load(Ordering::Acquire))
    }

    /// Waits until no guest is left or `is_called` reports a call to
    /// [`wake_owner`](Self::wake_owner). The last guest, or `wake_owner`, ends the wait.
    pub(crate) fn sleep_while_empty(&self, on_one_cpu: bool, is_called: impl Fn() -> bool) {
        if twin::armed("crew: the end overlooks guests") {
            return;
        }
        let is_over = || self.load().nr_guests() == 0 || is_called();
        let came = if on_one_cpu { yield_as_waiter(is_over) } else { spin_as_waiter(is_over) };
        if came {
            return;
        }
        let sleep = |word: u32| (Word(word).nr_guests() > 0).then_some(word | ASLEEP);
        let word = self.word.word();
        // ORDER(wake-owner): other end in `wake_owner`.
        // Test: sleeping_owner_starts_an_item_added_by_a_guest
        while let Ok(before) = word.fetch_update(Ordering::Acquire, Ordering::Relaxed, sleep) {
            if is_called() {
                break;
            }
            report::while_asleep(|| self.word.wait(before | ASLEEP));
        }
        word.fetch_and(!ASLEEP, Ordering::Relaxed);
        // The failed update that found no guests was relaxed: acquire the guests' writes here.
        self.load();
    }

    /// Closes the crew to new guests, and waits until the last one has left and wakes this thread.
    pub(crate) fn close(&self, on_one_cpu: bool) {
        self.word.word().fetch_or(CLOSED, Ordering::Relaxed);
        while self.load().nr_guests() > 0 && !twin::armed("crew: the end overlooks guests") {
            self.sleep_while_empty(on_one_cpu, || false);
        }
    }

    /// Closes the crew to new guests if it has none now; returns `true` if the crew was closed.
    pub(crate) fn try_close(&self) -> bool {
        let overlooks = twin::armed("crew: the end overlooks guests");
        let close = |word: u32| (Word(word).nr_guests() == 0 || overlooks).then_some(word | CLOSED);
        let word = self.word.word();
        // ORDER(crew): other end in `leave`.
        // Test: a_closure_runs_once_whether_its_owner_or_a_worker_is_first
        word.fetch_update(Ordering::Acquire, Ordering::Relaxed, close).is_ok()
    }

    pub(crate) fn reopen(&self) {
        self.word.word().fetch_and(!CLOSED, Ordering::Relaxed);
    }
}

pub(crate) struct Ticket {
    pub(super) crew: Arc<Crew>,
    is_counted: bool,
}

impl Ticket {
    pub(crate) fn new(crew: Arc<Crew>) -> Self {
        crew.nr_tickets.fetch_add(1, Ordering::Relaxed);
        Self { crew, is_counted: true }
    }

    pub(crate) fn use_up(mut self) {
        if self.crew.enter() {
            // SAFETY: (1) of `Crew::new`: a guest keeps the crew from being closed permanently.
            unsafe { (self.crew.visit)(self.crew.work, &mut self) };
            self.crew.leave();
        }
    }

    /// Releases the ticket, before the guest checks for work for the last time.
    pub(super) fn count_off(&mut self) {
        if std::mem::take(&mut self.is_counted) {
            // ORDER(ticket): other end in `wants_ticket`.
            // Test: item_added_as_a_guest_leaves_is_run_or_gets_a_ticket
            self.crew.nr_tickets.fetch_sub(1, Ordering::Acquire);
        }
    }
}

sync::on_drop!(Ticket, ticket => ticket.count_off());

/// Sends a ticket. Returns `None` if `queue` rejects items or its workers may not be guests.
pub(super) fn send(queue: &Workqueue, crew: &Arc<Crew>) -> Option<JoinHandle<()>> {
    if queue.inner.core.bh || !queue.admits() {
        return None;
    }
    let ticket = Ticket::new(crew.clone());
    let func = move || ticket.use_up();
    let home = queue.here();
    let (item, handle) = join::joinable(Name::of(&func), AsTicket, func, home, false);
    home.push(item);
    Some(handle)
}

pub(super) struct Tickets {
    sent: Mutex<Vec<JoinHandle<()>>>,
    /// I: the maximum number of tickets at a time, not counting those of concurrent senders.
    limit: u32,
}

impl Tickets {
    pub(super) fn new(limit: u32) -> Self {
        Self { sent: Mutex::new(Vec::new()), limit }
    }

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
        // Above this length, about half of the tickets or more are used up.
        let used_up = if sent.len() > 2 * self.limit as usize {
            sent.extract_if(.., |ticket| ticket.is_finished()).collect()
        } else {
            Vec::new()
        };
        sent.push(ticket);
        drop(sent);
        drop(used_up);
    }

    /// Cancels the tickets that no worker has run.
    pub(super) fn take_back(&self) {
        // Take the newest ticket first: before the first batch, it is on top of the injector.
        let sent = std::mem::take(&mut *self.sent.lock());
        for mut ticket in sent.into_iter().rev() {
            ticket.cancel();
        }
    }
}

/// Runs the end of a scope. Aborts on a panic, because guests may still use the owner's stack.
pub(super) fn whole<R>(part: impl FnOnce() -> R) -> R {
    or_abort("the end of a scope panicked", part)
}

/// The first panic in a part of the work. The owner resumes it after all parts have ended, unless
/// the owner's own part panicked.
#[derive(Debug, Default)]
pub(super) struct FirstPanic(Mutex<Option<Payload>>);

impl FirstPanic {
    /// Records a panic in work of the queue `core`. Any panic but the first is reported to the
    /// queue's handler and dropped.
    #[cold]
    pub(super) fn note(&self, core: &QueueCore, payload: Payload) {
        let mut first = self.0.lock();
        let later = if first.is_some() { Some(payload) } else { first.replace(payload) };
        drop(first);
        core.note_panic(later.as_deref().map(|later| ("a part of a scope", later)));
        later.into_iter().for_each(discard);
    }

    /// Returns the value of the owner's own part if nothing panicked. Otherwise resumes the panic:
    /// the owner's own if its part panicked, otherwise the first recorded one.
    pub(super) fn go_on<R>(&self, own: Result<R, Payload>) -> R {
        let first = self.0.lock().take();
        match (own, first) {
            (Ok(value), None) => value,
            (Ok(value), Some(payload)) => {
                // FOREIGN(scope-run): the drop of the value of the owner's part, on the owner,
                // which resumes another panic; a panic in the drop is contained.
                contain(|| drop(value));
                resume_unwind(payload)
            }
            (Err(payload), first) => {
                first.into_iter().for_each(discard);
                resume_unwind(payload)
            }
        }
    }
}
