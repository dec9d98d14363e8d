//! What all models share.

use std::{
    mem::ManuallyDrop,
    ops::{Deref, DerefMut},
    sync::{Arc, OnceLock},
};

use afterwork::{
    params::Params,
    workqueue::{Builder, Work, Workqueue, model::Machine},
};
use loom::sync::{Condvar, Mutex};
use sync::{
    atomic::{AtomicBool, Ordering},
    cell::UnsafeCell,
};
use topology::Topology;

/// Explores without a bound.
pub fn exhaustive(model: impl Fn() + Sync + Send + 'static) {
    builder().check(model);
}

/// Explores all runs with at most `preemptions` switches away from a thread that could go on.
pub fn bounded(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = builder();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

fn builder() -> loom::model::Builder {
    let mut builder = loom::model::Builder::new();
    // A pool's life takes more steps than loom's default of a thousand.
    builder.max_branches = 10_000;
    builder
}

/// Starts a thread of the model.
pub fn spawn<R: 'static>(body: impl FnOnce() -> R + 'static) -> loom::thread::JoinHandle<R> {
    loom::thread::spawn(body)
}

/// Drops a queue when what the model is about is over: how it ends is explored by the models of that.
pub fn wind_up(queue: Workqueue) {
    loom::stop_exploring();
    drop(queue);
}

/// Makes a machine with one pod of `nr_cpus` CPUs whose pools have at most `max_workers` workers.
pub fn machine(nr_cpus: usize, max_workers: usize) -> Machine {
    static MACHINES: [OnceLock<Topology>; 2] = [OnceLock::new(), OnceLock::new()];
    let topology = MACHINES[nr_cpus - 1]
        .get_or_init(|| Topology::synthetic(&format!("{nr_cpus} core")).unwrap());
    let params = Params {
        max_workers,
        max_batch: 1,
        ..Params::default()
    };
    Machine::new(topology, params)
}

/// Describes a queue whose joiners do not help.
pub fn plain() -> Builder {
    Workqueue::builder("model").help(false)
}

/// Makes a queue on two CPUs with `nr_workers` workers, of which joiners may or may not run items.
pub fn queue(nr_workers: usize, help: bool) -> (Machine, Workqueue) {
    let machine = machine(2, nr_workers);
    let queue = plain().help(help).build_in(machine.registry()).unwrap();
    machine.start_workers(nr_workers);
    (machine, queue)
}

/// Two items, the first of which goes by `pass` through a gate that the second opens, on a pool that runs `nr_cpus` at once
/// and has one worker; another is made only if somebody asks for it.
pub fn first_waits_for_second(nr_cpus: usize, pass: fn(&Barred)) {
    let mut machine = machine(nr_cpus, 2);
    let queue = plain().build_in(machine.registry()).unwrap();
    machine.start_workers(1);
    let gate = Arc::new(Barred::default());
    let done = Arc::new(AtomicBool::new(false));
    let first = Work::new({
        let gate = gate.clone();
        move || pass(&gate)
    });
    let second = Work::new({
        let (done, bell) = (done.clone(), machine.bell());
        move || {
            gate.open();
            done.store(true, Ordering::Release);
            bell.ring();
        }
    });
    queue.enqueue(&first);
    queue.enqueue(&second);
    machine.serve_until(|| done.load(Ordering::Acquire));
    wind_up(queue);
}

/// Keeps a value from being dropped while a model unwinds: loom has no thread any more that could take its locks.
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
            // SAFETY: dropped here alone, and once.
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
        // SAFETY: loom checks that nobody else is here.
        self.0.with_mut(|place| unsafe { *place = value });
    }
    pub fn get(&self) -> u32 {
        // SAFETY: loom checks that nobody writes.
        self.0.with(|place| unsafe { *place })
    }
}

impl std::fmt::Debug for Plain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Plain")
    }
}

/// Bars the way until it is opened; who waits reports that to no pool.
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
