//! Items that are queued when a grace period of RCU is over.
//!
//! Such an item is a delayed one that waits for readers in the place of a clock: armed under its lock, fired by a
//! callback of RCU's, found by cancel and disable like any other (`timers.rs` has the protocol and its models).
//!
//! The callback is handed over after the item's lock is dropped. So whoever flushes may find the item armed and the
//! callback not handed over yet: it goes on asking until the item it saw is armed no more.

use sync::{cpu, time, unmodelled::Arc};

use super::delayed::Deferred;
use crate::{
    execute::{wait::must_not_be_lost, work::Work},
    queues::{
        end::WeakQueue,
        queue::Workqueue,
        timers::{Due, Dust, Timer},
    },
};

/// Defers a piece of work until no reader can still see what was removed before, as often as it is queued.
///
/// For what to do after a grace period takes long, or sleeps: callbacks of [`rcu::call`] run one after another, items
/// of a queue at once.
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
#[doc(alias = "rcu_work")]
pub type RcuWork = Deferred<GracePeriod>;

/// What a [`RcuWork`] waits for.
#[derive(Clone, Copy, Debug)]
pub enum GracePeriod {}

impl Workqueue {
    /// Queues `work` after a grace period; false when it was pending already, or is disabled, or where
    /// [`enqueue`](Self::enqueue) refuses.
    ///
    /// # Blocking
    ///
    /// Blocks for a short lock at most, never for the grace period. May be called in a section.
    #[doc(alias = "queue_rcu_work")]
    pub fn enqueue_rcu(&self, work: &RcuWork) -> bool {
        let Some(due) = work.timer.arm_for_grace_period(&work.work, self) else {
            return false;
        };
        fire_after_grace_period(due, self.to_weak());
        true
    }
}

fn fire_after_grace_period(due: Due, queue: WeakQueue) {
    // An item waits for one grace period at a time, so the items bound the callbacks.
    rcu::internal::call_at_once(move || {
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
        let place = (queue.to_weak(), cpu::current());
        let inner = &queue.inner;
        (!refused && queue.admits()).then(|| state.put_aside(self, work, inner, place))
    }
}
