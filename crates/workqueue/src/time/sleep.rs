//! Futures that are ready when their time has come; `sleeps.rs` of the queues has the protocol and its models.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use sync::{
    time::{self, Instant},
    twin,
};

use crate::queues::{
    registry::Registry,
    sleeps::SleepTimer,
    timers::{Timers, nanos},
};

/// Waits until `duration` has passed since this call.
///
/// See [`Sleep`] for what is guaranteed, and what it costs.
///
/// # Panics
///
/// If the registry of the whole process cannot be made ([`Registry::global`]). [`Registry::sleep`] does without it.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use afterwork::workqueue::{self, block_on, sleep};
///
/// let start = Instant::now();
/// let task = workqueue::system_unbound()?.spawn_async(async {
///     sleep(Duration::from_millis(5)).await;
///     Instant::now()
/// });
/// let woken = block_on(task)?;
/// assert!(woken - start >= Duration::from_millis(5));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias("Timer", "msleep", "schedule_timeout"))]
pub fn sleep(duration: Duration) -> Sleep {
    global().sleep(duration)
}

/// Waits until `deadline`; ready at once if that is over.
///
/// # Panics
///
/// As [`sleep()`].
pub fn sleep_until(deadline: Instant) -> Sleep {
    global().sleep_until(deadline)
}

/// The registry whose thread wakes those who name none.
pub(super) fn global() -> &'static Registry {
    match Registry::global() {
        Ok(registry) => registry,
        Err(error) => panic!("no registry to sleep by: {error}"),
    }
}

/// A wait for a moment; made by [`sleep()`], [`sleep_until`] and [`Registry::sleep`]. It begins with the first poll.
///
/// # Guarantees
///
/// - It is never ready early. The clock is the monotonic one, in steps of 65 µs: it is woken at the end of the step in which its
///   moment lies, and as much later as the system takes to run the registry's own thread and the task, usually 0.1 ms.
/// - A moment that is over when it is first polled is ready at once. A span that is too long to be counted, 584 years, never ends.
/// - To drop it is to cancel it: the waker is dropped by that, unless it is being fired just then.
/// - It keeps its registry, which cannot be shut down meanwhile.
///
/// # Cost
///
/// One allocation of 48 bytes for each that waits, freed at its end. To begin it, to drop it or to
/// poll it again takes a short lock and a constant number of steps, however many wait; only one
/// that becomes the first to be woken gets the registry's thread up.
///
/// A waker of a [queue's future](crate::Workqueue::spawn_async), of a future of a
/// dedicated worker, or of [`block_on`](crate::block_on) is fired by the registry's own
/// thread. One of another executor is users' code, which that thread runs none of: it is fired by a thread of a few
/// moments, so tens of microseconds later, and where threads are refused by the one that is set aside for that.
///
/// # Panics
///
/// To poll it panics in a child of `fork`, if it was made before.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    registry: Registry,
    at_ns: u64,
    /// None before the first poll that waits.
    timer: Option<SleepTimer>,
}

impl Registry {
    /// Waits until `duration` has passed since this call, as [`sleep()`] does, woken by this registry's thread.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use afterwork::{params::Params, workqueue::{Registry, block_on}};
    /// use topology::Topology;
    ///
    /// let registry = Registry::new(Topology::detect()?, Params::default())?;
    /// block_on(registry.sleep(Duration::from_millis(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until_ns(time::now_ns().saturating_add(nanos(duration)))
    }

    /// Waits until `deadline`, as [`sleep_until`] does, woken by this registry's thread.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.sleep_until_ns(time::ns_of(deadline))
    }

    pub(super) fn sleep_until_ns(&self, at_ns: u64) -> Sleep {
        Sleep {
            registry: self.clone(),
            at_ns,
            timer: None,
        }
    }
}

impl Sleep {
    /// Returns `true` if its moment is over, whether or not it has been polled since.
    pub fn is_elapsed(&self) -> bool {
        time::now_ns() >= self.at_ns
    }

    /// Has it wait until `deadline` instead, from the next poll on, also when it was ready already.
    pub fn reset(&mut self, deadline: Instant) {
        self.reset_ns(time::ns_of(deadline));
    }

    pub(super) fn reset_ns(&mut self, at_ns: u64) {
        self.disarm();
        self.at_ns = at_ns;
    }

    fn disarm(&mut self) {
        // In a child of `fork` the lock may be held for ever.
        if let Some(timer) = self.timer.take()
            && self.registry.is_here()
        {
            self.timers().end_sleep(timer);
        }
    }

    fn timers(&self) -> &Timers {
        self.registry.timers()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        assert!(
            self.registry.is_here(),
            "the sleep was made before the process was forked, and nobody wakes it in the child: make one there"
        );
        if self.is_elapsed() {
            self.disarm();
            return Poll::Ready(());
        }
        let Self {
            registry,
            at_ns,
            timer,
        } = &mut *self;
        if registry.timers().sleep(timer, *at_ns, context.waker()) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if !twin::torn_down() {
            self.disarm();
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("is_elapsed", &self.is_elapsed())
            .field("has_timer", &self.timer.is_some())
            .finish_non_exhaustive()
    }
}
