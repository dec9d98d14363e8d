//! Crews that run items: workqueues, and the pools that programs use today.

use std::sync::Arc;

use afterwork::workqueue::{Builder, Registry, Workqueue};
use top::exit::Stop;
use topology::AffinityScope;

use crate::bench::workqueue::subject::OneShotPool;

pub const NAMES: [&str; 6] =
    [THREADS_8, THREADS_768, BLOCKING_768, THREADS_EACH, BLOCKING, RAYON_EACH];

pub const THREADS_8: &str = "threadpool-8";
pub const THREADS_768: &str = "threadpool-768";
pub const BLOCKING_768: &str = "spawn_blocking-768";
pub const THREADS_EACH: &str = "threadpool each";
/// One `spawn_blocking` pool for all subsystems, as large as the sum of their limits.
pub const BLOCKING: &str = "spawn_blocking";
pub const RAYON_EACH: &str = "rayon each";

pub type Job = Box<dyn FnOnce() + Send>;

/// A crew: a function that submits a job to threads. The limit of a crew is the number of jobs that
/// may run at the same time.
pub type Crew = Arc<dyn Fn(Job) + Send + Sync>;

pub fn crew<P: OneShotPool + Send + 'static>(pool: Result<P, Stop>) -> Result<Crew, Stop> {
    let pool = pool?;
    Ok(Arc::new(move |job| pool.submit(job)))
}

pub fn queue(
    registry: &Registry,
    max_active: usize,
    describe: impl FnOnce(Builder) -> Builder,
) -> Result<Workqueue, Stop> {
    let builder = Workqueue::builder("max-active")
        .affinity(AffinityScope::System)
        .max_active(max_active as u32);
    let queue = describe(builder).build_in(registry);
    queue.map_err(Stop::because("cannot build a queue"))
}
