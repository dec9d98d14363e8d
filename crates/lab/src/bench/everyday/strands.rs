//! A large number of small states, each used by one closure at a time.

use std::sync::Arc;
use std::time::Instant;

use afterwork::workqueue::{Registry, Strand, Workqueue};
use tokio::runtime::Runtime;
use tokio::sync::Mutex;

use super::cases::{BYTES_MADE, BYTES_USED, DROP, MAKE};
use crate::bench::max_active::gauge::Size;
use crate::bench::workqueue::completion::Latch;
use crate::bench::workqueue::metrics::ITEMS_PER_S;
use crate::harness::case::{Ran, Sample};

pub const ROUNDS: usize = 10;

pub trait Serial: Sized {
    type Pool;

    fn create(pool: &Self::Pool) -> Self;

    /// Queues a closure that expects the counter to be `turn`, increments it, and reports its end.
    fn add(&self, pool: &Self::Pool, turn: usize, latch: &'static Latch);
}

fn count(state: &mut usize, turn: usize, latch: &Latch) {
    // The closures of tokio's tasks may run in a different order. Ours must not.
    assert!(turn == usize::MAX || *state == turn, "out of order");
    *state += 1;
    latch.arrive();
}

impl Serial for Strand<usize> {
    type Pool = Workqueue;

    fn create(pool: &Workqueue) -> Self {
        pool.strand(0)
    }

    fn add(&self, _: &Workqueue, turn: usize, latch: &'static Latch) {
        self.spawn_detached(move |state| count(state, turn, latch)).unwrap();
    }
}

/// An ordered queue. Its state has a lock, which is never contended.
pub struct Ordered(Workqueue, Arc<std::sync::Mutex<usize>>);

impl Serial for Ordered {
    type Pool = Registry;

    fn create(registry: &Registry) -> Self {
        let queue = Workqueue::builder("one of many").ordered().build_in(registry);
        Self(queue.expect("a queue without a rescuer"), Arc::default())
    }

    fn add(&self, _: &Registry, turn: usize, latch: &'static Latch) {
        let state = self.1.clone();
        let run = move || count(&mut state.lock().expect("not poisoned"), turn, latch);
        self.0.spawn_detached(run).unwrap();
    }
}

pub struct Locked(Arc<Mutex<usize>>);

impl Serial for Locked {
    type Pool = Runtime;

    fn create(_: &Runtime) -> Self {
        Self(Arc::default())
    }

    fn add(&self, runtime: &Runtime, _: usize, latch: &'static Latch) {
        let state = self.0.clone();
        runtime.spawn(async move { count(&mut *state.lock().await, usize::MAX, latch) });
    }
}

pub fn run<S: Serial>(pool: &S::Pool, nr_states: usize) -> Ran {
    let latch: &'static Latch = Box::leak(Box::default());
    let mut states = Vec::with_capacity(nr_states);
    let before = Size::now()?.resident;
    let grown = || Size::now().map(|size| size.resident.saturating_sub(before));
    let begun = Instant::now();
    states.extend((0..nr_states).map(|_| S::create(pool)));
    let (made, resident) = (begun.elapsed(), grown()?);
    let round = |turn| {
        latch.arm(nr_states);
        states.iter().for_each(|state| state.add(pool, turn, latch));
        latch.wait();
    };
    let begun = Instant::now();
    round(0);
    let (first, used) = (begun.elapsed(), grown()?);
    let begun = Instant::now();
    (1..ROUNDS).for_each(round);
    let ran = first + begun.elapsed();
    let begun = Instant::now();
    drop(states);
    let dropped = begun.elapsed();
    let each = |of_all: f64| of_all / nr_states as f64;
    let mut sample = Sample::of([
        (MAKE, each(made.as_nanos() as f64)),
        (DROP, each(dropped.as_nanos() as f64)),
        (BYTES_MADE, each(resident as f64)),
        (BYTES_USED, each(used as f64)),
    ]);
    sample.set(ITEMS_PER_S, (nr_states * ROUNDS) as f64 / ran.as_secs_f64());
    Ok(Some(sample))
}
