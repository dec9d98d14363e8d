//! Items that burn CPU time, sleep, and burn CPU time again.

use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use sync::thread::ThreadId;
use top::exit::Stop;

use super::cases::{MAKESPAN, MANAGER, THREADS};
use super::detect::Sleep;
use crate::bench::groups::tenants::compute;
use crate::bench::max_active::gauge::Size;
use crate::bench::workqueue::subject::OneShotPool;
use crate::harness::case::{Ran, Sample};

pub const ITEMS: usize = 64;
const BURN_US: u64 = 1000;
const SLEEP: Duration = Duration::from_millis(5);

fn cpu_of(name: &str) -> Option<Duration> {
    let tasks = fs::read_dir("/proc/self/task").ok()?;
    let mut tasks = tasks.filter_map(Result::ok).filter_map(|task| {
        let comm = fs::read_to_string(task.path().join("comm")).ok()?;
        let number = task.file_name().to_str()?.parse().ok()?;
        (comm.trim() == name).then_some(ThreadId(number))
    });
    let ns = sync::usage::cpu_ns(tasks.next()?)?;
    Some(Duration::from_nanos(ns))
}

/// Runs the items on the pool that `start` creates.
pub fn run<P: OneShotPool>(sleep: Sleep, start: impl FnOnce() -> Result<P, Stop>) -> Ran {
    let nr_before = Size::now()?.threads;
    let pool = start()?;
    // The first call measures the speed of the CPU.
    compute(0);
    let (send, ended) = mpsc::channel();
    let manager_before = cpu_of("aw/manager");
    let begun = Instant::now();
    for _ in 0..ITEMS {
        let send = send.clone();
        pool.submit(move || {
            compute(BURN_US);
            sleep.sleep(SLEEP);
            compute(BURN_US);
            send.send(()).ok();
        });
    }
    drop(send);
    ended.iter().for_each(drop);
    let makespan = begun.elapsed();
    let threads = Size::now()?.threads.saturating_sub(nr_before);
    let manager = cpu_of("aw/manager").zip(manager_before);
    let manager = manager.map(|(after, before)| after.saturating_sub(before));
    drop(pool);
    // Threads of the dropped pool must not be counted later.
    let end = Instant::now() + Duration::from_secs(1);
    while Size::now()?.threads > nr_before && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    let mut sample =
        Sample::of([(MAKESPAN, makespan.as_nanos() as f64), (THREADS, threads as f64)]);
    if let Some(manager) = manager {
        sample.set(MANAGER, manager.as_secs_f64() / makespan.as_secs_f64());
    }
    Ok(Some(sample))
}
