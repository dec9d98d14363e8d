//! Crews that run items: workqueues, and the pools that programs use today.

use std::sync::Arc;

use afterwork::workqueue::{Builder, Registry, Workqueue};
use top::exit::Stop;
use topology::AffinityScope;

use crate::bench::workqueue::peers::{Rayon, SpawnBlocking, ThreadPool};
use crate::bench::workqueue::subject::OneShotPool;

/// The names of the peers, as they are spelled in `--peers` and in tables.
pub const NAMES: [&str; 6] =
    [THREADS_8, THREADS_768, BLOCKING_768, THREADS_EACH, BLOCKING, RAYON_EACH];

/// A pool of the crate threadpool with 8 threads.
pub const THREADS_8: &str = "threadpool-8";
/// A pool of the crate threadpool with 768 threads.
pub const THREADS_768: &str = "threadpool-768";
/// `spawn_blocking` of tokio with at most 768 threads.
pub const BLOCKING_768: &str = "spawn_blocking-768";
/// A threadpool for each subsystem.
pub const THREADS_EACH: &str = "threadpool each";
/// One `spawn_blocking` pool for all subsystems, as large as the sum of their limits.
pub const BLOCKING: &str = "spawn_blocking";
/// A rayon pool for each subsystem.
pub const RAYON_EACH: &str = "rayon each";

/// The work that a crew runs.
pub type Job = Box<dyn FnOnce() + Send>;

/// A crew that runs jobs. Its limit is the number of jobs that may run at once.
pub trait Crew: Send + Sync {
    /// Submits a job.
    fn submit(&self, job: Job);
}

impl<P: OneShotPool + Send> Crew for P {
    fn submit(&self, job: Job) {
        OneShotPool::submit(self, job);
    }
}

/// Starts a pool of the crate threadpool.
pub fn threads(count: usize) -> Result<Arc<dyn Crew>, Stop> {
    Ok(Arc::new(ThreadPool::start(count)?))
}

/// Starts a runtime of tokio whose `spawn_blocking` uses at most `count` threads.
pub fn blocking(count: usize) -> Result<Arc<dyn Crew>, Stop> {
    Ok(Arc::new(SpawnBlocking::start(count)?))
}

/// Starts a rayon pool.
pub fn rayon(count: usize) -> Result<Arc<dyn Crew>, Stop> {
    Ok(Arc::new(Rayon::start(count)?))
}

/// Creates a queue in `registry` that uses one pool for all CPUs.
pub fn queue(
    registry: &Registry,
    max_active: usize,
    describe: impl FnOnce(Builder) -> Builder,
) -> Result<Arc<dyn Crew>, Stop> {
    let builder = Workqueue::builder("max-active")
        .affinity(AffinityScope::System)
        .max_active(max_active as u32);
    let queue = describe(builder).build_in(registry);
    Ok(Arc::new(queue.map_err(|error| Stop::because("cannot build a queue", error))?))
}
