//! Items that burn CPU time, sleep, and burn CPU time again.

use std::sync::mpsc;
use std::time::{Duration, Instant};
use std::{fs, thread};

use afterwork::workqueue::AffinityScope;
use sync::thread::ThreadId;
use top::exit::Stop;

use super::detect::{Sleep, start};
use crate::bench::groups::tenants::compute;
use crate::bench::max_active::gauge::Size;
use crate::bench::workqueue::subject::OneShotPool;

pub const ITEMS: usize = 64;
const BURN_US: u64 = 1000;
const SLEEP: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, Debug)]
pub struct Mixed {
    /// The time from queueing the first item to the completion of the last.
    pub makespan: Duration,
    pub threads: u64,
    pub manager: Option<Duration>,
}

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

fn run(
    nr_before: u64,
    sleep: Sleep,
    submit: impl Fn(Box<dyn FnOnce() + Send>),
) -> Result<Mixed, Stop> {
    // The first call measures the speed of the CPU.
    compute(0);
    let (send, ended) = mpsc::channel();
    let manager_before = cpu_of("aw/manager");
    let start = Instant::now();
    for _ in 0..ITEMS {
        let send = send.clone();
        submit(Box::new(move || {
            compute(BURN_US);
            sleep.sleep(SLEEP);
            compute(BURN_US);
            send.send(()).ok();
        }));
    }
    drop(send);
    ended.iter().for_each(drop);
    Ok(Mixed {
        makespan: start.elapsed(),
        threads: Size::now()?.threads.saturating_sub(nr_before),
        manager: cpu_of("aw/manager")
            .zip(manager_before)
            .map(|(after, before)| after.saturating_sub(before)),
    })
}

pub fn ours(sleep: Sleep) -> Result<Mixed, Stop> {
    let nr_before = Size::now()?.threads;
    let ours = start(AffinityScope::System)?;
    run(nr_before, sleep, |item| ours.submit(item))
}

pub fn pool<P: OneShotPool>(start: impl FnOnce() -> Result<P, Stop>) -> Result<Mixed, Stop> {
    let nr_before = Size::now()?.threads;
    let pool = start()?;
    let mixed = run(nr_before, Sleep::Unannounced, |item| pool.submit(item))?;
    drop(pool);
    // Threads of the dropped pool must not be counted later.
    let end = Instant::now() + Duration::from_secs(1);
    while Size::now()?.threads > nr_before && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
    Ok(mixed)
}
