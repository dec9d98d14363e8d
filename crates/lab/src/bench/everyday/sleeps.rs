//! A large number of tasks that sleep at the same time.

use std::time::{Duration, Instant};

use afterwork::params::Params;
use sync::atomic::{AtomicU64, Ordering};
use tokio::runtime::Runtime;
use top::exit::Stop;

use super::cases::{BYTES_PER_SLEEP, CPU_PER_SLEEP, HAND_OVER, LATE_P50, LATE_P99};
use crate::bench::max_active::gauge::Size;
use crate::bench::workqueue::completion::Latch;
use crate::bench::workqueue::ours::Ours;
use crate::harness::case::Sample;
use crate::harness::fingerprint::find_cpus;
use crate::harness::stats::percentile;
use crate::harness::switches::Usage;

/// The sampling interval: one in this many sleeps is timed.
const SAMPLE_EVERY: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    Ours,
    Tokio,
    /// The timers of async-io with the tasks of tokio, because async-io has no tasks.
    AsyncIo,
}

/// The state that all tasks of a run share. It is leaked, so tasks can borrow it.
struct Sleepers {
    awake: Latch,
    late_ns: Vec<AtomicU64>,
}

impl Sleepers {
    fn woke(&self, index: usize, due: Instant) {
        if index.is_multiple_of(SAMPLE_EVERY) {
            let late = due.elapsed().as_nanos() as u64;
            self.late_ns[index / SAMPLE_EVERY].store(late, Ordering::Relaxed);
        }
        self.awake.arrive();
    }
}

pub fn run(clock: Clock, count: usize, shortest: Duration, workers: usize) -> Result<Sample, Stop> {
    let none = || AtomicU64::new(0);
    let late_ns = std::iter::repeat_with(none).take(count.div_ceil(SAMPLE_EVERY));
    let sleepers: &'static Sleepers =
        Box::leak(Box::new(Sleepers { awake: Latch::default(), late_ns: late_ns.collect() }));
    sleepers.awake.arm(count);
    // The seed is the same for all variants.
    let mut random = fastrand::Rng::with_seed(count as u64);
    let shortest_us = shortest.as_micros() as u64;
    let mut due = move || {
        let further = Duration::from_micros(random.u64(..=shortest_us));
        Instant::now() + shortest + further
    };
    match clock {
        Clock::Ours => {
            let topology = find_cpus()?;
            let ours = Ours::build(&topology, Params::default(), |builder| builder)?;
            measured(count, sleepers, |index| {
                let due = due();
                let sleep = ours.pools.sleep_until(due);
                drop(ours.queue.spawn_async(async move {
                    sleep.await;
                    sleepers.woke(index, due);
                }));
            })
        }
        Clock::Tokio => {
            let runtime = runtime(workers)?;
            measured(count, sleepers, |index| {
                let due = due();
                runtime.spawn(async move {
                    tokio::time::sleep_until(due.into()).await;
                    sleepers.woke(index, due);
                });
            })
        }
        Clock::AsyncIo => {
            let runtime = runtime(workers)?;
            measured(count, sleepers, |index| {
                let due = due();
                runtime.spawn(async move {
                    async_io::Timer::at(due).await;
                    sleepers.woke(index, due);
                });
            })
        }
    }
}

pub fn runtime(workers: usize) -> Result<Runtime, Stop> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(workers).enable_time().build();
    runtime.map_err(Stop::because("cannot start tokio"))
}

fn measured(
    count: usize,
    sleepers: &Sleepers,
    mut hand_over: impl FnMut(usize),
) -> Result<Sample, Stop> {
    let size = Size::now()?;
    let before = Usage::now();
    let begun = Instant::now();
    (0..count).for_each(&mut hand_over);
    let handed_over = begun.elapsed();
    let resident = Size::now()?.resident.saturating_sub(size.resident);
    sleepers.awake.wait();
    let spent = Usage::now().since(before);
    let late_ns = sleepers.late_ns.iter();
    let mut late_ns: Vec<u64> = late_ns.map(|late| late.load(Ordering::Relaxed)).collect();
    late_ns.sort_unstable();
    let each = |of_all: f64| of_all / count as f64;
    let mut sample = Sample::of([
        (CPU_PER_SLEEP, each(spent.cpu_ns as f64)),
        (HAND_OVER, each(handed_over.as_nanos() as f64)),
        (BYTES_PER_SLEEP, each(resident as f64)),
    ]);
    for (percent, metric) in [(50.0, LATE_P50), (99.0, LATE_P99)] {
        sample.set(metric, percentile(&late_ns, percent).unwrap_or(0) as f64);
    }
    Ok(sample)
}
