//! Samples the workers of a pool in which work waits, to find those that sleep, hog a CPU or
//! starve.
//!
//! The manager (`manager_loop.rs`) does this only while work waits and all workers that may run are
//! awake. A sample reads the CPU time of each worker that is in an item. For workers that have not
//! run since the last sample it also reads whether they are runnable. The system calls are made
//! with no lock held. Their results are applied under the lock, if the worker is still in the same
//! item.
//!
//! A verdict may be stale when it is applied, because the worker may have woken or may be about to
//! start the next item. The pool then runs one worker too many for a short time: a worker that
//! takes a batch counts as awake again.

use sync::atomic::Ordering;
use sync::thread::ThreadId;
use sync::unmodelled::Arc;
use sync::{cpu, usage};
use topology::CpuSet;

use super::dispatch::Enlisted;
use super::pool::{PoolGuard, WorkerPool};
use super::worker::Worker;
use crate::observe::concurrency::{Sample, ScanResult, Seen, Verdict, judge};

impl WorkerPool {
    /// Samples the workers if work waits, and replaces those that sleep or hog a CPU.
    pub(crate) fn sample_workers(self: &Arc<Self>, now_ns: u64, allowed: &CpuSet) -> ScanResult {
        let busy: Vec<_> = {
            let mut dispatch = self.lock();
            let waits = !self.injector.is_empty()
                || dispatch.has_work()
                || dispatch.workers().any(Enlisted::delays_others);
            if !waits {
                dispatch.check_for_stall(now_ns, 0, &self.attrs.cpus);
                return ScanResult::Quiet;
            }
            dispatch.busy().collect()
        };
        let hog_ns = self.params.cpu_intensive_thresh_us.saturating_mul(1000);
        let judged: Vec<_> = busy
            .into_iter()
            .filter_map(|(worker, known, slept)| {
                let thread = ThreadId(worker.thread.load(Ordering::Relaxed));
                let now = Sample {
                    activity: worker.activity(),
                    cpu_ns: usage::cpu_ns(thread)?,
                    at_ns: now_ns,
                };
                // A worker that slept, and has not run since, still sleeps.
                let runnable = || {
                    if slept { Some(false) } else { usage::is_runnable(thread) }
                };
                let (seen, verdict) = judge(known.as_ref(), now, hog_ns, runnable);
                Some((worker, seen, verdict))
            })
            .collect();
        let mut scan = ScanResult::Calm;
        let mut reports = Vec::new();
        let mut sleeper = None;
        let mut guard = self.lock_to_act();
        for (worker, seen, verdict) in &judged {
            if !guard.is_enlisted(worker) || worker.activity() != seen.last.activity {
                scan = scan.max(ScanResult::Unclear);
                continue;
            }
            let before = guard.enlisted(worker).away;
            let sleeps = *verdict == Verdict::Asleep;
            guard.note_seen(worker, *seen, sleeps);
            self.recount(&mut guard, worker, |away| match verdict {
                Verdict::Asleep => away.asleep = true,
                Verdict::Hogs => (away.asleep, away.hogging) = (false, true),
                Verdict::Runs => away.asleep = false,
                Verdict::Unclear | Verdict::Starved => {}
            });
            let now = guard.enlisted(worker).away;
            if before.counts_as_awake() && !now.counts_as_awake() {
                scan = ScanResult::Found;
                sleeper = sleeps.then_some(worker);
            }
            if !before.asleep && now.asleep {
                self.counters.nr_seen_asleep.fetch_add(1, Ordering::Relaxed);
            }
            if !before.hogging && now.hogging {
                if let Some(counts) = guard.counts_mut(worker) {
                    counts.nr_cpu_intensive += 1;
                }
                reports.extend(guard.note_hog(worker));
            }
            if *verdict == Verdict::Unclear {
                scan = scan.max(ScanResult::Unclear);
            }
        }
        // A worker adopts items when nothing else is pending. A walk through a long injector here
        // would make it wait for the lock.
        if guard.pending.is_empty() {
            guard.adopt(&self.injector);
        }
        let thresh_ns = self.params.watchdog_thresh_ms.saturating_mul(1_000_000);
        if let Some(stall) = guard.check_for_stall(now_ns, thresh_ns, &self.attrs.cpus) {
            self.counters.nr_stalls.fetch_add(1, Ordering::Relaxed);
            reports.push(stall);
        }
        match sleeper {
            _ if !guard.has_work() => {}
            Some(sleeper) => guard.replace(sleeper),
            None => drop(guard.pick_if_needed()),
        }
        // The monitor stays armed while work waits.
        guard.effects.watch = false;
        drop(guard);
        #[cfg(feature = "stacks")]
        add_stacks(&mut reports, self.params.stall_signal);
        self.manager.report(&reports);
        if self.confined.load(Ordering::Relaxed) && !self.attrs.strict {
            let starved = judged.iter().filter(|it| it.2 == Verdict::Starved);
            starved.for_each(|(worker, ..)| let_stray(worker, allowed));
        }
        scan
    }
}

#[cfg(feature = "stacks")]
fn add_stacks(reports: &mut [crate::Report], signal: u32) {
    use crate::Report;
    let workers = reports.iter_mut().flat_map(|it| match it {
        Report::Stall(stall) => &mut stall.workers[..],
        _ => &mut [],
    });
    let workers: Vec<_> = workers.collect();
    let threads: Vec<_> = workers.iter().map(|it| it.thread).collect();
    let stacks = stacks::capture(threads, signal, super::worker::PATH);
    for (worker, stack) in workers.into_iter().zip(stacks) {
        worker.stack = Some(stack);
    }
}

impl PoolGuard<'_> {
    /// Stores a sample of a worker. If the worker sleeps, or was in the same item at the last
    /// sample, puts its local batch back, and releases the counts and seats of ended legs.
    fn note_seen(&mut self, worker: &Worker, mut seen: Seen, sleeps: bool) {
        let before = self.enlisted(worker).seen;
        let stands = before.is_some_and(|it| it.last.activity == seen.last.activity);
        if sleeps || (stands && self.enlisted(worker).delays_others()) {
            self.reclaim(worker);
            seen.last.activity = worker.activity();
        }
        self.enlisted_mut(worker).seen = Some(seen);
    }
}

/// Lets a worker that gets no CPU time on its CPUs run anywhere until it next parks.
fn let_stray(worker: &Worker, allowed: &CpuSet) {
    let thread = ThreadId(worker.thread.load(Ordering::Relaxed));
    if thread.0 != 0 && !worker.strays.swap(true, Ordering::Relaxed) {
        // This fails if the thread has ended, which is harmless.
        let _ = cpu::set_affinity(Some(thread), allowed);
    }
}
