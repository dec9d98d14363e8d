//! Runs callbacks whose grace period has passed: on the sweeping thread, or on the user's executor.
//!
//! The executor receives a [`Batch`], and the sweeper waits until it has run. They share one `Lot`:
//!
//! ```text
//! first: the callbacks  ──swap──►  null: a thread runs them  ──►  is_done
//! ```
//!
//! The thread that swaps the callbacks out runs them: usually the batch, when it is run or dropped.
//! If the executor has been replaced, or if the batch has waited for the stall timeout, the sweeper
//! reclaims a batch that has not begun, so no callback is lost if a batch is leaked.
//!
//! A callback must not wait for callbacks, and neither must an executor that runs or is dropped on
//! the sweeping thread: `barrier` panics in these cases.

use std::cell::Cell;
use std::ptr;

use base::internal::page::Count;
use base::internal::panics::{self, Foreign, die};
use base::internal::wake::{EventCount, report};
use sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use sync::fork::Process;
use sync::span::Span;
use sync::unmodelled::Arc;
use sync::{Mutex, thread, time};

use super::head::{Callback, Chain, Function, Head};
use super::local::nesting;
use super::{stall, tunables};

/// The number of callbacks after which the thread yields the CPU, so that a flood of them does not
/// occupy a small machine. The kernel's `blimit` is 10.
const BLIMIT: u64 = 1024;

type Executor = Arc<Foreign<Box<dyn Fn(Batch) + Send + Sync>>>;

/// Callbacks whose grace period has passed, handed to the executor of
/// [`run_callbacks_on`](super::run_callbacks_on).
///
/// Dropping a batch runs its callbacks at once.
#[must_use = "dropping a batch runs it at once"]
pub struct Batch(Arc<Lot>);

/// The state that a batch and the sweeper share; see the top of the file.
struct Lot {
    /// A: the first head of a chain, or null once a thread has taken the chain.
    first: AtomicPtr<Head>,
    /// A: `true` if all callbacks have run.
    is_done: AtomicBool,
    /// I: the process that the callbacks belong to. A child of `fork` does not run them.
    process: Process,
}

pub(super) struct Place {
    pub(super) executor: Mutex<Option<Executor>>,
    /// Notified when a batch has run, and when the executor is replaced.
    moved: EventCount,
    /// A: the number of panics in callbacks and executors.
    pub(super) nr_panicked: AtomicU64,
    pub(super) nr_run: Count,
}

sync::process_wide! {
    pub(super) fn place() -> Place = Place::new()
}

sync::thread_local! {
    /// `true` while this thread runs callbacks, or an executor.
    static RUNS: Cell<bool> = Cell::new(false)
}

/// Returns `true` if this thread is in a callback of [`call`](super::call) or in an executor.
pub(super) fn in_callback() -> bool {
    RUNS.try_with(Cell::get).unwrap_or(false)
}

/// Calls `body`, which must not unwind, as a callback.
fn as_callback(body: impl FnOnce()) {
    let ran_before = in_callback();
    RUNS.try_with(|runs| runs.set(true)).ok();
    report::as_callback(body);
    RUNS.try_with(|runs| runs.set(ran_before)).ok();
}

/// Runs the callbacks of `chain` on this thread, and returns their number.
///
/// If a callback forks, the child skips the callbacks after it, because the parent runs them.
fn run(chain: Chain) -> u64 {
    let here = Process::now();
    let mut nr_run = 0_u64;
    let mut run_one = |callback: Callback<'_>| {
        if !here.is_this() {
            return;
        }
        // FOREIGN(rcu-callback): the user's callback, on the sweeping thread or where an executor
        // runs its batch. It is contained.
        let panicked = panics::contain(|| match callback {
            // SAFETY: the callback comes from `each` below, after the grace period of the chain.
            Callback::Closure(closure) => unsafe { closure.run() },
            // SAFETY: as above.
            Callback::Own(head, function) => unsafe { run_c(head, function) },
        });
        if panicked {
            place().nr_panicked.fetch_add(1, Ordering::Relaxed);
        }
        nr_run += 1;
        if nr_run.is_multiple_of(BLIMIT) {
            thread::yield_now();
        }
    };
    as_callback(|| {
        for head in chain {
            // SAFETY: a chain closes its heads and yields each of them once.
            unsafe { Head::each(head, &mut run_one) };
        }
    });
    place().nr_run.add(nr_run);
    nr_run
}

/// The limit of the offset of a head that [`free_c`](super::raw::free_c) accepts: no function has
/// an address this low.
pub const NR_OFFSETS: usize = 4096;

unsafe extern "C" {
    fn free(memory: *mut std::ffi::c_void);
}

/// Runs a C callback through [`of_c`].
///
/// # Safety
///
/// 1. `head` was queued with `run`, its grace period is over, and this is called once.
pub unsafe fn run_c(head: *mut Head, run: Function) {
    if let Some(offset) = (run as usize).checked_sub(1).filter(|at| *at < NR_OFFSETS) {
        // SAFETY: (1) of `raw::free_c`, because no other function queues an address this low.
        return unsafe { free(head.wrapping_byte_sub(offset).cast()) };
    }
    // SAFETY: (1).
    of_c("callback of call_rcu", run as usize, || unsafe { run(head) });
}

/// Calls `body`, which calls the C function at `func`. The process is aborted with a message if an
/// exception leaves the function, if the thread exits in it, or if the function returns at a
/// different nesting depth. Blocks if `body` does.
#[inline]
pub fn of_c<R>(what: &str, func: usize, body: impl FnOnce() -> R) -> R {
    let before = nesting();
    let answer = panics::of_c(what, func, body);
    if nesting() != before {
        left_section(what, func);
    }
    answer
}

#[cold]
fn left_section(what: &str, func: usize) -> ! {
    die(&format!(
        "the {what} at {func:#x} returned in another read-side critical section than it was called in"
    ))
}

impl Place {
    sync::const_unless_model! {
        fn new() -> Self {
            Self {
                executor: Mutex::new(None),
                moved: EventCount::new(),
                nr_panicked: AtomicU64::new(0),
                nr_run: Count::new(),
            }
        }
    }

    pub(super) fn set(&self, executor: Option<Box<dyn Fn(Batch) + Send + Sync>>) {
        // FOREIGN(rcu-executor-drop): the executor's drop, on the thread that drops the last
        // handle: the one that replaces it or the sweeper. It is contained.
        let executor = executor.map(|executor| Arc::new(Foreign::new(executor)));
        let before = std::mem::replace(&mut *self.executor.lock(), executor);
        drop(before);
        self.moved.notify_all();
    }

    /// Forgets the executor, in a child of `fork`.
    pub(super) fn inherit(&self) {
        // The executor is leaked, because its captures may be in any state.
        std::mem::forget(self.executor.lock().take());
        self.moved.forget();
    }

    /// Runs the callbacks of `chain` and waits for them. Returns the number that this thread ran.
    pub(super) fn run(&self, chain: Chain) -> u64 {
        let executor = self.executor.lock().clone();
        let nr_run = match &executor {
            Some(executor) if !chain.is_empty() => {
                self.run_elsewhere(chain, executor);
                0
            }
            _ => run(chain),
        };
        // The destructor of an executor that was replaced must not wait for callbacks either.
        as_callback(|| drop(executor));
        nr_run
    }

    fn run_elsewhere(&self, chain: Chain, executor: &Executor) {
        let lot = Arc::new(Lot {
            first: AtomicPtr::new(chain.into_first()),
            is_done: AtomicBool::new(false),
            process: Process::now(),
        });
        let batch = Batch(lot.clone());
        as_callback(|| {
            // FOREIGN(rcu-executor): the user's executor, on the sweeping thread. It is contained.
            // If a panic drops the batch, the callbacks run in the drop.
            if panics::contain(|| executor(batch)) {
                self.nr_panicked.fetch_add(1, Ordering::Relaxed);
            }
        });
        self.wait_for(&lot, executor);
    }

    fn wait_for(&self, lot: &Lot, executor: &Executor) {
        let mut span = Span::new(time::now_ns());
        loop {
            let waiting = self.moved.prepare();
            // Acquire pairs with the Release in `Lot::run`. If that store comes first, the effects
            // of the callbacks are visible. If our load comes first, the notification ends our
            // wait. If the executor forked, the batch belongs to the parent.
            if lot.is_done.load(Ordering::Acquire) || !lot.process.is_this() {
                return;
            }
            if lot.first.load(Ordering::Relaxed).is_null() {
                // A thread has begun to run the callbacks.
                waiting.wait();
                continue;
            }
            let timeout = tunables::stall_timeout();
            let waited = span.measure(time::now_ns());
            let is_late = timeout.is_some_and(|timeout| waited >= timeout);
            if is_late || !self.is_current(executor) {
                drop(waiting);
                if is_late {
                    stall::report_batch(waited);
                }
                lot.run();
                continue;
            }
            match timeout {
                Some(timeout) => waiting.wait_timeout(span.until(timeout)),
                None => waiting.wait(),
            }
        }
    }

    fn is_current(&self, executor: &Executor) -> bool {
        let current = self.executor.lock();
        current.as_ref().is_some_and(|current| Arc::ptr_eq(current, executor))
    }
}

impl Lot {
    fn run(&self) {
        if !self.process.is_this() {
            return;
        }
        // Relaxed is sufficient: only one swap gets the chain, which was published with the lot.
        let first = self.first.swap(ptr::null_mut(), Ordering::Relaxed);
        if !first.is_null() {
            // SAFETY: the pointer came from `into_first`, and only this swap returned it.
            run(unsafe { Chain::from_first(first) });
            // Release pairs with the Acquire in `wait_for`.
            self.is_done.store(true, Ordering::Release);
            place().moved.notify_all();
        }
    }
}

impl Batch {
    /// Runs the callbacks. A panic in a callback is caught and counted (see
    /// [`nr_panicked`](super::nr_panicked)), and the other callbacks still run. Blocks as long as
    /// the callbacks do.
    pub fn run(self) {
        drop(self);
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.0.run();
    }
}
