//! Items that are queued when a grace period of RCU is over.
//!
//! Such an item is a delayed one that waits for readers in the place of a clock: armed under its lock, fired by a
//! callback of RCU's, found by cancel and disable like any other (`timers.rs` has the protocol and its models).
//!
//! The callback is handed over after the item's lock is dropped. So whoever flushes may find the item armed and the
//! callback not handed over yet: it goes on asking until the item it saw is armed no more.

use std::fmt;

use sync::{Patience, cpu, time, twin, unmodelled::Arc};

use super::delayed::DelayedWork;
use crate::{
    rcu,
    workqueue::{
        execute::{
            wait::must_not_be_lost,
            work::{Busy, FlushError, Work},
        },
        queues::end::WeakQueue,
        queues::queue::Workqueue,
        queues::timers::{Due, Dust, Timer},
    },
};

/// Defers a piece of work until no reader can still see what was removed before, as often as it is queued.
///
/// For what to do after a grace period takes long, or sleeps: callbacks of [`rcu::call`] run one after another, items
/// of a queue at once. A `RcuWork` is a handle; clones are handles of the same item.
///
/// # Guarantees
///
/// - When [`enqueue_rcu`](Workqueue::enqueue_rcu) says true, the run comes after a grace period that began later:
///   every section of [`rcu::read`] and [`rcu::qsbr::Reader`] that was open has ended, and what it did is visible. When
///   it says false the item was pending already, perhaps for an earlier grace period.
/// - From then on the item is pending, until it starts. It goes to the pool of the pod from which it was queued.
/// - An item whose handles are all gone is still queued. Where the queue has gone by then nothing runs. A drain does
///   not wait for grace periods; what they bring is queued also while one is under way.
///
/// Differs from Linux: it can be cancelled and disabled while it waits for the grace period.
///
/// # Cost
///
/// That of a callback, a short lock twice, and that of queueing.
///
/// # Examples
///
/// ```
/// use afterwork::{rcu::Rcu, workqueue::{RcuWork, Workqueue}};
/// use std::sync::Arc;
///
/// let queue = Workqueue::builder("example").build()?;
/// let file = Arc::new(Rcu::new("old.db"));
/// let remove = RcuWork::new(|| println!("nobody reads old.db any more: remove it"));
/// file.replace("new.db");
/// assert!(queue.enqueue_rcu(&remove));
/// remove.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct RcuWork(DelayedWork);

impl RcuWork {
    /// Makes an item that runs `func`.
    pub fn new(func: impl FnMut() + Send + 'static) -> Self {
        Self(DelayedWork::new(func))
    }

    /// Makes an item that runs `func` with a handle of the item itself, so that it can queue itself again.
    pub fn with_handle(mut func: impl FnMut(&RcuWork) + Send + 'static) -> Self {
        Self(DelayedWork::with_handle(move |delayed| {
            func(&Self(delayed.clone()));
        }))
    }

    /// Returns `true` if it waits for a grace period, or is queued and has not started.
    ///
    /// # Blocking
    ///
    /// For a short lock. The answer may be old when it arrives.
    pub fn is_pending(&self) -> bool {
        self.0.is_pending()
    }

    /// Returns `true` if the item is pending, a grace period included, executing, or both.
    ///
    /// # Blocking
    ///
    /// As [`is_pending`](Self::is_pending).
    pub fn busy(&self) -> Busy {
        self.0.busy()
    }

    /// Takes the item out of its wait or the queue if it has not started; returns `true` if it did.
    ///
    /// # Blocking
    ///
    /// As [`Work::cancel`]; not for the grace period.
    pub fn cancel(&self) -> bool {
        self.0.cancel()
    }

    /// Cancels, and waits until the item does not run; returns `true` if it was pending.
    ///
    /// On return the item is idle. While this waits, queueing is refused, also by the item itself.
    ///
    /// # Blocking
    ///
    /// Until a run that has started has ended. From inside the item's own run it does not wait.
    ///
    /// # Panics
    ///
    /// As [`Work::disable_sync`].
    pub fn cancel_sync(&self) -> bool {
        self.0.cancel_sync()
    }

    /// Refuses queueing until as many [`enable`](Self::enable)s have come, and cancels; returns `true` if it was pending.
    ///
    /// # Blocking
    ///
    /// As [`Work::disable`].
    ///
    /// # Panics
    ///
    /// When it has been disabled 65535 times already.
    pub fn disable(&self) -> bool {
        self.0.disable()
    }

    /// Disables the item and waits until it does not run; returns `true` if it was pending.
    ///
    /// # Blocking
    ///
    /// Until a run that has started has ended. From inside the item's own run it does not wait.
    ///
    /// # Panics
    ///
    /// As [`Work::disable_sync`].
    pub fn disable_sync(&self) -> bool {
        self.0.disable_sync()
    }

    /// Takes one [`disable`](Self::disable) back; returns `true` if the item may be queued again.
    ///
    /// # Panics
    ///
    /// When the item is not disabled.
    pub fn enable(&self) -> bool {
        self.0.enable()
    }

    /// Waits until the item has run that is pending now, for its grace period first; returns `true` if there was one, or a run
    /// to wait for.
    ///
    /// # Blocking
    ///
    /// As [`rcu::barrier`], when it waits for a grace period, and until the run has ended. Never in a section, nor in a
    /// callback of RCU.
    ///
    /// # Panics
    ///
    /// In a section, when it waits for a grace period.
    ///
    /// # Errors
    ///
    /// As of [`Work::flush`].
    pub fn flush(&self) -> Result<bool, FlushError> {
        must_not_be_lost(self.0.timer.is_lost());
        let awaits = || {
            let mut dust = Dust::default();
            self.0.timer.lock(&mut dust).awaits_grace_period()
        };
        let pending = awaits();
        let mut patience = Patience::new();
        while pending.is_some() && awaits() == pending {
            rcu::barrier();
            if twin::armed("rcu_work: flush asks once") {
                break;
            }
            // It may be armed by somebody who has not handed the callback over yet.
            patience.pause();
        }
        Ok(self.0.flush()? || pending.is_some())
    }
}

impl Workqueue {
    /// Queues `work` after a grace period; false when it was pending already, or is disabled, or where
    /// [`enqueue`](Self::enqueue) refuses.
    ///
    /// # Blocking
    ///
    /// Never for the grace period: for a short lock, and as [`rcu::call`]. May be called in a section.
    pub fn enqueue_rcu(&self, work: &RcuWork) -> bool {
        let RcuWork(DelayedWork { work, timer }) = work;
        let Some(due) = timer.arm_for_grace_period(work, self) else {
            return false;
        };
        fire_after_grace_period(due, self.downgrade());
        true
    }
}

fn fire_after_grace_period(due: Due, queue: WeakQueue) {
    rcu::call(move || {
        // Where the queue has gone, the item is not armed any more.
        if let Some(queue) = queue.upgrade() {
            let dead = due.fire(&queue.timers.all, time::now_ns());
            queue.manager.leave_to_reapers(dead);
        }
    });
}

impl Timer {
    /// Arms the item, if it is neither pending nor disabled, and `queue` takes it.
    fn arm_for_grace_period(self: &Arc<Self>, work: &Work, queue: &Workqueue) -> Option<Due> {
        queue.inner.must_be_at_home();
        must_not_be_lost(self.is_lost() || work.is_lost());
        let mut dust = Dust::default();
        let mut state = self.lock(&mut dust);
        let refused = state.armed.is_some() || work.is_disabled() || work.is_pending();
        let place = (queue.downgrade(), cpu::current());
        (!refused && queue.admits()).then(|| state.put_aside(self, work, place))
    }
}

impl fmt::Debug for RcuWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RcuWork").field(&self.0).finish()
    }
}
