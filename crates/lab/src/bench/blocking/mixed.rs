//! Items that burn CPU time, sleep, and burn CPU time again.

use std::fs;
use std::hint::black_box;
use std::sync::OnceLock;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use afterwork::workqueue::{AffinityScope, Workqueue};
use sync::thread::ThreadId;
use top::exit::Stop;

use super::detect::{Sleep, queue, registry};
use crate::bench::workqueue::subject::OneShotPool;

/// The number of items.
pub const ITEMS: usize = 64;
const BURN: Duration = Duration::from_millis(1);
const SLEEP: Duration = Duration::from_millis(5);

/// The results of a run.
#[derive(Clone, Copy, Debug)]
pub struct Mixed {
    /// The time from queueing the first item to the completion of the last.
    pub makespan: Duration,
    /// The number of threads that the pool added.
    pub threads: usize,
    /// The CPU time of the manager thread of afterwork.
    pub manager: Option<Duration>,
}

/// Burns `BURN` of CPU time in a fixed number of steps, so that time without a CPU does not count.
fn burn() {
    static STEPS: OnceLock<u64> = OnceLock::new();
    let steps = *STEPS.get_or_init(|| {
        const TRIAL: u64 = 2_000_000;
        let fastest = (0..7)
            .map(|_| {
                let start = Instant::now();
                walk(TRIAL);
                start.elapsed()
            })
            .min()
            .unwrap_or(BURN);
        (TRIAL as f64 * BURN.as_secs_f64() / fastest.as_secs_f64()) as u64
    });
    walk(steps);
}

fn walk(steps: u64) {
    let mut state = black_box(1u64);
    for _ in 0..steps {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    }
    black_box(state);
}

fn nr_threads() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// Returns the CPU time of the thread of this process called `name`.
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

/// Runs all items through `submit`.
fn run(nr_before: usize, sleep: Sleep, submit: impl Fn(Box<dyn FnOnce() + Send>)) -> Mixed {
    burn();
    let (send, ended) = mpsc::channel();
    let manager_before = cpu_of("aw/manager");
    let start = Instant::now();
    for _ in 0..ITEMS {
        let send = send.clone();
        submit(Box::new(move || {
            burn();
            sleep.sleep(SLEEP);
            burn();
            send.send(()).ok();
        }));
    }
    drop(send);
    ended.iter().for_each(drop);
    Mixed {
        makespan: start.elapsed(),
        threads: nr_threads().saturating_sub(nr_before),
        manager: cpu_of("aw/manager")
            .zip(manager_before)
            .map(|(after, before)| after.saturating_sub(before)),
    }
}

/// Runs all items on a workqueue.
pub fn ours(sleep: Sleep) -> Result<Mixed, Stop> {
    let nr_before = nr_threads();
    let registry = registry()?;
    let queue: Workqueue = queue(&registry, AffinityScope::System)?;
    let mixed = run(nr_before, sleep, |item| queue.spawn_detached(item).unwrap());
    drop(queue);
    registry.shutdown().map_err(|_| Stop::CouldNotRun("a registry is still in use".into()))?;
    Ok(mixed)
}

/// Runs all items on a pool that `start` creates.
pub fn pool<P: OneShotPool>(start: impl FnOnce() -> Result<P, Stop>) -> Result<Mixed, Stop> {
    let nr_before = nr_threads();
    let pool = start()?;
    let mixed = run(nr_before, Sleep::Unannounced, |item| pool.submit(item));
    drop(pool);
    settle(nr_before);
    Ok(mixed)
}

/// Waits up to a second until threads of a dropped pool have exited, so that none is counted later.
fn settle(nr_before: usize) {
    let end = Instant::now() + Duration::from_secs(1);
    while nr_threads() > nr_before && Instant::now() < end {
        thread::sleep(Duration::from_millis(1));
    }
}
