//! Callbacks of a domain: a list, a thread while the list is not empty, and a count for `barrier`.
//!
//! A callback runs after its grace period, or is leaked. It is never dropped without that, because a reader may still see
//! what it would free. A callback that is refused leaks. So do callbacks that a child of `fork` finds: they are its parent's.
//!
//! If a callback forks and returns in the child, the child ends if this is the domain's thread. On a thread that waits for
//! callbacks the child leaves the rest of the batch.

use std::{cell::Cell, ptr, time::Duration};

use sync::{
    Mutex,
    atomic::{AtomicBool, AtomicU64, Ordering},
    thread, twin,
    unmodelled::Arc,
};

use crate::{
    panics,
    rcu::bag::{self, Deferred},
    wake::{EventCount, Parker, Unparker, report},
};

use super::{
    domain::{Shared, refuse},
    gp::Patience,
};

/// How long the thread waits for more callbacks before it ends. A start costs some 50 µs, an idle thread its stack. It ends at once when
/// the last handle has gone, and in a model, where no wait times out.
const LINGER: Duration = Duration::from_secs(1);

/// The list keeps its memory up to so many callbacks, some 130 kilobytes.
const KEPT: usize = 4096;

pub(super) struct Callbacks {
    list: Mutex<List>,
    /// A: whether there may be a thread that waits for more; a hint, of which nothing but time depends.
    lingers: AtomicBool,
    /// A: how many callbacks have run. Written by the runner.
    nr_run: AtomicU64,
    /// A: statistics.
    nr_panicked: AtomicU64,
    /// Notified when `nr_run` has grown, and when there is no runner any more.
    ran: EventCount,
}

/// Guarded by a lock, which is a leaf.
#[derive(Default)]
struct List {
    waiting: Vec<Deferred>,
    /// How many callbacks have been handed over.
    nr_queued: u64,
    runner: Runner,
    /// The last handle has gone, or is about to: nobody is to wait for more.
    is_left: bool,
}

/// The thread that runs callbacks. At most one at a time, which keeps them in order.
#[derive(Default)]
enum Runner {
    #[default]
    Nobody,
    /// A thread is being started, and may be refused.
    Starting,
    /// A thread runs callbacks, and will read the list again.
    Running,
    /// The thread sleeps. Whoever changes this state wakes it.
    Idle(Unparker),
}

sync::thread_local! {
    /// The domain whose callbacks this thread runs, or null.
    static RUNS: Cell<*const Shared> = Cell::new(ptr::null())
}

/// Marks this thread as one that runs callbacks of `shared` while it runs `body`.
fn running<R>(shared: *const Shared, body: impl FnOnce() -> R) -> R {
    let before = RUNS.try_with(|runs| runs.replace(shared));
    let result = report::as_callback(body);
    if let Ok(before) = before {
        RUNS.try_with(|runs| runs.set(before)).ok();
    }
    result
}

impl Callbacks {
    pub(super) fn new() -> Self {
        Self {
            list: Mutex::new(List::default()),
            lingers: AtomicBool::new(false),
            nr_run: AtomicU64::new(0),
            nr_panicked: AtomicU64::new(0),
            ran: EventCount::new(),
        }
    }

    pub(super) fn nr_panicked(&self) -> u64 {
        self.nr_panicked.load(Ordering::Relaxed)
    }

    /// Returns `true` if there may be a thread that waits for more.
    #[inline]
    pub(super) fn lingers(&self) -> bool {
        self.lingers.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callbacks")
            .field("nr_run", &self.nr_run)
            .field("nr_panicked", &self.nr_panicked)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn call(shared: &Arc<Self>, callback: impl FnOnce() + Send + 'static) {
        if !shared.is_own_process() {
            if !twin::armed("srcu: a refused callback is dropped") {
                std::mem::forget(callback);
            }
            refuse();
        }
        let callback = Deferred::new(callback);
        let mut list = shared.callbacks.list.lock();
        bag::fetch_ahead(list.waiting.as_ptr_range().end);
        list.waiting.push(callback);
        list.nr_queued += 1;
        list.is_left = false;
        if let Runner::Idle(_) = list.runner {
            let before = std::mem::replace(&mut list.runner, Runner::Running);
            drop(list);
            if let Runner::Idle(unparker) = before {
                unparker.unpark();
            }
        } else if let Runner::Nobody = list.runner {
            list.runner = Runner::Starting;
            drop(list);
            Self::start(shared);
        }
    }

    /// Starts the thread. The caller has set `Starting`. Returns `true` if the thread was started.
    fn start(shared: &Arc<Self>) -> bool {
        let theirs = shared.clone();
        let started = thread::spawn("aw-srcu", move || theirs.run_callbacks(LINGER)).is_ok();
        let mut list = shared.callbacks.list.lock();
        match list.runner {
            // Any other state has been set by the thread itself.
            Runner::Starting if started => list.runner = Runner::Running,
            Runner::Starting => list.runner = Runner::Nobody,
            _ => (),
        }
        drop(list);
        if !started {
            // A barrier may have relied on the thread.
            shared.callbacks.ran.notify_all();
        }
        started
    }

    /// Returns `true` if callbacks will run without a further call. Tries again to start a thread that was refused.
    pub(super) fn is_served(shared: &Arc<Self>) -> bool {
        let mut list = shared.callbacks.list.lock();
        match list.runner {
            Runner::Nobody if list.waiting.is_empty() => true,
            Runner::Nobody => {
                list.runner = Runner::Starting;
                drop(list);
                Self::start(shared)
            }
            Runner::Starting => false,
            Runner::Running | Runner::Idle(_) => true,
        }
    }

    pub(super) fn barrier(&self) {
        let runs_ours = RUNS.try_with(|runs| ptr::eq(runs.get(), self));
        assert!(
            !runs_ours.unwrap_or(false),
            "barrier inside a callback of its domain waits for itself"
        );
        self.must_be_free_to_wait();
        let callbacks = &self.callbacks;
        let mut list = callbacks.list.lock();
        let target = list.nr_queued;
        // ORDER(srcu-barrier): publish and consume, other end in `run_batch`.
        //   run_batch: the callbacks; nr_run += n Release
        //   here:      nr_run Acquire; the caller relies on what they did
        // If the runner's addition comes first, we return, with the callbacks before. If our load comes first, we wait on
        // `ran`, which the runner notifies after it.
        // Test: srcu_barrier_waits_for_every_callback
        let is_done = || callbacks.nr_run.load(Ordering::Acquire) >= target;
        while !is_done() {
            if matches!(list.runner, Runner::Nobody) {
                // The system has refused the thread: run them here.
                list.runner = Runner::Running;
                drop(list);
                self.run_callbacks(Duration::ZERO);
            } else {
                drop(list);
                callbacks.ran.wait_until(|| {
                    is_done() || matches!(callbacks.list.lock().runner, Runner::Nobody)
                });
            }
            // A callback may have forked. In the child the lock may be held by a thread that does not exist.
            self.assert_own_process();
            list = callbacks.list.lock();
        }
    }

    /// Runs callbacks until there have been none for `linger`. The caller has made itself the runner.
    pub(super) fn run_callbacks(&self, linger: Duration) {
        self.callbacks
            .lingers
            .store(!linger.is_zero(), Ordering::Relaxed);
        let mut parker = Parker::with_spin_limit(0);
        let mut batch = Vec::new();
        // If a callback forked: in the child the list is the parent's, and its lock may be held by a thread that does not
        // exist.
        while self.is_own_process() {
            let mut list = self.callbacks.list.lock();
            std::mem::swap(&mut list.waiting, &mut batch);
            if !batch.is_empty() {
                drop(list);
                let nr_run = batch.len() as u64;
                self.run_batch(&mut batch);
                batch.shrink_to(KEPT);
                if !linger.is_zero() {
                    bag::gather(nr_run, || false);
                }
                continue;
            }
            if linger.is_zero() || list.is_left || cfg!(any(loom, shuttle)) {
                list.runner = Runner::Nobody;
                return;
            }
            list.runner = Runner::Idle(parker.unparker());
            drop(list);
            if !parker.park_timeout(linger) && self.step_down() {
                return;
            }
        }
    }

    /// Has the thread end when it has run what there is: the last handle but the thread's own is about to go.
    #[cold]
    pub(super) fn send_away(&self) {
        let mut list = self.callbacks.list.lock();
        list.is_left = true;
        if let Runner::Idle(_) = list.runner {
            let before = std::mem::replace(&mut list.runner, Runner::Running);
            drop(list);
            if let Runner::Idle(unparker) = before {
                unparker.unpark();
            }
        }
    }

    /// Ends the runner, unless a callback has come meanwhile. Returns `true` if it did.
    fn step_down(&self) -> bool {
        let mut list = self.callbacks.list.lock();
        let is_over = list.waiting.is_empty();
        self.callbacks.lingers.store(!is_over, Ordering::Relaxed);
        list.runner = if is_over {
            list.waiting = Vec::new();
            Runner::Nobody
        } else {
            Runner::Running
        };
        is_over
    }

    /// Runs and takes out what is in `batch`, after a grace period.
    fn run_batch(&self, batch: &mut Vec<Deferred>) {
        self.synchronize(Patience::Normal);
        let nr_run = batch.len() as u64;
        if twin::armed("srcu: a callback is lost") {
            batch.pop();
        }
        self.run_each(batch);
        // ORDER(srcu-barrier): other end in `barrier`.
        // Test: srcu_barrier_waits_for_every_callback
        let order = twin::order("srcu: relaxed end of a batch", Ordering::Release);
        self.callbacks.nr_run.fetch_add(nr_run, order);
        self.callbacks.ran.notify_all();
    }

    fn run_each(&self, batch: &mut Vec<Deferred>) {
        running(self, || {
            for callback in batch.drain(..) {
                if !self.is_own_process() {
                    // The last callback forked, and this is the child.
                    return;
                }
                // FOREIGN(srcu-callback): the user's, on the domain's thread, or on one that waits in `barrier` or drops the
                // last handle. Contained, under no lock.
                // SAFETY: taken out of the batch, which had the only copy.
                if panics::contain(|| unsafe { callback.run() }) {
                    self.callbacks.nr_panicked.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }

    /// Runs callbacks that are left because the system refused a thread. The last handle is being dropped, and each guard
    /// holds or borrows a handle. So an open section is one of a forgotten guard, and then the callbacks leak.
    pub(super) fn run_the_rest(&mut self) {
        let mut batch = std::mem::take(&mut self.callbacks.list.lock().waiting);
        if !batch.is_empty() && self.is_drained() {
            self.run_each(&mut batch);
        }
    }
}
