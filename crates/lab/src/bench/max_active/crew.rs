//! Who runs items: workqueues, and the pools that programs have today.

use std::sync::Arc;

use afterwork::workqueue::{Builder, Registry, Workqueue};
use top::exit::Stop;
use topology::AffinityScope;

use crate::bench::workqueue::peers::{Rayon, SpawnBlocking, ThreadPool};
use crate::bench::workqueue::subject::OneShotPool;

/// As `--peers` and tables spell them: a pool of so many threads, each.
pub const NAMES: [&str; 6] = [
    THREADS_8,
    THREADS_768,
    BLOCKING_768,
    THREADS_EACH,
    BLOCKING,
    RAYON_EACH,
];

/// A pool of the crate threadpool with 8 threads.
pub const THREADS_8: &str = "threadpool-8";
/// See [`THREADS_8`].
pub const THREADS_768: &str = "threadpool-768";
/// tokio's spawn_blocking with at most 768 threads.
pub const BLOCKING_768: &str = "spawn_blocking-768";
/// A threadpool for each subsystem.
pub const THREADS_EACH: &str = "threadpool each";
/// One spawn_blocking for all subsystems, as large as their limits together.
pub const BLOCKING: &str = "spawn_blocking";
/// A rayon pool for each subsystem.
pub const RAYON_EACH: &str = "rayon each";

/// What a crew does.
pub type Job = Box<dyn FnOnce() + Send>;

/// Runs jobs, so many at once as it was made for.
pub trait Crew: Send + Sync {
    /// Hands a job over.
    fn submit(&self, job: Job);
}

impl<P: OneShotPool + Send> Crew for P {
    fn submit(&self, job: Job) {
        OneShotPool::submit(self, job);
    }
}

/// Makes a pool of the crate threadpool.
pub fn threads(count: usize) -> Result<Arc<dyn Crew>, Stop> {
    Ok(Arc::new(ThreadPool::start(count)?))
}

/// Makes a runtime of tokio whose spawn_blocking has at most `count` threads.
pub fn blocking(count: usize) -> Result<Arc<dyn Crew>, Stop> {
    Ok(Arc::new(SpawnBlocking::start(count)?))
}

/// Makes a rayon pool.
pub fn rayon(count: usize) -> Result<Arc<dyn Crew>, Stop> {
    Ok(Arc::new(Rayon::start(count)?))
}

/// Makes a queue of `registry`, all of whose CPUs share one pool.
pub fn queue(
    registry: &Registry,
    max_active: usize,
    describe: impl FnOnce(Builder) -> Builder,
) -> Result<Arc<dyn Crew>, Stop> {
    let builder = Workqueue::builder("max-active")
        .scope(AffinityScope::System)
        .max_active(max_active as u32);
    let queue = describe(builder).build_in(registry);
    Ok(Arc::new(queue.map_err(|error| {
        Stop::because("cannot make a queue", error)
    })?))
}
