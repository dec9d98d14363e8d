//! Items that are queued after a grace period of RCU.
//!
//! Such an item is a delayed one that is fired by an RCU callback instead of the clock (`timers.rs`
//! describes the protocol). The callback is queued after the item's lock is released, so a flusher
//! that finds the item armed repeats its barrier until the item is no longer armed.

use sync::cpu;
use sync::unmodelled::Arc;

use super::delayed::Deferred;
use crate::execute::wait::must_not_be_lost;
use crate::execute::work::Work;
use crate::queues::end::WeakQueue;
use crate::queues::task::TaskOptions;
use crate::queues::timers::{Due, Dust, Timer};

/// A reusable item that is queued after a grace period, so that no reader can still see data that
/// was removed earlier. Needs the feature `rcu`.
///
/// Use it for cleanup that takes a long time or blocks: callbacks of [`rcu::call`] run one after
/// another, whereas items of a queue run in parallel.
///
/// # Guarantees
///
/// - If [`enqueue_rcu`](TaskOptions::enqueue_rcu) returns `true`, the run starts after a grace
///   period that began after the call. Every section of [`rcu::read`] and [`rcu::qsbr::Reader`]
///   that was open has ended, and its effects are visible. If it returns `false` because the item
///   is pending, the item may be waiting for an earlier grace period.
/// - The item is pending from the call until it starts. It is queued on the pool of the pod from
///   which `enqueue_rcu` was called.
/// - If all handles to the item are dropped, it is still queued. If the last handle to its queue is
///   dropped, nothing runs. A drain does not wait for grace periods, and items whose grace periods
///   end during a drain are queued.
///
/// Differs from Linux: it can be cancelled and disabled while it waits for the grace period.
///
/// # Cost
///
/// Each enqueue costs an RCU callback, two short acquisitions of a lock, and the enqueue itself.
/// The callback of a cancelled item is freed only after its grace period. If a reader delays the
/// grace period, an item that is cancelled and queued again in a loop uses 64 more bytes each time.
///
/// # Examples
///
/// ```
/// use afterwork::{rcu::Rcu, workqueue::{RcuWork, Workqueue}};
/// use std::sync::Arc;
///
/// let queue = Workqueue::builder("example").build()?;
/// let file = Arc::new(Rcu::new("old.db"));
/// let remove = RcuWork::new(|| println!("no reader has old.db: remove it"));
/// file.replace("new.db");
/// assert!(queue.task().enqueue_rcu(&remove));
/// remove.flush()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "rcu_work")]
pub type RcuWork = Deferred<GracePeriod>;

/// Marks a [`Deferred`](crate::Deferred) that waits for a grace period: see [`RcuWork`].
#[derive(Clone, Copy, Debug)]
pub enum GracePeriod {}

impl TaskOptions<'_> {
    /// Queues `work` after a grace period. Returns `false` if the item is already pending or is
    /// disabled, or if [`Workqueue::enqueue`](crate::Workqueue::enqueue) would reject it. Needs the
    /// feature `rcu`.
    ///
    /// # Blocking
    ///
    /// Blocks briefly at most, on a lock, never for the grace period. Allowed in a read-side
    /// section.
    #[doc(alias = "queue_rcu_work")]
    pub fn enqueue_rcu(self, work: &RcuWork) -> bool {
        let Some(due) = work.timer.arm_for_grace_period(&work.work, &self) else {
            return false;
        };
        fire_after_grace_period(due, self.later().1);
        true
    }
}

fn fire_after_grace_period(due: Due, queue: WeakQueue) {
    // The call does not limit the number of callbacks. An item waits for one grace period at a
    // time, so it has at most one callback, unless it is cancelled and queued again.
    rcu::internal::call_at_once(move || {
        // If the queue has lost its last handle, the item is no longer armed.
        if let Some(queue) = queue.upgrade() {
            let dead = due.fire(&queue.timers.all);
            queue.manager.leave_to_reapers(dead);
        }
    });
}

impl Timer {
    /// Arms the item if it is neither pending nor disabled, and `queue` accepts it.
    fn arm_for_grace_period(
        self: &Arc<Self>,
        work: &Work,
        options: &TaskOptions<'_>,
    ) -> Option<Due> {
        let (queue, weak, cpu) = options.later();
        queue.inner.must_be_at_home();
        must_not_be_lost(self.is_lost() || work.is_lost());
        let mut dust = Dust::default();
        let mut state = self.lock(&mut dust);
        let refused = state.armed.is_some() || work.is_disabled() || work.is_pending();
        let place = (weak, cpu.unwrap_or_else(cpu::current));
        let inner = &queue.inner;
        (!refused && queue.admits()).then(|| state.put_aside(self, work, inner, place))
    }
}
