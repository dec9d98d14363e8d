//! Items that are queued again and again, at equal distances.
//!
//! Such an item is a delayed one that arms itself at the end of each run, also of one that panics. By then its queue may have lost
//! the last handle: it is visited (`end.rs`), and not armed where it has. Who drops the handle disables the item, which
//! arming looks for under the timer's lock (`timers.rs` has the protocol and its models). A run also arms the item only if the queue
//! has not cancelled all since the item was made. The queue counts such cancels, and the item knows the count from before.

use std::{fmt, time::Duration};

use sync::{
    atomic::{AtomicU32, Ordering},
    time, twin,
    unmodelled::Arc,
};

use super::{
    delayed::DelayedWork,
    interval::{MissedTickBehavior, ZeroPeriod, period_ns},
};
use crate::queues::{
    end::WeakQueue,
    queue::{Inner, Workqueue},
};

/// Runs a closure again and again, at equal distances, until it is dropped; made by [`Workqueue::every`].
///
/// # Guarantees
///
/// - The runs lie on a grid that begins when it is made. One that comes late, or takes long, does not make the next ones late: the
///   grid does not drift. It never runs beside itself.
/// - A tick that comes when the next one is due already was missed, for instance because a run took longer than a period.
///   What comes then is [skipped](MissedTickBehavior::Skip), unless something else is [chosen](Self::with_missed_ticks).
/// - To drop it is to cancel it: what has not started does not start any more. A run that has started goes on to its end, as with
///   [`CancelOnDrop`](crate::CancelOnDrop); [`cancel_sync`](Self::cancel_sync) waits for that.
/// - It does not keep its queue: when the last handle of that is dropped, the runs end. The closure must not hold such a handle, for
///   then it would keep the queue. A drain does not wait for it, and a paused queue runs it when it goes on.
/// - [`cancel_all`](Workqueue::cancel_all) of its queue ends it for good, whether the work is
///   delayed, queued or running. A run that has started continues to its end and is the last one.
///   [`every`](Workqueue::every) starts the work again.
/// - A run that panics is caught, counted and reported to the queue's
///   [`on_panic`](crate::Builder::on_panic) as other items' panics are; the next run comes at its time.
///
/// # Cost
///
/// That of a [`DelayedWork`] for each run; one allocation when it is made. No thread, and no wake-ups between the runs.
#[must_use = "dropping it cancels the work"]
pub struct Periodic {
    work: DelayedWork,
    missed: Arc<AtomicU32>,
    /// Whether a drop is to cancel.
    cancels: bool,
}

/// When to run, and where.
struct Ticks {
    queue: WeakQueue,
    /// The number of times that the queue had cancelled everything when the item was made.
    nr_cancels: u64,
    due_ns: u64,
    period_ns: u64,
    /// A [`MissedTickBehavior`]. A: it may be changed while the item runs.
    missed: Arc<AtomicU32>,
}

/// Arms the item anew when it is dropped.
struct Again<'a>(&'a mut Ticks, &'a DelayedWork);

impl Workqueue {
    /// Runs `func` here every `period`, for the first time after one, until the answer is dropped.
    ///
    /// On a queue that was destroyed it never runs.
    ///
    /// # Errors
    ///
    /// [`ZeroPeriod`] if `period` is zero.
    ///
    /// # Blocking
    ///
    /// As [`enqueue_after`](Self::enqueue_after).
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
    #[doc(alias("setInterval", "ticker", "schedule_with_fixed_rate"))]
    pub fn every(
        &self,
        period: Duration,
        mut func: impl FnMut() + Send + 'static,
    ) -> Result<Periodic, ZeroPeriod> {
        let period_ns = period_ns(period)?;
        self.inner.must_be_at_home();
        let missed = Arc::new(AtomicU32::new(MissedTickBehavior::Skip as u32));
        let due_ns = time::now_ns().saturating_add(period_ns);
        let nr_cancels = self.inner.timers.nr_cancels();
        let mut ticks = Ticks {
            queue: self.to_weak(),
            nr_cancels,
            due_ns,
            period_ns,
            missed: missed.clone(),
        };
        let work = DelayedWork::with_handle(move |work| {
            let _again = Again(&mut ticks, work);
            func();
        });
        self.inner.arm_at(&work, due_ns, self.to_weak(), nr_cancels);
        Ok(Periodic {
            work,
            missed,
            cancels: true,
        })
    }
}

impl Inner {
    /// Arms `work` to be queued here at `due_ns`, unless the queue has ended, was destroyed, or has
    /// cancelled everything more than `nr_cancels` times.
    fn arm_at(&self, work: &DelayedWork, due_ns: u64, weak: WeakQueue, nr_cancels: u64) {
        let visit = self.visit().filter(|_| !self.is_destroyed());
        if let Some(visit) = visit {
            work.timer
                .arm_at(&work.work, &visit, weak, due_ns, nr_cancels);
        }
    }
}

impl Drop for Again<'_> {
    fn drop(&mut self) {
        if twin::torn_down() {
            return;
        }
        let Self(ticks, work) = self;
        // A child of `fork` that unwinds in its parent's item has none of its parent's workers.
        let queue = ticks.queue.upgrade().filter(|queue| queue.is_at_home());
        if let Some(queue) = queue {
            let missed = ticks.missed();
            ticks.due_ns = missed.next_ns(ticks.due_ns, time::now_ns(), ticks.period_ns);
            let weak = ticks.queue.clone();
            queue.arm_at(work, ticks.due_ns, weak, ticks.nr_cancels);
        }
    }
}

impl Ticks {
    fn missed(&self) -> MissedTickBehavior {
        use MissedTickBehavior::{Burst, Delay, Skip};
        let number = self.missed.load(Ordering::Relaxed);
        let is_it = |it: &MissedTickBehavior| *it as u32 == number;
        [Burst, Delay, Skip].into_iter().find(is_it).unwrap_or(Skip)
    }
}

impl Periodic {
    /// Chooses what becomes of ticks that are missed from now on. Without it they are skipped.
    pub fn with_missed_ticks(self, behavior: MissedTickBehavior) -> Self {
        self.missed.store(behavior as u32, Ordering::Relaxed);
        self
    }

    /// Cancels the work, and waits for a run that has started.
    ///
    /// # Blocking
    ///
    /// Until that run has ended. From inside the run itself it does not wait.
    ///
    /// # Panics
    ///
    /// As [`DelayedWork::disable_sync`](crate::Deferred::disable_sync).
    #[doc(alias = "cancel_delayed_work_sync")]
    pub fn cancel_sync(mut self) {
        self.work.disable_sync();
        self.cancels = false;
    }

    /// Lets the work go on until its queue goes, and nobody can cancel it.
    pub fn detach(mut self) {
        self.cancels = false;
    }
}

impl Drop for Periodic {
    fn drop(&mut self) {
        if self.cancels && !twin::torn_down() && !self.work.timer.is_lost() {
            self.work.disable();
        }
    }
}

impl fmt::Debug for Periodic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Periodic").field(&self.work).finish()
    }
}
