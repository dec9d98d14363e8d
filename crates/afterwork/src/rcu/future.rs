//! Waiting for a grace period as a future.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
};

use sync::{Mutex, unmodelled::Arc};

use super::flavor::{Flavor, Global};

/// Waits, as a future, until every section that is open when it is first polled has ended.
///
/// # Blocking
///
/// Never; polling is a [`call`](super::call). Dropping the future waits for nothing.
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

/// The future of [`synchronize_async`], and of [`srcu::Domain::synchronize_async`](super::srcu::Domain::synchronize_async).
#[must_use = "a future does nothing unless it is awaited"]
pub struct Synchronize<F: Flavor = Global> {
    flavor: F,
    /// There once it has been polled.
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
            let passed = Arc::new(Mutex::new(Passed::No(cx.waker().clone())));
            self.passed = Some(passed.clone());
            self.flavor.call(move || {
                let before = std::mem::replace(&mut *passed.lock(), Passed::Yes);
                if let Passed::No(waker) = before {
                    waker.wake();
                }
            });
            return Poll::Pending;
        };
        match &mut *passed.lock() {
            Passed::Yes => Poll::Ready(()),
            Passed::No(waker) => {
                waker.clone_from(cx.waker());
                Poll::Pending
            }
        }
    }
}

impl<F: Flavor> fmt::Debug for Synchronize<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Synchronize").finish_non_exhaustive()
    }
}
