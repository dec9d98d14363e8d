//! Runs a future on the thread that waits for it.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use base::internal::wake::{Parker, report};

use super::run::while_blocking;

/// Polls `future` on this thread until it is ready, and returns its output.
///
/// Between two polls the thread sleeps. It neither spins nor runs other items, so it can wait for
/// any future. If a work item calls this, its pool may start another worker.
///
/// # Blocking
///
/// Blocks until the future is ready. A future that waits for the item that calls `block_on`, or for
/// an item that needs this item's seat, never becomes ready.
/// [`JoinHandle::join`](crate::JoinHandle::join) and [`Workqueue::scope`](crate::Workqueue::scope)
/// can make progress in that case. If this item has a queue's only seat, a handle to such an item
/// is ready at once, with [`JoinError::OwnQueue`](crate::JoinError::OwnQueue).
///
/// # Panics
///
/// Panics if called in an item of a bottom-half queue, before the first poll. A panic in a poll is
/// propagated to the caller.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use afterwork::workqueue::{self, Workqueue};
///
/// let queue = Workqueue::builder("example").build()?;
/// let answer = workqueue::block_on(async {
///     workqueue::sleep(Duration::from_millis(1)).await;
///     queue.spawn(|| 6 * 7).await
/// });
/// assert_eq!(answer?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn block_on<F: IntoFuture>(future: F) -> F::Output {
    report::must_be_free_to_sleep();
    let mut parker = Parker::with_spin_limit(0);
    let waker = Waker::from(parker.unparker());
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future.into_future());
    while_blocking(|| {
        loop {
            if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return value;
            }
            parker.park();
        }
    })
}
