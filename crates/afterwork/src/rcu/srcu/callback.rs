//! Callbacks of a domain: a list, a thread while it is not empty, and a count by which `barrier` waits.
//!
//! A callback runs after its grace period or is leaked: never dropped, for a reader may still see what it is to free.
//! The one that is refused leaks, and so do those that a child of `fork` finds, which are its parent's. A callback that forks
//! and comes back in the child ends it, on the domain's thread; on one that waits for callbacks the rest of the batch is left.

use std::{cell::Cell, mem::ManuallyDrop, ptr, time::Duration};

use sync::{
    Mutex,
    atomic::{AtomicU64, Ordering},
    thread, twin,
    unmodelled::Arc,
};

use crate::{
    panics,
    wake::{EventCount, Parker, Unparker},
};

use super::{
    domain::{Shared, refuse},
    gp::Patience,
};

/// How long the thread waits for more callbacks before it ends: a start costs some 50 µs, an idle thread nothing but
/// its stack. Not at all in a model, which never times out.
const LINGER: Duration = Duration::from_secs(1);

/// What runs after a grace period. Dropping it leaks.
pub(super) struct Callback(ManuallyDrop<Box<dyn FnOnce() + Send>>);

pub(super) struct Callbacks {
    list: Mutex<List>,
    /// A: how many have run; written by the runner.
    nr_run: AtomicU64,
    /// A: statistics.
    nr_panicked: AtomicU64,
    /// Notified when `nr_run` has grown or the runner has gone.
    ran: EventCount,
}

/// Guarded by the lock around it, a leaf.
#[derive(Default)]
struct List {
    waiting: Vec<Callback>,
    /// How many were ever handed over.
    nr_queued: u64,
    runner: Runner,
}

/// Who runs callbacks: at most one thread at a time, which keeps them in order.
#[derive(Default)]
enum Runner {
    #[default]
    Nobody,
    /// A thread is being started, and may be refused.
    Starting,
    /// Will look at the list again.
    Running,
    /// Sleeps until it is woken, once.
    Idle(Unparker),
}

sync::thread_local! {
    /// Whose callbacks this thread runs, or null.
    static RUNS: Cell<*const Shared> = Cell::new(ptr::null())
}

/// Runs `body`, which calls callbacks of `shared`, with this thread marked so.
fn running<R>(shared: *const Shared, body: impl FnOnce() -> R) -> R {
    let before = RUNS.try_with(|runs| runs.replace(shared));
    let result = body();
    if let Ok(before) = before {
        RUNS.try_with(|runs| runs.set(before)).ok();
    }
    result
}

impl Callback {
    pub(super) fn new(callback: impl FnOnce() + Send + 'static) -> Self {
        Self(ManuallyDrop::new(Box::new(callback)))
    }

    fn into_inner(self) -> Box<dyn FnOnce() + Send> {
        ManuallyDrop::into_inner(self.0)
    }
}

impl Callbacks {
    pub(super) fn new() -> Self {
        Self {
            list: Mutex::new(List::default()),
            nr_run: AtomicU64::new(0),
            nr_panicked: AtomicU64::new(0),
            ran: EventCount::new(),
        }
    }

    pub(super) fn nr_panicked(&self) -> u64 {
        self.nr_panicked.load(Ordering::Relaxed)
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
    pub(super) fn call(shared: &Arc<Self>, callback: Callback) {
        if !shared.is_at_home() {
            if twin::armed("srcu: a refused callback is dropped") {
                drop(callback.into_inner());
            }
            refuse();
        }
        let mut list = shared.callbacks.list.lock();
        list.waiting.push(callback);
        list.nr_queued += 1;
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

    /// Starts the thread; the caller has noted that. Returns `true` if there is one.
    fn start(shared: &Arc<Self>) -> bool {
        let theirs = shared.clone();
        let started = thread::spawn("aw-srcu", move || theirs.run_callbacks(LINGER)).is_ok();
        let mut list = shared.callbacks.list.lock();
        match list.runner {
            // What it has done since, it has noted itself.
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

    /// Returns `true` if what was handed over will run without a further call; asks for a thread again that was refused.
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
        self.must_be_at_home();
        let callbacks = &self.callbacks;
        let mut list = callbacks.list.lock();
        let target = list.nr_queued;
        // ORDER(srcu-barrier): publish and consume, other end in `run_batch`.
        //   run_batch: the callbacks; nr_run += n Release
        //   here:      nr_run Acquire; the caller relies on what they did
        // Test: srcu_barrier_waits_for_every_callback
        let is_done = || callbacks.nr_run.load(Ordering::Acquire) >= target;
        while !is_done() {
            if matches!(list.runner, Runner::Nobody) {
                // The thread was refused.
                list.runner = Runner::Running;
                drop(list);
                self.run_callbacks(Duration::ZERO);
            } else {
                drop(list);
                callbacks.ran.wait_until(|| {
                    is_done() || matches!(callbacks.list.lock().runner, Runner::Nobody)
                });
            }
            // A callback may have forked, and another thread have had the lock.
            self.must_be_at_home();
            list = callbacks.list.lock();
        }
    }

    /// Runs callbacks until there have been none for `linger`; the caller has made itself the runner.
    fn run_callbacks(&self, linger: Duration) {
        let mut parker = Parker::with_spin_limit(0);
        // In a child that a callback made the list is the parent's, and its lock may be held by a thread that is not there.
        while self.is_at_home() {
            let mut list = self.callbacks.list.lock();
            let batch = std::mem::take(&mut list.waiting);
            if !batch.is_empty() {
                drop(list);
                self.run_batch(batch);
                continue;
            }
            if linger.is_zero() || cfg!(any(loom, shuttle)) {
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

    /// Ends the runner's time, unless a callback came meanwhile; says which.
    fn step_down(&self) -> bool {
        let mut list = self.callbacks.list.lock();
        let is_over = list.waiting.is_empty();
        list.runner = if is_over {
            Runner::Nobody
        } else {
            Runner::Running
        };
        is_over
    }

    fn run_batch(&self, mut batch: Vec<Callback>) {
        self.wait_for(self.gp.snap(), Patience::Normal);
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

    fn run_each(&self, batch: Vec<Callback>) {
        running(self, || {
            for callback in batch {
                if !self.is_at_home() {
                    // In a child that the last one made.
                    return;
                }
                // FOREIGN(srcu-callback): the user's, on the domain's thread, or on one that passes a barrier or drops the
                // last handle; contained, under no lock.
                if panics::contain(callback.into_inner()) {
                    self.callbacks.nr_panicked.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
    }

    /// Runs what was left because the system refused a thread: the last handle is being dropped, and guards have one, so
    /// no section can be open that is not so for ever.
    pub(super) fn run_the_rest(&mut self) {
        let batch = std::mem::take(&mut self.callbacks.list.lock().waiting);
        if !batch.is_empty() && self.is_drained() {
            self.run_each(batch);
        }
    }
}
