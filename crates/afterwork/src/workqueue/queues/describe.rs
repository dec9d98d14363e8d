//! What is known of queues and pools, and how a registry shows it.

use sync::atomic::Ordering;

use super::queue::Inner;
use crate::{
    page::{Image, Kind},
    workqueue::{
        pools::pool::WorkerPool,
        pools::pwq::Counts,
        pools::tombstones::Reaped,
        route::machine::Machine,
        route::stats::{PoolStats, QueueReport, QueueStats},
    },
};

impl Inner {
    pub(crate) fn stats(&self) -> QueueStats {
        let core = &self.core;
        let plan = self.plan.lock();
        let links = plan.links().to_vec();
        // What was cancelled waits for nothing. As long as the plan has a link it is there.
        let reaped: Vec<_> = links.iter().filter_map(|link| link.reap()).collect();
        let (mut counts, mut nr_inactive) = (Counts::default(), 0);
        for link in &links {
            let mut dispatch = link.pool.lock();
            // What producers have just left is told by the pool's link alone.
            dispatch.adopt(&link.pool.injector);
            let link = dispatch.link(link.slot);
            counts.add(&link.counts);
            nr_inactive += link.nr_listed;
        }
        let stats = QueueStats {
            started: counts.nr_started,
            completed: counts.nr_completed,
            cpu_time_us: counts.cpu_ns / 1000,
            helped: core.nr_helped.load(Ordering::Relaxed),
            panicked: core.nr_panicked.load(Ordering::Relaxed),
            refused: core.nr_refused.load(Ordering::Relaxed),
            expired: core.nr_expired.load(Ordering::Relaxed),
            cpu_intensive: counts.nr_cpu_intensive,
            cm_wakeups: counts.nr_cm_wakeups,
            repatriated: counts.nr_repatriated,
            maydays: counts.nr_maydays,
            rescued: counts.nr_rescued,
            nr_active: plan.nr_active(),
            max_active: plan.max_active(),
            nr_inactive,
        };
        drop(plan);
        reaped.into_iter().for_each(Reaped::finish);
        stats
    }

    /// Returns how many items wait.
    pub(crate) fn nr_waiting(&self) -> usize {
        let plan = self.plan.lock();
        let links = plan.links().to_vec();
        // What was cancelled waits for nothing. As long as the plan has a link it is there.
        let reaped: Vec<_> = links.iter().filter_map(|link| link.reap()).collect();
        let listed = links.iter().map(|link| {
            let mut dispatch = link.pool.lock();
            dispatch.adopt(&link.pool.injector);
            dispatch.link(link.slot).nr_listed
        });
        let nr_waiting = listed.sum();
        drop(plan);
        reaped.into_iter().for_each(Reaped::finish);
        nr_waiting
    }

    /// Returns all that is known of the queue, unless it has gone.
    pub(crate) fn known(&self) -> Option<QueueReport> {
        let plan = self.plan.lock();
        let attrs = plan.attrs().clone();
        let is_dead = plan.is_dead();
        drop(plan);
        (!is_dead).then(|| QueueReport {
            name: self.core.name.to_string(),
            attrs,
            stats: self.stats(),
            wait: self.core.wait.read(),
        })
    }
}

impl WorkerPool {
    /// Returns what it has counted.
    pub(crate) fn stats(&self) -> PoolStats {
        let dispatch = self.lock();
        let counts = dispatch.counts();
        PoolStats {
            cpus: self.attrs.cpus.clone(),
            strict: self.attrs.strict,
            nice: self.attrs.nice,
            nr_workers: dispatch.nr_workers(),
            nr_idle: dispatch.idle.len(),
            nr_blocked: dispatch.nr_blocked(),
            nr_pending: dispatch.nr_pending(),
            kicks: self.counters.nr_kicks.load(Ordering::Relaxed),
            created: self.counters.nr_created.load(Ordering::Relaxed),
            culled: self.counters.nr_culled.load(Ordering::Relaxed),
            repatriated: counts.nr_repatriated,
            seen_asleep: self.counters.nr_seen_asleep.load(Ordering::Relaxed),
            cpu_intensive: counts.nr_cpu_intensive,
            cm_wakeups: counts.nr_cm_wakeups,
            started: counts.nr_started,
            completed: counts.nr_completed,
            cpu_time_us: counts.cpu_ns / 1000,
            rescued: counts.nr_rescued,
            stalls: self.counters.nr_stalls.load(Ordering::Relaxed),
            stalled_ms: dispatch.stalled_ns() / 1_000_000,
            maydays: counts.nr_maydays,
            spawn_failed: self.counters.nr_spawn_failed.load(Ordering::Relaxed),
        }
    }
}

impl Machine {
    /// Writes a record for each queue and each pool.
    pub(crate) fn describe(&self, image: &mut Image) {
        for queue in self.queues().iter().filter_map(|queue| queue.report()) {
            let scope = queue.attrs.scope.as_str();
            image.add(Kind::Queue, &queue.name, scope, &queue.figures());
        }
        for pool in self.pools() {
            let pool = pool.stats();
            let strict = pool.strict.then(|| "strict".to_owned());
            let nice = (pool.nice != 0).then(|| format!("nice {}", pool.nice));
            let detail: Vec<_> = strict.into_iter().chain(nice).collect();
            let cpus = pool.cpus.to_string();
            image.add(Kind::Pool, &cpus, &detail.join(", "), &pool.figures());
        }
    }
}
