//! Occasional items: the cost of a pool in a program that is almost idle.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sync::atomic::{AtomicU64, Ordering};
use sync::time::cycles;
use top::exit::Stop;
use top::interrupt::Interrupt;

use crate::bench::workqueue::subject::OneShotPool;
use crate::harness::latency::Latencies;
use crate::harness::switches::{Spent, Usage};

/// The number of items before the measurement, which ensure that all threads have started.
const WARM_UP: u32 = 10;

/// The results of a run.
#[derive(Debug)]
pub struct Idled {
    /// The time from submitting an item to its start.
    pub to_run: Latencies,
    /// The CPU time and context switches of all threads of this process.
    pub spent: Spent,
    /// The duration of the run.
    pub wall: Duration,
    /// The number of items.
    pub items: u32,
}

/// Submits one item per `period`, for the duration `span`. Returns `None` if SIGINT interrupts the
/// run.
pub fn run(
    pool: &impl OneShotPool,
    (period, span): (Duration, Duration),
    interrupt: &Interrupt,
) -> Result<Option<Idled>, Stop> {
    let unread = |error| Stop::because("cannot read the CPU time", error);
    let items = (span.as_micros() / period.as_micros()).max(1) as u32;
    let mut to_run = Latencies::with_capacity_for(items as usize);
    let ran = Arc::new(AtomicU64::new(0));
    let pace = |items: u32, latencies: &mut Latencies| {
        let begun = Instant::now();
        for item in 1..=items {
            ran.store(0, Ordering::Relaxed);
            let (start, its) = (cycles(), ran.clone());
            pool.submit(move || its.store(cycles(), Ordering::Relaxed));
            thread::sleep((period * item).saturating_sub(begun.elapsed()));
            // An item that has not run within its period is not timed.
            match ran.load(Ordering::Relaxed) {
                0 => {}
                end => latencies.push(start, end),
            }
            if interrupt.requested() {
                return None;
            }
        }
        Some(begun.elapsed())
    };
    if pace(WARM_UP.min(items), &mut Latencies::default()).is_none() {
        return Ok(None);
    }
    let before = Usage::now().map_err(unread)?;
    let Some(wall) = pace(items, &mut to_run) else {
        return Ok(None);
    };
    let spent = Usage::now().map_err(unread)?.since(&before);
    Ok(Some(Idled { to_run, spent, wall, items }))
}
