//! The threads that run callbacks of all domains.
//!
//! # Turns
//!
//! A domain that has callbacks is *served*. It waits in `ready`, in order, until a thread takes it
//! for a turn. In a turn, the thread takes the callbacks that were added, and starts a grace period
//! for them. If no reader delays it, the thread runs the callbacks. Otherwise it moves the domain
//! to `aside` and continues with the next one, so slow readers do not occupy threads.
//!
//! ```text
//!             call             a turn                      a reader has left
//! not served ──────► ready ──────────────► a grace period ◄────────────────── aside
//!     ▲                ▲                     │         └──── readers are open ──►
//!     │                └──── callbacks ran ──┤
//!     └──────────────────────── none were left
//! ```
//!
//! A domain is in only one of these states at a time, so its callbacks run one after the other, in
//! order. No thread has the right to drive a grace period that is put aside, so a thread that waits
//! for it does not depend on the runners.
//!
//! # The number of threads
//!
//! One thread runs callbacks (`width` is 1), and a second one watches it while more domains are
//! ready. If no domain has been taken for [`STUCK_NS`], the running callbacks may be waiting for
//! one another. The watcher then takes the next domain itself, which adds one to `width`, and
//! another watcher is started. A callback can therefore wait for anything that other domains do.
//! There are at most two more threads than blocked callbacks.
//!
//! A thread exits after [`LINGER`] without a turn. The last thread stays while a domain is served.
//!
//! # Without threads
//!
//! Thread creation may fail. If there is no thread at all, all domains are taken out of service.
//! The next call for such a domain tries again, and a barrier runs the domain's callbacks itself.
//! If all threads are in callbacks and no watcher can be started, a barrier takes its domain out
//! and runs the callbacks itself. In either case, the barriers are notified.
//!
//! Two things must never happen. A domain with callbacks must not remain unserved unless thread
//! creation failed. A barrier must not sleep while its domain waits for a thread that waits for the
//! barrier.

use std::collections::VecDeque;
use std::mem;
use std::time::Duration;

use base::internal::panics;
use base::internal::wake::EventCount;
use sync::atomic::{AtomicU64, Ordering};
use sync::unmodelled::Arc;
use sync::{Mutex, thread, time};

use super::domain::Shared;
use super::gp::Cookie;
use crate::bag::{self, Deferred};
use crate::callback::RETRY_NS;
use crate::{fork, tunables};

/// The time for which a thread waits for more callbacks before it exits. Starting a thread costs
/// about 50 µs. In a model it exits at once.
const LINGER: Duration = Duration::from_secs(1);

/// The time without a turn after which one more thread takes domains. Callbacks rarely run for this
/// long. A much shorter time would start unnecessary threads on a busy machine. A guess.
const STUCK_NS: u64 = 10_000_000;

/// The largest capacity that a list of callbacks keeps while it is served, about 130 kilobytes.
const KEPT: usize = 4096;
/// The largest capacity that a list of callbacks keeps while it is not served, two kilobytes.
const KEPT_IDLE: usize = 64;

pub(super) struct Served {
    domain: Arc<Shared>,
    batch: Vec<Deferred>,
    /// The grace period that `batch` waits for.
    cookie: Cookie,
}

enum Turn {
    /// A batch has run. There may be more callbacks.
    Ran(u64),
    /// The grace period waits for readers.
    Waits,
    /// No callbacks are left, or this is a child of `fork`. The domain is no longer served.
    Ended,
}

pub(super) struct Runners {
    state: Mutex<State>,
    work: EventCount,
    /// A: the earliest time of the next attempt to start the first thread, by `time::now_ns`.
    retry_ns: AtomicU64,
}

/// The domains and the numbers of threads. Their lock is a leaf.
struct State {
    ready: VecDeque<Served>,
    aside: Vec<Served>,
    /// The number of threads, including those whose creation has not returned yet (`nr_starting`).
    nr_threads: usize,
    nr_starting: usize,
    nr_busy: usize,
    /// The number of threads that sleep until they may take the next domain.
    nr_watching: usize,
    /// The number of threads that may be in a turn.
    width: usize,
    taken_ns: u64,
}

/// A model frees process-wide values before its last thread has exited, so each domain keeps one.
#[cfg(not(any(loom, shuttle)))]
pub(super) type Handle = &'static Runners;
#[cfg(any(loom, shuttle))]
pub(super) type Handle = Arc<Runners>;

#[cfg(not(any(loom, shuttle)))]
sync::process_wide! {
    pub(super) fn runners() -> Runners = Runners::new()
}
#[cfg(any(loom, shuttle))]
sync::process_wide! {
    fn of_this_run() -> Handle = Arc::new(Runners::new())
}
#[cfg(any(loom, shuttle))]
pub(super) fn runners() -> Handle {
    of_this_run().clone()
}

pub(crate) fn hold(held: &mut sync::fork::Held) {
    #[cfg(not(any(loom, shuttle)))]
    held.lock(&runners().state);
    #[cfg(any(loom, shuttle))]
    let _ = held;
}

/// Forgets the threads and their domains, in a child of `fork`.
pub(crate) fn inherit() {
    let runners = runners();
    let mut state = runners.state.lock();
    // The callbacks belong to the parent, and the lists of its domains may be in any state.
    mem::forget((mem::take(&mut state.ready), mem::take(&mut state.aside)));
    (state.nr_threads, state.nr_starting) = (0, 0);
    (state.nr_busy, state.nr_watching, state.width) = (0, 0, 1);
    runners.work.forget();
}

impl Served {
    pub(super) fn new(domain: Arc<Shared>) -> Self {
        let cookie = domain.state();
        let batch = Vec::new();
        Self { domain, batch, cookie }
    }

    /// Advances the domain as far as possible without waiting for readers.
    fn advance(&mut self) -> Turn {
        let domain = &self.domain;
        if !domain.is_own_process() {
            return Turn::Ended;
        }
        if self.batch.is_empty() {
            self.batch.shrink_to(KEPT);
            let mut list = domain.callbacks.list.lock();
            if list.waiting.is_empty() {
                list.waiting.shrink_to(KEPT_IDLE);
                list.is_served = false;
                return Turn::Ended;
            }
            mem::swap(&mut list.waiting, &mut self.batch);
            drop(list);
            if domain.callbacks.backlog.take() {
                domain.callbacks.ran.notify_all();
            }
            self.cookie = domain.state();
        }
        if !domain.try_pass(self.cookie) {
            return Turn::Waits;
        }
        let nr_run = self.batch.len() as u64;
        domain.run_batch(&mut self.batch);
        Turn::Ran(nr_run)
    }

    /// Runs callbacks of the domain until `is_done` returns `true`. Waits for readers if necessary.
    pub(super) fn help(mut self, is_done: impl Fn() -> bool) {
        loop {
            match self.advance() {
                // This is the child of a `fork` in a callback. The list's lock may be held forever.
                Turn::Ran(_) | Turn::Ended if !self.domain.is_own_process() => {
                    return mem::forget(self);
                }
                Turn::Ran(_) if is_done() && self.has_more() => return Runners::add(self),
                Turn::Ran(_) => {}
                Turn::Waits => self.domain.wait_for(self.cookie, false),
                Turn::Ended => return,
            }
        }
    }

    fn has_more(&self) -> bool {
        !self.domain.callbacks.list.lock().waiting.is_empty()
    }

    /// Takes the domain out of service and returns the remaining callbacks to its list.
    fn give_back(self) {
        let Self { domain, mut batch, .. } = self;
        let mut list = domain.callbacks.list.lock();
        batch.append(&mut list.waiting);
        list.waiting = batch;
        list.is_served = false;
        drop(list);
        domain.callbacks.ran.notify_all();
    }

    fn is_of(&self, domain: &Shared) -> bool {
        std::ptr::eq(&raw const *self.domain, domain)
    }
}

impl State {
    fn nr_free(&self) -> usize {
        self.nr_threads - self.nr_busy
    }

    fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.aside.is_empty()
    }

    /// If another thread is needed, counts it and returns `true`. The caller must then start it.
    fn wants_thread(&mut self) -> bool {
        // A model has one thread.
        let is_wanted =
            if cfg!(any(loom, shuttle)) { self.nr_threads == 0 } else { self.nr_free() == 0 }
                && !self.is_empty();
        self.nr_threads += usize::from(is_wanted);
        self.nr_starting += usize::from(is_wanted);
        is_wanted
    }

    /// Moves to `ready` each domain whose readers have left or whose grace period is over.
    fn make_ready(&mut self) {
        let ready = self.aside.extract_if(.., |it| it.domain.may_go_on(it.cookie));
        self.ready.extend(ready);
    }

    /// Takes the next ready domain, if the thread may do so now. The error is the time in
    /// nanoseconds until it may, or `None` if no domain is ready.
    fn take(&mut self) -> Result<Served, Option<u64>> {
        self.make_ready();
        if self.ready.is_empty() {
            return Err(None);
        }
        let now_ns = time::now_ns();
        if self.nr_busy >= self.width {
            let idle_ns = now_ns.saturating_sub(self.taken_ns);
            if idle_ns < STUCK_NS {
                return Err(Some(STUCK_NS - idle_ns));
            }
            self.width += 1;
        }
        self.taken_ns = now_ns;
        self.nr_busy += 1;
        self.ready.pop_front().ok_or(None)
    }

    fn end_thread(&mut self) {
        self.nr_threads -= 1;
        self.width = self.width.min(self.nr_threads).max(1);
    }
}

impl Runners {
    sync::const_unless_model! {
        fn new() -> Self {
            Self {
                state: Mutex::new(State {
                    ready: VecDeque::new(),
                    aside: Vec::new(),
                    nr_threads: 0,
                    nr_starting: 0,
                    nr_busy: 0,
                    nr_watching: 0,
                    width: 1,
                    taken_ns: 0,
                }),
                work: EventCount::new(),
                retry_ns: AtomicU64::new(0),
            }
        }
    }

    pub(super) fn add(served: Served) {
        fork::register();
        let runners = Handle::clone(&served.domain.runners);
        let mut state = runners.state.lock();
        if state.nr_threads == 0 && !runners.may_retry() {
            drop(state);
            return served.give_back();
        }
        state.ready.push_back(served);
        let starts = state.wants_thread();
        // A thread that watches, or waits until it may take a domain, needs no notification.
        let is_first = state.ready.len() == 1;
        drop(state);
        if starts {
            Self::start_thread(&runners);
        } else if is_first {
            runners.work.notify_all();
        }
    }

    fn may_retry(&self) -> bool {
        cfg!(any(loom, shuttle)) || time::now_ns() >= self.retry_ns.load(Ordering::Relaxed)
    }

    /// Lets a runner check the domains that are aside.
    #[cold]
    pub(super) fn notify(&self) {
        self.work.notify_all();
    }

    /// Returns `true` if a thread that was started will take every served domain.
    pub(super) fn has_threads(&self) -> bool {
        let state = self.state.lock();
        state.nr_threads > state.nr_starting
    }

    pub(super) fn has_no_thread(&self) -> bool {
        self.state.lock().nr_threads == 0
    }

    /// If `domain` waits for a thread and none is available, takes the domain out for the caller.
    pub(super) fn take_out(domain: &Shared) -> Option<Served> {
        let runners = &domain.runners;
        let mut state = runners.state.lock();
        if runners.may_retry() && state.wants_thread() {
            drop(state);
            Self::start_thread(runners);
            state = runners.state.lock();
        }
        if state.nr_free() > 0 {
            return None;
        }
        let State { ready, aside, .. } = &mut *state;
        let here = ready.iter().position(|it| it.is_of(domain));
        here.and_then(|at| ready.remove(at)).or_else(|| {
            let there = aside.iter().position(|it| it.is_of(domain));
            there.map(|at| aside.swap_remove(at))
        })
    }

    /// Returns `true` if `domain` waits for a thread and none is free.
    pub(super) fn leaves_alone(&self, domain: &Shared) -> bool {
        let state = self.state.lock();
        let mut served = state.ready.iter().chain(&state.aside);
        state.nr_free() == 0 && served.any(|it| it.is_of(domain))
    }

    /// Starts a thread, which the caller has already counted.
    #[cold]
    fn start_thread(runners: &Handle) {
        tunables::settle();
        let ours = Handle::clone(runners);
        let body = move || {
            panics::or_abort("a thread of SRCU callbacks failed", || Self::run(&ours));
        };
        let is_started = thread::spawn("aw-srcu", body).is_ok();
        let mut state = runners.state.lock();
        state.nr_starting -= 1;
        if is_started {
            return;
        }
        let retry_ns = time::now_ns() + RETRY_NS;
        runners.retry_ns.store(retry_ns, Ordering::Relaxed);
        state.end_thread();
        if state.nr_threads == 0 {
            // The last thread may have relied on this one to serve the domains that are aside.
            let (ready, aside) = (mem::take(&mut state.ready), mem::take(&mut state.aside));
            drop(state);
            ready.into_iter().chain(aside).for_each(Served::give_back);
        } else if state.nr_free() == 0 {
            // Barriers may have relied on the thread.
            let served = state.ready.iter().chain(&state.aside);
            let domains: Vec<_> = served.map(|it| it.domain.clone()).collect();
            drop(state);
            domains.iter().for_each(|domain| domain.callbacks.ran.notify_all());
        }
    }

    fn run(runners: &Handle) {
        while let Some(mut served) = Self::next(runners) {
            let turn = served.advance();
            if !served.domain.is_own_process() {
                // A callback forked, and this process is the child.
                return mem::forget(served);
            }
            let mut state = runners.state.lock();
            state.nr_busy -= 1;
            let mut ended = None;
            match turn {
                Turn::Ran(_) => state.ready.push_back(served),
                Turn::Waits => state.aside.push(served),
                Turn::Ended => ended = Some(served),
            }
            let is_alone = state.ready.len() == 1;
            drop(state);
            // FOREIGN(srcu-callback): callbacks run here if this was the last handle to a domain
            // whose thread could not be started.
            drop(ended);
            if let Turn::Ran(nr_run) = turn
                && is_alone
            {
                bag::gather(nr_run, || false);
            }
        }
    }

    fn next(runners: &Handle) -> Option<Served> {
        let linger_ns = LINGER.as_nanos() as u64;
        let start_ns = time::now_ns();
        loop {
            let waiting = runners.work.prepare();
            let mut state = runners.state.lock();
            let pause_ns = match state.take() {
                Ok(served) => {
                    let starts = state.wants_thread();
                    let is_watched = state.ready.is_empty() || state.nr_watching > 0;
                    drop(state);
                    drop(waiting);
                    if starts {
                        Self::start_thread(runners);
                    } else if !is_watched {
                        runners.work.notify_all();
                    }
                    return Some(served);
                }
                Err(Some(pause_ns)) => {
                    state.nr_watching += 1;
                    drop(state);
                    waiting.wait_timeout(Duration::from_nanos(pause_ns));
                    runners.state.lock().nr_watching -= 1;
                    continue;
                }
                Err(None) => {
                    let idle_ns = time::now_ns().saturating_sub(start_ns);
                    let is_late = idle_ns >= linger_ns || cfg!(any(loom, shuttle));
                    if is_late && (state.is_empty() || state.nr_free() > 1) {
                        state.end_thread();
                        return None;
                    }
                    // The last thread stays, because a reader may notify it.
                    let left_ns = linger_ns.saturating_sub(idle_ns);
                    if left_ns > 0 { left_ns } else { linger_ns }
                }
            };
            drop(state);
            waiting.wait_timeout(Duration::from_nanos(pause_ns));
        }
    }
}
