//! A handle to a closure or future that can only cancel it.
//!
//! The handle contains a waker: a future counts its wakers, so an additional one costs the others
//! nothing. The item of a closure has a single, uncounted handle, and the canceller writes the
//! outcome without synchronization. A closure with a cancel handle is therefore a future with a
//! single poll.

use std::task::Waker;

use super::future;

/// Cancels a closure or future independently of its [`JoinHandle`](crate::JoinHandle); set by
/// [`TaskOptions::cancel_handle`](crate::TaskOptions::cancel_handle).
///
/// Dropping the handle does not cancel the item. The handle keeps a future alive, even without
/// other wakers. The default handle belongs to no item, like the handle to rejected work.
#[doc(alias = "AbortHandle")]
#[derive(Clone, Default)]
#[must_use = "it does nothing by itself"]
pub struct CancelHandle {
    /// The waker of the future; `None` if there is no item.
    pub(super) waker: Option<Waker>,
}

impl CancelHandle {
    /// Cancels the item; returns `true` if it had not ended.
    ///
    /// A closure that has not started, or a future that was never polled, is dropped by this call,
    /// and a panic in the drop is propagated to the caller. A worker of the queue drops a future
    /// that was polled. An item that is executing continues to its end, or to its next `.await`;
    /// [`JoinHandle::join`](crate::JoinHandle::join) returns the outcome.
    ///
    /// # Blocking
    ///
    /// The same as [`JoinHandle::cancel`](crate::JoinHandle::cancel). In a child of `fork`, returns
    /// `false` for a parent's item.
    #[doc(alias = "abort")]
    pub fn cancel(&self) -> bool {
        self.waker.as_ref().is_some_and(future::cancel_by)
    }

    /// Returns `true` if the item has ended, or if there is none.
    pub fn is_finished(&self) -> bool {
        self.waker.as_ref().is_none_or(future::has_ended)
    }
}

base::internal::impl_debug!(CancelHandle, it => is_finished: it.is_finished());
