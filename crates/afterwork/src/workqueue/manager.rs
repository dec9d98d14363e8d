//! One thread for all pools: makes workers, sends idle ones away, and watches over work that waits.
//!
//! It sleeps unless something is asked of it. The *watch* is armed by whoever leaves work to workers that are all
//! busy; while it is armed the manager looks at the workers of each pool in which work waits (`sampler.rs`), and gets
//! another up for one that sleeps. That is what keeps a pool alive whose workers all block in ways that nobody reports.
//! How often it looks follows what it finds (`concurrency.rs`); after a while without waiting work it disarms itself,
//! so an idle program has no ticks.
//!
//! When no thread can be had, the manager tries again with growing pauses, and calls the registry's rescuer to a pool
//! that has no worker left that runs (`rescuer.rs`), so that items are late and not lost.
//!
//! # It waits for nobody
//!
//! Whoever waits for work may wait for a worker that the manager is to make. So no code of users runs here but what
//! says so (a handler of reports, a source), contained; what else is to be done of theirs is an errand (`errands.rs`); and
//! a worker's thread is joined when its locals have been dropped, which is users' code as well.

use std::{cell::Cell, ptr, time::Duration};

use sync::{
    Mutex, OnceLock,
    atomic::{AtomicBool, AtomicU32, Ordering, fence},
    thread, time, twin,
    unmodelled::{Arc, Weak},
};

use super::{
    concurrency::{ScanResult, pause_ns},
    end,
    errands::{Errand, Errands},
    machine::Machine,
    mayday::MaydayQueue,
    pool::WorkerPool,
    report::Report,
    rescuer::Rescuer,
    serve,
    timers::Timers,
};
use crate::{
    panics::{Foreign, contain, or_abort},
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
    /// Called to pools whose workers do not run, if they have any, and that get none.
    rescuer: Mutex<Option<Rescuer>>,
    /// This manager's own thread.
    thread: Mutex<Option<thread::JoinHandle>>,
    /// A: the manager's own thread, 0 before it runs.
    thread_id: AtomicU32,
    /// Refuses threads, so that a test can see what happens then.
    refuse_threads: AtomicBool,
    /// What waits for its time.
    pub(super) timers: Timers,
    /// What waits for a thread that may wait.
    errands: Errands,
}

/// Is told what is noticed.
#[derive(Clone)]
pub(crate) struct ReportHandler(Arc<Foreign<Box<OnReport>>>);

type OnReport = dyn Fn(&Report) + Send + Sync;

impl ReportHandler {
    pub(crate) fn new(handler: impl Fn(&Report) + Send + Sync + 'static) -> Self {
        // FOREIGN(on-report-drop): by `Foreign`.
        Self(Arc::new(Foreign::new(Box::new(handler))))
    }
}

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
pub(super) struct ManagerLoop {
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

sync::thread_local! {
    /// The address of the manager that waits for this thread at its end, or is it.
    static SERVES: Cell<usize> = Cell::new(0)
}

impl Manager {
    /// Starts the manager's thread.
    pub(crate) fn start(self: &Arc<Self>, machine: &Arc<Machine>) -> std::io::Result<()> {
        let mut parker = self.take_post();
        let mut manager_loop = ManagerLoop::new(machine);
        let rescuer = Rescuer::start("aw/rescuer")?;
        let mayday_queue = rescuer.mayday_queue();
        *self.rescuer.lock() = Some(rescuer);
        // By its mask the registry sees which CPUs may be used: those of whoever made it, unlike other threads'.
        let started = thread::spawn_on_same_cpus("aw/manager", move || {
            or_abort("the manager of a registry panicked", || {
                end::waits_for_nobody();
                manager_loop.manager.note_own_thread();
                let id = thread::current().0;
                manager_loop.manager.thread_id.store(id, Ordering::Relaxed);
                manager_loop.run(&mut parker, &mayday_queue);
                manager_loop.manager.end();
            });
        });
        let thread = started.inspect_err(|_| self.end_rescuer())?;
        *self.thread.lock() = Some(thread);
        Ok(())
    }

    /// Returns the parker of the thread that manages from now on.
    pub(super) fn take_post(&self) -> Parker {
        let parker = Parker::with_spin_limit(0);
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
        let before = self.on_report.lock().replace(handler);
        // FOREIGN(on-report-drop): the last handler, on the thread that gives another, with no lock held; or on the last
        // that calls it; contained by `Foreign`.
        drop(before);
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
            // FOREIGN(on-report): a registry's handler, on the manager or whoever does what is reported; contained.
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

    /// Ends what a manager has, when its registry is gone: there is no queue that anybody could wait for.
    fn end(&self) {
        self.end_rescuer();
        self.errands.close();
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // None unwinds.
            let _ = thread.join();
        }
    }

    fn note_own_thread(&self) {
        SERVES.with(|place| place.set(ptr::from_ref(self).addr()));
    }

    /// Returns `true` if the manager's end waits for this thread, which must not wait for that end.
    pub(super) fn waits_for_this_thread(&self) -> bool {
        SERVES.with(Cell::get) == ptr::from_ref(self).addr()
    }

    /// Starts a thread that is waited for before the manager ends; returns `true` if one could be had.
    fn start_thread(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> bool {
        if self.refuse_threads.load(Ordering::Relaxed) {
            return false;
        }
        let manager = self.clone();
        let started = thread::spawn(name, move || {
            manager.note_own_thread();
            or_abort("a worker panicked", || body(&manager));
        });
        let mut threads = self.threads.lock();
        // In the locals of the others users' destructors may still run, and wait for what the new thread is to do.
        let left = std::mem::take(&mut *threads).into_iter();
        threads.extend(left.filter_map(|thread| thread.try_join().err()));
        started.map(|thread| threads.push(thread)).is_ok()
    }

    /// Has `errands` done by threads that may wait. Call it with no lock held.
    pub(super) fn leave_to_reapers(&self, errands: impl IntoIterator<Item: Errand + 'static>) {
        let errands = errands.into_iter();
        if self
            .errands
            .add(errands.map(|errand| Box::new(errand) as Box<dyn Errand>))
        {
            self.wake();
        }
    }

    /// Starts a reaper if one is wanted, and does what it can where none is to be had.
    pub(super) fn see_to_errands(self: &Arc<Self>, now_ns: u64) {
        if self.errands.wants_reaper(now_ns)
            && !self.start_thread("aw/reaper", |manager| manager.errands.serve())
        {
            self.errands.refused(now_ns);
        }
    }

    fn spawn_worker(self: &Arc<Self>, pool: &Arc<WorkerPool>) -> bool {
        let body = pool.clone();
        self.start_thread(&pool.thread_name(), move |_| serve::run(&body))
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

impl ManagerLoop {
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

    fn run(&mut self, parker: &mut Parker, rescuer: &MaydayQueue) {
        loop {
            let refused = self.manager.create_workers();
            let mut now_ns = time::now_ns();
            self.do_without(refused, rescuer, now_ns);
            if self.manager.inbox.lock().quit {
                return;
            }
            self.manager.timers.fire(&self.manager, now_ns);
            self.manager.see_to_errands(now_ns);
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
    fn do_without(&mut self, refused: Vec<Arc<WorkerPool>>, rescuer: &MaydayQueue, now_ns: u64) {
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
        let scan = looks.max().unwrap_or(ScanResult::Quiet);
        self.nr_quiet = if scan == ScanResult::Quiet {
            self.nr_quiet + 1
        } else {
            0
        };
        if self.nr_quiet < QUIET_TICKS {
            self.manager.armed.store(true, Ordering::Relaxed);
        } else {
            self.nr_quiet = 0;
        }
        self.pause_ns = pause_ns(scan, self.pause_ns, self.tick_ns());
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
        let reaper_ns = self.manager.errands.next_ns();
        let deadlines = [cull_ns, retry_ns, tick_ns, timer_ns, reaper_ns];
        deadlines.into_iter().flatten().min()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::Command};

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn a_thread_that_unwinds_ends_the_process_with_one_line() {
        const KEY: &str = "AFTERWORK_TEST_UNWINDS";
        const NAME: &str =
            "workqueue::manager::tests::a_thread_that_unwinds_ends_the_process_with_one_line";
        if std::env::var_os(KEY).is_some() {
            let manager = Arc::new(Manager::default());
            assert!(manager.start_thread("aw/test", |_| panic!("a defect")));
            return manager.end();
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(KEY, "1")
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stderr);
        let is_line = |line| line == "afterwork: a worker panicked";
        assert!(told.lines().any(is_line), "{told}");
        // SIGABRT.
        assert_eq!(child.status.signal(), Some(6));
    }
}
