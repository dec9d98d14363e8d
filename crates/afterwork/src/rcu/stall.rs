//! Readers that hold a grace period up: run sooner, and named.
//!
//! A holdout that others keep from its CPU is *boosted* for the rest of its section. The driver marks it `BOOSTED` where
//! it is still counted on, raises its priority, and looks at the mark again; the reader takes the mark back with its
//! report, and drops its priority *after* that, for dropping it may cost it the CPU at once. If the mark is gone when
//! the driver looks, the reader may have dropped its priority before it was raised: the driver drops it then.

//!
//! A stall is told without a backtrace: only the thread itself can walk its stack, and to make it do so takes a signal,
//! which interrupts its system calls and is the program's to hand out. What `/proc` says of the thread tells a reader that
//! sleeps from one that computes; a debugger finds the rest by the thread's number.

use std::time::Duration;

use sync::{
    Mutex,
    fork::{self, Handler, Process},
    hint, thread, time, twin,
    unmodelled::Arc,
};

use super::{domain::Domain, slot::Slot, tunables};
use crate::{
    page::Count,
    panics::{self, Foreign},
    trace,
    wake::spin_as_waiter,
};

/// How often the driver looks before it boosts. A holdout that runs on another CPU ends most sections sooner.
const LOOKS_BEFORE_BOOST: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 100 };

/// A reader that holds up a grace period for longer than `rcu.stall_timeout`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Stall {
    /// The kernel's number of the thread.
    pub thread: u32,
    /// The thread's name, where it can be read.
    pub name: Option<String>,
    /// For how long the grace period has waited.
    pub waited: Duration,
    /// What the thread is at, where it can be read: "running", which may mean that it waits for a CPU, or "asleep in" one
    /// of the kernel's functions.
    pub doing: Option<String>,
}

impl std::fmt::Display for Stall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.name.as_deref().unwrap_or("?");
        let (thread, waited) = (self.thread, self.waited);
        write!(
            f,
            "thread {thread} ({name}) has held up an RCU grace period for {waited:.1?} in a read-side critical section"
        )?;
        match &self.doing {
            Some(doing) => write!(f, ", {doing}"),
            None => Ok(()),
        }
    }
}

/// What is told of a stall; see [`on_stall`].
pub type StallHandler = Box<dyn Fn(&Stall) + Send + Sync>;

type Shared = Arc<Foreign<StallHandler>>;

sync::process_wide! {
    /// What is told of stalls. No model is about it, and none sees it: there no wait times out.
    fn place() -> Mutex<Option<Shared>> = Mutex::new(None)
}

static HANDLER: Handler = Handler {
    before: |held| held.lock(place()),
    ..Handler::IDLE
};

fn handler() -> &'static Mutex<Option<Shared>> {
    fork::register(&HANDLER);
    place()
}

/// Has stalls told to `handler`, once for each reader and period; `None` writes a line to stderr.
///
/// The handler runs on a thread that waits for the grace period, so whatever waits for one panics there. What it panics with
/// is dropped.
///
/// # Blocking
///
/// Never.
pub fn on_stall(handler: Option<StallHandler>) {
    // FOREIGN(rcu-stall-handler-drop): its destructor's, where it is replaced or on the thread that drives; contained, under
    // no lock.
    let handler = handler.map(|handler| Arc::new(Foreign::new(handler)));
    let before = std::mem::replace(&mut *self::handler().lock(), handler);
    drop(before);
}

/// How many were told.
static NR_TOLD: Count = Count::new();

/// Returns how many stalls were told.
pub(super) fn nr_told() -> u64 {
    NR_TOLD.read()
}

fn tell(stall: &Stall) {
    NR_TOLD.add(1);
    trace::rcu_stall(stall.thread, stall);
    let handler = self::handler().lock().clone();
    // FOREIGN(rcu-stall-handler): the user's, on the thread that drives, for which others wait, and which may be the one of
    // callbacks; contained, under no lock. Writing to a closed stderr panics, too.
    panics::contain(|| match &handler {
        Some(handler) => handler(stall),
        None => eprintln!("afterwork: {stall}"),
    });
}

/// Tells that an executor has left a batch for `waited`, which now runs on the library's thread.
#[cold]
pub(super) fn tell_of_batch(waited: Duration) {
    NR_TOLD.add(1);
    // FOREIGN(rcu-stderr): none, but stderr may be closed; contained.
    panics::contain(|| {
        eprintln!(
            "afterwork: a batch of RCU callbacks has not begun where it was to run for {waited:.1?}; it runs here now"
        );
    });
}

impl Domain {
    /// Waits until all `holdouts` have reported. Woken by the last report.
    pub(super) fn wait_for_reports(&self, holdouts: &[&Slot]) {
        if twin::armed("rcu: the driver wakes early") {
            return;
        }
        let tree = self.tree();
        let mut nr_left = LOOKS_BEFORE_BOOST;
        while nr_left > 0 && !tree.is_empty() {
            nr_left -= 1;
            hint::spin_loop();
        }
        if tree.is_empty() {
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
        let start_ns = time::now_ns();
        let mut next = timeout;
        while !tree.is_empty() {
            let waiting = self.reported.prepare();
            if tree.is_empty() {
                break;
            }
            waiting.wait_timeout(timeout);
            let waited = Duration::from_nanos(time::now_ns() - start_ns);
            if waited >= next {
                next = waited + timeout;
                for slot in holdouts.iter().filter(|slot| slot.is_counted()) {
                    let thread = slot.thread();
                    tell(&Stall {
                        thread: thread.0,
                        name: thread::name(thread),
                        waited,
                        doing: thread::doing(thread),
                    });
                    if !here.is_this() {
                        // A child that the handler made: the holdouts are not there.
                        return;
                    }
                }
            }
        }
    }
}
