//! Closures that must start by a deadline, and when a task that awaits one is told that it did not.
//!
//! A task that awaits the handle leaves its waker in the wheel (`sleeps.rs`), to be fired at the deadline, beside the one that the
//! end of the item fires. It polls the handle again for that, and that poll lets the item expire, as a joiner does
//! (`execute/deadline.rs`): the wheel decides nothing, and knows no item. A poll that finds its timer fired, at an earlier poll's
//! waker, goes on as that poll would have. An item that nobody awaits has no timer.
//!
//! Twin `deadline: the wheel tells no task`.

use std::{cell::RefCell, fmt, task::Waker};

use sync::{atomic::Ordering, time, twin, unmodelled::Arc};

use super::{
    queue::{Inner, Workqueue},
    sleeps::SleepTimer,
};
use crate::execute::deadline::StartBy;

/// By when an item must have started, and its timer.
pub(crate) struct StartBefore {
    at_ns: u64,
    /// Whose wheel it is. It keeps no queue from its end.
    inner: Arc<Inner>,
    /// The handle's, and then of who frees the item: once a task has awaited it.
    timer: RefCell<Option<SleepTimer>>,
}

impl StartBefore {
    pub(crate) fn new(queue: &Workqueue, at_ns: u64) -> Self {
        Self {
            at_ns,
            inner: queue.inner.clone(),
            timer: RefCell::new(None),
        }
    }
}

impl StartBy for StartBefore {
    const IS_LIMITED: bool = true;

    fn at_ns(&self) -> u64 {
        self.at_ns
    }

    fn is_over(&self) -> bool {
        time::now_ns() >= self.at_ns
    }

    fn wake_then(&self, waker: &Waker) -> bool {
        if twin::armed("deadline: the wheel tells no task") {
            return true;
        }
        let mut timer = self.timer.borrow_mut();
        self.inner.timers.all.sleep(&mut timer, self.at_ns, waker)
    }
}

impl Drop for StartBefore {
    fn drop(&mut self) {
        // In a child of `fork` the lock may be held for ever.
        if !twin::torn_down()
            && let Some(timer) = self.timer.take()
            && self.inner.is_at_home()
        {
            self.inner.timers.all.end_sleep(timer);
        }
    }
}

impl fmt::Debug for StartBefore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StartBefore").field(&self.at_ns).finish()
    }
}

impl Workqueue {
    /// Returns by when an item is to start here; `None`, and counts it, if it expires at once.
    pub(super) fn start_before(&self, deadline: time::Instant) -> Option<StartBefore> {
        let start_by = StartBefore::new(self, time::ns_of(deadline));
        if start_by.is_over() {
            self.inner.must_be_at_home();
            self.inner.core.nr_expired.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(start_by)
    }
}
