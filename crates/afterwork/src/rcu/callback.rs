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

use std::{cell::Cell, ptr};

use sync::{
    Mutex,
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence},
    cpu, identity, thread, twin,
    unmodelled::Arc,
};

use crossbeam_utils::CachePadded;

use super::{
    bag, fork,
    head::{Callback, Chain, Head},
    local::{global, mine},
    seq::{self, GpCookie},
};
use crate::{page::Count, panics, wake::EventCount};

/// Lists; CPUs beyond share them by turns. A power of two.
const NR_LISTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// How many callbacks run between two offers of the CPU to others. The kernel's `blimit` is 10 in a context that
/// nothing may preempt; here it keeps a flood from holding a small machine for a whole time slice.
const BLIMIT: u64 = 1024;

/// How callbacks are run: on the sweeping thread, or where the user says.
type Executor = Arc<dyn Fn(Batch) + Send + Sync>;

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
    /// A: statistics.
    nr_panicked: AtomicU64,
    /// Statistics.
    nr_run: Count,
    /// Where the sweeper waits for work.
    work: EventCount,
    /// Where barriers wait for the end of sweeps.
    swept: EventCount,
    /// A: the thread that sweeps (`sync::identity`), 0 for none.
    sweeper: AtomicU64,
    executor: Mutex<Option<Executor>>,
    /// A: whether there is a thread that sweeps for ever: `NONE`, `STARTING` or `THERE`.
    thread: AtomicU32,
}

/// Callbacks whose grace period has passed, to be run wherever [`run_callbacks_on`](super::run_callbacks_on) wants.
///
/// Dropping it runs them there and then.
#[must_use = "dropping a batch runs it at once"]
pub struct Batch {
    chain: Chain,
    /// Told when all have run.
    done: Option<Arc<(AtomicBool, EventCount)>>,
}

sync::thread_local! {
    /// Whether this thread runs callbacks.
    static RUNS: Cell<bool> = Cell::new(false)
}

/// Says whether this thread is in a callback, where waiting for callbacks is waiting for itself.
pub(super) fn in_callback() -> bool {
    RUNS.try_with(Cell::get).unwrap_or(false)
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
                nr_panicked: AtomicU64::new(0),
                nr_run: Count::new(),
                work: EventCount::new(),
                swept: EventCount::new(),
                sweeper: AtomicU64::new(0),
                executor: Mutex::new(None),
                thread: AtomicU32::new(NONE),
            }
        }
    }

    /// Hands over a closure.
    #[inline]
    pub(super) fn add(&self, closure: impl FnOnce() + Send + 'static) {
        bag::add(closure, |bag| self.push(bag));
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
        if first.is_null() {
            self.wake();
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

    /// Starts the sweeper's thread once; a model sweeps by itself. Where the system refuses a thread, the next push
    /// tries again, and barriers sweep.
    fn start(&self) {
        if self.has_no_thread() {
            self.start_now();
        }
    }

    #[cold]
    fn start_now(&self) {
        fork::watch();
        // Relaxed, here and below: what the thread sweeps is published by the lists.
        let (none, starting) = (NONE, STARTING);
        let claimed =
            self.thread
                .compare_exchange(none, starting, Ordering::Relaxed, Ordering::Relaxed);
        if claimed.is_ok() {
            let started = thread::spawn("rcu", sweep_for_ever).is_ok();
            let thread = if started { THERE } else { NONE };
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
            let (domain, me) = (global(), mine());
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
        self.run(chain);
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

    fn run(&self, chain: Chain) {
        let executor = self.executor.lock().clone();
        match executor {
            Some(executor) if !chain.is_empty() => {
                let done = Arc::new((AtomicBool::new(false), EventCount::new()));
                let batch = Batch {
                    chain,
                    done: Some(done.clone()),
                };
                // A batch that is dropped by a panic has run.
                if panics::contain(|| executor(batch)) {
                    self.nr_panicked.fetch_add(1, Ordering::Relaxed);
                }
                done.1.wait_until(|| done.0.load(Ordering::Acquire));
            }
            _ => drop(Batch { chain, done: None }),
        }
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
        while !self.is_swept(cookie) {
            if self.has_no_thread() {
                // None is to be had: sweep here, as often as it takes.
                self.sweep();
            } else {
                self.swept
                    .wait_until(|| self.is_swept(cookie) || self.has_no_thread());
            }
        }
    }

    /// Says whether nobody sweeps unless told. Never in a model, which has a thread of its own for that.
    fn has_no_thread(&self) -> bool {
        !cfg!(any(loom, shuttle)) && self.thread.load(Ordering::Relaxed) == NONE
    }

    fn is_swept(&self, cookie: GpCookie) -> bool {
        // ORDER(swept): the other end; see `sweep`.
        // Test: barrier_waits_for_every_earlier_callback
        cookie.is_over(self.sweep_seq.load(Ordering::Acquire))
    }

    pub(super) fn set_executor(&self, executor: Option<Executor>) {
        let before = std::mem::replace(&mut *self.executor.lock(), executor);
        // With no lock held: it is the user's.
        drop(before);
    }

    pub(super) fn executor(&self) -> &Mutex<Option<Executor>> {
        &self.executor
    }

    /// Makes all as it is where nothing was ever handed over, in a child of `fork`; see `fork.rs`.
    pub(super) fn inherit(&self) {
        for list in &self.lists {
            list.store(ptr::null_mut(), Ordering::Relaxed);
        }
        // It was on one of them.
        bag::leave();
        self.is_wanted.store(false, Ordering::Relaxed);
        // Not dropped: what it holds may be in any state.
        std::mem::forget(self.executor.lock().take());
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

    pub(super) fn nr_panicked(&self) -> u64 {
        self.nr_panicked.load(Ordering::Relaxed)
    }

    /// Returns how many callbacks have run.
    pub(super) fn nr_run(&self) -> u64 {
        self.nr_run.read()
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

/// The sweeper's thread. Woken by whoever pushes onto an empty list.
fn sweep_for_ever() {
    loop {
        callbacks().sweep_when_wanted();
    }
}

impl Batch {
    /// Runs the callbacks.
    ///
    /// A panic in one is caught and counted (see [`nr_panicked`](super::nr_panicked)), and loses no other.
    pub fn run(self) {
        drop(self);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let ran_before = in_callback();
        RUNS.try_with(|runs| runs.set(true)).ok();
        let mut nr_run = 0_u64;
        for head in &mut self.chain {
            let run_one = |callback: Callback| {
                // SAFETY: from `each` below, and the grace period of a batch has passed.
                let run = || unsafe { callback.run() };
                if panics::contain(run) {
                    callbacks().nr_panicked.fetch_add(1, Ordering::Relaxed);
                }
                nr_run += 1;
                if nr_run.is_multiple_of(BLIMIT) {
                    thread::yield_now();
                }
            };
            // SAFETY: a chain closes its heads and yields each once.
            unsafe { Head::each(head, run_one) };
        }
        callbacks().nr_run.add(nr_run);
        RUNS.try_with(|runs| runs.set(ran_before)).ok();
        if let Some(done) = self.done.take() {
            done.0.store(true, Ordering::Release);
            done.1.notify_all();
        }
    }
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").finish_non_exhaustive()
    }
}
