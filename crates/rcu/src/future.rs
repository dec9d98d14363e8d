//! A future that waits for a grace period.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use sync::{Mutex, unmodelled::Arc};

use super::flavor::{Flavor, Global};

/// Returns a future that is ready when every section that is open at its first poll has ended.
///
/// # Blocking
///
/// Never blocks. The first poll costs a [`call`](super::call). Dropping the future does not wait.
/// As long as the thread that runs callbacks cannot be created, the future wakes its task at each
/// poll, so that it is polled again.
///
/// # Panics
///
/// If the flavor's `call` panics, the first poll panics.
///
/// # Examples
///
/// ```
/// # fn block_on<F: std::future::Future>(future: F) -> F::Output {
/// #     struct Unpark(std::thread::Thread);
/// #     impl std::task::Wake for Unpark {
/// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark() }
/// #     }
/// #     let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
/// #     let mut future = std::pin::pin!(future);
/// #     loop {
/// #         match future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) {
/// #             std::task::Poll::Ready(output) => return output,
/// #             std::task::Poll::Pending => std::thread::park(),
/// #         }
/// #     }
/// # }
/// block_on(async {
///     afterwork::rcu::synchronize_async().await;
/// });
/// ```
pub fn synchronize_async() -> Synchronize {
    Synchronize::of(Global)
}

/// The future of [`synchronize_async`], and of
/// [`srcu::Domain::synchronize_async`](super::srcu::Domain::synchronize_async).
#[must_use = "a future does nothing unless it is awaited"]
pub struct Synchronize<F: Flavor = Global> {
    flavor: F,
    /// `None` before the first poll.
    passed: Option<Arc<Mutex<Passed>>>,
}

#[derive(Debug)]
enum Passed {
    No(Waker),
    Yes,
}

impl<F: Flavor> Synchronize<F> {
    pub(super) fn of(flavor: F) -> Self {
        let passed = None;
        Self { flavor, passed }
    }
}

impl<F: Flavor + Unpin> Future for Synchronize<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(passed) = &self.passed else {
            self.flavor.assert_may_call();
            // FOREIGN(rcu-future-clone): the clone of the waker, on the polling thread, with no
            // lock held. A panic propagates to the poller.
            let passed = Arc::new(Mutex::new(Passed::No(cx.waker().clone())));
            self.passed = Some(passed.clone());
            self.flavor.call_at_once(move || {
                let before = std::mem::replace(&mut *passed.lock(), Passed::Yes);
                if let Passed::No(waker) = before {
                    // FOREIGN(rcu-future-wake): the wake-up of the task, in a callback, which
                    // contains it, with no lock held.
                    waker.wake();
                }
            });
            return self.pending(cx);
        };
        let is_left = match &*passed.lock() {
            Passed::Yes => return Poll::Ready(()),
            Passed::No(before) => before.will_wake(cx.waker()),
        };
        if is_left {
            return self.pending(cx);
        }
        // FOREIGN(rcu-future-clone): as above, and likewise the drop of the old waker.
        let mut waker = cx.waker().clone();
        let is_over = match &mut *passed.lock() {
            Passed::Yes => true,
            Passed::No(before) => {
                std::mem::swap(before, &mut waker);
                false
            }
        };
        drop(waker);
        if is_over { Poll::Ready(()) } else { self.pending(cx) }
    }
}

impl<F: Flavor> Synchronize<F> {
    /// Returns `Pending`. If the thread that runs callbacks could not be created, it is possible
    /// that no other thread ever wakes the task. In that case this wakes the task, and each poll
    /// tries to start the thread again.
    fn pending(&self, cx: &Context<'_>) -> Poll<()> {
        if !self.flavor.is_served() {
            // FOREIGN(rcu-future-clone): as above.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}

impl<F: Flavor> fmt::Debug for Synchronize<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Synchronize").finish_non_exhaustive()
    }
}
