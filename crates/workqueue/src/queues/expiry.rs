//! Closures that must start by a deadline.
//!
//! A task that awaits the handle registers its waker in the wheel (`sleeps.rs`), to be fired at the
//! deadline; another waker is fired when the item ends. The task then polls the handle again, and
//! that poll lets the item expire, as a joiner does (`execute/deadline.rs`). The wheel makes no
//! decision, and does not access items. A poll whose timer has already fired also lets the item
//! expire. An item that no task awaits has no timer. Twin `deadline: the wheel wakes no task`.
//!
//! An item with a hard deadline has another timer, which exists while the item runs. Its waker
//! cancels the token of the item (`item/token.rs`).

use std::cell::RefCell;
use std::task::{Wake, Waker};

use item::internal::token::Token;
use sync::time::Instant;
use sync::twin;
use sync::unmodelled::Arc;

use super::queue::{Inner, Workqueue};
use super::sleeps::SleepTimer;
use crate::execute::deadline::StartBy;
use crate::execute::run;

pub(crate) struct StartBefore {
    at_ns: u64,
    /// The queue whose wheel has the timer. This reference does not keep the queue open.
    inner: Arc<Inner>,
    /// The timer, created when a task first awaits the handle; accessed by the handle, and later by
    /// the thread that frees the item.
    timer: RefCell<Option<SleepTimer>>,
}

impl StartBefore {
    pub(crate) fn new(queue: &Workqueue, at_ns: u64) -> Self {
        Self { at_ns, inner: queue.inner.clone(), timer: RefCell::new(None) }
    }

    pub(super) fn at(queue: &Workqueue, deadline: Instant) -> Self {
        Self::new(queue, queue.inner.timers.all.clock.ns_of(deadline))
    }

    /// Makes this a hard deadline: the item's token is cancelled at that time. The item's run calls
    /// this, and its code owns the value, so that its drop ends the timer.
    pub(super) fn arm(self) -> Self {
        self.wake_then(&Arc::new(AtEnd(run::current_token())).into());
        self
    }
}

impl StartBy for StartBefore {
    const IS_LIMITED: bool = true;

    fn left_ns(&self) -> u64 {
        self.inner.timers.all.clock.left_ns(self.at_ns)
    }

    fn is_over(&self) -> bool {
        self.left_ns() == 0
    }

    fn wake_then(&self, waker: &Waker) -> bool {
        if twin::armed("deadline: the wheel wakes no task") {
            return true;
        }
        let mut timer = self.timer.borrow_mut();
        self.inner.timers.all.sleep(&mut timer, self.at_ns, waker)
    }
}

sync::on_drop!(StartBefore, it => if let Some(timer) = it.timer.take() {
    it.inner.timers.all.end_sleep(timer);
});

struct AtEnd(Arc<Token>);

impl Wake for AtEnd {
    fn wake(self: Arc<Self>) {
        self.0.cancel();
    }
}
