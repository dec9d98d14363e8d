//! A registry for tests of users' programs, with a clock that only the test advances.
//!
//! Items run on workers, as in any registry, because an item may block, and a joiner or the
//! destruction of a queue may wait for it. On the calling thread such a wait would deadlock. The
//! test's thread fires timers itself, and waits until the workers are at rest.
//!
//! # At rest
//!
//! A pool is at rest if no worker is awake or in an item, and none is needed. Pools and reapers are
//! checked one after another, so an item of the last pool may have queued another item to the
//! first. They are therefore checked twice. If all pools are at rest both times, and no pool has
//! taken an item in between, all of them were at rest at the moment between the two checks.

use std::ops::Deref;
use std::time::Duration;

use base::internal::params::Params;
use sync::Backoff;
use topology::{CpuId, Topology};

use crate::queues::clock::Clock;
use crate::queues::registry::Registry;
use crate::route::attrs::RegistryError;

/// A registry for tests, with a clock that only the test advances; created by
/// [`Registry::for_tests`].
///
/// Build the queues of the program under test in this registry. It dereferences to its
/// [`Registry`], which can be cloned. The registry ends when the last handle to it is dropped.
///
/// # Guarantees
///
/// - The clock governs delayed and periodic items, sleeps, intervals, timeouts and start deadlines
///   of this registry and its queues. [`advance`](Self::advance) fires them in order of expiry,
///   exactly when they are due, without waiting for real time to pass.
/// - If several timers are due at the same time, delayed and periodic items are queued first, and
///   then tasks are woken. Timers of the same kind fire in the order in which they were armed.
/// - The registry has one CPU. Items of queues with equal attributes start in the order in which
///   they were queued, one after another, except that an item that blocks lets the next one start.
/// - Functions that take no registry, such as `workqueue::sleep`, follow the system clock. So do
///   blocking waits with a timeout, such as
///   [`JoinHandle::join_timeout`](crate::JoinHandle::join_timeout).
///
/// # Examples
///
/// ```
/// use std::{sync::{Arc, atomic::{AtomicU32, Ordering}}, time::Duration};
/// use afterwork::workqueue::{DelayedWork, Registry, Workqueue};
///
/// let mut registry = Registry::for_tests()?;
/// let queue = Workqueue::builder("example").build_in(&registry)?;
/// let nr_saves = Arc::new(AtomicU32::new(0));
/// let saves = nr_saves.clone();
/// let save_soon = DelayedWork::new(move || _ = saves.fetch_add(1, Ordering::Relaxed));
/// for _ in 0..3 {
///     queue.reschedule(&save_soon, Duration::from_secs(60))?;
///     registry.advance(Duration::from_secs(59));
/// }
/// assert_eq!(nr_saves.load(Ordering::Relaxed), 0);
/// registry.advance(Duration::from_secs(1));
/// assert_eq!(nr_saves.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[doc(alias("pause", "synctest", "FakeClock", "mock"))]
pub struct TestRegistry(Registry);

impl Registry {
    /// Creates a registry with one CPU and a paused clock, for tests of programs. Returns
    /// [`RegistryError::Thread`] if its thread cannot be started.
    pub fn for_tests() -> Result<TestRegistry, RegistryError> {
        let params = Params {
            // Workers that park at once make the registry idle sooner. The defaults of the other
            // parameters would let a second item run at the same time, or would only waste time.
            worker_spin_limit: 0,
            cpu_intensive_thresh_us: 60_000_000,
            watchdog_thresh_ms: 0,
            topology_refresh_ms: 0,
            cpu_quota: false,
            ..Params::default()
        };
        let one = [CpuId::new(0)].into_iter().collect();
        let topology = Topology::flat(&one).expect("one CPU is a machine");
        Self::with_clock(topology, params, Clock::paused()).map(TestRegistry)
    }
}

impl TestRegistry {
    /// Advances the clock by `span`, and fires all timers that become due. First, and whenever
    /// timers have fired, blocks until the registry is idle, as
    /// [`run_until_idle`](Self::run_until_idle) does.
    #[doc(alias("tick", "sleep"))]
    pub fn advance(&mut self, span: Duration) {
        let timers = self.timers();
        let clock = &timers.clock;
        let end_ns = clock.now_ns().saturating_add(sync::time::nanos(span));
        self.run_until_idle();
        while let Some(next_ns) = timers.next_ns().filter(|&next_ns| next_ns <= end_ns) {
            // A timer that is overdue fires now.
            let now_ns = next_ns.max(clock.now_ns());
            clock.set_ns(now_ns);
            timers.fire(now_ns);
            self.run_until_idle();
        }
        clock.set_ns(end_ns);
    }

    /// Waits until each item of the registry's queues has ended, is waiting for the clock or
    /// another event, or is on a paused queue.
    ///
    /// # Blocking
    ///
    /// Blocks without a time limit: if an item blocks its thread until the test continues, this
    /// never returns. An item must not call this.
    #[doc(alias = "Wait")]
    pub fn run_until_idle(&self) {
        let mut backoff = Backoff::new();
        let mut before = None;
        loop {
            let nr_taken = self.at_rest();
            if nr_taken.is_some() && nr_taken == before {
                return;
            }
            if nr_taken.is_none() {
                backoff.pause();
            }
            before = nr_taken;
        }
    }

    /// If all pools and reapers are at rest, returns the number of items that the pools have taken.
    fn at_rest(&self) -> Option<u64> {
        let manager = &self.machine().manager;
        if !manager.cleanups.are_done() {
            return None;
        }
        let pools = manager.pools();
        pools.iter().map(|pool| pool.at_rest()).sum()
    }
}

impl Deref for TestRegistry {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.0
    }
}
