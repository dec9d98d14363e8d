//! Futures that wait for a point in time; `sleeps.rs` describes the protocol and its models.

use std::borrow::Cow;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use sync::time::{Instant, nanos};

use crate::queues::registry::Registry;
use crate::queues::sleeps::SleepTimer;

/// Waits until `duration` has passed since this call; see [`Sleep`].
///
/// # Panics
///
/// Panics if the registry of the whole process cannot be created ([`Registry::global`]).
/// [`Registry::sleep`] does not need it.
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
    let registry = global();
    let until_ns = registry.now_ns().saturating_add(nanos(duration));
    Sleep::of(Cow::Borrowed(registry), until_ns)
}

/// Waits until `deadline`, or not at all if that has passed. Panics as [`sleep()`] does.
pub fn sleep_until(deadline: Instant) -> Sleep {
    let registry = global();
    let at_ns = registry.timers().clock.ns_of(deadline);
    Sleep::of(Cow::Borrowed(registry), at_ns)
}

pub(super) fn global() -> &'static Registry {
    match Registry::global() {
        Ok(registry) => registry,
        Err(error) => panic!("no registry to sleep by: {error}"),
    }
}

/// A wait for a point in time; created by [`sleep()`], [`sleep_until`] and [`Registry::sleep`]. The
/// timer is armed by the first poll.
///
/// # Guarantees
///
/// - A sleep is never ready early. The clock is monotonic and advances in steps of 65 µs. The task
///   is woken at the end of the step that contains the deadline, plus the time that the system
///   takes to run the registry's thread and the task, usually 0.1 ms. If eight or more sleeps of a
///   registry end at once, later ones may be delayed by up to half a millisecond, so that they
///   share wake-ups ([`Params::sleep_slack_us`](base::params::Params::sleep_slack_us)).
/// - If the deadline has passed at the first poll, the sleep is ready at once. A duration that
///   cannot be represented (584 years or more) never ends.
/// - Dropping a sleep cancels it, and drops the waker unless that is being fired at that moment.
/// - A registry with sleeps stays alive, and cannot be shut down until they are dropped.
///
/// # Cost
///
/// A sleep takes one allocation of 48 bytes while it waits. Each poll and the drop briefly acquire
/// a lock and take constant time. Threads on different CPUs acquire different locks. Dropping a
/// sleep that has ended acquires none. Only a sleep that becomes the first to expire on its CPU
/// wakes the registry's thread.
///
/// The registry's thread itself fires a waker of a [queue's future](crate::Workqueue::spawn_async),
/// of a future of a dedicated worker, or of [`block_on`](crate::block_on). A waker of another
/// executor is user code: a reaper thread fires it tens of microseconds later, or the fallback
/// reaper if no thread can be created.
///
/// # Panics
///
/// Panics if it is polled in a child of `fork` but was created before the fork.
#[must_use = "a sleep does nothing unless it is awaited"]
pub struct Sleep {
    /// References to the process's registry are not counted, because threads would share the count.
    pub(super) registry: Cow<'static, Registry>,
    at_ns: u64,
    /// `None` until the first poll that waits.
    timer: Option<SleepTimer>,
}

impl Registry {
    /// Waits until `duration` has passed since this call. This is like [`sleep()`], except that
    /// this registry's thread wakes the task.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use afterwork::{params::Params, workqueue::{Registry, Topology, block_on}};
    ///
    /// let registry = Registry::new(Topology::detect()?, Params::default())?;
    /// block_on(registry.sleep(Duration::from_millis(1)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sleep(&self, duration: Duration) -> Sleep {
        self.sleep_until_ns(self.now_ns().saturating_add(nanos(duration)))
    }

    /// Waits until `deadline`, like [`sleep_until`], but this registry's thread wakes the task.
    pub fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.sleep_until_ns(self.timers().clock.ns_of(deadline))
    }

    pub(super) fn sleep_until_ns(&self, at_ns: u64) -> Sleep {
        Sleep::of(Cow::Owned(self.clone()), at_ns)
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.timers().clock.now_ns()
    }
}

impl Sleep {
    fn of(registry: Cow<'static, Registry>, at_ns: u64) -> Self {
        Self { registry, at_ns, timer: None }
    }

    /// Returns `true` if the deadline has passed, even if the sleep has not been polled since.
    pub fn is_elapsed(&self) -> bool {
        self.registry.now_ns() >= self.at_ns
    }

    /// Changes the deadline, from the next poll on. A sleep that was ready waits again.
    pub fn reset(&mut self, deadline: Instant) {
        self.reset_ns(self.registry.timers().clock.ns_of(deadline));
    }

    pub(super) fn reset_ns(&mut self, at_ns: u64) {
        self.disarm();
        self.at_ns = at_ns;
    }

    fn disarm(&mut self) {
        if let Some(timer) = self.timer.take() {
            self.registry.timers().end_sleep(timer);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        assert!(
            self.registry.is_here(),
            "the sleep was created before the process was forked, and never ends in the child: create it there"
        );
        if self.registry.timers().clock.has_passed(self.at_ns) {
            self.disarm();
            return Poll::Ready(());
        }
        let Self { registry, at_ns, timer } = &mut *self;
        if registry.timers().sleep(timer, *at_ns, context.waker()) {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }
}

sync::on_drop!(Sleep, sleep => sleep.disarm());

base::internal::impl_debug!(Sleep, it => is_elapsed: it.is_elapsed(), has_timer: it.timer.is_some());

/// Waits for `future` for at most `duration` from this call. Panics as [`sleep()`] does.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use afterwork::workqueue::{block_on, timeout, Workqueue};
///
/// let queue = Workqueue::builder("example").build()?;
/// queue.pause();
/// let handle = queue.spawn(|| 7);
/// // The timeout drops the handle; `&mut handle` would keep it.
/// assert!(block_on(timeout(Duration::from_millis(1), handle)).is_err());
/// queue.resume();
/// assert_eq!(block_on(timeout(Duration::MAX, queue.spawn(|| 7)))??, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout::of(sleep(duration), future)
}

/// Waits for `future` until `deadline` at the latest. Panics as [`sleep()`] does.
pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout::of(sleep_until(deadline), future)
}

impl Registry {
    /// Waits for `future` for at most `duration` from this call. This is like [`timeout`], except
    /// that this registry's thread wakes the task.
    pub fn timeout<F: IntoFuture>(&self, duration: Duration, future: F) -> Timeout<F::IntoFuture> {
        Timeout::of(self.sleep(duration), future)
    }
}

/// A future with a deadline; created by [`timeout`], [`timeout_at`] and [`Registry::timeout`]. It
/// returns [`Elapsed`] if the time has passed.
///
/// Each poll polls the future first, so a future that is ready is never too late. A poll that does
/// not return is not interrupted. A future that is too late is dropped together with the `Timeout`.
///
/// # Cost
///
/// A future that is ready at its first poll costs nothing. Others cost as much as a [`Sleep`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct Timeout<F> {
    future: F,
    sleep: Sleep,
}

/// The error returned if a future was not ready in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl<F: Future> Timeout<F> {
    pub(crate) fn of(sleep: Sleep, future: impl IntoFuture<IntoFuture = F>) -> Self {
        let future = future.into_future();
        Self { future, sleep }
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing is moved out of `this` below.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: `F` stays pinned: `Self` is not packed, has no `Drop`, is `Unpin` only if `F` is.
        let future = unsafe { Pin::new_unchecked(&mut this.future) };
        if let Poll::Ready(value) = future.poll(context) {
            return Poll::Ready(Ok(value));
        }
        let elapsed = Pin::new(&mut this.sleep).poll(context);
        elapsed.map(|()| Err(Elapsed))
    }
}

base::internal::impl_debug!(Timeout[F], it => sleep: it.sleep);

base::internal::into_io_error!(Elapsed, |_| ErrorKind::TimedOut, "the timeout has passed");
