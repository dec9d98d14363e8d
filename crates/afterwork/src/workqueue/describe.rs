//! What a registry shows of its queues and pools.

use super::{
    machine::Machine,
    stats::{PoolStats, QueueReport},
};
use crate::page::{Image, Kind};

impl Machine {
    /// Writes a record for each queue and each pool.
    pub(super) fn describe(&self, image: &mut Image) {
        for report in self.queues().iter().filter_map(|queue| queue.report()) {
            add_queue(image, &report);
        }
        for pool in self.pools() {
            add_pool(image, &pool.stats());
        }
    }
}

fn add_queue(image: &mut Image, queue: &QueueReport) {
    let stats = &queue.stats;
    let figures = [
        stats.nr_active.into(),
        stats.nr_inactive as u64,
        stats.max_active.into(),
        stats.started,
        stats.completed,
        stats.helped,
        stats.rescued,
        stats.refused,
        stats.panicked,
        stats.cpu_time_us,
        queue.wait.count,
        queue.wait.quantile_ns(0.5),
        queue.wait.quantile_ns(0.99),
    ];
    image.add(
        Kind::Queue,
        &queue.name,
        queue.attrs.scope.as_str(),
        &figures,
    );
}

fn add_pool(image: &mut Image, pool: &PoolStats) {
    let nr_awake = pool.nr_workers.saturating_sub(pool.nr_idle);
    let figures = [
        pool.nr_workers as u64,
        pool.nr_idle as u64,
        nr_awake.saturating_sub(pool.nr_blocked) as u64,
        pool.nr_blocked as u64,
        pool.nr_pending as u64,
        pool.kicks,
        pool.created,
        pool.culled,
        pool.repatriated,
        pool.seen_asleep,
        pool.cpu_intensive,
        pool.maydays,
        pool.spawn_failed,
        pool.stalls,
        pool.stalled_ms,
    ];
    let strict = pool.strict.then(|| "strict".to_owned());
    let nice = (pool.nice != 0).then(|| format!("nice {}", pool.nice));
    let detail: Vec<_> = strict.into_iter().chain(nice).collect();
    image.add(
        Kind::Pool,
        &pool.cpus.to_string(),
        &detail.join(", "),
        &figures,
    );
}
