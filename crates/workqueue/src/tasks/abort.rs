//! A handle of a future that can only cancel it.
//!
//! It is a waker underneath: a future counts its wakers, so an additional one costs the others
//! nothing. The item of a closure has a single, uncounted handle, and the canceller writes the
//! outcome without synchronization. An abortable closure is therefore a future with a single poll.

use std::{fmt, task::Waker};

use crate::{
    execute::join::JoinHandle,
    queues::{future, queue::Workqueue},
};

/// Cancels an item independently of its [`JoinHandle`]; created by
/// [`spawn_abortable`](Workqueue::spawn_abortable) and
/// [`spawn_async_abortable`](Workqueue::spawn_async_abortable).
///
/// Dropping it does not cancel the item. It keeps a future alive, even without other wakers.
#[derive(Clone)]
#[must_use = "it does nothing by itself"]
pub struct AbortHandle {
    /// The waker of the future. `None` if the queue rejected it.
    waker: Option<Waker>,
}

impl AbortHandle {
    /// Cancels the item; returns `true` if it had not ended.
    ///
    /// A closure that has not started, or a future that was never polled, is dropped here; the
    /// caller gets a panic of the drop. A worker of the queue drops a future that was polled. An
    /// item that is executing continues to its end, or to its next `.await`; [`JoinHandle::join`]
    /// reports which.
    ///
    /// # Blocking
    ///
    /// As [`JoinHandle::cancel`]. In a child of `fork`, returns `false` for a parent's item.
    pub fn abort(&self) -> bool {
        self.waker.as_ref().is_some_and(future::cancel_by)
    }

    /// Returns `true` if the item has ended.
    pub fn is_finished(&self) -> bool {
        self.waker.as_ref().is_none_or(future::has_ended)
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle")
            .field("is_finished", &self.is_finished())
            .finish()
    }
}

impl Workqueue {
    /// Queues `future` as [`spawn_async`](Self::spawn_async) does, and returns an abort handle in
    /// addition to the join handle.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{JoinError, Workqueue};
    /// let queue = Workqueue::builder("example").build()?;
    /// let (handle, abort) = queue.spawn_async_abortable(std::future::pending::<()>());
    /// std::thread::spawn(move || abort.abort());
    /// assert!(matches!(handle.join(), Err(JoinError::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn spawn_async_abortable<F>(&self, future: F) -> (JoinHandle<F::Output>, AbortHandle)
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let (handle, waker) = self.spawn_future(future, true);
        (handle, AbortHandle { waker })
    }

    /// Queues `func` to run once, and returns an abort handle in addition to the join handle.
    ///
    /// Differs from [`spawn`](Self::spawn): only a worker runs `func`, never its joiner.
    pub fn spawn_abortable<T: Send + 'static>(
        &self,
        func: impl FnOnce() -> T + Send + 'static,
    ) -> (JoinHandle<T>, AbortHandle) {
        self.spawn_async_abortable(async move { func() })
    }
}
