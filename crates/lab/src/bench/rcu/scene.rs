//! Readers and updaters that run at the same time.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use lab_peers::reclaim::{Flavor, Value};
use sync::time::cycles;
use top::interrupt::Interrupt;

use super::routes::{Routes, STEPS};
use crate::harness::beside::{Attendant, Beside, beside};
use crate::harness::latency::Latencies;

/// The number of sections between two checks for the end, and between two quiescent states.
const BATCH: usize = 64;

/// The sleep of readers in bursts. The system rounds it up to its shortest sleep.
const SHORTEST: Duration = Duration::from_micros(1);

/// Fewer replacements would give no distribution.
const LEAST_CALLS: usize = 3;

/// The maximum wait for a callback, because some callbacks run only if others follow.
const PATIENCE: Duration = Duration::from_millis(50);
const NR_SINGLES: usize = 20;

#[derive(Clone, Copy, Debug, Default)]
pub struct Readers {
    /// The number of threads that have read once and block.
    pub idle: usize,
    pub busy: usize,
    /// The number of threads that repeatedly read `BATCH` batches and then sleep as briefly as the
    /// system allows.
    pub bursts: usize,
}

#[derive(Clone, Copy, Debug)]
pub struct Read {
    pub sections_per_s: f64,
    pub wall: Duration,
}

#[derive(Clone, Copy, Debug)]
pub struct Scope {
    pub calls: usize,
    pub least: Duration,
    /// The maximum duration, which overrides the minimums.
    pub limit: Duration,
    pub pause: Duration,
}

impl Scope {
    /// Calls `turn` with its number until there are enough turns. Returns their number.
    fn repeat(&self, interrupt: &Interrupt, mut turn: impl FnMut(usize)) -> usize {
        let (begun, mut nr_done) = (Instant::now(), 0);
        loop {
            let spent = begun.elapsed();
            let is_enough = nr_done >= self.calls && spent >= self.least;
            let is_late = nr_done >= LEAST_CALLS && spent > self.limit;
            if is_enough || is_late || interrupt.requested() {
                return nr_done;
            }
            turn(nr_done);
            nr_done += 1;
        }
    }
}

/// Replaces the value repeatedly and times each replacement. Returns `None` if interrupted, and
/// [`Absent`](crate::harness::beside::Absent) if a reader paused for too long.
pub fn replace_one_by_one(
    flavor: &dyn Flavor,
    readers: Readers,
    scope: Scope,
    interrupt: &Interrupt,
) -> Beside<Option<Latencies>> {
    let (latencies, _) = among(flavor, readers, || {
        let mut latencies = Latencies::with_capacity_for(scope.calls);
        scope.repeat(interrupt, |value| {
            let start = cycles();
            flavor.replace(value as u64);
            latencies.push(start, cycles());
            if !scope.pause.is_zero() {
                thread::sleep(scope.pause);
            }
        });
        latencies
    })?;
    Ok((!interrupt.requested()).then_some(latencies))
}

pub fn replace_together(
    flavor: &dyn Flavor,
    readers: Readers,
    (updaters, span): (usize, Duration),
    interrupt: &Interrupt,
) -> Beside<Option<(f64, Read)>> {
    let nr_replaced = AtomicU64::new(0);
    let ((), read) = among(flavor, readers, || {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..updaters {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        flavor.replace(1);
                        nr_replaced.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            thread::sleep(span);
            is_over.store(true, Ordering::Relaxed);
        });
    })?;
    let per_s = nr_replaced.into_inner() as f64 / read.wall.as_secs_f64();
    Ok((!interrupt.requested()).then_some((per_s, read)))
}

pub fn call_many(flavor: &dyn Flavor, count: usize, interrupt: &Interrupt) -> Option<f64> {
    let counter = counter();
    let start = Instant::now();
    flavor.call(counter, count);
    while counter.load(Ordering::Acquire) < count as u64 {
        if interrupt.requested() {
            return None;
        }
        // This makes progress in flavors without a callback thread, and does nothing in others.
        flavor.call(counter, 0);
        thread::yield_now();
    }
    Some(count as f64 / start.elapsed().as_secs_f64())
}

/// Times callbacks one by one. The result is empty if they do not run by themselves.
pub fn call_singly(flavor: &dyn Flavor) -> Latencies {
    let mut latencies = Latencies::default();
    for _ in 0..NR_SINGLES {
        let (counter, begun, start) = (counter(), Instant::now(), cycles());
        flavor.call(counter, 1);
        while counter.load(Ordering::Acquire) == 0 {
            if begun.elapsed() > PATIENCE {
                return latencies;
            }
            std::hint::spin_loop();
        }
        latencies.push(start, cycles());
    }
    latencies
}

/// Times barriers without pending callbacks. The result is empty if the flavor has no barrier.
pub fn barriers(flavor: &dyn Flavor) -> Latencies {
    let mut latencies = Latencies::default();
    for _ in 0..NR_SINGLES {
        let start = cycles();
        if flavor.barrier().is_none() {
            break;
        }
        latencies.push(start, cycles());
    }
    latencies
}

pub fn bridges(
    flavor: &dyn Flavor<Routes>,
    readers: Readers,
    scope: Scope,
    interrupt: &Interrupt,
) -> Beside<Option<(f64, Latencies, Read)>> {
    let ((nr_done, latencies), read) = among(flavor, readers, || {
        let mut latencies = Latencies::with_capacity_for(STEPS.len() * scope.calls);
        let mut routes = Routes::resident();
        let nr_done = scope.repeat(interrupt, |bridge| {
            for step in STEPS {
                routes = routes.after(step, bridge as u32);
                let next = routes.clone();
                let start = cycles();
                flavor.replace(next);
                latencies.push(start, cycles());
            }
        });
        (nr_done, latencies)
    })?;
    let ns = read.wall.as_nanos() as f64 / nr_done.max(1) as f64;
    Ok((!interrupt.requested()).then_some((ns, latencies, read)))
}

/// Returns a padded counter. It is leaked, because callbacks may run after the measurement.
pub fn counter() -> &'static AtomicU64 {
    Box::leak(Box::<CachePadded<AtomicU64>>::default())
}

/// Runs `body` after all readers have started. Busy readers read until `body` returns.
fn among<T: Value, R>(
    flavor: &dyn Flavor<T>,
    readers: Readers,
    body: impl FnOnce() -> R,
) -> Beside<(R, Read)> {
    let Readers { idle, busy, bursts } = readers;
    let (have_begun, is_last) = (Barrier::new(idle + 1), Barrier::new(idle + 1));
    let read_on = |index: usize, attendant: &mut Attendant<'_>| {
        let (mut reader, mut nr_batches) = (flavor.reader(), 0_usize);
        while attendant.goes_on() {
            std::hint::black_box(reader.read(BATCH));
            nr_batches += 1;
            if index >= busy && nr_batches.is_multiple_of(BATCH) {
                reader.rest();
                thread::sleep(SHORTEST);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..idle {
            scope.spawn(|| {
                let mut reader = flavor.reader();
                reader.read(BATCH);
                reader.rest();
                have_begun.wait();
                is_last.wait();
            });
        }
        have_begun.wait();
        let done = beside(busy + bursts, read_on, || {
            let begun = Instant::now();
            let done = body();
            (done, begun.elapsed())
        });
        is_last.wait();
        let ((done, wall), left) = done?;
        let nr_batches: u64 = left.iter().map(|(_, attended)| attended.nr_pieces).sum();
        let sections_per_s = (nr_batches * BATCH as u64) as f64 / wall.as_secs_f64();
        Ok((done, Read { sections_per_s, wall }))
    })
}
