//! Futures with a time limit.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use sync::time::Instant;

use super::sleep::{Sleep, sleep, sleep_until};
use crate::queues::registry::Registry;

/// Waits for `future` for at most `duration` from this call.
///
/// # Panics
///
/// The same as [`sleep`](crate::sleep).
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

/// Waits for `future` until `deadline` at the latest.
///
/// # Panics
///
/// The same as [`sleep`](crate::sleep).
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

/// A future with a deadline; created by [`timeout`], [`timeout_at`] and [`Registry::timeout`].
///
/// Each poll polls the future first, so a future that is ready is never too late. A poll that does
/// not return is not interrupted. A future that is too late is dropped together with the `Timeout`.
///
/// # Cost
///
/// A future that is ready at its first poll costs nothing. Otherwise the cost is that of a
/// [`Sleep`].
///
/// # Errors
///
/// Returns [`Elapsed`] if the time has passed.
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
