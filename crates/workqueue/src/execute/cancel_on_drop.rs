//! A handle that cancels its item when it is dropped.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use base::internal::panics::{contain, join_error::JoinError};

use super::join::JoinHandle;

/// A handle that waits for an item as a [`JoinHandle`] does, and cancels the item when the handle
/// is dropped; created by [`cancel_on_drop`](JoinHandle::cancel_on_drop).
///
/// A closure that has started continues, and can call [`is_cancelled`](crate::is_cancelled). A
/// worker drops a future that has been polled. An item that has been neither started nor polled is
/// dropped by the thread that drops the handle; see [`JoinHandle::cancel`].
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::Workqueue;
///
/// let queue = Workqueue::builder("example").build()?;
/// queue.pause();
/// let (send, receive) = std::sync::mpsc::channel();
/// drop(queue.spawn(move || send.send(7)).cancel_on_drop());
/// queue.resume();
/// // The closure is gone, and was not called.
/// assert!(receive.recv().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping it cancels the item"]
pub struct CancelOnDrop<T> {
    /// `None` if dropping this handle no longer cancels the item.
    handle: Option<JoinHandle<T>>,
}

impl<T> CancelOnDrop<T> {
    pub(crate) fn new(handle: JoinHandle<T>) -> Self {
        Self { handle: Some(handle) }
    }

    /// Returns a handle that does not cancel the item when it is dropped.
    pub fn keep(mut self) -> JoinHandle<T> {
        self.handle.take().expect("only the drop takes it")
    }

    /// Waits for the item to end, as [`JoinHandle::join`] does.
    ///
    /// # Blocking
    ///
    /// The same as [`JoinHandle::join`].
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`JoinHandle::join`].
    pub fn join(self) -> Result<T, JoinError> {
        self.keep().join()
    }

    /// Returns `true` if the item has ended or been cancelled.
    pub fn is_finished(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl<T> Future for CancelOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let handle = self.handle.as_mut().expect("only the drop takes it");
        Pin::new(handle).poll(context)
    }
}

impl<T> Drop for CancelOnDrop<T> {
    fn drop(&mut self) {
        if sync::twin::torn_down() {
            return;
        }
        if let Some(mut handle) = self.handle.take() {
            // FOREIGN(cancel-drop): the closure or future, on the thread that drops this handle; a
            // panic is contained here, because the thread may be unwinding.
            contain(|| {
                handle.cancel();
            });
        }
    }
}

base::internal::impl_debug!(CancelOnDrop[T], it => handle: it.handle);
