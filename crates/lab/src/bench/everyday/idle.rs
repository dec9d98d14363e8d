//! Occasional items: the cost of a pool in a program that is almost idle.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use sync::atomic::{AtomicU64, Ordering};
use sync::time::cycles;
use top::interrupt::Interrupt;

use super::cases::{CPU_SHARE, SWITCHES, TO_RUN_P50, TO_RUN_P99};
use crate::bench::workqueue::subject::OneShotPool;
use crate::harness::case::Sample;
use crate::harness::latency::Latencies;
use crate::harness::switches::Usage;

/// The number of items before the measurement, which ensure that all threads have started.
const WARM_UP: u32 = 10;

pub fn run(
    pool: &impl OneShotPool,
    (period, span): (Duration, Duration),
    interrupt: &Interrupt,
) -> Option<Sample> {
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
    pace(WARM_UP.min(items), &mut Latencies::default())?;
    let before = Usage::now();
    let wall = pace(items, &mut to_run)?;
    let spent = Usage::now().since(before);
    Some(
        Sample::of([
            (CPU_SHARE, spent.cpu_ns as f64 / wall.as_nanos() as f64),
            (SWITCHES, spent.switches() as f64 / f64::from(items)),
        ])
        .with_percentiles(to_run, [(50.0, TO_RUN_P50), (99.0, TO_RUN_P99)]),
    )
}
