//! Tokio's timers and I/O inside futures that another executor polls.

use std::mem::ManuallyDrop;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, TryCurrentError};

/// Polls and drops `future` in the context of a tokio runtime, so that `tokio::time`, `tokio::net`
/// and `tokio::spawn` work inside it on any executor.
///
/// The runtime's threads drive its timers and its I/O, as they do for its own tasks, and wake the
/// future through its waker. A current-thread runtime drives them only inside its `block_on`.
///
/// # Cost
///
/// Each poll writes a thread-local twice.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use afterwork::workqueue::{Workqueue, in_tokio};
///
/// let runtime = tokio::runtime::Builder::new_multi_thread().enable_time().build()?;
/// let queue = Workqueue::builder("example").build()?;
/// let task = queue.spawn_async(in_tokio(runtime.handle(), async {
///     tokio::time::sleep(Duration::from_millis(1)).await;
///     7
/// }));
/// assert_eq!(task.join()?, 7);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "Compat")]
pub fn in_tokio<F: IntoFuture>(runtime: &Handle, future: F) -> InTokio<F::IntoFuture> {
    InTokio { runtime: runtime.clone(), future: ManuallyDrop::new(future.into_future()) }
}

/// A future in the context of a tokio runtime; created by [`in_tokio`].
#[must_use = "a future does nothing unless it is awaited"]
pub struct InTokio<F> {
    runtime: Handle,
    /// The future, which is also dropped in the context.
    future: ManuallyDrop<F>,
}

impl<F: Future> Future for InTokio<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // SAFETY: nothing is moved out of `this` below.
        let this = unsafe { self.get_unchecked_mut() };
        let _inside = this.runtime.enter();
        // SAFETY: the future is dropped in place, and `Self` is `Unpin` only if the future is.
        unsafe { Pin::new_unchecked(&mut *this.future) }.poll(context)
    }
}

sync::on_drop!(InTokio[F], it => {
    // If the thread is exiting, tokio's thread-local may be destroyed. In that case, drop the
    // future without a context.
    let is_gone = |error: TryCurrentError| error.is_thread_local_destroyed();
    let is_gone = Handle::try_current().err().is_some_and(is_gone);
    let _inside = (!is_gone).then(|| it.runtime.enter());
    // SAFETY: the future is dropped only here, and is not used again.
    unsafe { ManuallyDrop::drop(&mut it.future) };
});

base::internal::impl_debug!(InTokio[F], it => runtime: it.runtime);
