//! Requests to the manager thread of a registry. `manager_loop.rs` is that thread.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ptr;

use base::internal::panics::{Foreign, contain, or_abort};
use base::internal::params::ThreadStyle;
use base::internal::trace;
use base::internal::wake::{Parker, Unparker};
use item::internal::cleanups::{self, Cleanup, CleanupQueue, Left, Reapers};
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::unmodelled::Arc;
use sync::{Mutex, OnceLock, thread, twin};

use super::pool::WorkerPool;
use crate::observe::report::Report;

#[derive(Default)]
pub(crate) struct Manager {
    pub(crate) inbox: Mutex<Inbox>,
    /// A: set while the monitor is armed.
    pub(crate) armed: AtomicBool,
    /// Set before the first pool exists.
    unparker: OnceLock<Unparker>,
    /// Every pool in use, with the number of queues that use it.
    pub(crate) roster: Mutex<Vec<(Arc<WorkerPool>, usize)>>,
    /// Worker threads that have not been joined.
    threads: Mutex<Vec<thread::JoinHandle>>,
    on_report: Mutex<Option<ReportHandler>>,
    pub(crate) thread: Mutex<Option<thread::JoinHandle>>,
    /// A: the ID of the manager's own thread, 0 before it runs.
    pub(crate) thread_id: AtomicU32,
    /// Set by tests to make thread creation fail.
    pub(crate) refuse_threads: AtomicBool,
    pub(crate) cleanups: CleanupQueue,
    /// I: names and other properties of its threads.
    pub(crate) style: ThreadStyle,
}

impl Reapers for Manager {
    fn leave(&self, left: Vec<Left>) {
        self.leave_to_reapers(left);
    }
}

pub(crate) type ReportHandler = Arc<Foreign<Box<dyn Fn(&Report) + Send + Sync>>>;

#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) create: VecDeque<Arc<WorkerPool>>,
    pub(crate) quit: bool,
}

sync::thread_local! {
    /// The address of the manager that joins this thread at its end, or that runs on it.
    static SERVES: Cell<usize> = Cell::new(0)
}

impl Manager {
    pub(crate) fn new(style: ThreadStyle) -> Self {
        Self { style, ..Self::default() }
    }

    /// Returns the parker for the manager's thread. This is called once.
    pub(crate) fn take_post(&self) -> Parker {
        let parker = Parker::with_spin_limit(0);
        self.unparker.set(parker.unparker()).expect("a manager is started once");
        parker
    }

    pub(crate) fn thread_id(&self) -> Option<thread::ThreadId> {
        let id = self.thread_id.load(Ordering::Relaxed);
        (id != 0).then_some(thread::ThreadId(id))
    }

    /// Ends the manager's thread. This is called when all pools have been destroyed.
    pub(crate) fn quit(&self) {
        self.inbox.lock().quit = true;
        self.wake();
    }

    /// Requests a worker, which the pool has already counted.
    pub(crate) fn create_worker(&self, pool: &Arc<WorkerPool>) {
        self.inbox.lock().create.push_back(pool.clone());
        self.wake();
    }

    /// Arms the monitor, which ensures that waiting work makes progress.
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

    pub(crate) fn wake(&self) {
        if let Some(unparker) = self.unparker.get() {
            unparker.unpark();
        }
    }

    pub(crate) fn on_report(&self, handler: ReportHandler) {
        let before = self.on_report.lock().replace(handler);
        // FOREIGN(on-report-drop): the previous handler, on the thread that sets another, with no
        // lock held; or on the last thread that calls it; a panic is contained by `Foreign`.
        drop(before);
    }

    /// Passes reports to the handler. The caller holds no lock.
    pub(crate) fn report(&self, reports: &[Report]) {
        if reports.is_empty() {
            return;
        }
        for report in reports {
            trace::report(report.kind(), report.queue(), report);
        }
        let handler = self.on_report.lock().clone();
        if let Some(handler) = handler {
            // FOREIGN(on-report): a registry's handler, on the manager or the thread that caused
            // the report; a panic is contained.
            contain(|| reports.iter().for_each(|report| handler(report)));
        }
    }

    /// Waits for the end of the manager's thread, after [`quit`](Self::quit).
    pub(crate) fn wait_for_departures(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            thread.join().expect("the manager does not panic");
        }
    }

    /// Joins the workers and reapers, after the registry has ended and no cleanup waits.
    pub(crate) fn end(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        for thread in threads {
            // These threads do not unwind.
            let _ = thread.join();
        }
    }

    pub(crate) fn note_own_thread(&self) {
        SERVES.with(|place| place.set(ptr::from_ref(self).addr()));
    }

    /// Returns `true` if the manager joins this thread when it ends. Such a thread must not wait
    /// for that end.
    pub(crate) fn waits_for_this_thread(&self) -> bool {
        SERVES.with(Cell::get) == ptr::from_ref(self).addr()
    }

    /// Starts a thread that is joined before the manager ends. `name` follows the common prefix of
    /// thread names. Returns `true` if the thread started.
    pub(crate) fn start_thread(
        self: &Arc<Self>,
        name: &str,
        body: impl FnOnce(&Arc<Self>) + Send + 'static,
    ) -> bool {
        if self.refuse_threads.load(Ordering::Relaxed) {
            return false;
        }
        let manager = self.clone();
        let style = &self.style;
        let started = thread::spawn_sized(&style.name(name), style.stack_size, move || {
            manager.note_own_thread();
            cleanups::note_serving(true);
            or_abort("a worker panicked", || {
                manager.style.within(|| body(&manager));
            });
        });
        let mut threads = self.threads.lock();
        // Join only threads that have exited. The others may still be running user destructors of
        // thread-locals, which may wait for the new thread.
        let left = std::mem::take(&mut *threads).into_iter();
        threads.extend(left.filter_map(|thread| thread.try_join().err()));
        started.map(|thread| threads.push(thread)).is_ok()
    }

    /// Queues `cleanups` for the reapers. The caller holds no lock.
    pub(crate) fn leave_to_reapers(&self, cleanups: impl IntoIterator<Item: Cleanup + 'static>) {
        let boxed = |cleanup| Box::new(cleanup) as Box<dyn Cleanup>;
        self.leave_boxed_to_reapers(cleanups.into_iter().map(boxed).collect());
    }

    pub(crate) fn leave_boxed_to_reapers(&self, cleanups: Vec<Box<dyn Cleanup>>) {
        let is_first = self.cleanups.add(cleanups);
        if is_first && !twin::armed("cleanups: the first does not wake the manager") {
            self.wake();
        }
    }

    /// Starts a reaper if one is needed. If none can be started, runs the cleanups that need no
    /// thread. Returns `true` if the fallback reaper could run more of them.
    #[must_use]
    pub(crate) fn serve_cleanups(self: &Arc<Self>, now_ns: u64) -> bool {
        if self.cleanups.wants_reaper(now_ns) && !self.start_thread("reaper", Self::reap) {
            self.cleanups.note_failed_start(now_ns);
        }
        self.cleanups.wants_fallback()
    }

    fn reap(self: &Arc<Self>) {
        cleanups::note_serving(false);
        self.cleanups.serve();
        self.note_cleanups_done();
    }

    /// Wakes a manager that is ending, after a thread has run the last cleanup that it found.
    pub(crate) fn note_cleanups_done(&self) {
        if self.inbox.lock().quit {
            self.wake();
        }
    }

    pub(crate) fn pools(&self) -> Vec<Arc<WorkerPool>> {
        let roster = self.roster.lock();
        roster.iter().map(|(pool, _)| pool.clone()).collect()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "starts a process")]
    fn a_thread_that_unwinds_ends_the_process_with_one_line() {
        const KEY: &str = "AFTERWORK_TEST_UNWINDS";
        const NAME: &str =
            "pools::manager::tests::a_thread_that_unwinds_ends_the_process_with_one_line";
        if std::env::var_os(KEY).is_some() {
            let manager = Arc::new(Manager::default());
            assert!(manager.start_thread("test", |_| panic!("a defect")));
            return manager.end();
        }
        let child = Command::new(std::env::current_exe().unwrap())
            .args([NAME, "--exact", "--nocapture"])
            .env(KEY, "1")
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&child.stderr);
        let is_line = |line| line == "afterwork: a worker panicked: a defect";
        assert!(stderr.lines().any(is_line), "{stderr}");
        // Signal 6 is SIGABRT.
        assert_eq!(child.status.signal(), Some(6));
    }
}
