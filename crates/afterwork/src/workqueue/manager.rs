//! One thread for all pools: makes workers, sends idle ones away, and watches over work that waits.
//!
//! It sleeps unless something is asked of it. The *watch* is armed by whoever leaves work to workers that are all
//! busy; while it is armed the manager looks at the workers of each pool in which work waits (`sampler.rs`), and gets
//! another up for one that sleeps. That is what keeps a pool alive whose workers all block in ways that nobody reports.
//! How often it looks follows what it finds (`concurrency.rs`); after a while without waiting work it disarms itself,
//! so an idle program has no ticks.
//!
//! When no thread can be had, the manager tries again with growing pauses, and calls the registry's rescuer to a pool
//! that has no worker (`rescuer.rs`), so that items are late and not lost.

use std::time::Duration;

use sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU32, Ordering, fence},
    thread, time, twin,
    unmodelled::{Arc, Weak},
};

use super::{
    concurrency::{Sight, pause_ns},
    machine::Machine,
    pool::WorkerPool,
    rescuer::{Phone, Rescuer},
    timers::Timers,
    watchdog::Report,
    worker,
};
use crate::{
    panics::contain,
    params::Params,
    trace,
    wake::{Parker, Unparker},
};

/// How many looks without waiting work end the watch. A guess: re-arming costs a wake-up of the manager.
const QUIET_TICKS: u32 = if cfg!(any(loom, shuttle)) { 1 } else { 16 };
/// The first and the longest pause before a thread is asked for again.
const RETRY_NS: u64 = 10_000_000;
const RETRY_MAX_NS: u64 = 1_000_000_000;

/// What is asked of the manager, and the pools that it looks after.
#[derive(Debug, Default)]
pub(crate) struct Manager {
    inbox: Mutex<Inbox>,
    /// A: somebody waits for work to move.
    pub(super) armed: AtomicBool,
    /// Set before the first pool exists.
    unparker: OnceLock<Unparker>,
    /// Every pool in use, with the number of queues that use it.
    pub(crate) roster: Mutex<Vec<(Arc<WorkerPool>, usize)>>,
    /// Threads of workers that have not been waited for.
    threads: Mutex<Vec<thread::JoinHandle>>,
    /// Whom to tell what is noticed.
    on_report: Mutex<Option<ReportHandler>>,
    /// Called to pools that have no worker and get none.
    rescuer: Mutex<Option<Rescuer>>,
    /// This manager's own thread.
    thread: Mutex<Option<thread::JoinHandle>>,
    /// A: the manager's own thread, 0 before it runs.
    thread_id: AtomicU32,
    /// Refuses threads, so that a test can see what happens then.
    refuse_threads: AtomicBool,
    /// What waits for its time.
    pub(super) timers: Timers,
}

/// Is told what is noticed.
#[derive(Clone)]
pub(crate) struct ReportHandler(pub(crate) Arc<dyn Fn(&Report) + Send + Sync>);

impl std::fmt::Debug for ReportHandler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReportHandler")
    }
}

#[derive(Debug, Default)]
struct Inbox {
    create: Vec<Arc<WorkerPool>>,
    quit: bool,
}

/// What only the manager's thread knows.
pub(super) struct Duty {
    manager: Arc<Manager>,
    params: Params,
    /// Gone when the registry is.
    machine: Weak<Machine>,
    next_look_ns: u64,
    nr_quiet: u32,
    pause_ns: u64,
    next_tick_ns: u64,
    retry: Vec<Arc<WorkerPool>>,
    next_retry_ns: u64,
    retry_pause_ns: u64,
}

impl Manager {
    /// Starts the manager's thread.
    pub(crate) fn start(self: &Arc<Self>, machine: &Arc<Machine>) -> std::io::Result<()> {
        let mut parker = self.take_post();
        let mut duty = Duty::new(machine);
        let rescuer = Rescuer::start("aw/rescuer")?;
        let phone = rescuer.phone();
        *self.rescuer.lock() = Some(rescuer);
        let started = thread::spawn("aw/manager", move || {
            let id = thread::current().0;
            duty.manager.thread_id.store(id, Ordering::Relaxed);
            duty.run(&mut parker, &phone);
            duty.manager.end_rescuer();
            duty.manager.bury(|_| true);
        });
        let thread = started.inspect_err(|_| self.end_rescuer())?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Returns the parker of the thread that manages from now on.
    pub(super) fn take_post(&self) -> Parker {
        let parker = Parker::with_looks(0);
        self.unparker
            .set(parker.unparker())
            .expect("a manager is started once");
        parker
    }

    /// Returns the manager's thread, once it runs.
    pub(crate) fn thread_id(&self) -> Option<thread::ThreadId> {
        let id = self.thread_id.load(Ordering::Relaxed);
        (id != 0).then_some(thread::ThreadId(id))
    }

    /// Ends the manager's thread, once all pools are gone.
    pub(crate) fn quit(&self) {
        self.inbox.lock().quit = true;
        self.wake();
    }

    /// Asks for a worker; the pool has counted it already.
    pub(crate) fn create_worker(&self, pool: &Arc<WorkerPool>) {
        self.inbox.lock().create.push(pool.clone());
        self.wake();
    }

    /// Sees to it that somebody notices if the work that waits now does not move.
    #[inline]
    pub(crate) fn watch(&self) {
        if !self.armed.load(Ordering::Relaxed) {
            self.arm();
        }
    }

    #[cold]
    fn arm(&self) {
        if !self.armed.swap(true, Ordering::Relaxed) {
            self.wake();
        }
    }

    pub(super) fn wake(&self) {
        if let Some(unparker) = self.unparker.get() {
            unparker.unpark();
        }
    }

    /// Says whom to tell what is noticed from now on.
    pub(crate) fn on_report(&self, handler: ReportHandler) {
        *self.on_report.lock() = Some(handler);
    }

    /// Tells what was noticed. Call it with no lock held.
    pub(crate) fn tell(&self, reports: &[Report]) {
        if reports.is_empty() {
            return;
        }
        for report in reports {
            trace::report(report.kind(), report.queue(), report);
        }
        let handler = self.on_report.lock().clone();
        if let Some(ReportHandler(handler)) = handler {
            contain(|| reports.iter().for_each(|report| handler(report)));
        }
    }

    /// Refuses every thread from now on, or no longer.
    pub(crate) fn refuse_threads(&self, refuse: bool) {
        self.refuse_threads.store(refuse, Ordering::Relaxed);
    }

    /// Waits until no thread is left. Call it after [`quit`](Self::quit), with all pools killed.
    pub(crate) fn wait_for_departures(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().expect("the manager does not panic");
        }
    }

    fn end_rescuer(&self) {
        let rescuer = self.rescuer.lock().take();
        if let Some(rescuer) = rescuer {
            rescuer.end();
        }
    }

    /// Waits for the worker threads that `choose` names, which have ended or are about to.
    fn bury(&self, choose: impl Fn(&thread::JoinHandle) -> bool) {
        let mut threads = self.threads.lock();
        let gone: Vec<_> = threads.extract_if(.., |thread| choose(thread)).collect();
        drop(threads);
        for thread in gone {
            // A worker whose thread panicked has said so; there is nothing more to do for it.
            let _ = thread.join();
        }
    }

    fn spawn_worker(self: &Arc<Self>, pool: &Arc<WorkerPool>) -> bool {
        if self.refuse_threads.load(Ordering::Relaxed) {
            return false;
        }
        self.bury(thread::JoinHandle::is_finished);
        let body = pool.clone();
        let spawned = thread::spawn(&pool.thread_name(), move || worker::run(&body));
        spawned
            .map(|thread| self.threads.lock().push(thread))
            .is_ok()
    }

    /// Makes all workers that have been asked for; returns the pools for which none could be had.
    pub(crate) fn create_workers(self: &Arc<Self>) -> Vec<Arc<WorkerPool>> {
        let wanted = std::mem::take(&mut self.inbox.lock().create);
        wanted
            .into_iter()
            .filter(|pool| !self.spawn_worker(pool))
            .collect()
    }

    pub(super) fn pools(&self) -> Vec<Arc<WorkerPool>> {
        let roster = self.roster.lock();
        roster.iter().map(|(pool, _)| pool.clone()).collect()
    }
}

impl Duty {
    pub(super) fn new(machine: &Arc<Machine>) -> Self {
        Self {
            manager: machine.manager.clone(),
            params: machine.params.clone(),
            machine: Arc::downgrade(machine),
            next_look_ns: 0,
            nr_quiet: 0,
            pause_ns: 0,
            next_tick_ns: 0,
            retry: Vec::new(),
            next_retry_ns: 0,
            retry_pause_ns: RETRY_NS,
        }
    }

    fn run(&mut self, parker: &mut Parker, rescuer: &Phone) {
        loop {
            let refused = self.manager.create_workers();
            let mut now_ns = time::now_ns();
            self.do_without(refused, rescuer, now_ns);
            if self.manager.inbox.lock().quit {
                return;
            }
            self.manager.timers.fire(&self.manager, now_ns);
            now_ns = self.ask_again(now_ns);
            if self.manager.armed.load(Ordering::Relaxed) && now_ns >= self.next_tick_ns {
                self.tick(now_ns);
            }
            match self.next_deadline_ns(now_ns) {
                Some(deadline_ns) => {
                    let pause_ns = deadline_ns.saturating_sub(now_ns);
                    parker.park_timeout(Duration::from_nanos(pause_ns));
                }
                None => parker.park(),
            }
        }
    }

    /// Looks after pools that got no thread.
    fn do_without(&mut self, refused: Vec<Arc<WorkerPool>>, rescuer: &Phone, now_ns: u64) {
        for pool in refused {
            if pool.could_not_create() {
                rescuer.call(&pool, None);
            }
            // Other rescuers are called by looks.
            self.manager.watch();
            if self.retry.is_empty() {
                self.next_retry_ns = now_ns + self.retry_pause_ns;
                self.retry_pause_ns = (self.retry_pause_ns * 2).min(RETRY_MAX_NS);
            }
            self.retry.push(pool);
        }
    }

    fn ask_again(&mut self, now_ns: u64) -> u64 {
        if !self.retry.is_empty() && now_ns >= self.next_retry_ns {
            for pool in std::mem::take(&mut self.retry) {
                pool.ask_again();
            }
        } else if self.retry.is_empty() {
            self.retry_pause_ns = RETRY_NS;
        }
        now_ns
    }

    pub(super) fn tick(&mut self, now_ns: u64) {
        let Some(machine) = self.machine.upgrade() else {
            return;
        };
        self.look_at_machine(&machine, now_ns);
        // ORDER(watch): store buffering, other end in `WorkerPool::look_for_worker`, whose fence it shares.
        //   here: armed = false;   fence;  look at every pool
        //   push: injector = item; fence;  read armed
        // Test: stuck_work_is_seen_by_the_watch
        self.manager.armed.store(false, Ordering::Relaxed);
        if !twin::armed("watch: no fence") {
            fence(Ordering::SeqCst);
        }
        let pools = self.manager.pools();
        let topology = machine.topology();
        let looks = pools.iter().map(|pool| {
            pool.mayday(now_ns);
            pool.look(now_ns, topology.allowed())
        });
        let sight = looks.max().unwrap_or(Sight::Quiet);
        self.nr_quiet = if sight == Sight::Quiet {
            self.nr_quiet + 1
        } else {
            0
        };
        if self.nr_quiet < QUIET_TICKS {
            self.manager.armed.store(true, Ordering::Relaxed);
        } else {
            self.nr_quiet = 0;
        }
        self.pause_ns = pause_ns(sight, self.pause_ns, self.tick_ns());
        self.next_tick_ns = now_ns.saturating_add(self.pause_ns);
    }

    /// Follows a machine that has changed. It rides on the ticks, so that an idle program has none: a worker whose CPUs
    /// have gone is moved by the kernel, and nothing else is the worse for a late look.
    fn look_at_machine(&mut self, machine: &Machine, now_ns: u64) {
        machine.catch_up();
        if self.params.machine_look_ms > 0 && now_ns >= self.next_look_ns {
            let pause_ns = self.params.machine_look_ms.saturating_mul(1_000_000);
            self.next_look_ns = now_ns.saturating_add(pause_ns);
            machine.look();
        }
    }

    fn tick_ns(&self) -> u64 {
        self.params.watch_tick_us.saturating_mul(1000)
    }

    /// Culls, and returns when this thread has something to do although nobody asks.
    fn next_deadline_ns(&mut self, now_ns: u64) -> Option<u64> {
        let pools = self.manager.pools();
        let cull_ns = pools.iter().filter_map(|pool| pool.cull(now_ns)).min();
        let retry_ns = (!self.retry.is_empty()).then_some(self.next_retry_ns);
        let armed = self.manager.armed.load(Ordering::Relaxed);
        let tick_ns = armed.then_some(self.next_tick_ns);
        let timer_ns = self.manager.timers.next_ns();
        let deadlines = [cull_ns, retry_ns, tick_ns, timer_ns];
        deadlines.into_iter().flatten().min()
    }
}
