//! A future that waits for a grace period.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use sync::Mutex;
use sync::unmodelled::Arc;

use super::flavor::{Flavor, Global};

/// Returns a future that is ready when every section that is open at its first poll has ended.
///
/// # Blocking
///
/// Never blocks. The first poll costs a [`call`](super::call). Dropping the future does not wait.
/// While the thread that runs callbacks cannot be created, the future wakes its task at each poll,
/// so that it is polled again.
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
    Synchronize { flavor: Global, passed: None }
}

/// The future of [`synchronize_async`], and of
/// [`srcu::Domain::synchronize_async`](super::srcu::Domain::synchronize_async).
#[must_use = "a future does nothing unless it is awaited"]
pub struct Synchronize<F: Flavor = Global> {
    pub(super) flavor: F,
    /// `None` before the first poll.
    pub(super) passed: Option<Arc<Mutex<Passed>>>,
}

#[derive(Default)]
pub(super) struct Passed {
    is_over: bool,
    waker: Option<Waker>,
}

impl<F: Flavor + Unpin> Future for Synchronize<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let is_first = self.passed.is_none();
        if is_first {
            self.flavor.assert_may_call();
        }
        // FOREIGN(rcu-future-clone): the clone of the waker and the drop of the previous one, on
        // the polling thread, to which a panic propagates.
        let waker = cx.waker().clone();
        let passed = self.passed.get_or_insert_default().clone();
        let mut state = passed.lock();
        let (is_over, before) = (state.is_over, state.waker.replace(waker));
        drop(state);
        drop(before);
        if is_over {
            return Poll::Ready(());
        }
        if is_first {
            self.flavor.call_at_once(move || {
                let mut state = passed.lock();
                state.is_over = true;
                let waker = state.waker.take();
                drop(state);
                // FOREIGN(rcu-future-wake): the wake-up of the task, contained by the callback.
                waker.into_iter().for_each(Waker::wake);
            });
        }
        // Without the thread that runs callbacks, it is possible that no other thread ever wakes
        // the task. Each poll tries to start the thread again.
        if !self.flavor.is_served() {
            // FOREIGN(rcu-future-clone): as above.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }
}
