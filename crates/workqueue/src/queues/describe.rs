//! Statistics of queues and pools, and the records that a registry publishes.

use std::time::Duration;

use base::internal::page::Image;
use base::internal::wake::lane::Lane;
use limit::internal::capacity::Capacity;
use sync::atomic::{AtomicU64, Ordering};
use sync::time;
use sync::unmodelled::Arc;

use super::queue::Inner;
use crate::pools::dispatch::Enlisted;
use crate::pools::pool::WorkerPool;
use crate::pools::pwq::{Counts, Observed, Pwq, PwqState};
use crate::pools::tombstones::Reaped;
use crate::route::machine::Machine;
use crate::route::plan::Plan;
use crate::route::stats::{PoolStats, QueueReport, QueueStats};

#[derive(Default)]
struct Gathered {
    counts: Counts,
    nr_inactive: usize,
    times: Observed,
    /// The age of the oldest pending item that no worker has taken.
    oldest: Option<Duration>,
}

impl Gathered {
    fn add(&mut self, pwq: &PwqState) {
        self.counts.add(&pwq.counts);
        self.nr_inactive += pwq.nr_listed();
        if let Some(times) = &pwq.observed {
            self.times.wait.add_all(&times.wait);
            self.times.run.add_all(&times.run);
        }
        let lanes = [Lane::Ordinary, Lane::Urgent];
        let first = lanes.into_iter().filter_map(|lane| pwq.arrived_at(lane, 0));
        let age = first.min().map(|arrived| {
            let cycles = time::cycles().saturating_sub(arrived);
            Duration::from_nanos(time::cycles_to_ns(cycles))
        });
        self.oldest = self.oldest.max(age);
    }

    /// Subtracts the items of a leg that have not started: the worker may return them, or find them
    /// cancelled. Counts therefore never decrease.
    fn subtract_local_batch(&mut self, holder: &Enlisted, leg: usize) {
        let nr_not_started = holder.worker.nr_not_started(leg);
        self.counts.leave_out(nr_not_started);
        if let Some(waited) = holder.legs[leg].sampling.recorded() {
            self.times.wait.take_back(waited, nr_not_started);
        }
    }
}

impl Inner {
    pub(crate) fn stats(&self) -> QueueStats {
        self.gather().0
    }

    fn gather(&self) -> (QueueStats, Gathered) {
        // Calibrates the cycle counter if necessary, with no lock held.
        time::cycles_per_us();
        let core = &self.core;
        let plan = self.plan.lock();
        let pwqs = plan.pwqs.clone();
        let reaped = self.reap(&plan, &pwqs);
        let mut gathered = Gathered::default();
        for pwq in &pwqs {
            let mut dispatch = pwq.pool.lock();
            // Items in the injector are not counted in the pwq yet.
            dispatch.adopt(&pwq.pool.injector);
            dispatch.record_rests(pwq.slot);
            gathered.add(dispatch.pwq(pwq.slot));
            for (worker, leg) in dispatch.holders(pwq.slot) {
                gathered.subtract_local_batch(worker, leg);
            }
        }
        let counts = &gathered.counts;
        let stats = QueueStats {
            started: risen(&core.nr_shown_started, counts.nr_started),
            completed: counts.nr_completed,
            cpu_time_us: counts.cpu_ns / 1000,
            helped: core.nr_helped.load(Ordering::Relaxed) + plan.nr_helped(),
            panicked: core.nr_panicked.load(Ordering::Relaxed),
            refused: core.nr_refused.load(Ordering::Relaxed),
            expired: core.nr_expired.load(Ordering::Relaxed),
            cpu_intensive: counts.nr_cpu_intensive,
            cm_wakeups: counts.nr_cm_wakeups,
            repatriated: counts.nr_repatriated,
            maydays: counts.nr_maydays,
            rescued: counts.nr_rescued,
            nr_active: plan.nr_active(),
            max_active: plan.design.max_active,
            nr_inactive: gathered.nr_inactive,
        };
        drop(plan);
        reaped.into_iter().for_each(Reaped::finish);
        (stats, gathered)
    }

    /// Removes the tombstones of the queue. The pwqs exist as long as the plan contains them.
    fn reap<'a>(&self, plan: &Plan, pwqs: &'a [Arc<Pwq>]) -> Vec<Reaped<'a>> {
        let nr_helped = self.core.nr_helped.load(Ordering::Relaxed) + plan.nr_helped();
        let seen = self.core.nr_helped_seen.swap(nr_helped, Ordering::Relaxed);
        let pwqs = pwqs.iter();
        let pwqs = pwqs.filter(|pwq| nr_helped != seen || pwq.has_cancelled());
        pwqs.map(|pwq| pwq.reap()).collect()
    }

    pub(crate) fn reap_cancelled(&self) {
        let plan = self.plan.lock();
        let pwqs = plan.pwqs.iter().filter(|pwq| pwq.has_cancelled());
        let pwqs: Vec<_> = pwqs.cloned().collect();
        let reaped: Vec<_> = pwqs.iter().map(|pwq| pwq.reap()).collect();
        drop(plan);
        reaped.into_iter().for_each(Reaped::finish);
    }

    /// Returns a report on the queue, unless it is hidden or was destroyed.
    pub(crate) fn known(&self) -> Option<QueueReport> {
        let is_dead = self.plan.lock().dead;
        (!is_dead && !self.core.hidden).then(|| self.report_all())
    }

    pub(crate) fn report_all(&self) -> QueueReport {
        let attrs = self.plan.lock().design.attrs.clone();
        let (stats, gathered) = self.gather();
        let shares = self.core.shares.load(Ordering::Relaxed);
        let capacity = self.core.capacity.as_deref();
        QueueReport {
            name: self.core.name.to_string(),
            attrs,
            group: self.group.as_ref().map(|group| group.name.to_string()),
            stats,
            wait: gathered.times.wait.recorded(),
            run: gathered.times.run.recorded(),
            oldest: gathered.oldest,
            shares: (shares > 0).then_some(shares),
            capacity: capacity.map(Capacity::capacity),
            free_capacity: capacity.map(Capacity::nr_free),
        }
    }
}

impl WorkerPool {
    pub(crate) fn stats(&self) -> PoolStats {
        let dispatch = self.lock();
        let mut counts = dispatch.counts();
        for it in dispatch.workers() {
            (0..it.nr_legs).for_each(|leg| counts.leave_out(it.worker.nr_not_started(leg)));
        }
        PoolStats {
            cpus: self.attrs.cpus.clone(),
            strict: self.attrs.strict,
            nice: self.attrs.nice,
            nr_workers: dispatch.nr_workers,
            nr_idle: dispatch.idle.len(),
            nr_blocked: dispatch.nr_blocked(),
            nr_pending: dispatch.pending.len(),
            kicks: self.counters.nr_kicks.load(Ordering::Relaxed),
            created: self.counters.nr_created.load(Ordering::Relaxed),
            culled: self.counters.nr_culled.load(Ordering::Relaxed),
            repatriated: counts.nr_repatriated,
            seen_asleep: self.counters.nr_seen_asleep.load(Ordering::Relaxed),
            cpu_intensive: counts.nr_cpu_intensive,
            cm_wakeups: counts.nr_cm_wakeups,
            started: risen(&self.counters.nr_shown_started, counts.nr_started),
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

/// Returns the maximum of `count` and the last value returned. `count` can fall if an item that was
/// counted as started turns out to be cancelled.
fn risen(shown: &AtomicU64, count: u64) -> u64 {
    shown.fetch_max(count, Ordering::Relaxed).max(count)
}

impl Machine {
    pub(crate) fn describe(&self, image: &mut Image) {
        if image.wants_queues() {
            for follower in self.queues() {
                if let Some(queue) = follower.report() {
                    image.push(queue.record());
                    queue.times().into_iter().for_each(|it| image.push(it));
                }
                follower.group_record().into_iter().for_each(|it| image.push(it));
            }
            let pools = self.pools();
            pools.iter().for_each(|it| image.push(it.stats().record()));
            for record in pools.iter().flat_map(|it| it.lock().records_of_items()) {
                image.push(record);
            }
        }
    }
}
