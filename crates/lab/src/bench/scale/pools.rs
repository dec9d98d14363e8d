//! The costs of items in the pools of afterwork and of peers.

use std::hint::spin_loop;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use sync::time::{cycles, cycles_per_us};
use top::exit::Stop;
use top::interrupt::Interrupt;

use super::axis::Cost;
use crate::bench::max_active::gauge::Size;
use crate::bench::workqueue::completion::{Completion, Latch, Waiting};
use crate::bench::workqueue::metrics::ITEMS_PER_S;
use crate::bench::workqueue::shape::{Shape, Task};
use crate::bench::workqueue::subject::{OneShot, OneShotPool};

const NS_PER_S: f64 = 1e9;

/// The number of items in a batch for which a producer waits.
const BATCH: usize = 1_000;

/// The minimum duration of a measurement. Shorter measurements are repeated, because the clock and
/// the scheduler are coarse.
const LEAST: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 20 });

/// The time within which an idle worker takes an item, even on a fully loaded machine. If it takes
/// longer, the worker was not created.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the cost of an item if `producers` producers queue about `items` items together.
pub fn producers(
    pool: impl OneShotPool,
    producers: usize,
    items: usize,
    interrupt: &Interrupt,
) -> Result<Option<Cost>, Stop> {
    let rounds = (items / producers).div_ceil(BATCH);
    let shape = Shape {
        task: Task::batches(producers, BATCH, rounds),
        pins: Vec::new(),
        interrupt: interrupt.clone(),
    };
    let sample = shape.run(&OneShot(pool, Waiting::Parks))?;
    let rate = sample.and_then(|sample| sample.value(ITEMS_PER_S));
    Ok(rate.map(|rate| Cost { ns: NS_PER_S / rate, bytes: None }))
}

/// Returns the cost of one of `items` items that are queued to `pools` in turn. The pools take
/// `grown` bytes.
pub fn spread(pools: &[impl OneShotPool], grown: u64, items: usize) -> Cost {
    let latch: &'static Latch = Box::leak(Box::default());
    let ns = ns_of_one(items, || {
        latch.arm(items);
        for item in 0..items {
            pools[item % pools.len()].submit(move || {
                latch.arrive();
            });
        }
        latch.wait();
    });
    Cost { ns, bytes: Some(grown as f64 / pools.len() as f64) }
}

/// Returns the cost of each of `items` items that are queued while all `workers` are blocked, and
/// then run.
///
/// # Errors
///
/// Returns an error if the pool has fewer workers, or the memory size of this process cannot be
/// read.
pub fn pending(pool: &impl OneShotPool, workers: usize, items: usize) -> Result<Cost, Stop> {
    let latch: &'static Latch = Box::leak(Box::default());
    let (mut spent, mut nr_done, mut grown) = (Duration::ZERO, 0, None);
    while nr_done == 0 || spent < LEAST {
        let open: &'static Completions = Box::leak(Box::new(Completions::hold(workers)));
        for index in 0..workers {
            pool.submit(move || open.stand(index));
        }
        open.wait_until_held(PATIENCE)?;
        latch.arm(items);
        let before = Size::now()?;
        let begun = Instant::now();
        for _ in 0..items {
            pool.submit(move || {
                latch.arrive();
            });
        }
        spent += begun.elapsed();
        let after = Size::now()?.resident;
        // Only the first round measures growth: later rounds reuse the memory that it freed.
        grown.get_or_insert(after.saturating_sub(before.resident));
        let begun = Instant::now();
        open.open();
        latch.wait();
        spent += begun.elapsed();
        nr_done += items;
    }
    Ok(Cost {
        ns: spent.as_nanos() as f64 / nr_done as f64,
        bytes: grown.map(|grown| grown as f64 / items as f64),
    })
}

/// Blocks workers until all are released together.
struct Completions {
    nr_held: Mutex<usize>,
    moved: Condvar,
    each: Vec<Completion>,
}

impl Completions {
    fn hold(workers: usize) -> Self {
        let each = || {
            let one = Completion::default();
            one.arm();
            one
        };
        Self {
            nr_held: Mutex::default(),
            moved: Condvar::new(),
            each: std::iter::repeat_with(each).take(workers).collect(),
        }
    }

    fn stand(&self, index: usize) {
        *self.nr_held.lock().expect("no thread panics under it") += 1;
        self.moved.notify_one();
        self.each[index].wait();
    }

    /// Waits until all workers are blocked. If no further worker arrives within `backoff`, releases
    /// all workers and fails.
    fn wait_until_held(&self, backoff: Duration) -> Result<(), Stop> {
        let all = self.each.len();
        let mut nr_held = self.nr_held.lock().expect("no thread panics under it");
        while *nr_held < all {
            let before = *nr_held;
            let is_same = |now: &mut usize| *now == before;
            let waited = self.moved.wait_timeout_while(nr_held, backoff, is_same);
            let (held, timeout) = waited.expect("no thread panics under it");
            if timeout.timed_out() {
                self.open();
                return Err(Stop::CouldNotRun(format!(
                    "{before} of {all} workers take items, and none was added for {} s: threads cannot be created; raise the \
                     limits of threads and memory (`ulimit -u`, `ulimit -v`)",
                    backoff.as_secs()
                )));
            }
            nr_held = held;
        }
        Ok(())
    }

    fn open(&self) {
        self.each.iter().for_each(Completion::complete);
    }
}

/// Returns the cost of each of `items` items that burn `length_ns`, on all workers together.
pub fn length(pool: &impl OneShotPool, length_ns: usize, items: usize) -> Cost {
    let latch: &'static Latch = Box::leak(Box::default());
    // A length of one nanosecond means an empty item.
    let length = length_ns as u64 * cycles_per_us() / 1_000;
    let ns = ns_of_one(items, || {
        latch.arm(items);
        for _ in 0..items {
            pool.submit(move || {
                let start = cycles();
                while length_ns > 1 && cycles().saturating_sub(start) < length {
                    spin_loop();
                }
                latch.arrive();
            });
        }
        latch.wait();
    });
    Cost { ns, bytes: None }
}

/// Runs `all`, which performs `count` operations, once to warm up and then repeatedly for a while.
/// Returns the mean time of one operation.
pub fn ns_of_one(count: usize, mut all: impl FnMut()) -> f64 {
    all();
    let (begun, mut nr_done) = (Instant::now(), 0);
    while nr_done == 0 || begun.elapsed() < LEAST {
        all();
        nr_done += count;
    }
    begun.elapsed().as_nanos() as f64 / nr_done as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_worker_is_reported_and_the_others_continue() {
        let held = Completions::hold(2);
        *held.nr_held.lock().unwrap() = 1;
        let Err(Stop::CouldNotRun(reason)) = held.wait_until_held(Duration::ZERO) else {
            panic!("one of two workers is missing");
        };
        assert!(
            reason.contains("1 of 2 workers") && reason.contains("threads cannot be created"),
            "{reason}"
        );
        held.stand(1);
        held.wait_until_held(Duration::ZERO).unwrap();
    }
}
