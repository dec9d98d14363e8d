//! Items that are queued at equal intervals.
//!
//! Such an item is a delayed one that arms itself at the end of each run, even if the run panicked.
//! The last handle to its queue may have been dropped by then, so the item upgrades its reference
//! (`end.rs`). Dropping the handle to the work disables the item, which arming checks under the
//! timer's lock (`timers.rs`). A run also does not arm the item if the queue has cancelled
//! everything since the item was created: the item keeps the queue's count of such cancels.

use std::time::Duration;

use item::internal::head::Name;
use sync::Mutex;
use sync::unmodelled::Arc;

use super::delayed::DelayedWork;
use super::interval::{MissedTickBehavior, ZeroPeriod, period_ns};
use crate::queues::end::WeakQueue;
use crate::queues::queue::Workqueue;

/// Runs a closure at equal intervals until this value is dropped; created by [`Workqueue::every`].
///
/// # Guarantees
///
/// - The runs are on a grid that begins at creation. A run that is late or takes a long time does
///   not delay later ones, so the grid does not drift. Runs never overlap.
/// - A tick is missed if the next one is already due when it fires, for instance because a run took
///   longer than a period. Missed ticks are [skipped](MissedTickBehavior::Skip), unless another
///   behavior is [chosen](Self::with_missed_ticks).
/// - Dropping the handle cancels the work: no further run starts. A run that has started continues;
///   [`cancel_sync`](Self::cancel_sync) waits for it.
/// - The handle does not keep its queue alive: if the last handle to the queue is dropped, the runs
///   end. The closure must not own such a handle, because that would keep the queue alive. A drain
///   does not wait for the work, and a paused queue runs it once the queue is resumed.
/// - [`cancel_all`](Workqueue::cancel_all) of its queue ends the work permanently; a run that has
///   started is the last one. [`every`](Workqueue::every) starts the work again.
/// - A panic in a run is caught, counted and reported to the queue's
///   [`on_panic`](crate::Builder::on_panic), as for other items. The next run starts on schedule.
///
/// # Cost
///
/// Each run costs as much as that of a [`DelayedWork`]. Creation takes one allocation. There is no
/// extra thread, and there are no wake-ups between the runs.
#[must_use = "dropping it cancels the work"]
pub struct Periodic {
    work: DelayedWork,
    missed: Arc<Mutex<MissedTickBehavior>>,
    /// Set if a drop cancels the work.
    cancels: bool,
}

struct Ticks {
    queue: WeakQueue,
    /// The queue's number of bulk cancels at the item's creation.
    nr_cancels: u64,
    due_ns: u64,
    period_ns: u64,
    /// The behavior for missed ticks, which may be changed while the item runs.
    missed: Arc<Mutex<MissedTickBehavior>>,
}

struct Again<'a>(&'a mut Ticks, &'a DelayedWork);

impl Workqueue {
    /// Runs `func` on this queue every `period` until the result is dropped, first after one
    /// period.
    ///
    /// On a queue that has been destroyed, `func` never runs. Blocks as
    /// [`enqueue_after`](Self::enqueue_after) does. Returns [`ZeroPeriod`] if `period` is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::{sync::mpsc, time::Duration};
    /// use afterwork::workqueue::Workqueue;
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let (send, receive) = mpsc::channel();
    /// let mut nr_runs = 0;
    /// let ticks = queue.every(Duration::from_millis(1), move || {
    ///     nr_runs += 1;
    ///     send.send(nr_runs).ok();
    /// })?;
    /// assert_eq!(receive.iter().take(3).collect::<Vec<_>>(), [1, 2, 3]);
    /// drop(ticks);
    /// assert!(queue.every(Duration::ZERO, || ()).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("setInterval", "ticker", "cron", "schedule_with_fixed_rate"))]
    pub fn every(
        &self,
        period: Duration,
        mut func: impl FnMut() + Send + 'static,
    ) -> Result<Periodic, ZeroPeriod> {
        let period_ns = period_ns(period)?;
        self.inner.must_be_at_home();
        let missed = Arc::new(Mutex::new(MissedTickBehavior::Skip));
        let due_ns = self.inner.timers.all.clock.now_ns().saturating_add(period_ns);
        let nr_cancels = self.inner.timers.nr_cancels();
        let mut ticks =
            Ticks { queue: self.to_weak(), nr_cancels, due_ns, period_ns, missed: missed.clone() };
        let work = DelayedWork::named(Name::of(&func), move |work| {
            let _again = Again(&mut ticks, work);
            func();
        });
        work.timer.arm_at(&work.work, &self.inner, self.to_weak(), due_ns, nr_cancels);
        Ok(Periodic { work, missed, cancels: true })
    }
}

sync::on_drop!(Again<'_>, it => {
    let Again(ticks, work) = it;
    // A child of `fork` that unwinds inside its parent's item has none of the parent's workers.
    if let Some(queue) = ticks.queue.upgrade().filter(|queue| queue.is_at_home()) {
        let missed = *ticks.missed.lock();
        let now_ns = queue.timers.all.clock.now_ns();
        ticks.due_ns = missed.next_ns(ticks.due_ns, now_ns, ticks.period_ns);
        let weak = ticks.queue.clone();
        work.timer.arm_at(&work.work, &queue, weak, ticks.due_ns, ticks.nr_cancels);
    }
});

impl Periodic {
    /// Sets the behavior for ticks that are missed from now on. By default they are skipped.
    pub fn with_missed_ticks(self, behavior: MissedTickBehavior) -> Self {
        *self.missed.lock() = behavior;
        self
    }

    /// Cancels the work, and waits for a run that has started.
    ///
    /// Blocks until that run has ended, and panics, as
    /// [`DelayedWork::disable_sync`](crate::Deferred::disable_sync) does.
    #[doc(alias = "cancel_delayed_work_sync")]
    pub fn cancel_sync(mut self) {
        self.work.disable_sync();
        self.cancels = false;
    }

    /// Keeps the work running until its queue ends, without a handle to cancel it.
    pub fn detach(mut self) {
        self.cancels = false;
    }
}

sync::on_drop!(Periodic, it => if it.cancels && !it.work.timer.is_lost() {
    it.work.disable();
});

base::internal::impl_debug!(Periodic, it => work: it.work);
