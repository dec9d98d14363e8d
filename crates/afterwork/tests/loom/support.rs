//! Helpers shared by all models.

pub use std::cell::RefCell;
pub use std::collections::VecDeque;
pub use std::future::{Future, poll_fn};
pub use std::mem::ManuallyDrop;
pub use std::ops::{Deref, DerefMut};
pub use std::pin::{Pin, pin};
pub use std::ptr::NonNull;
pub use std::rc::Rc;
pub use std::sync::{Arc, OnceLock};
pub use std::task::{Context, Poll, Wake, Waker};
pub use std::time::{Duration, Instant};

pub use afterwork::mailbox::{
    LocalSet, Mailbox, PostError, Poster, ReplyError, ReplyTo, TryRecvError, Woken, Worker,
};
pub use afterwork::params::Params;
pub use afterwork::percpu::{Escalate, PerCpu, Qpw};
pub use afterwork::rcu::model::{self, Seat, Tree, passes_unaided, sweep, sweep_when_wanted};
pub use afterwork::rcu::qsbr::Reader;
pub use afterwork::rcu::srcu::Domain;
pub use afterwork::rcu::{self, Rcu};
pub use afterwork::wake::{EventCount, Parker, Unparker, WakeQ};
pub use afterwork::workqueue::model::{
    Blocks, Capacity, Gates, Injected, Machine, OpenPair, OpenRange, OpenScope, Pushed,
    on_turn_of_task, permits,
};
pub use afterwork::workqueue::{
    self, Builder, Busy, CancelHandle, CancellationToken, DelayedWork, JoinError, RcuWork, Strand,
    TaskSet, Work, Workqueue, block_on, is_cancelled,
};
pub use loom::sync::{Condvar, Mutex};
pub use loom::thread::{self, JoinHandle, spawn};
pub use raw::RawWork;
pub use sync::atomic::*;
pub use sync::cell::UnsafeCell;
pub use sync::models;
pub use sync::twin::{must_deadlock, must_fail, with};
pub use topology::{CpuId, Topology};

use crate::passed::Passed;

/// The clock of a model stays at zero until the model advances it.
pub const SOON: Duration = Duration::from_millis(1);
pub const LATER: Duration = Duration::from_millis(100);

/// Explores all runs, without a bound.
pub fn exhaustive(model: impl Fn() + Sync + Send + Copy + 'static) -> Passed<impl Fn()> {
    Passed::run(move || builder().check(model))
}

/// Explores all runs with at most `preemptions` switches away from a thread that could continue.
pub fn bounded(
    preemptions: usize,
    model: impl Fn() + Sync + Send + Copy + 'static,
) -> Passed<impl Fn()> {
    Passed::run(move || {
        let mut builder = builder();
        builder.preemption_bound = Some(preemptions);
        builder.check(model);
    })
}

fn builder() -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    // The lifetime of a pool takes more steps than loom's default of 1,000.
    builder.max_branches = 10_000;
    builder
}

/// Calls `body` on another thread with `shared`, which both threads use.
pub fn spawn_with<S: 'static, R: 'static>(
    shared: S,
    body: impl FnOnce(S) -> R + 'static,
) -> loom::thread::JoinHandle<R> {
    spawn(|| body(shared))
}

/// Drops queues at the end of a model, without exploring their destruction.
pub fn wind_up<T>(queues: T) {
    loom::stop_exploring();
    drop(queues);
}

/// Creates a machine with one pod of `nr_cpus` CPUs. Each pool has at most `max_workers` workers.
pub fn machine(nr_cpus: usize, max_workers: usize) -> Machine {
    static MACHINES: [OnceLock<Topology>; 2] = [OnceLock::new(), OnceLock::new()];
    let topology = MACHINES[nr_cpus - 1]
        .get_or_init(|| Topology::synthetic(&format!("{nr_cpus} core")).unwrap());
    let params = Params { max_workers, max_batch: 1, ..Params::default() };
    Machine::new(topology, params)
}

/// Returns the builder of a queue whose joiners do not help.
pub fn plain() -> Builder {
    Workqueue::builder("model").help(false)
}

/// Creates a machine without workers, and a queue on it.
pub fn set_up(nr_cpus: usize, max_workers: usize, builder: Builder) -> (Machine, Workqueue) {
    let machine = machine(nr_cpus, max_workers);
    let queue = builder.build_in(machine.registry()).unwrap();
    (machine, queue)
}

/// Creates a queue on two CPUs with `nr_workers` workers. If `help`, joiners may run its items.
pub fn queue(nr_workers: usize, help: bool) -> (Machine, Workqueue) {
    let (machine, queue) = set_up(2, nr_workers, plain().help(help));
    machine.start_workers(nr_workers);
    (machine, queue)
}

/// Creates a queue whose items wait until [`go`]. No worker is requested before that.
pub fn held(help: bool) -> (Arc<Machine>, Workqueue) {
    let machine = Arc::new(machine(1, 1));
    let queue = plain().help(help).build_in(machine.registry()).unwrap();
    machine.pretend_busy(true);
    (machine, queue)
}

/// Runs the items of a [`held`] queue on this thread.
pub fn go(machine: &Machine) {
    machine.pretend_busy(false);
    machine.help_out();
}

/// Creates an item that counts its runs in a checked word. Two overlapping runs are a race.
pub fn counting() -> (Work, Arc<Plain>) {
    let count = Arc::new(Plain::default());
    let runs = count.clone();
    (Work::new(move || runs.set(runs.get() + 1)), count)
}

/// Returns a function that counts its calls, and the count.
pub fn counter() -> (impl Fn() + Clone + Send + Sync + 'static, Arc<AtomicU32>) {
    let count = Arc::new(AtomicU32::new(0));
    let calls = count.clone();
    (move || _ = calls.fetch_add(1, Ordering::Relaxed), count)
}

/// Runs two items, the first of which waits with `pass` for the second. A pool of one worker, which
/// runs `nr_cpus` items at once, must request another worker.
pub fn first_waits_for_second(nr_cpus: usize, pass: fn(&Barred)) {
    let (mut machine, queue) = set_up(nr_cpus, 2, plain());
    machine.start_workers(1);
    let gate = Arc::new(Barred::default());
    let done = Arc::new(AtomicBool::new(false));
    let (opens, is_done, notifier) = (gate.clone(), done.clone(), machine.notifier());
    let first = Work::new(move || pass(&gate));
    let second = Work::new(move || {
        opens.open();
        is_done.store(true, Ordering::Release);
        notifier.unpark();
    });
    queue.enqueue(&first);
    queue.enqueue(&second);
    machine.serve_until(|| done.load(Ordering::Acquire));
    wind_up(queue);
}

/// Counts its drops, except those in a model that unwinds.
pub struct Life(pub Arc<AtomicU32>);

sync::on_drop!(Life, this => this.0.fetch_add(1, Ordering::Relaxed));

/// Returns a waker that may block, as far as the library knows, so a reaper may call it.
pub fn foreign_waker(unparker: Unparker) -> Waker {
    struct Foreign(Unparker);
    impl Wake for Foreign {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    Waker::from(Arc::new(Foreign(unparker)))
}

/// A task that a model polls.
pub struct Task(Parker);

impl Task {
    pub fn new() -> Self {
        Self(Parker::with_spin_limit(0))
    }

    pub fn waker(&self) -> Waker {
        Waker::from(self.0.unparker())
    }

    pub fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        Pin::new(future).poll(&mut Context::from_waker(&self.waker()))
    }

    pub fn was_woken(&mut self) -> bool {
        self.0.try_park()
    }
}

/// A value that is leaked if a model unwinds, because no loom thread can take its locks then.
pub struct Careful<T>(ManuallyDrop<T>);

impl<T> Careful<T> {
    pub fn new(value: T) -> Self {
        Self(ManuallyDrop::new(value))
    }
}

impl<T> Deref for Careful<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for Careful<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T> Drop for Careful<T> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // SAFETY: only this destructor drops the value, and it runs once.
            unsafe { ManuallyDrop::drop(&mut self.0) };
        }
    }
}

/// A word that a model checks for races.
#[derive(Default)]
pub struct Plain(UnsafeCell<u32>);

// SAFETY: loom checks every access.
unsafe impl Sync for Plain {}
// SAFETY: as above.
unsafe impl Send for Plain {}

impl Plain {
    pub fn set(&self, value: u32) {
        // SAFETY: loom checks that no other thread accesses the value.
        self.0.with_mut(|place| unsafe { *place = value });
    }
    pub fn get(&self) -> u32 {
        // SAFETY: loom checks that no thread writes.
        self.0.with(|place| unsafe { *place })
    }
}

impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Plain")
    }
}

/// A gate that blocks until it is opened. Its waiters report the wait to no pool.
#[derive(Default)]
pub struct Barred {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Barred {
    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }
    pub fn pass(&self) {
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.opened.wait(open).unwrap();
        }
    }
}
