//! What runs after a grace period: lists by CPU, swept by one thread.
//!
//! # The lists
//!
//! [`call`](super::call) adds to the bag that the caller has open (`bag.rs`), or pushes a new one onto the list of the
//! caller's CPU, by one compare-exchange either way. A *sweep* takes all lists
//! whole, waits for a grace period that begins after that, and runs what it took, oldest first. What is pushed meanwhile
//! waits for the next sweep, so the more there is, the more share a grace period. Nothing is polled: a push onto an
//! empty list wakes a sweeper that sleeps, and one that does not sleep will look. A closure that joins a bag wakes nobody:
//! whoever pushed the bag has, and the bag takes it only until the sweeper is there.
//!
//! There is no mark above which more callbacks would hurry grace periods: none of them waits for a time, and each sweep
//! takes all there is.
//!
//! # Barrier
//!
//! `sweep_seq` is odd while a sweep is under way, as `gp_seq` is for a grace period, and whoever waits notes a cookie in
//! the same way: a sweep that *begins* after [`barrier`](super::barrier) was called finds all that was pushed before.
//!
//! ```text
//! pusher:  push to a list;                       (a barrier is called after that, by this thread or one it told)
//! barrier: fence;  load sweep_seq → cookie
//! sweeper: is_wanted = false;  sweep_seq = odd;  fence;  take the lists;  grace period;  run;  sweep_seq = even
//! ```
//!
//! A running sweep may have passed a list before the push; it does not count (twin `rcu: barrier joins a running
//! sweep`). When all lists are empty and no sweep is under way there is nothing to wait for: the lists are looked at
//! first, so a callback that a sweep has just taken shows in `sweep_seq`.
//!
//! # Without a thread
//!
//! The system may refuse the sweeper's thread. `call` does not block, so it sweeps nothing: it tries again. A thread that
//! pushed a bag in vain marks it (`bag.rs`), and each closure that joins it tries, at most once in [`RETRY_NS`]. Whoever
//! waits for callbacks meanwhile sweeps.

use std::ptr;

use sync::{
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
    cpu, identity, thread, time, twin,
};

use crossbeam_utils::CachePadded;

use super::{
    bag,
    batch::place,
    fork,
    head::{Chain, Head},
    local::{global, mine, outside_of_sections},
    seq::{self, GpCookie},
    slot::Slot,
};
use crate::{panics, wake::EventCount};

/// Lists; CPUs beyond share them by turns. A power of two.
const NR_LISTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// How long a refusal of the thread stands before another attempt: one costs some 50 us, which may be paid by whoever
/// calls. A guess.
const RETRY_NS: u64 = 10_000_000;

const NONE: u32 = 0;
const STARTING: u32 = 1;
const THERE: u32 = 2;

/// All callbacks of the process.
pub(super) struct Callbacks {
    lists: [CachePadded<AtomicPtr<Head>>; NR_LISTS],
    /// Written by the sweeper.
    sweep_seq: CachePadded<AtomicU64>,
    /// A: somebody wants a grace period, or a sweep although there may be nothing to sweep.
    is_wanted: AtomicBool,
    /// Where the sweeper waits for work.
    work: EventCount,
    /// Where barriers wait for the end of sweeps.
    swept: EventCount,
    /// A: the thread that sweeps (`sync::identity`), 0 for none.
    sweeper: AtomicU64,
    /// A: whether there is a thread that sweeps for ever: `NONE`, `STARTING` or `THERE`.
    thread: AtomicU32,
    /// A: not to be tried for before this time, by `time::now_ns`.
    retry_ns: AtomicU64,
}

sync::process_wide! {
    /// Returns the callbacks of this process.
    pub(super) fn callbacks() -> Callbacks = Callbacks::new()
}

impl Callbacks {
    sync::const_unless_model! {
        fn new() -> Self {
            Self {
                lists: new_lists(),
                sweep_seq: CachePadded::new(AtomicU64::new(0)),
                is_wanted: AtomicBool::new(false),
                work: EventCount::new(),
                swept: EventCount::new(),
                sweeper: AtomicU64::new(0),
                thread: AtomicU32::new(NONE),
                retry_ns: AtomicU64::new(0),
            }
        }
    }

    /// Hands over a closure.
    #[inline]
    pub(super) fn add(&self, closure: impl FnOnce() + Send + 'static) {
        bag::add(closure, |bag| match bag {
            Some(bag) => self.push(bag),
            None => self.start(),
        });
    }

    /// Hands over a head of the user's, behind what this thread handed over before.
    pub(super) fn add_head(&self, head: *mut Head) {
        bag::leave();
        self.push(head);
    }

    fn push(&self, head: *mut Head) {
        let list = &self.lists[cpu::current().index() % NR_LISTS];
        let mut first = list.load(Ordering::Relaxed);
        loop {
            // SAFETY: the caller handed `head` over, and nobody else knows it until the push succeeds.
            unsafe { (*head).set_next(first) };
            // ORDER(callback): publish and consume, other end in `take`.
            //   here: a callback;  list = callback Release
            //   take: list = null Acquire;  run it
            // Test: a_callback_runs_after_its_grace_period
            match list.compare_exchange_weak(first, head, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => first = now,
            }
        }
        // Whoever found the list empty wakes; the sweeper takes lists whole.
        if first.is_null() || self.has_no_thread() {
            self.wake();
            if self.has_no_thread() {
                bag::leave_unswept();
            }
        }
    }

    /// Wants a sweep, and with it a grace period, whether there are callbacks or not.
    pub(super) fn want(&self) {
        // Release: the grace period that follows is later than any cookie that the caller has.
        // A swap, for loom lets a plain store slip behind a sweeper's swap that came earlier.
        self.is_wanted.swap(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.start();
        // Its fence orders the push, or the wish, before the look for a sleeping sweeper.
        self.work.notify_all();
    }

    /// Returns `true` if what was handed over will run without a further call; asks for a thread again that was refused.
    pub(super) fn is_served(&self) -> bool {
        self.start();
        cfg!(any(loom, shuttle)) || self.thread.load(Ordering::Relaxed) == THERE
    }

    /// Starts the sweeper's thread once; a model sweeps by itself. Where the system refuses a thread, each later call tries
    /// again, but for a while after an attempt, and barriers sweep.
    fn start(&self) {
        if self.has_no_thread() {
            self.start_now();
        }
    }

    #[cold]
    fn start_now(&self) {
        fork::watch();
        // Relaxed, here and below: what the thread sweeps is published by the lists.
        if time::now_ns() < self.retry_ns.load(Ordering::Relaxed) {
            return;
        }
        let (none, starting) = (NONE, STARTING);
        let claimed =
            self.thread
                .compare_exchange(none, starting, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_ok() {
            let started = thread::spawn("rcu", sweep_for_ever).is_ok();
            let thread = if started { THERE } else { NONE };
            if !started {
                let retry_ns = time::now_ns() + RETRY_NS;
                self.retry_ns.store(retry_ns, Ordering::Relaxed);
            }
            self.thread.store(thread, Ordering::Relaxed);
            if !started {
                // A barrier may have relied on it.
                self.swept.notify_all();
            }
        }
    }

    pub(super) fn has_work(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed) || !self.is_empty()
    }

    fn is_empty(&self) -> bool {
        let is_empty = |list: &CachePadded<AtomicPtr<Head>>| list.load(Ordering::Acquire).is_null();
        self.lists.iter().all(is_empty)
    }

    /// Takes all lists, waits for a grace period and runs what was taken.
    pub(super) fn sweep(&self) {
        let me = identity::mine().get();
        // Woken by whoever has swept.
        self.swept.wait_until(|| self.take_turn(me));
        // Before the sweep begins: a barrier that finds this one under way wants another.
        let gp_wanted = self.is_wanted.swap(false, Ordering::Acquire);
        let seq = self.sweep_seq.load(Ordering::Relaxed).wrapping_add(1);
        self.sweep_seq.store(seq, Ordering::Relaxed);
        // ORDER(sweep): store buffering, other end in `barrier`; see the top of the file.
        // Test: barrier_waits_for_every_earlier_callback
        fence(Ordering::SeqCst);
        let mut chain = Chain::new();
        for list in &self.lists {
            if !list.load(Ordering::Relaxed).is_null() {
                // ORDER(callback): the other end; see `push`.
                // Test: a_callback_runs_after_its_grace_period
                let newest = list.swap(ptr::null_mut(), Ordering::AcqRel);
                // SAFETY: pushed heads were handed over, and the swap made the list ours.
                chain.append(unsafe { Chain::from_newest(newest) });
            }
        }
        if !twin::armed("rcu: callbacks without a grace period") {
            let (domain, me) = (global(), idle_slot());
            if gp_wanted {
                // One that is counted, for whoever polls.
                domain.wait_for(domain.state(), me);
            } else {
                domain.synchronize(me);
            }
        }
        if twin::armed("rcu: a callback is lost") {
            chain.next();
        }
        place().run(chain);
        // ORDER(swept): publish and consume, other end in `is_swept`: what callbacks did is done for a barrier.
        // Test: barrier_waits_for_every_earlier_callback
        self.sweep_seq.store(seq.wrapping_add(1), Ordering::Release);
        // ORDER(sweeper): the other end; see `take_turn`.
        // Test: two_sweeps_take_turns
        self.sweeper.store(0, Ordering::Release);
        self.swept.notify_all();
    }

    /// Takes the right to sweep for the thread `me`, if nobody has it.
    fn take_turn(&self, me: u64) -> bool {
        if twin::armed("rcu: sweeps overlap") {
            return true;
        }
        // ORDER(sweeper): publish and consume, other end in `sweep`: one sweep's words become the next one's.
        // Test: two_sweeps_take_turns
        self.sweeper
            .compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Waits until all callbacks have run that were handed over before.
    pub(super) fn barrier(&self) {
        let cookie = if twin::armed("rcu: barrier joins a running sweep") {
            GpCookie::after(self.sweep_seq.load(Ordering::Relaxed) & !1)
        } else {
            // ORDER(sweep): the other end; see the top of the file.
            // Test: barrier_waits_for_every_earlier_callback
            fence(Ordering::SeqCst);
            let is_empty = self.is_empty();
            let seq = self.sweep_seq.load(Ordering::Acquire);
            if is_empty && seq & 1 == 0 {
                return;
            }
            GpCookie::after(seq)
        };
        self.want();
        self.wait_until("barrier", || self.is_swept(cookie));
    }

    /// Wakes those in [`wait_until`](Self::wait_until), for a callback that makes it true.
    pub(super) fn tell_who_waits(&self) {
        self.swept.notify_all();
    }

    /// Waits until `is_done`, which a callback or the end of a sweep makes true.
    ///
    /// # Panics
    ///
    /// When it has to sweep here and a callback has left a section open on this thread: the next sweep would wait for it.
    pub(super) fn wait_until(&self, what: &str, is_done: impl Fn() -> bool) {
        while !is_done() {
            if self.has_no_thread() {
                // None is to be had: sweep here, as often as it takes.
                outside_of_sections(what);
                self.sweep();
            } else {
                self.swept.wait_until(|| is_done() || self.has_no_thread());
            }
        }
    }

    /// Returns `true` if nobody sweeps unless told. Never in a model, which has a thread of its own for that.
    fn has_no_thread(&self) -> bool {
        !cfg!(any(loom, shuttle)) && self.thread.load(Ordering::Relaxed) == NONE
    }

    fn is_swept(&self, cookie: GpCookie) -> bool {
        // ORDER(swept): the other end; see `sweep`.
        // Test: barrier_waits_for_every_earlier_callback
        cookie.is_over(self.sweep_seq.load(Ordering::Acquire))
    }

    /// Makes all as it is where nothing was ever handed over, in a child of `fork`; see `fork.rs`.
    pub(super) fn inherit(&self) {
        for list in &self.lists {
            list.store(ptr::null_mut(), Ordering::Relaxed);
        }
        // It was on one of them.
        bag::leave();
        self.is_wanted.store(false, Ordering::Relaxed);
        place().inherit();
        self.work.forget();
        self.swept.forget();
        if self.sweeper.load(Ordering::Relaxed) == identity::mine().get() {
            // In a callback: this sweep goes on, and this thread with it.
            return;
        }
        self.sweeper.store(0, Ordering::Relaxed);
        let ended = seq::before(self.sweep_seq());
        self.sweep_seq.store(ended, Ordering::Relaxed);
        self.thread.store(NONE, Ordering::Relaxed);
    }

    /// Returns how far sweeps have come: two for each, odd while one is under way.
    pub(super) fn sweep_seq(&self) -> u64 {
        self.sweep_seq.load(Ordering::Relaxed)
    }

    /// Waits for work and sweeps, once.
    pub(super) fn sweep_when_wanted(&self) {
        self.work.wait_until(|| self.has_work());
        self.sweep();
    }
}

#[cfg(not(any(loom, shuttle)))]
const fn new_lists() -> [CachePadded<AtomicPtr<Head>>; NR_LISTS] {
    [const { CachePadded::new(AtomicPtr::new(ptr::null_mut())) }; NR_LISTS]
}

#[cfg(any(loom, shuttle))]
fn new_lists() -> [CachePadded<AtomicPtr<Head>>; NR_LISTS] {
    std::array::from_fn(|_| CachePadded::new(AtomicPtr::new(ptr::null_mut())))
}

/// Returns the slot that a grace period of this thread's may overlook: its own, unless that is in a section.
///
/// A callback, or an executor, may have left one open on the sweeping thread. It protects what it saw as any section does:
/// then the sweep waits for itself, which is told as any stall is, and no grace period of the process ends.
pub(super) fn idle_slot() -> Option<&'static Slot> {
    mine().filter(|slot| {
        !slot.is_in_section() || twin::armed("rcu: a sweep overlooks its own section")
    })
}

/// The sweeper's thread. Woken by whoever pushes onto an empty list.
fn sweep_for_ever() {
    panics::or_abort("the thread of RCU callbacks failed", || {
        loop {
            callbacks().sweep_when_wanted();
        }
    });
}
