//! Deferred cleanup: destroys queues and drops user values on threads that may block.
//!
//! Some threads must not block: the manager, a rescuer, an item of the queue being destroyed, and a
//! canceller that finds items cancelled by other threads. These threads queue *deferred cleanup*
//! here. Short-lived *reaper* threads run the cleanups one at a time and exit when none is left.
//! The manager starts them:
//!
//! ```text
//! add:      push;  wake the manager if the list was empty
//! reaper:   pop, or exit (one transition);  run the popped cleanup
//! manager:  cleanups wait, and there is no reaper, or none has popped for 10 ms?  start one
//!           cannot start one?  finish cleanups that need not wait;  call the fallback reaper
//! ```
//!
//! Twin `cleanups: the first does not wake the manager`.
//!
//! A blocked cleanup must never keep another one from being popped, because a destructor that
//! blocks may wait for the effect of the next cleanup. If no reaper pops a cleanup for 10 ms while
//! some are queued, the manager therefore starts another reaper.
//!
//! If no thread can be started, the manager tries again after increasingly long pauses. In between,
//! it runs the cleanups that neither block nor run user code. A dedicated thread, the *fallback
//! reaper*, runs the others, except those that wait for items, because they would delay all
//! cleanups behind them. The rescuer does not do this, because a destructor that blocks would then
//! stop all rescues.
//!
//! When its registry has ended, the manager continues until no cleanup is left, and then exits. The
//! registry has no pools at this point. While thread creation keeps failing, the rescuer runs
//! cleanups too, and the manager runs the last one. A chain of three cleanups, each of which waits
//! for the next one, therefore ends without another thread. A longer chain ends once a thread can
//! be started. After the manager has exited, a thread that adds a cleanup runs it itself, for
//! example in an RCU callback for a queue that was destroyed long ago.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::mem;
use std::task::Waker;

use base::internal::panics::{Foreign, contain};
use base::internal::wake::fire_known as fire_one;
use sync::fork::Process;
use sync::{Mutex, time};

/// The time without a pop after which the manager starts one more reaper. The value is a guess: a
/// cleanup that takes longer is probably blocked.
const STUCK_NS: u64 = 10_000_000;
/// The first and the longest pause before another attempt to start a thread. The manager uses the
/// same pauses for workers.
pub const RETRY_NS: u64 = 10_000_000;
pub const RETRY_MAX_NS: u64 = 1_000_000_000;
/// The maximum number of reapers. It equals the maximum number of workers of a pool, because all
/// reapers may be blocked.
const MAX_REAPERS: usize = 512;

sync::thread_local! {
    /// `true` if other threads depend on this thread.
    static IS_DEPENDED_ON: Cell<bool> = Cell::new(false)
}

sync::thread_local! {
    /// `true` if other threads depend on this thread while it runs no item, because its local batch
    /// may contain items.
    static SERVES: Cell<bool> = Cell::new(false)
}

sync::thread_local! {
    /// The wakers that this thread has set aside, or `None` if the thread may run user code.
    static PUT_ASIDE: RefCell<Option<Vec<Foreign<Waker>>>> = RefCell::new(None)
}

/// Sets whether [`fire`] sets wakers aside on this thread, so that the thread runs no user code.
/// Returns the wakers that were set aside before.
pub fn put_wakers_aside(puts: bool) -> Vec<Foreign<Waker>> {
    let aside = PUT_ASIDE.with(|place| place.replace(puts.then(Vec::new)));
    aside.unwrap_or_default()
}

/// Returns the wakers that this thread has set aside, and removes them.
pub fn wakers_put_aside() -> Vec<Foreign<Waker>> {
    PUT_ASIDE.with(|place| place.borrow_mut().as_mut().map(mem::take).unwrap_or_default())
}

/// Calls `body`, which runs no user code itself. Returns the wakers that it would have fired, so
/// that the caller can [`fire`] them afterwards.
pub fn with_wakers_aside<R>(body: impl FnOnce() -> R) -> (R, Vec<Foreign<Waker>>) {
    // If the thread's locals are already destroyed, the wakers fire at once.
    let outer = PUT_ASIDE.try_with(|place| place.replace(Some(Vec::new())));
    let result = body();
    let aside = outer.map(|outer| PUT_ASIDE.with(|place| place.replace(outer)));
    (result, aside.ok().flatten().unwrap_or_default())
}

/// Sets `wakers` aside, if this thread must not fire them. The iterator is then exhausted.
fn set_aside(wakers: &mut impl Iterator<Item = Foreign<Waker>>) {
    // A thread whose thread-locals are destroyed sets no wakers aside.
    let _ = PUT_ASIDE.try_with(|place| {
        if let Some(aside) = &mut *place.borrow_mut() {
            aside.extend(wakers);
        }
    });
}

/// Fires the waker of a task that waited for a result of this thread, or sets it aside.
pub fn fire(waker: Foreign<Waker>) {
    let mut waker = Some(waker).into_iter();
    set_aside(&mut waker);
    if let Some(waker) = waker.next() {
        // FOREIGN(task-wake): the waker of a task that awaits an item, on the thread that cancels
        // it; a panic is contained.
        // FOREIGN(task-set-wake): the waker of a task that awaits a set, on the thread that ended
        // an item; a panic is contained.
        contain(|| waker.into_inner().wake());
    }
}

/// User code that remains to be run for a waker. Each value is a separate cleanup, because one
/// waker may wait for the effect of the next one.
pub enum Left {
    /// A waker that may block.
    Waker(Foreign<Waker>),
    Value(Box<dyn Send>),
}

impl Cleanup for Left {
    fn run(self: Box<Self>) {
        match *self {
            // FOREIGN(sleep-wake): the waker of a task that sleeps, on a reaper; a panic is
            // contained.
            // FOREIGN(drain-wake): the waker of a task that awaits a drain, on the thread that ends
            // the drain, or on a reaper; a panic is contained.
            // FOREIGN(capacity-wake): the waker of a task that waits for capacity, on a reaper; a
            // panic is contained.
            Self::Waker(waker) => _ = contain(|| waker.into_inner().wake()),
            Self::Value(value) => drop(value),
        }
    }
}

/// Fires the wakers that never block: those of threads in `block_on`, of dedicated workers, of
/// futures and of task sets. Returns the other wakers, which only a thread that may block can fire.
pub fn fire_known(wakers: impl IntoIterator<Item = Foreign<Waker>>) -> Vec<Left> {
    let mut left = Vec::new();
    // FOREIGN(task-set-wake): wakers that run no user code; the waker of a task that awaits a set
    // is set aside.
    let fire = |waker: Foreign<Waker>| match fire_one(waker.into_inner()) {
        Ok(value) => left.extend(value.map(Left::Value)),
        Err(waker) => left.push(Left::Waker(Foreign::new(waker))),
    };
    // The waker of a task set fires the waker of the task that awaits the set.
    let ((), woken) = with_wakers_aside(|| wakers.into_iter().for_each(fire));
    if !woken.is_empty() {
        left.extend(fire_known(woken));
    }
    left
}

/// Fires wakers, or sets them aside. If a waker forks and returns in the child, the remaining
/// wakers belong to the parent, and this function returns `false` in the child.
///
/// Wakers that never block are fired first. A waker that blocks may therefore wait for the effect
/// of one of these.
#[inline]
pub fn fire_all(wakers: Vec<Foreign<Waker>>) -> bool {
    wakers.is_empty() || fire_some(wakers)
}

fn fire_some(wakers: Vec<Foreign<Waker>>) -> bool {
    let here = Process::now();
    let mut wakers = wakers.into_iter();
    set_aside(&mut wakers);
    let mut left = fire_known(wakers).into_iter();
    while let Some(one) = left.next() {
        Box::new(one).run();
        if !here.is_this() {
            mem::forget(left);
            return false;
        }
    }
    true
}

/// Calls `body`. On a worker, does not fire wakers that may block, but returns them as cleanups.
/// Between two items a worker counts as searching, so producers would wake no other worker while a
/// waker blocks this one.
pub fn without_blocking(body: impl FnOnce()) -> Vec<Left> {
    if !SERVES.try_with(Cell::get).unwrap_or(false) {
        body();
        return Vec::new();
    }
    let ((), wakers) = with_wakers_aside(body);
    fire_known(wakers)
}

pub trait Reapers: Send + Sync {
    /// Queues cleanups. The caller holds no lock.
    fn leave(&self, left: Vec<Left>);
}

/// Sets whether other threads depend on this thread while it runs no item, as they do on a worker.
pub fn note_serving(serves: bool) {
    SERVES.with(|place| place.set(serves));
}

/// Records that other threads depend on this thread, which must therefore never wait for the end of
/// a queue.
pub fn note_depended_on() {
    IS_DEPENDED_ON.with(|place| place.set(true));
}

/// Returns `true` if other threads depend on this thread. `in_item` is set if the thread runs an
/// item.
pub fn others_depend(in_item: bool) -> bool {
    let serves = || !in_item && SERVES.try_with(Cell::get).unwrap_or(false);
    IS_DEPENDED_ON.try_with(Cell::get).unwrap_or(false) || serves()
}

/// A deferred cleanup, run on a thread that may block. Some implementations only need to be
/// dropped.
pub trait Cleanup: Send {
    /// Runs the cleanup, which may block and run user code.
    fn run(self: Box<Self>) {}

    /// Runs a cleanup that waits for items, if it can now run without blocking and without running
    /// user code. Returns `true` if it did.
    fn try_run(&mut self) -> bool {
        false
    }

    fn waits(&self) -> bool {
        false
    }
}

/// The deferred cleanups of a registry.
#[derive(Default)]
pub struct CleanupQueue(Mutex<List>);

#[derive(Default)]
struct List {
    waiting: VecDeque<Box<dyn Cleanup>>,
    nr_reapers: usize,
    /// The time at which one more reaper is started if none has popped a cleanup by then.
    next_ns: u64,
    /// The pause after a failed attempt to start a thread; 0 if the last attempt succeeded.
    pause_ns: u64,
    /// `true` once the manager has ended.
    closed: bool,
}

impl CleanupQueue {
    /// Adds cleanups. Returns `true` if the caller must wake the manager.
    #[must_use]
    pub fn add(&self, cleanups: Vec<Box<dyn Cleanup>>) -> bool {
        let mut list = self.0.lock();
        if list.closed {
            drop(list);
            cleanups.into_iter().for_each(Cleanup::run);
            return false;
        }
        let is_first = list.waiting.is_empty() && !cleanups.is_empty();
        list.waiting.extend(cleanups);
        is_first
    }

    /// Returns `true` if a reaper must be started now, and counts it. The caller then starts a
    /// thread that calls [`serve`](Self::serve), or reports the failure with
    /// [`note_failed_start`](Self::note_failed_start).
    pub fn wants_reaper(&self, now_ns: u64) -> bool {
        let mut list = self.0.lock();
        let wants = list.due_ns().is_some_and(|due_ns| now_ns >= due_ns);
        if wants {
            list.nr_reapers += 1;
            list.next_ns = now_ns.saturating_add(STUCK_NS);
        }
        wants
    }

    pub fn next_ns(&self) -> Option<u64> {
        self.0.lock().due_ns()
    }

    #[cfg(not(any(loom, shuttle)))]
    pub fn are_done(&self) -> bool {
        let list = self.0.lock();
        list.waiting.is_empty() && list.nr_reapers == 0
    }

    /// Runs cleanups until none is left. The caller is a reaper that has been counted.
    pub fn serve(&self) {
        while let Some(cleanup) = self.take() {
            cleanup.run();
        }
    }

    fn take(&self) -> Option<Box<dyn Cleanup>> {
        let mut list = self.0.lock();
        let cleanup = list.waiting.pop_front();
        list.pause_ns = 0;
        match cleanup {
            Some(_) => list.next_ns = time::now_ns().saturating_add(STUCK_NS),
            None => list.nr_reapers -= 1,
        }
        cleanup
    }

    /// Records that a reaper could not be started, and runs the cleanups that the manager may run.
    pub fn note_failed_start(&self, now_ns: u64) {
        let mut list = self.0.lock();
        list.nr_reapers -= 1;
        list.pause_ns = (list.pause_ns * 2).clamp(RETRY_NS, RETRY_MAX_NS);
        list.next_ns = now_ns.saturating_add(list.pause_ns);
        let mut waiting = mem::take(&mut list.waiting);
        drop(list);
        // Run them with no lock held, because a cleanup may add another one.
        waiting.retain_mut(|cleanup| !cleanup.try_run());
        self.0.lock().waiting.append(&mut waiting);
    }

    /// Returns `true` if no reaper can be started and [`run_fallback`](Self::run_fallback) could
    /// run a queued cleanup.
    pub fn wants_fallback(&self) -> bool {
        let list = self.0.lock();
        list.pause_ns > 0 && list.fallback_index().is_some()
    }

    /// Runs the first cleanup that does not wait for items. If `only_last` is set, runs it only if
    /// no other cleanup is queued. The calling thread is not a reaper. Returns `true` if a cleanup
    /// ran.
    pub fn run_fallback(&self, only_last: bool) -> bool {
        let mut list = self.0.lock();
        let at = list.fallback_index().filter(|_| !only_last || list.waiting.len() == 1);
        let cleanup = at.and_then(|at| list.waiting.remove(at));
        drop(list);
        cleanup.map(Cleanup::run).is_some()
    }

    /// Returns `true` if thread creation has failed for so long that the pause has reached its
    /// maximum.
    pub fn cannot_start(&self) -> bool {
        self.0.lock().pause_ns == RETRY_MAX_NS
    }

    /// Closes the list if it is empty. Returns `true` if the list is closed. A thread that adds a
    /// cleanup later runs it itself.
    #[must_use]
    pub fn close(&self) -> bool {
        let mut list = self.0.lock();
        list.closed = list.waiting.is_empty();
        list.closed
    }
}

impl List {
    fn fallback_index(&self) -> Option<usize> {
        self.waiting.iter().position(|cleanup| !cleanup.waits())
    }

    fn due_ns(&self) -> Option<u64> {
        let none_is_there = self.nr_reapers == 0 && self.pause_ns == 0;
        let wants = !self.waiting.is_empty() && self.nr_reapers < MAX_REAPERS;
        wants.then_some(if none_is_there { 0 } else { self.next_ns })
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;

    use super::*;

    struct Nothing;

    impl Cleanup for Nothing {}

    struct Second(bool);

    impl Cleanup for Second {
        fn try_run(&mut self) -> bool {
            std::mem::replace(&mut self.0, true)
        }

        fn waits(&self) -> bool {
            true
        }
    }

    fn add(cleanups: &CleanupQueue, cleanup: impl Cleanup + 'static) -> bool {
        cleanups.add(vec![Box::new(cleanup)])
    }

    #[test]
    fn reaper_starts_at_once_and_another_if_cleanups_wait_long() {
        let cleanups = CleanupQueue::default();
        assert_eq!(cleanups.next_ns(), None);
        assert!(add(&cleanups, Nothing) && !add(&cleanups, Nothing));
        assert!(cleanups.wants_reaper(5) && !cleanups.wants_reaper(5));
        assert_eq!(cleanups.next_ns(), Some(5 + STUCK_NS));
        assert!(cleanups.wants_reaper(5 + STUCK_NS));
        cleanups.serve();
        assert_eq!((cleanups.next_ns(), cleanups.0.lock().nr_reapers), (None, 1));
    }

    #[test]
    fn failed_reaper_start_is_retried_and_quick_cleanups_run() {
        let cleanups = CleanupQueue::default();
        assert!(add(&cleanups, Second(false)));
        for pause_ms in [10, 20] {
            assert!(cleanups.wants_reaper(u64::MAX / 2));
            cleanups.note_failed_start(0);
            let nr_waiting = cleanups.0.lock().waiting.len();
            assert_eq!(nr_waiting, usize::from(pause_ms == 10));
            assert_eq!(cleanups.0.lock().pause_ns, pause_ms * 1_000_000);
        }
    }

    #[test]
    fn other_threads_run_nonblocking_cleanups_without_a_reaper() {
        let cleanups = CleanupQueue::default();
        assert!(add(&cleanups, Second(false)) && !add(&cleanups, Nothing));
        assert!(cleanups.wants_reaper(0) && !cleanups.wants_fallback());
        cleanups.note_failed_start(0);
        assert!(cleanups.wants_fallback() && cleanups.run_fallback(false));
        assert!(!cleanups.wants_fallback() && !cleanups.run_fallback(false));
        assert_eq!(cleanups.0.lock().waiting.len(), 1);
    }

    #[test]
    fn there_are_not_more_reapers_than_a_pool_has_workers() {
        let cleanups = CleanupQueue::default();
        assert!(add(&cleanups, Nothing));
        let nr_reapers = (1..1000u64).filter(|i| cleanups.wants_reaper(i * STUCK_NS));
        assert_eq!(nr_reapers.count(), MAX_REAPERS);
        assert_eq!(cleanups.next_ns(), None);
    }

    #[test]
    fn cleanup_after_the_managers_end_runs_on_the_caller() {
        struct Counted(Arc<()>);
        impl Cleanup for Counted {}
        let (cleanups, lives) = (CleanupQueue::default(), Arc::new(()));
        assert!(add(&cleanups, Counted(lives.clone())) && !cleanups.close());
        assert!(cleanups.run_fallback(false) && cleanups.close());
        let late = Counted(lives);
        let lives = Arc::downgrade(&late.0);
        assert_eq!(lives.strong_count(), 1);
        assert!(!add(&cleanups, late));
        assert_eq!(lives.strong_count(), 0);
    }
}
