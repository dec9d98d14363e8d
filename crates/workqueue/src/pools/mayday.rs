//! Decides when a rescuer (`rescuer.rs`) is called, and queues the calls.
//!
//! # No call is lost
//!
//! A caller stores the call under the lock and then gives the parker its token. The rescuer takes
//! all calls, and parks only if there was none. Twin `mayday: notifies before it writes`.

use std::collections::VecDeque;

use base::internal::wake::Unparker;
use sync::unmodelled::Arc;
use sync::{Mutex, twin};

use super::manager::Manager;
use super::pool::WorkerPool;

/// The time that work waits for a worker before the first call, and the time between two later
/// calls. Corresponds to the kernel's `MAYDAY_INITIAL_TIMEOUT` and `MAYDAY_INTERVAL`.
const FIRST_CALL_NS: u64 = 10_000_000;
const NEXT_CALL_NS: u64 = 100_000_000;

pub(crate) enum Call {
    /// Run the items of a pool, or those of one of its pwqs.
    Pool(Arc<WorkerPool>, Option<usize>),
    /// Run the deferred cleanups for which no reaper can be started.
    Cleanups(Arc<Manager>),
}

#[derive(Default)]
struct Calls {
    waiting: VecDeque<Call>,
    quit: bool,
}

pub(crate) struct MaydayQueue {
    calls: Mutex<Calls>,
    unparker: Unparker,
}

impl MaydayQueue {
    pub(crate) fn new(unparker: Unparker) -> Self {
        Self { calls: Mutex::new(Calls::default()), unparker }
    }

    /// Calls the rescuer to `pool`, for all its items or for those of one pwq.
    pub(crate) fn call(&self, pool: &Arc<WorkerPool>, slot: Option<usize>) {
        let is_this = |call: &Call| matches!(call, Call::Pool(other, of) if Arc::ptr_eq(other, pool) && *of == slot);
        self.call_once(is_this, || Call::Pool(pool.clone(), slot));
    }

    pub(crate) fn call_for_cleanups(&self, manager: &Arc<Manager>) {
        let is_this = |call: &Call| matches!(call, Call::Cleanups(_));
        self.call_once(is_this, || Call::Cleanups(manager.clone()));
    }

    fn call_once(&self, is_this: impl FnMut(&Call) -> bool, make: impl FnOnce() -> Call) {
        if twin::armed("mayday: notifies before it writes") {
            self.unparker.unpark();
        }
        let mut calls = self.calls.lock();
        if !calls.waiting.iter().any(is_this) {
            calls.waiting.push_back(make());
        }
        drop(calls);
        if !twin::armed("mayday: notifies before it writes") {
            self.unparker.unpark();
        }
    }

    /// Takes the first call. The flag is `true` if the rescuer must end after its last call.
    pub(crate) fn take(&self) -> (Option<Call>, bool) {
        let mut calls = self.calls.lock();
        (calls.waiting.pop_front(), calls.quit)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.lock().waiting.is_empty()
    }

    pub(crate) fn quit(&self) {
        self.calls.lock().quit = true;
        self.unparker.unpark();
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct MaydayTimer(Option<u64>);

impl MaydayTimer {
    /// Returns `true` if a rescuer must be called now. `wants` is set if the pool needs a worker.
    pub(crate) fn calls(&mut self, wants: bool, now_ns: u64) -> bool {
        let due_ns = self.0.filter(|_| wants);
        let calls = due_ns.is_some_and(|due_ns| now_ns >= due_ns);
        self.0 = match (wants, due_ns) {
            (false, _) => None,
            (true, None) => Some(now_ns.saturating_add(FIRST_CALL_NS)),
            (true, Some(_)) if calls => Some(now_ns.saturating_add(NEXT_CALL_NS)),
            (true, due_ns) => due_ns,
        };
        calls
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn first_call_is_after_ten_ms_and_then_every_hundred() {
        let mut mayday_timer = MaydayTimer::default();
        let calls: Vec<u64> =
            (0..=330).filter(|ms| mayday_timer.calls(true, ms * 1_000_000)).collect();
        assert_eq!(calls, [10, 110, 210, 310]);
    }

    #[test]
    fn new_worker_ends_the_calls() {
        let mut mayday_timer = MaydayTimer::default();
        assert!(!mayday_timer.calls(true, 0));
        assert!(!mayday_timer.calls(false, 9_999_999));
        assert!(!mayday_timer.calls(true, 10_000_000));
        assert!(!mayday_timer.calls(true, 19_999_999));
        assert!(mayday_timer.calls(true, 20_000_000));
    }
}
