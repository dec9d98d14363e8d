//! Readers that come and stay while somebody replaces the value before their eyes.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lab_peers::reclaim::{Calls, Flavor, Value};
use sync::time::cycles;
use top::interrupt::Interrupt;

use super::routes::{Routes, Step};
use crate::harness::beside::{Attendant, Beside, beside};
use crate::harness::latency::Latencies;

/// Sections between two looks at whether it is over, and between two reports where readers report.
const BATCH: usize = 64;

/// What readers that come in bursts sleep for: the system makes the shortest sleep of it.
const SHORTEST: Duration = Duration::from_micros(1);

/// Fewer than that say nothing about a distribution.
const LEAST_CALLS: usize = 3;

/// How long a callback is waited for: some run only when others follow.
const PATIENCE: Duration = Duration::from_millis(50);
/// Callbacks and barriers that are timed singly.
const NR_SINGLES: usize = 20;

/// Who reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Readers {
    /// Threads that have read and block.
    pub idle: usize,
    /// Threads that read without a pause.
    pub busy: usize,
    /// Threads that read a batch of batches, and then sleep for as long as the system's shortest sleep.
    pub bursts: usize,
}

/// What readers did while it lasted.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// Sections of all of them.
    pub nr_sections: u64,
    /// How long.
    pub wall: Duration,
}

/// How long single replacements go on.
#[derive(Clone, Copy, Debug)]
pub struct Scope {
    /// So many at least.
    pub calls: usize,
    /// And for so long at least.
    pub least: Duration,
    /// But no longer than this.
    pub limit: Duration,
    /// After each of them.
    pub pause: Duration,
}

/// Replaces one by one and times each; `None` when it was interrupted.
///
/// # Errors
///
/// If a reader was not reading all the while; see [`beside`].
pub fn replace_one_by_one(
    flavor: &dyn Flavor,
    readers: Readers,
    scope: Scope,
    interrupt: &Interrupt,
) -> Beside<Option<Latencies>> {
    let Scope {
        calls,
        least,
        limit,
        pause,
    } = scope;
    let (latencies, _) = among(flavor, readers, || {
        let mut latencies = Latencies::with_room(calls);
        let begun = Instant::now();
        for value in 0.. {
            let spent = begun.elapsed();
            let is_enough = value >= calls && spent >= least;
            let is_late = value >= LEAST_CALLS && spent > limit;
            if is_enough || is_late || interrupt.requested() {
                break;
            }
            let start = cycles();
            flavor.replace(value as u64);
            latencies.push(start, cycles());
            if !pause.is_zero() {
                thread::sleep(pause);
            }
        }
        latencies
    })?;
    Ok((!interrupt.requested()).then_some(latencies))
}

/// Lets `updaters` threads replace for `span`; returns how many replacements a second, and what the readers did.
///
/// # Errors
///
/// If a reader was not reading all the while; see [`beside`].
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

/// Hands over `count` callbacks and waits for the last; returns how many a second.
#[must_use]
pub fn call_many(calls: &dyn Calls, count: usize, interrupt: &Interrupt) -> Option<f64> {
    let counter = counter();
    let start = Instant::now();
    calls.call(counter, count);
    while counter.load(Ordering::Acquire) < count as u64 {
        if interrupt.requested() {
            return None;
        }
        // Says nothing new where callbacks have their own thread, and makes the others get on.
        calls.call(counter, 0);
        thread::yield_now();
    }
    Some(count as f64 / start.elapsed().as_secs_f64())
}

/// Times single callbacks, from handing over to having run; empty when they do not run by themselves.
#[must_use]
pub fn call_singly(calls: &dyn Calls) -> Latencies {
    let mut latencies = Latencies::default();
    for _ in 0..NR_SINGLES {
        let (counter, begun, start) = (counter(), Instant::now(), cycles());
        calls.call(counter, 1);
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

/// Times barriers that have nothing to wait for; empty where there are none.
#[must_use]
pub fn barriers(calls: &dyn Calls) -> Latencies {
    let mut latencies = Latencies::default();
    for _ in 0..NR_SINGLES {
        let start = cycles();
        if calls.barrier().is_none() {
            break;
        }
        latencies.push(start, cycles());
    }
    latencies
}

/// Sets up bridges: each is added, configured and deleted, and after each step nobody sees the table any more as it was
/// before. Returns the nanoseconds of one.
///
/// # Errors
///
/// If a reader was not reading all the while; see [`beside`].
pub fn bridges(
    flavor: &dyn Flavor<Routes>,
    readers: Readers,
    scope: Scope,
    interrupt: &Interrupt,
) -> Beside<Option<(f64, Read)>> {
    let (nr_done, read) = among(flavor, readers, || {
        let (begun, mut routes) = (Instant::now(), Routes::resident());
        let is_enough = |nr_done: usize| {
            let spent = begun.elapsed();
            (nr_done >= scope.calls && spent >= scope.least) || spent >= scope.limit
        };
        let mut nr_done = 0;
        while !is_enough(nr_done) && !interrupt.requested() {
            for step in Step::ALL {
                routes = routes.after(step, nr_done as u32);
                flavor.replace(routes.clone());
            }
            nr_done += 1;
        }
        nr_done
    })?;
    let ns = read.wall.as_nanos() as f64 / nr_done.max(1) as f64;
    Ok((!interrupt.requested()).then_some((ns, read)))
}

/// Lives as long as the process: a callback may come late.
fn counter() -> &'static AtomicU64 {
    Box::leak(Box::default())
}

/// Does `body` while readers read; they have all begun when it begins, and those that are busy read through all of it.
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
        let nr_sections = nr_batches * BATCH as u64;
        Ok((done, Read { nr_sections, wall }))
    })
}
