//! Callbacks that wait for a grace period: one list for each CPU, swept by one thread.
//!
//! # The lists
//!
//! [`call`] adds to the open bag of its thread (`bag.rs`), or pushes a new bag onto the list of its
//! CPU. A *sweep* takes all callbacks of each list, waits for a grace period that begins after
//! that, and runs the callbacks, oldest first. Callbacks that are pushed in the meantime wait for
//! the next sweep, so more callbacks share a grace period under load.
//!
//! No thread polls. A push onto an empty list wakes the sweeper if it sleeps, and a sweeper that is
//! awake checks the lists before it sleeps. A closure that joins a bag wakes no thread, because the
//! push of the bag has done so.
//!
//! # Barrier
//!
//! `sweep_seq` is odd while a sweep runs, and waiters use cookies as they do with `gp_seq`. A sweep
//! that *begins* after [`barrier`] was called finds everything that was pushed before.
//!
//! ```text
//! pusher:  push to a list;                       (a barrier is called after that)
//! barrier: fence;  load sweep_seq → cookie
//! sweeper: is_wanted = false;  sweep_seq = odd;  fence;  take the lists;  grace period;  run;
//!          sweep_seq = even
//! ```
//!
//! A sweep that is already running may have passed a list before the push, so it does not count
//! (twin `rcu: barrier joins a running sweep`). If all lists are empty and no sweep runs, there is
//! nothing to wait for. The lists are read before `sweep_seq`, so a callback that a sweep has just
//! taken is visible through `sweep_seq`.
//!
//! # Without a thread
//!
//! Starting the sweeper's thread may fail. `call` must not block, so it does not sweep itself.
//! Instead, later calls try again: a bag without a sweeper is marked `UNSWEPT` (`bag.rs`), and each
//! closure that joins it tries to start the thread, at most once per [`RETRY_NS`]. A start that
//! another thread has begun does not count, because it may fail later. A thread that waits for
//! callbacks sweeps itself.
//!
//! # Above the mark
//!
//! A list is *above its mark* if it holds more callbacks than `rcu.qhimark`. A thread that adds to
//! such a list waits until a sweep takes the list, if the thread may wait. It runs no callbacks
//! itself, because it may hold a lock that one of them acquires.
//!
//! A wait must not last forever, because `call` may be used under a lock that a callback or a
//! reader needs. Each wait therefore ends after a limited time ([`FIRST_WAIT_NS`]). The list may
//! then grow by another mark's worth before threads wait again, for twice as long, up to
//! [`LONGEST_WAIT_NS`], and the delay is reported. A sweep resets the list to the first mark.
//!
//! If all threads that add to a list may wait, the list holds at most 8 + t marks, t seconds after
//! the last sweep took it: the waits at the first seven marks take 1.27 s together, and each later
//! wait takes a second. A thread that may not wait passes a mark at once, on behalf of all threads.
//! Only [`try_call`] has a hard bound.
//!
//! All numbers of a [`Backlog`] are hints. A lost update makes a wait a little longer or skips it.

use std::ptr;

use base::internal::panics;
use base::internal::wake::EventCount;
use crossbeam_utils::CachePadded;
use mpscq::RawStack;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
use sync::{cpu, identity, thread, time, twin};

use super::batch::{Batch, in_callback, place};
use super::head::{Chain, Head};
use super::local::{global, may_wait_for_callbacks, mine, outside_of_sections};
use super::periods::{self, GpCookie};
use super::slot::Slot;
use super::{bag, fork, stall, tunables};

/// The number of lists, a power of two. CPU `n` uses list `n` modulo this number.
const NR_LISTS: usize = if cfg!(any(loom, shuttle)) { 2 } else { 64 };
/// The time between a failed thread creation and the next attempt, which costs about 50 µs. A
/// guess.
pub(super) const RETRY_NS: u64 = 10_000_000;

/// The length of a wait above the first mark. A sweep takes a few milliseconds without readers.
const FIRST_WAIT_NS: u64 = 10_000_000;
/// The longest wait. With this wait at each mark, and the default mark, memory grows by ten
/// thousand callbacks a second for each thread that adds them.
const LONGEST_WAIT_NS: u64 = 1_000_000_000;

const NONE: u32 = 0;
const STARTING: u32 = 1;
const THERE: u32 = 2;

/// Runs `callback` after a grace period, on a library thread or on the executor of
/// [`run_callbacks_on`].
///
/// # Guarantees
///
/// - Every section that is open at the time of the call has ended when the callback runs.
/// - Callbacks of a thread run in order while the thread stays on one CPU.
/// - A panic in a callback is caught and counted ([`nr_panicked`]), and the other callbacks run.
/// - No timer is involved: if no thread is in a section, the callback runs as soon as the library's
///   thread is awake.
///
/// If a callback leaves a section open on the library's thread, no later callback runs.
///
/// Differs from Linux: the object that is reclaimed contains no `rcu_head`, because the closure is
/// stored in a bag of the calling thread. Only C programs embed a head in the object (`call_rcu` in
/// `afterwork/rcupdate.h`).
///
/// A call costs one locked instruction, and an allocation if the closure captures more than three
/// words. About one call in sixty may also cost an allocation and a system call, and so may each
/// call from the last destructors of an exiting thread's thread-locals.
///
/// # Blocking
///
/// Does not block while fewer than `rcu.qhimark` ([`Tunables`](super::Tunables)) callbacks are
/// pending on this CPU. A thread that adds to a longer list waits until a sweep takes the list, for
/// at most 10 ms. If the list keeps growing because a reader or a callback delays the callbacks,
/// the thread waits for up to a second. This is reported on stderr, once per stall timeout. It
/// never waits in an RCU section, in a callback, in an item of a bottom-half queue, or while the
/// thread is exiting.
///
/// It may be called in a section, in a work item, in a callback, and under a lock that a callback
/// acquires. The first call starts the thread. If thread creation fails, later calls try again, and
/// [`barrier`] runs the callbacks itself.
///
/// # Examples
///
/// ```
/// use afterwork::rcu;
/// use std::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel();
/// rcu::call(move || sender.send("no reader is left").unwrap());
/// assert_eq!(receiver.recv().unwrap(), "no reader is left");
/// ```
#[doc(alias = "call_rcu")]
pub fn call(callback: impl FnOnce() + Send + 'static) {
    callbacks().add(callback, true);
}

/// Runs `callback` as [`call`] does, unless too many callbacks are pending. Never blocks.
///
/// Use it on a thread that has an alternative: for example, to free the memory later, to shed load,
/// or to wait outside of its locks.
///
/// # Guarantees
///
/// This function adds no callback to a list that holds `rcu.qhimark`
/// ([`Tunables`](super::Tunables)) callbacks or more; a mark of 0 means that there is no limit. The
/// last closures of each thread, up to 252, are not counted yet, and four closures without captures
/// count as one. A sweep empties a list at the start of its grace period, so up to twice as many
/// callbacks can exist.
///
/// # Errors
///
/// Returns [`Full`] with `callback`, which has not been queued.
///
/// # Examples
///
/// ```
/// use afterwork::rcu::{self, Full};
///
/// let memory = vec![0_u8; 1000];
/// if let Err(Full(callback)) = rcu::try_call(move || drop(memory)) {
///     rcu::synchronize(); // no lock is held here
///     callback();
/// }
/// # rcu::barrier();
/// ```
pub fn try_call<F: FnOnce() + Send + 'static>(callback: F) -> Result<(), Full<F>> {
    if callbacks().is_full() {
        return Err(Full(callback));
    }
    call_at_once(callback);
    Ok(())
}

/// The error of a callback that was rejected because too many callbacks are pending. It contains
/// the closure, or the value that was to be stored.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<T>(pub T);

// This is written by hand, because closures do not implement `Debug`.
impl<T> std::fmt::Debug for Full<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<T> std::fmt::Display for Full<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too many callbacks wait for a grace period")
    }
}

impl<T> std::error::Error for Full<T> {}

/// Runs `callback` as [`call`] does, but never blocks. Use it for callbacks whose number is bounded
/// by other means.
pub fn call_at_once(callback: impl FnOnce() + Send + 'static) {
    callbacks().add(callback, false);
}

/// Drops `value`, which the caller has just unlinked, after a grace period.
///
/// # Blocking
///
/// The same as [`call`].
///
/// # Examples
///
/// ```
/// afterwork::rcu::call_drop(Box::new([0_u8; 1000]));
/// afterwork::rcu::barrier();
/// ```
#[doc(alias("kfree_rcu", "kfree_rcu_mightsleep"))]
pub fn call_drop<T: Send + 'static>(value: T) {
    call(move || drop(value));
}

/// Waits until every callback that was queued before this call has run.
///
/// Returns at once if there is no such callback.
///
/// Differs from Linux: this waits for the list of a CPU even if that CPU has never queued
/// callbacks.
///
/// # Blocking
///
/// Blocks for up to two grace periods and for the callbacks.
///
/// # Panics
///
/// Panics if this thread is in a section, in a callback, in the executor of [`run_callbacks_on`],
/// or in a stall handler, where it would wait for itself. Also panics if called in an item of a
/// bottom-half queue.
#[doc(alias = "rcu_barrier")]
pub fn barrier() {
    assert!(!in_callback(), "barrier inside a callback waits for itself");
    outside_of_sections("barrier");
    callbacks().barrier();
}

/// Returns a cookie as [`get_state`](super::get_state) does, and starts the grace period that it
/// needs.
///
/// # Blocking
///
/// Never blocks. It may be called in a section.
#[doc(alias = "start_poll_synchronize_rcu")]
pub fn start_poll() -> GpCookie {
    let cookie = global().state_to_poll();
    callbacks().want();
    cookie
}

/// Sets the executor of callbacks. `None` restores the library's own thread.
///
/// `executor` receives one batch at a time, the next one after the previous one has run, and passes
/// it on, for example to an item of a workqueue, which calls [`Batch::run`]. The change applies to
/// the whole process, from the next grace period on.
///
/// A panic in `executor` is caught, and counted like a panic in a callback ([`nr_panicked`]).
///
/// The library reclaims a batch that has not begun and runs it on its own thread if `executor` has
/// been replaced, or if the batch has waited for `rcu.stall_timeout`. The second case is reported
/// on stderr.
///
/// # Blocking
///
/// Never blocks.
///
/// # Examples
///
/// ```
/// use afterwork::{rcu, workqueue::Workqueue};
///
/// let queue = Workqueue::builder("rcu callbacks").build().unwrap();
/// rcu::run_callbacks_on(Some(Box::new(move |batch: rcu::Batch| {
///     drop(queue.spawn(move || batch.run()));
/// })));
/// rcu::call(|| ());
/// rcu::barrier();
/// rcu::run_callbacks_on(None);
/// ```
#[doc(alias("create_call_rcu_data", "set_cpu_call_rcu_data"))]
pub fn run_callbacks_on(executor: Option<Box<dyn Fn(Batch) + Send + Sync>>) {
    fork::register();
    place().set(executor);
}

/// Returns the number of panics in callbacks and executors that have been caught.
pub fn nr_panicked() -> u64 {
    place().nr_panicked.load(Ordering::Relaxed)
}

pub(super) struct Callbacks {
    lists: [CachePadded<List>; NR_LISTS],
    /// The sequence number of sweeps, which is odd while a sweep runs. Only the sweeper writes it.
    pub(super) sweep_seq: CachePadded<AtomicU64>,
    /// A: `true` if a sweep is requested even if the lists are empty.
    is_wanted: AtomicBool,
    work: EventCount,
    /// Barriers wait here until sweeps end.
    pub(super) swept: EventCount,
    /// A: the number of the thread that is sweeping (`sync::identity`), or 0 if there is none.
    sweeper: AtomicU64,
    /// A: the state of the library's sweeping thread: `NONE`, `STARTING` or `THERE`.
    thread: AtomicU32,
    /// A: the earliest time of the next attempt to start the thread, by `time::now_ns`.
    retry_ns: AtomicU64,
}

/// The callbacks that were added on the CPUs that share the list.
struct List {
    newest: RawStack<Head>,
    /// A: the approximate number of callbacks, except some in open bags (`bag.rs`).
    nr: AtomicUsize,
    backlog: Backlog,
}

sync::process_wide! {
    pub(super) fn callbacks() -> Callbacks = Callbacks::new()
}

impl Callbacks {
    sync::const_unless_model! {
        fn new() -> Self {
            Self {
                lists: sync::array_of![
                    CachePadded::new(List {
                        newest: RawStack::new(),
                        nr: AtomicUsize::new(0),
                        backlog: Backlog::new(),
                    });
                    NR_LISTS
                ],
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

    /// Adds a closure. If `may_wait` is set, may wait for a limited time (`Backlog`).
    #[inline]
    pub(super) fn add(&self, closure: impl FnOnce() + Send + 'static, may_wait: bool) {
        bag::add(closure, |bag| match bag {
            Some((bag, nr)) => {
                let above = self.push(bag, nr);
                self.slow_down(above.filter(|_| may_wait));
            }
            None => self.start(),
        });
    }

    pub(super) fn is_full(&self) -> bool {
        Backlog::is_full(self.lists[cpu::current().index() % NR_LISTS].nr.load(Ordering::Relaxed))
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn add_head(&self, head: *mut Head) {
        let nr_left = bag::leave();
        self.slow_down(self.push(head, nr_left + 1));
    }

    /// Pushes a head that counts as `nr` callbacks. Returns the list if it is above its mark then.
    fn push(&self, head: *mut Head, nr: usize) -> Option<&List> {
        let list = &self.lists[cpu::current().index() % NR_LISTS];
        // A sweep that takes the head resets the count, so an increment after the push would remain
        // until the next sweep of this list.
        let nr = list.nr.fetch_add(nr, Ordering::Relaxed) + nr;
        // SAFETY: the caller owns `head`, and no other thread knows it until the push succeeds.
        let link = |below| unsafe { (*head).next = below };
        let first = list.newest.push(head, link);
        // One wake-up for each list that was empty is enough, because a sweep takes whole lists. A
        // push also wakes the sweeper while another thread starts it, because that start may fail
        // and must then be tried again.
        if first.is_null() || !self.has_thread() {
            self.wake();
            if !self.has_thread() {
                bag::leave_unswept();
            }
        }
        list.backlog.is_above(nr).then_some(&**list)
    }

    /// If `above` is a list above its mark, waits for a limited time.
    fn slow_down(&self, above: Option<&List>) {
        // Without a sweeping thread, a wait would not help.
        if let Some(List { nr, backlog, .. }) = above
            && !self.has_no_thread()
        {
            let nr = || nr.load(Ordering::Relaxed);
            backlog.wait(may_wait_for_callbacks(), &self.swept, nr);
        }
    }

    /// Requests a sweep, and with it a grace period, even if there are no callbacks.
    pub(super) fn want(&self) {
        // Release pairs with the Acquire swap in `sweep`: a sweep that takes the request begins its
        // grace period after the caller's cookie. This is a swap, because loom lets a plain store
        // take effect after a sweeper's swap that came earlier.
        self.is_wanted.swap(true, Ordering::Release);
        self.wake();
    }

    fn wake(&self) {
        self.start();
        // The fence inside orders the push, or the request, before the check for a sleeping
        // sweeper.
        self.work.notify_all();
    }

    /// Returns `true` if callbacks will run without a further call. Starts the thread if needed.
    pub(super) fn is_served(&self) -> bool {
        self.start();
        self.has_thread()
    }

    fn start(&self) {
        if self.has_no_thread() {
            self.start_now();
        }
    }

    #[cold]
    fn start_now(&self) {
        fork::watch();
        tunables::settle();
        // Relaxed is sufficient here and below, because the lists publish their callbacks.
        if time::now_ns() < self.retry_ns.load(Ordering::Relaxed) {
            return;
        }
        let relaxed = Ordering::Relaxed;
        if self.thread.compare_exchange(NONE, STARTING, relaxed, relaxed).is_err() {
            return;
        }
        if thread::spawn("rcu", sweep_for_ever).is_ok() {
            return self.thread.store(THERE, Ordering::Relaxed);
        }
        self.retry_ns.store(time::now_ns() + RETRY_NS, Ordering::Relaxed);
        self.thread.store(NONE, Ordering::Relaxed);
        // A barrier may be waiting for this thread, which could not be started.
        self.swept.notify_all();
    }

    pub(super) fn has_work(&self) -> bool {
        self.is_wanted.load(Ordering::Relaxed) || !self.is_empty()
    }

    fn is_empty(&self) -> bool {
        // Acquire pairs with the fence in `sweep`. If we read the null that a sweep left, our next
        // load of `sweep_seq` returns that sweep's odd number or a later one.
        self.lists.iter().all(|list| list.newest.top().load(Ordering::Acquire).is_null())
    }

    /// Takes all lists, waits for a grace period and runs the callbacks. Returns their number, or 0
    /// if an executor ran them.
    pub(super) fn sweep(&self) -> u64 {
        let me = identity::mine().get();
        // The thread that finishes its sweep wakes this one.
        self.swept.wait_until(|| self.take_turn(me));
        // This comes before the sweep begins, because a barrier that sees this sweep running
        // requests another one. Acquire: see `want`.
        let gp_wanted = self.is_wanted.swap(false, Ordering::Acquire);
        let seq = self.sweep_seq.load(Ordering::Relaxed).wrapping_add(1);
        self.sweep_seq.store(seq, Ordering::Relaxed);
        // ORDER(sweep): store buffering, other end in `barrier`; see the top of the file. If our
        // fence comes first, the barrier reads the odd number, and its cookie requires the sweep
        // after this one. If the barrier's fence comes first, the loads below see everything that
        // was pushed before it.
        // Test: barrier_waits_for_every_earlier_callback
        fence(Ordering::SeqCst);
        let mut chain = Chain::new();
        let mut are_awaited = false;
        for list in &self.lists {
            if !list.newest.top().load(Ordering::Relaxed).is_null() {
                let newest = list.newest.take_all();
                list.nr.store(0, Ordering::Relaxed);
                are_awaited |= list.backlog.take();
                // SAFETY: pushed heads were queued, and the swap made us the owner of the list.
                chain.append(unsafe { Chain::from_newest(newest) });
            }
        }
        if are_awaited {
            self.swept.notify_all();
        }
        if !twin::armed("rcu: callbacks without a grace period") {
            let (domain, me) = (global(), idle_slot());
            if gp_wanted {
                // This grace period is counted, for callers that poll.
                domain.wait_for(domain.periods.state(), me);
            } else {
                domain.synchronize(me);
            }
        }
        if twin::armed("rcu: a callback is lost") {
            chain.next();
        }
        let nr_run = place().run(chain);
        // ORDER(swept): publish and consume, other end in `barrier`. If this store comes first, the
        // barrier returns and sees the effects of the callbacks. If the barrier's load comes first,
        // it waits on `swept`, which is notified below.
        // Test: barrier_waits_for_every_earlier_callback
        self.sweep_seq.store(seq.wrapping_add(1), Ordering::Release);
        // ORDER(sweeper): the other end; see `take_turn`.
        self.sweeper.store(0, Ordering::Release);
        self.swept.notify_all();
        nr_run
    }

    /// Acquires the right to sweep for the thread `me`, if no thread has it.
    fn take_turn(&self, me: u64) -> bool {
        if twin::armed("rcu: sweeps overlap") {
            return true;
        }
        // ORDER(sweeper): publish and consume, other end in `sweep`. If the sweeper's store of 0
        // comes first, our exchange succeeds, and we see its `sweep_seq`. If our exchange comes
        // first, it fails, and the sweeper notifies `swept` after its store.
        // Test: two_sweeps_take_turns
        self.sweeper.compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    pub(super) fn barrier(&self) {
        // ORDER(sweep): the other end; see the top of the file.
        fence(Ordering::SeqCst);
        let is_empty = self.is_empty();
        // ORDER(swept): the other end; see `sweep`.
        let sweep_seq = || self.sweep_seq.load(Ordering::Acquire);
        let mut seq = sweep_seq();
        if twin::armed("rcu: barrier joins a running sweep") {
            seq &= !1;
        } else if is_empty && seq & 1 == 0 {
            return;
        }
        let cookie = GpCookie::after(seq);
        self.want();
        self.wait_until("barrier", || cookie.is_over(sweep_seq()));
    }

    /// Waits until `is_done` returns `true`, after a callback or the end of a sweep. Panics if this
    /// thread has to sweep but a callback has left a section open on it.
    pub(super) fn wait_until(&self, what: &str, is_done: impl Fn() -> bool) {
        while !is_done() {
            if self.has_no_thread() {
                // No thread can be started, so this thread sweeps, as often as needed.
                outside_of_sections(what);
                self.sweep();
            } else {
                self.swept.wait_until(|| is_done() || self.has_no_thread());
            }
        }
    }

    /// Returns `true` if the sweeping thread has been started, not only claimed. In a model, a
    /// thread of the model sweeps.
    fn has_thread(&self) -> bool {
        cfg!(any(loom, shuttle)) || self.thread.load(Ordering::Relaxed) == THERE
    }

    fn has_no_thread(&self) -> bool {
        !cfg!(any(loom, shuttle)) && self.thread.load(Ordering::Relaxed) == NONE
    }

    /// Resets all fields, in a child of `fork`; see `fork.rs`.
    pub(super) fn inherit(&self) {
        for list in &self.lists {
            list.newest.top().store(ptr::null_mut(), Ordering::Relaxed);
            list.nr.store(0, Ordering::Relaxed);
            list.backlog.take();
        }
        // The bag of this thread was on one of the lists.
        bag::leave();
        self.is_wanted.store(false, Ordering::Relaxed);
        place().inherit();
        self.work.forget();
        self.swept.forget();
        if self.sweeper.load(Ordering::Relaxed) == identity::mine().get() {
            // The fork came from a callback, so this thread continues its sweep.
            return;
        }
        self.sweeper.store(0, Ordering::Relaxed);
        let ended = periods::before(self.sweep_seq.load(Ordering::Relaxed));
        self.sweep_seq.store(ended, Ordering::Relaxed);
        self.thread.store(NONE, Ordering::Relaxed);
    }

    pub(super) fn sweep_when_wanted(&self) {
        self.work.wait_until(|| self.has_work());
        let nr_run = self.sweep();
        bag::gather(nr_run, || self.is_wanted.load(Ordering::Relaxed));
    }
}

/// Returns the slot that a grace period driven by this thread may skip: the thread's own, unless a
/// callback or an executor has left a section open on it. The sweep then waits for itself, which is
/// reported as a stall, and no grace period of the process ends.
pub(super) fn idle_slot() -> Option<&'static Slot> {
    let overlooks = twin::armed("rcu: a sweep overlooks its own section");
    mine().filter(|slot| !slot.is_in_section() || overlooks)
}

fn sweep_for_ever() {
    panics::or_abort("the thread of RCU callbacks failed", || {
        loop {
            callbacks().sweep_when_wanted();
        }
    });
}

#[derive(Default)]
pub(super) struct Backlog {
    /// A: the number of marks at which threads have waited without success.
    nr_passed: AtomicU32,
    /// A: the end of the current wait, by `time::now_ns`, or 0 if no thread waits.
    until_ns: AtomicU64,
}

impl Backlog {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self { nr_passed: AtomicU32::new(0), until_ns: AtomicU64::new(0) }
        }
    }

    /// Returns `true` if [`try_call`] must not add to a list of `nr` callbacks.
    pub(super) fn is_full(nr: usize) -> bool {
        let mark = tunables::QHIMARK.get() as usize;
        nr >= mark && mark > 0 && !cfg!(any(loom, shuttle))
    }

    /// Returns `true` if a list of `nr` callbacks is above its mark. Costs two loads.
    #[inline]
    pub(super) fn is_above(&self, nr: usize) -> bool {
        let mark = tunables::QHIMARK.get() as usize;
        let nr_passed = self.nr_passed.load(Ordering::Relaxed) as usize;
        nr > mark.saturating_mul(nr_passed + 1) && mark > 0 && !cfg!(any(loom, shuttle))
    }

    pub(super) fn take(&self) -> bool {
        let has_waiters = self.until_ns.load(Ordering::Relaxed) != 0;
        if has_waiters || self.nr_passed.load(Ordering::Relaxed) != 0 {
            self.nr_passed.store(0, Ordering::Relaxed);
            self.until_ns.store(0, Ordering::Relaxed);
        }
        has_waiters
    }

    /// If `may_wait` is `true`, waits for a limited time until the list is at or below its mark.
    /// `nr` returns the length of the list, and `taken` is notified when the list is taken.
    #[cold]
    pub(super) fn wait(&self, may_wait: bool, taken: &EventCount, nr: impl Fn() -> usize) {
        let nr_passed = self.nr_passed.load(Ordering::Relaxed);
        if may_wait {
            let span_ns = (FIRST_WAIT_NS << nr_passed.min(10)).min(LONGEST_WAIT_NS);
            let own_ns = time::now_ns() + span_ns;
            let claimed =
                self.until_ns.compare_exchange(0, own_ns, Ordering::Relaxed, Ordering::Relaxed);
            let until_ns = claimed.map_or_else(|theirs_ns| theirs_ns, |_| own_ns);
            if taken.wait_until_by(until_ns, || !self.is_above(nr())) {
                return;
            }
        }
        let (next, relaxed) = (nr_passed + 1, Ordering::Relaxed);
        if self.nr_passed.compare_exchange(nr_passed, next, relaxed, relaxed).is_ok() {
            self.until_ns.store(0, Ordering::Relaxed);
            stall::report_flood(nr());
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const MARK: usize = 10_000;

    #[test]
    fn call_during_a_failed_thread_start_retries() {
        let callbacks = Callbacks::new();
        let nr_run = Arc::new(AtomicUsize::new(0));
        let call = || {
            let nr_run = nr_run.clone();
            callbacks.add(move || _ = nr_run.fetch_add(1, Ordering::Relaxed), true);
        };
        // Another thread has claimed the start, and its result is not known yet.
        callbacks.thread.store(STARTING, Ordering::Relaxed);
        call();
        callbacks.thread.store(NONE, Ordering::Relaxed);
        // The closure joins the bag that is already on a list.
        call();
        assert!(callbacks.has_thread(), "the second call did not try");
        // The thread that was started sweeps the callbacks of the process, not these.
        callbacks.sweep();
        assert_eq!(nr_run.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn taken_list_has_its_initial_mark_again() {
        let (backlog, event) = (Backlog::new(), EventCount::new());
        assert!(!backlog.is_above(MARK) && backlog.is_above(MARK + 1));
        // If a thread may not wait, the list may grow by another mark's worth.
        backlog.wait(false, &event, || MARK + 1);
        assert!(!backlog.is_above(2 * MARK) && backlog.is_above(2 * MARK + 1));
        assert!(!backlog.take(), "no thread waits");
        assert!(backlog.is_above(MARK + 1));
    }

    #[test]
    fn a_wait_ends_when_the_list_is_taken_or_after_a_while() {
        let (backlog, event) = (Backlog::new(), EventCount::new());
        backlog.wait(true, &event, || 0);
        assert!(backlog.is_above(MARK + 1), "the list was taken");
        let start_ns = time::now_ns();
        for nr_passed in 1..=3 {
            backlog.wait(true, &event, || nr_passed * MARK + 1);
            assert!(!backlog.is_above((nr_passed + 1) * MARK));
        }
        // Each wait is twice as long as the previous one.
        assert!(time::now_ns() - start_ns >= (1 + 2 + 4) * FIRST_WAIT_NS);
    }
}
