//! Cancellation that running code detects.
//!
//! `item/token.rs` describes the protocol.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use base::internal::panics::Foreign;
use item::internal::token::{Token, WakerKey};
use sync::unmodelled::Arc;

use crate::execute::block_on::block_on;
use crate::execute::run;
use crate::time::sleep::timeout;

/// Returns `true` if the item that this thread is running has been cancelled, and should end early.
///
/// A cancel does not interrupt a running item. Code that runs for a long time can check the result
/// from time to time, and return early. The result is `true` in the innermost item of this thread
///
/// - after [`JoinHandle::cancel`](crate::JoinHandle::cancel) of a spawned closure, a closure of a
///   strand, or a future. This includes dropping a [`CancelOnDrop`](crate::CancelOnDrop), even when
///   a [`timeout()`](crate::timeout()) drops it, and dropping a [`TaskSet`](crate::TaskSet);
/// - at its [hard deadline](crate::TaskOptions::hard_deadline), and after its
///   [token](CancellationToken::current) has been cancelled;
/// - while a [`Work`](crate::Work) is disabled, including during
///   [`Work::cancel_sync`](crate::Work::cancel_sync);
/// - after its queue has been shut down: by
///   [`shutdown_background`](crate::Workqueue::shutdown_background), or at the time limit of
///   [`shutdown`](crate::Workqueue::shutdown).
///
/// It is `false` outside of items, and on the workers of a [`scope`](crate::Workqueue::scope): pass
/// a clone of the [token](CancellationToken::current) to the scope's items. A bulk cancel
/// ([`cancel_all`](crate::Workqueue::cancel_all)) does not affect running items.
///
/// # Cost
///
/// The call performs a few loads, which take a few nanoseconds. In an item that has requested its
/// token or has a hard deadline, the first call of a run also briefly acquires a lock. Otherwise
/// the call never blocks. An item that never calls this function pays nothing.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{self, Workqueue};
///
/// let queue = Workqueue::builder("example").help(false).build()?;
/// let (send, started) = std::sync::mpsc::channel();
/// let mut search = queue.spawn(move || {
///     send.send(()).unwrap();
///     let mut nr_steps = 0_u64;
///     while !workqueue::is_cancelled() {
///         nr_steps += 1; // one step of a long search
///     }
///     nr_steps
/// });
/// started.recv()?;
/// search.cancel(); // it is running already, and detects the cancel
/// println!("gave up after {} steps", search.join()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub fn is_cancelled() -> bool {
    run::is_cancelled()
}

/// A flag that is set once, and for which threads and tasks can wait.
///
/// A `CancellationToken` is a handle; clones are handles to the same token. A
/// [`child`](Self::child) is cancelled with its parent, and can be cancelled without it.
///
/// [`current`](Self::current) returns the token of the running item, so that waits inside an item
/// can end when the item is cancelled: [`wait_timeout`](Self::wait_timeout) is a sleep that ends
/// early, and [`until_cancelled`](Self::until_cancelled) ends any other wait.
///
/// # Guarantees
///
/// - A wait ends if the token is cancelled before or during it, and then sees the canceller's
///   earlier writes.
/// - Wakers are fired with no lock held. A panic in one waker does not affect the others.
///
/// # Cost
///
/// The token of an item takes two allocations. Each wait briefly acquires a lock. A wait leaves
/// nothing in the token when it ends.
///
/// # Panics
///
/// Panics if called in a child of `fork` on a token that was created before the fork.
///
/// # Examples
///
/// ```
/// use afterwork::workqueue::{CancellationToken, Workqueue, block_on};
///
/// let queue = Workqueue::builder("example").build()?;
/// let token = CancellationToken::new();
/// let own = token.child();
/// let task = queue.spawn_async(async move {
///     let result = own.until_cancelled(std::future::pending::<()>()).await;
///     result.is_none()
/// });
/// token.cancel();
/// assert!(task.join()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct CancellationToken(Arc<Token>);

/// A future that waits until a token is cancelled; created by [`CancellationToken::cancelled`].
#[must_use = "a future does nothing until it is polled"]
pub struct Cancelled {
    token: Arc<Token>,
    key: WakerKey,
}

impl CancellationToken {
    /// Creates a token that is not cancelled.
    #[must_use]
    pub fn new() -> Self {
        Self(Token::new())
    }

    /// Returns the token of the item that this thread is running. It is cancelled when
    /// [`is_cancelled`] becomes `true` for the item, except for a [`Work`](crate::Work) that is
    /// disabled. Outside of items, it is a new token.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{CancellationToken, Workqueue};
    /// use std::time::Duration;
    ///
    /// let queue = Workqueue::builder("example").help(false).build()?;
    /// let (send, started) = std::sync::mpsc::channel();
    /// let mut poller = queue.spawn(move || {
    ///     let token = CancellationToken::current();
    ///     send.send(()).unwrap();
    ///     // Sleeps for an hour, or until the cancel.
    ///     token.wait_timeout(Duration::from_secs(3600))
    /// });
    /// started.recv()?;
    /// poller.cancel();
    /// assert!(poller.join()?);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn current() -> Self {
        Self(run::current_token())
    }

    /// Creates a token that is cancelled with this one. Cancelling it does not affect this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self(self.0.child())
    }

    /// Cancels the token and its children, and wakes all waiters. Never blocks, unless a waker of
    /// another executor does.
    pub fn cancel(&self) {
        self.0.cancel();
    }

    /// Returns `true` if the token has been cancelled.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_set()
    }

    /// Returns a future that waits until the token is cancelled. The future owns a handle to the
    /// token, so it can be spawned or stored.
    #[doc(alias = "cancelled_owned")]
    pub fn cancelled(&self) -> Cancelled {
        Cancelled { token: self.0.clone(), key: None }
    }

    /// Waits for `future` until the token is cancelled; returns `None` if that comes first.
    ///
    /// In that case `future` is dropped. A poll that finds it ready returns its output, even if the
    /// token has been cancelled. The returned future owns a handle to the token.
    #[doc(alias("run_until_cancelled", "run_until_cancelled_owned"))]
    pub fn until_cancelled<F: IntoFuture>(
        &self,
        future: F,
    ) -> impl Future<Output = Option<F::Output>> + use<F> {
        let cancelled = self.cancelled();
        async move {
            let mut future = pin!(future.into_future());
            let mut cancelled = pin!(cancelled);
            poll_fn(|context| match future.as_mut().poll(context) {
                Poll::Ready(output) => Poll::Ready(Some(output)),
                Poll::Pending => cancelled.as_mut().poll(context).map(|()| None),
            })
            .await
        }
    }

    /// Waits at most `timeout` until the token is cancelled. Returns `true` if it was.
    ///
    /// Blocks until the wait ends. Panics as [`block_on`](crate::block_on) and
    /// [`sleep()`](crate::sleep()) do.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        block_on(self::timeout(timeout, self.cancelled())).is_ok()
    }
}

impl Default for CancellationToken {
    fn default() -> Self {
        Self::new()
    }
}

impl Future for Cancelled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // FOREIGN(waker-clone): the clone of a user's waker, on the polling thread, with no lock
        // held; it may unwind into the caller of the poll.
        let waker = Foreign::new(context.waker().clone());
        let Self { token, key } = &mut *self;
        if token.leave_waker(key, waker) { Poll::Pending } else { Poll::Ready(()) }
    }
}

sync::on_drop!(Cancelled, it => it.token.remove_waker(&mut it.key));

base::internal::impl_debug!(CancellationToken, it => is_cancelled: it.is_cancelled());

base::internal::impl_debug!(Cancelled, it => is_cancelled: it.token.is_set());
