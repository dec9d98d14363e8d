//! One thread for all pools: creates workers, culls idle ones, and monitors work that waits.
//!
//! The manager sleeps until it has something to do. A producer arms the *monitor* if all workers
//! that may run are busy when it queues work. While the monitor is armed, the manager samples the
//! workers of each pool in which work waits (`sampler.rs`), and wakes a replacement for each worker
//! that sleeps, so that a pool makes progress even if all its workers block. The sampling interval
//! depends on the results (`concurrency.rs`). When no work has waited for a while, the monitor
//! disarms itself, so an idle program has no ticks.
//!
//! If no thread can be started, the manager tries again after increasingly long pauses, and calls
//! the registry's rescuer (`rescuer.rs`).
//!
//! # The manager never blocks
//!
//! A thread that waits for work may depend on a worker that the manager has yet to create. The
//! manager therefore runs no user code except report handlers and topology sources, whose panics
//! are contained. Any other user code is deferred cleanup (`cleanups.rs`). The manager joins a
//! worker's thread only after that thread has dropped its thread-locals, which may run user code.

use std::mem;
use std::time::Duration;

use base::internal::panics::or_abort;
use base::internal::params::Params;
use base::internal::wake::Parker;
use item::internal::cleanups::{self, Cleanup, RETRY_MAX_NS, RETRY_NS};
use item::internal::memory;
use sync::atomic::{Ordering, fence};
use sync::unmodelled::{Arc, Weak};
use sync::{thread, time, twin};

use crate::observe::concurrency::{ScanResult, pause_ns};
use crate::pools::manager::Manager;
use crate::pools::mayday::MaydayQueue;
use crate::pools::pool::WorkerPool;
use crate::pools::rescuer::Rescuer;
use crate::pools::worker;
use crate::queues::timers::Timers;
use crate::route::machine::Machine;

/// The number of consecutive ticks without waiting work after which the monitor is disarmed. The
/// value is a guess. With a smaller value, rearming wakes the manager more often.
const QUIET_TICKS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 16 };

/// The maximum number of threads that the manager starts before it serves the timers again.
/// Starting a thread takes about 50 µs.
const MOST_STARTS: usize = 16;

pub(crate) struct ManagerLoop {
    manager: Arc<Manager>,
    params: Params,
    timers: Arc<Timers>,
    /// The machine. The reference cannot be upgraded once the registry has been dropped.
    machine: Weak<Machine>,
    next_refresh_ns: u64,
    nr_quiet: u32,
    pause_ns: u64,
    next_tick_ns: u64,
    retry: Vec<Arc<WorkerPool>>,
    next_retry_ns: u64,
    retry_pause_ns: u64,
}

/// Starts the manager of a machine, and its rescuer and fallback reaper (`rescuer.rs`).
pub(crate) fn start(machine: &Arc<Machine>, timers: &Arc<Timers>) -> std::io::Result<()> {
    let manager = &machine.manager;
    let mut parker = manager.take_post();
    let mut manager_loop = ManagerLoop::new(machine, timers);
    let set_aside = |name| {
        let theirs = manager.clone();
        // The manager joins these threads when it ends.
        let begin = move || theirs.note_own_thread();
        Rescuer::start(name, manager.style.clone(), begin)
    };
    let rescuer = set_aside("rescuer")?;
    let reserve = set_aside("reserve")?;
    // The manager's thread ends these threads when it exits. If that thread cannot be started, the
    // drop of its closure ends them.
    let set_aside = [rescuer, reserve];
    // The registry reads the available CPUs from the affinity mask of this thread, which keeps the
    // mask of the thread that creates the registry.
    let name = manager.style.name("manager");
    let started = thread::spawn_on_same_cpus(&name, move || {
        or_abort("the manager of a registry panicked", || {
            cleanups::note_depended_on();
            cleanups::put_wakers_aside(true);
            manager_loop.manager.note_own_thread();
            let id = thread::current().0;
            manager_loop.manager.thread_id.store(id, Ordering::Relaxed);
            let mayday_queues = set_aside.each_ref().map(Rescuer::mayday_queue);
            let unparker = parker.unparker();
            memory::attend(&unparker, true);
            manager_loop.run(&mut parker, &mayday_queues);
            memory::attend(&unparker, false);
            manager_loop.finish(&mut parker, &mayday_queues);
            drop(set_aside);
            manager_loop.manager.end();
        });
    });
    *manager.thread.lock() = Some(started?);
    Ok(())
}

/// Frees unused memory of items. The manager does not do this itself, because it takes too long.
struct Scan;

impl Cleanup for Scan {
    fn run(self: Box<Self>) {
        memory::scan();
    }
}

impl Manager {
    /// Creates at most [`MOST_STARTS`] of the requested workers. Skips pools that have been killed
    /// in the meantime and have no work. Returns the pools for which no thread could be started.
    pub(crate) fn create_workers(self: &Arc<Self>) -> Vec<Arc<WorkerPool>> {
        let next = || self.inbox.lock().create.pop_front();
        let (mut nr_starts, mut refused) = (0, Vec::new());
        while nr_starts < MOST_STARTS
            && let Some(pool) = next()
        {
            if pool.needs_no_worker() {
                continue;
            }
            nr_starts += 1;
            let body = pool.clone();
            if !self.start_thread(&pool.thread_name(), move |_| worker::run(&body)) {
                refused.push(pool);
            }
        }
        refused
    }
}

impl ManagerLoop {
    pub(crate) fn new(machine: &Arc<Machine>, timers: &Arc<Timers>) -> Self {
        Self {
            manager: machine.manager.clone(),
            params: machine.params.without_hooks(),
            timers: timers.clone(),
            machine: Arc::downgrade(machine),
            next_refresh_ns: 0,
            nr_quiet: 0,
            pause_ns: 0,
            next_tick_ns: 0,
            retry: Vec::new(),
            next_retry_ns: 0,
            retry_pause_ns: RETRY_NS,
        }
    }

    fn run(&mut self, parker: &mut Parker, [rescuer, reserve]: &[Arc<MaydayQueue>; 2]) {
        loop {
            let refused = self.manager.create_workers();
            let now_ns = time::now_ns();
            self.do_without(refused, rescuer, now_ns);
            let inbox = self.manager.inbox.lock();
            // Requests that are left would own the manager. The next pass withdraws them.
            if inbox.quit && inbox.create.is_empty() {
                return;
            }
            drop(inbox);
            // Only a test advances a paused clock; it also fires the timers.
            if !self.timers.clock.is_paused() {
                self.timers.fire(now_ns);
            }
            if memory::begin_scan(now_ns) {
                self.manager.leave_to_reapers([Scan]);
            }
            if self.manager.serve_cleanups(now_ns) {
                reserve.call_for_cleanups(&self.manager);
            }
            self.ask_again(now_ns);
            if self.manager.armed.load(Ordering::Relaxed) && now_ns >= self.next_tick_ns {
                self.tick(now_ns);
            }
            self.timers.fire_put_aside();
            park_until(parker, self.next_deadline_ns(now_ns), now_ns);
        }
    }

    /// Runs the deferred cleanups that remain when the registry has ended (`cleanups.rs`), until
    /// the last one has begun. This thread may block only in that one: otherwise it could not try
    /// to start threads again, and the later cleanups would wait forever.
    fn finish(&mut self, parker: &mut Parker, [rescuer, reserve]: &[Arc<MaydayQueue>; 2]) {
        self.timers.fire_put_aside();
        // From here on no other thread depends on this one, so it may run user code.
        let aside = cleanups::put_wakers_aside(false);
        debug_assert!(aside.is_empty(), "they are deferred cleanups");
        let cleanups = &self.manager.cleanups;
        while !cleanups.close() {
            let now_ns = time::now_ns();
            if self.manager.serve_cleanups(now_ns) {
                reserve.call_for_cleanups(&self.manager);
                // The fallback reaper may have begun a cleanup that waits for the next one.
                if cleanups.cannot_start() {
                    rescuer.call_for_cleanups(&self.manager);
                    if cleanups.run_fallback(true) {
                        continue;
                    }
                }
            }
            // The thread that finishes the last cleanup wakes this one.
            let next_ns = cleanups.next_ns();
            if next_ns.is_none() && cleanups.close() {
                return;
            }
            park_until(parker, next_ns, time::now_ns());
        }
    }

    fn do_without(&mut self, refused: Vec<Arc<WorkerPool>>, rescuer: &MaydayQueue, now_ns: u64) {
        for pool in refused {
            if pool.could_not_create() {
                rescuer.call(&pool, None);
            }
            // The monitor calls the rescuers of queues.
            self.manager.watch();
            if self.retry.is_empty() {
                self.next_retry_ns = now_ns + self.retry_pause_ns;
                self.retry_pause_ns = (self.retry_pause_ns * 2).min(RETRY_MAX_NS);
            }
            self.retry.push(pool);
        }
    }

    fn ask_again(&mut self, now_ns: u64) {
        if !self.retry.is_empty() && now_ns >= self.next_retry_ns {
            for pool in mem::take(&mut self.retry) {
                pool.ask_again();
            }
        } else if self.retry.is_empty() {
            self.retry_pause_ns = RETRY_NS;
        }
    }

    pub(crate) fn tick(&mut self, now_ns: u64) {
        let Some(machine) = self.machine.upgrade() else {
            return;
        };
        self.refresh_topology_if_due(&machine, now_ns);
        // ORDER(watch): store buffering, other end and its fence in `WorkerPool::find_worker`.
        //   here: armed = false;   fence;  sample every pool
        //   push: injector = item; fence;  read armed
        // If our fence comes first, the producer reads `armed` as false and arms the monitor again.
        // If the producer's fence comes first, we find its item.
        // Test: stuck_work_is_seen_by_the_monitor
        self.manager.armed.store(false, Ordering::Relaxed);
        if !twin::armed("watch: no fence") {
            fence(Ordering::SeqCst);
        }
        let pools = self.manager.pools();
        let topology = machine.topology();
        let scans = pools.iter().map(|pool| {
            pool.mayday(now_ns);
            pool.sample_workers(now_ns, topology.allowed())
        });
        let scan = scans.max().unwrap_or(ScanResult::Quiet);
        self.nr_quiet = if scan == ScanResult::Quiet { self.nr_quiet + 1 } else { 0 };
        if self.nr_quiet < QUIET_TICKS {
            self.manager.armed.store(true, Ordering::Relaxed);
        } else {
            self.nr_quiet = 0;
        }
        let tick_ns = self.params.watch_tick_us.saturating_mul(1000);
        self.pause_ns = pause_ns(scan, self.pause_ns, tick_ns);
        self.next_tick_ns = now_ns.saturating_add(self.pause_ns);
    }

    /// Refreshes the machine's topology. Called only on ticks, so that an idle program performs no
    /// refreshes. A late refresh is harmless: the kernel moves a worker whose CPUs went offline.
    fn refresh_topology_if_due(&mut self, machine: &Machine, now_ns: u64) {
        if self.params.topology_refresh_ms > 0 && now_ns >= self.next_refresh_ns {
            let pause_ns = self.params.topology_refresh_ms.saturating_mul(1_000_000);
            self.next_refresh_ns = now_ns.saturating_add(pause_ns);
            machine.refresh();
        }
    }

    /// Culls idle workers. Returns the time at which this thread must next wake without a request.
    fn next_deadline_ns(&mut self, now_ns: u64) -> Option<u64> {
        let pools = self.manager.pools();
        let cull_ns = pools.iter().filter_map(|pool| pool.cull(now_ns)).min();
        let retry_ns = (!self.retry.is_empty()).then_some(self.next_retry_ns);
        let armed = self.manager.armed.load(Ordering::Relaxed);
        let tick_ns = armed.then_some(self.next_tick_ns);
        let is_paused = self.timers.clock.is_paused();
        let timer_ns = (!is_paused).then(|| self.timers.next_ns()).flatten();
        let reaper_ns = self.manager.cleanups.next_ns();
        let is_more_wanted = !self.manager.inbox.lock().create.is_empty();
        let create_ns = is_more_wanted.then_some(now_ns);
        let deadlines =
            [cull_ns, retry_ns, tick_ns, timer_ns, reaper_ns, create_ns, memory::due_ns()];
        deadlines.into_iter().flatten().min()
    }
}

fn park_until(parker: &mut Parker, end_ns: Option<u64>, now_ns: u64) {
    match end_ns {
        Some(end_ns) => {
            parker.park_timeout(Duration::from_nanos(end_ns.saturating_sub(now_ns)));
        }
        None => parker.park(),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::mpsc::{self, Receiver, Sender};
    use std::time::Duration;

    use topology::{CpuSet, Topology};

    use super::*;
    use crate::pools::policy::Census;
    use crate::pools::pool::PoolAttrs;
    use crate::queues::registry::Registry;

    /// A program that builds, uses and drops queues in a loop kills pools faster than threads
    /// start.
    #[test]
    fn no_thread_starts_for_a_pool_that_was_killed() {
        let manager = Arc::<Manager>::default();
        manager.refuse_threads.store(true, Ordering::Relaxed);
        let attrs = PoolAttrs { cpus: CpuSet::new(), strict: false, nice: 0, bh: false };
        let pool = WorkerPool::new(0, attrs, false, None, Params::default(), manager.clone());
        let pool = Arc::new(pool);
        pool.lock().nr_creating = 1;
        pool.census.fetch_add(Census::AWAKE + Census::SEARCHING, Ordering::Relaxed);
        manager.create_worker(&pool);
        pool.kill();
        assert!(manager.create_workers().is_empty());
        assert_eq!((pool.lock().nr_creating, pool.census().nr_awake()), (0, 0));
    }

    /// A cleanup that waits for the next one. Dropping it ends the previous one.
    struct Waits {
        begun: Sender<()>,
        next: Receiver<()>,
        _before: Sender<()>,
    }

    impl Cleanup for Waits {
        fn run(self: Box<Self>) {
            self.begun.send(()).unwrap();
            let _ = self.next.recv();
        }
    }

    /// Ends a registry that cannot start threads and has `nr` cleanups, each of which waits for the
    /// next one. Thread creation succeeds again once `relents_after` of them have begun.
    fn ends_with_a_chain(nr: usize, relents_after: Option<usize>) {
        const PATIENCE: Duration = Duration::from_secs(60);
        let registry = Registry::new(Topology::synthetic("1 core").unwrap(), Params::default());
        let registry = registry.unwrap();
        let manager = registry.machine().manager.clone();
        manager.refuse_threads.store(true, Ordering::Relaxed);
        let (begun, has_begun) = mpsc::channel();
        let (mut before, all_done) = mpsc::channel();
        for _ in 0..nr {
            let (done, next) = mpsc::channel();
            let waits =
                Waits { begun: begun.clone(), next, _before: mem::replace(&mut before, done) };
            manager.leave_to_reapers([waits]);
        }
        drop((before, registry));
        if let Some(count) = relents_after {
            for _ in 0..count {
                has_begun.recv_timeout(PATIENCE).expect("another begins");
            }
            manager.refuse_threads.store(false, Ordering::Relaxed);
        }
        // The channel closes when the first cleanup is dropped.
        let ended = all_done.recv_timeout(PATIENCE);
        assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected));
        manager.wait_for_departures();
    }

    #[test]
    fn three_cleanups_that_wait_for_each_other_end_without_a_thread() {
        ends_with_a_chain(3, None);
    }

    #[test]
    fn chain_of_cleanups_ends_when_threads_start_again() {
        ends_with_a_chain(6, Some(2));
    }
}
