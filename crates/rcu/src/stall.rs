//! Boosts and reports readers that delay a grace period.
//!
//! A holdout that does not get its CPU is *boosted* for the rest of its section:
//!
//! 1. The driver sets `BOOSTED` if the reader is still counted, raises its priority, and reads the
//!    flag again.
//! 2. The reader clears the flag with its report. It drops its priority *after* that, because it
//!    may lose the CPU at once.
//! 3. If the driver finds the flag cleared, the reader may have dropped its priority too early. The
//!    driver then drops it.
//!
//! A stall is reported without a backtrace, because only the thread itself can walk its stack, for
//! which it would need a signal. `/proc` shows whether a reader sleeps or computes.

use std::time::Duration;

use base::internal::page::Count;
use base::internal::panics::{self, Foreign};
use base::internal::trace;
use base::internal::wake::spin_as_waiter;
use sync::atomic::{AtomicU64, Ordering};
use sync::fork::Process;
use sync::span::Span;
use sync::unmodelled::Arc;
use sync::{Mutex, hint, thread, time, twin};

use super::domain::Domain;
use super::slot::Slot;
use super::{fork, tunables};

/// The number of checks for the last report before the driver boosts a reader.
const SPINS_BEFORE_BOOST: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };

/// A reader that has delayed a grace period for longer than `rcu.stall_timeout`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The kernel's thread ID.
    pub thread: u32,
    /// The thread's name, if it can be read.
    pub name: Option<String>,
    /// The time that the grace period has waited. A period in which the process was stopped counts
    /// as at most one second.
    pub waited: Duration,
    /// The state of the thread, if it can be read: "running", which includes waiting for a CPU, or
    /// "asleep in" a kernel function.
    pub doing: Option<String>,
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.as_deref().unwrap_or("?");
        let (thread, waited) = (self.thread, self.waited);
        write!(
            f,
            "thread {thread} ({name}) has delayed an RCU grace period for {waited:.1?} in a read-side critical section"
        )?;
        self.doing.iter().try_for_each(|doing| write!(f, ", {doing}"))
    }
}

/// A handler of stalls; see [`on_stall`].
pub type StallHandler = Box<dyn Fn(&Stall) + Send + Sync>;

type Shared = Arc<Foreign<StallHandler>>;

sync::process_wide! {
    /// Models never call it, because their waits do not time out.
    pub(super) fn handler() -> Mutex<Option<Shared>> = Mutex::new(None)
}

/// Sets the handler of stalls. With `None`, the default, stalls are printed to stderr.
///
/// The handler is called once for each reader whenever `rcu.stall_timeout` passes. It runs on the
/// thread that drives the grace period, so any function that waits for a grace period panics in it.
/// A panic in the handler is caught.
///
/// # Blocking
///
/// Never blocks.
pub fn on_stall(handler: Option<StallHandler>) {
    // FOREIGN(rcu-stall-handler-drop): the handler's drop, on the thread that replaces it or on the
    // driver. It is contained.
    let handler = handler.map(|handler| Arc::new(Foreign::new(handler)));
    fork::register();
    let before = std::mem::replace(&mut *self::handler().lock(), handler);
    drop(before);
}

pub(super) static NR_REPORTED: Count = Count::new();

fn report(stall: &Stall) {
    NR_REPORTED.add(1);
    trace::stall(stall.thread, stall);
    let handler = self::handler().lock().clone();
    // FOREIGN(rcu-stall-handler): the user's handler, on the driver, which other threads wait for.
    // It is contained.
    panics::contain(|| match &handler {
        Some(handler) => handler(stall),
        None => panics::write_line(&stall.to_string()),
    });
}

/// Reports that an executor has not begun a batch, which now runs on the library's thread.
#[cold]
pub(super) fn report_batch(waited: Duration) {
    NR_REPORTED.add(1);
    panics::write_line(&format!(
        "the executor has not begun a batch of RCU callbacks for {waited:.1?}; the batch runs on a library thread now"
    ));
}

sync::process_wide! {
    /// The time before which no flood is reported, by `time::now_ns`.
    fn next_flood() -> AtomicU64 = AtomicU64::new(0)
}

/// Reports, at most once per stall timeout, that `nr` callbacks wait in a list of this thread.
#[cold]
pub(super) fn report_flood(nr: usize) {
    let Some(timeout) = tunables::stall_timeout() else {
        return;
    };
    let (now_ns, next_ns) = (time::now_ns(), next_flood().load(Ordering::Relaxed));
    let later_ns = now_ns + timeout.as_nanos() as u64;
    let claim = |flood: &AtomicU64| {
        flood.compare_exchange(next_ns, later_ns, Ordering::Relaxed, Ordering::Relaxed)
    };
    if now_ns < next_ns || claim(next_flood()).is_err() {
        return;
    }
    NR_REPORTED.add(1);
    let thread = thread::current();
    let name = thread::name(thread);
    let (thread, name) = (thread.0, name.as_deref().unwrap_or("?"));
    panics::write_line(&format!(
        "{nr} RCU callbacks wait in one list, to which thread {thread} ({name}) adds: callbacks are queued faster than they run, \
         or a reader or a callback delays them"
    ));
}

impl Domain {
    /// Waits until all `holdouts` have reported. The last report wakes this thread.
    pub(super) fn wait_for_reports(&self, holdouts: &[&Slot]) {
        if twin::armed("rcu: the driver wakes early") {
            return;
        }
        let tree = &self.tree;
        if hint::spin_until(SPINS_BEFORE_BOOST, || tree.is_empty()) {
            return;
        }
        if tunables::BOOST.get() != 0 {
            holdouts.iter().for_each(|slot| slot.boost());
        }
        if spin_as_waiter(|| tree.is_empty()) {
            return;
        }
        let Some(timeout) = tunables::stall_timeout() else {
            return self.reported.wait_until(|| tree.is_empty());
        };
        let here = Process::this();
        let mut span = Span::new(time::now_ns());
        let mut next = timeout;
        while !tree.is_empty() {
            let waiting = self.reported.prepare();
            if tree.is_empty() {
                break;
            }
            waiting.wait_timeout(span.until(next));
            let waited = span.measure(time::now_ns());
            if waited >= next {
                next = waited + timeout;
                for slot in holdouts.iter().filter(|slot| slot.is_counted()) {
                    let thread = slot.thread();
                    report(&Stall {
                        thread: thread.0,
                        name: thread::name(thread),
                        waited,
                        doing: thread::doing(thread),
                    });
                    if !here.is_this() {
                        // This is the child of a handler that forked.
                        return;
                    }
                }
            }
        }
    }
}
