//! An item now and then: what a pool costs a program that does hardly anything.

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

/// Items before it counts: threads that are to start have started.
const WARM_UP: u32 = 10;

/// What a run measured.
#[derive(Debug)]
pub struct Idled {
    /// From handing an item over until it ran.
    pub to_run: Latencies,
    /// By all threads of this process.
    pub spent: Spent,
    /// How long.
    pub wall: Duration,
    /// Items.
    pub items: u32,
}

/// Hands one item over in each `period`, for `span`; `None` if SIGINT cut it short.
pub fn run(
    pool: &impl OneShotPool,
    (period, span): (Duration, Duration),
    interrupt: &Interrupt,
) -> Result<Option<Idled>, Stop> {
    let unread = |error| Stop::because("cannot read the CPU time", error);
    let items = (span.as_micros() / period.as_micros()).max(1) as u32;
    let mut to_run = Latencies::with_room(items as usize);
    let ran = Arc::new(AtomicU64::new(0));
    let pace = |items: u32, told: &mut Latencies| {
        let begun = Instant::now();
        for item in 1..=items {
            ran.store(0, Ordering::Relaxed);
            let (start, its) = (cycles(), ran.clone());
            pool.submit(move || its.store(cycles(), Ordering::Relaxed));
            thread::sleep((period * item).saturating_sub(begun.elapsed()));
            // One that has not run within its period has no time: the next one follows.
            match ran.load(Ordering::Relaxed) {
                0 => {}
                end => told.push(start, end),
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
    Ok(Some(Idled {
        to_run,
        spent,
        wall,
        items,
    }))
}
