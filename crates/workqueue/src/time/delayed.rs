//! Items that are queued after a delay (in this file) or a grace period of RCU (`rcu_work.rs`).
//!
//! The timer of such an item records the kind of wait (`queues/timers.rs` describes the protocol
//! and its models). Everything else is the same for both kinds, and is defined here.

use std::marker::PhantomData;
use std::time::Duration;

use item::internal::head::Name;
use sync::unmodelled::Arc;
use sync::{Backoff, twin};

use crate::execute::wait::must_not_be_lost;
use crate::execute::work::{Busy, FlushError, Work, with_owner};
use crate::queues::admission::TrySpawnError;
use crate::queues::queue::Workqueue;
use crate::queues::task::TaskOptions;
use crate::queues::timers::{Arming, Dust, Timer};

/// A work item that is queued after a delay ([`DelayedWork`]) or a grace period ([`RcuWork`]).
///
/// This is a handle; clones are handles to the same item, which is pending while it waits.
///
/// [`RcuWork`]: crate::RcuWork
#[derive(Clone)]
pub struct Deferred<U> {
    pub(super) work: Work,
    pub(super) timer: Arc<Timer>,
    until: PhantomData<fn() -> U>,
}

/// A work item that is queued after a delay, any number of times. Its runs never overlap.
///
/// Queueing an item whose timer is armed only returns `false`.
///
/// # Guarantees
///
/// - The item is never queued before its delay has passed. The additional delay depends on when the
///   system runs the registry's thread, usually within 0.2 ms, and on
///   [`slack`](Deferred::with_slack).
/// - The item is queued on the pool of the pod from which it was armed, or on that of the
///   [given](TaskOptions::on_cpu) CPU.
/// - If all handles to the item are dropped, it is still queued when its delay has passed. If the
///   last handle to its queue is dropped, the timer is disarmed: the item is no longer pending, and
///   does not run. A drain does not wait for timers, and items whose timers fire during a drain are
///   queued.
///
/// # Cost
///
/// Arming and disarming each briefly acquire two locks. Only a timer that becomes the first to
/// expire wakes a thread. While no timer is armed, there are no wake-ups.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use afterwork::workqueue::{DelayedWork, Workqueue};
///
/// let queue = Workqueue::builder("example").build()?;
/// let (send, receive) = std::sync::mpsc::channel();
/// let work = DelayedWork::new(move || send.send("later").unwrap());
/// assert!(queue.enqueue_after(&work, Duration::from_millis(1)));
/// assert!(!queue.enqueue_after(&work, Duration::ZERO), "it is pending");
/// assert_eq!(receive.recv()?, "later");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "delayed_work")]
pub type DelayedWork = Deferred<Delay>;

/// Marks a [`Deferred`] that waits for a delay: see [`DelayedWork`].
#[derive(Clone, Copy, Debug)]
pub enum Delay {}

impl<U: 'static> Deferred<U> {
    /// Creates an item that runs `func`.
    #[doc(alias("INIT_DELAYED_WORK", "INIT_RCU_WORK", "DECLARE_DELAYED_WORK", "timer_setup"))]
    pub fn new(mut func: impl FnMut() + Send + 'static) -> Self {
        Self::named(Name::of(&func), move |_| func())
    }

    /// Creates an item that runs `func` with a handle to the item, so that it can queue itself.
    pub fn with_handle(func: impl FnMut(&Self) + Send + 'static) -> Self {
        Self::named(Name::of(&func), func)
    }

    /// Creates an item that runs `func`, which may wrap the user's function called `name`.
    pub(crate) fn named<N>(name: Name<N>, mut func: impl FnMut(&Self) + Send + 'static) -> Self {
        let timer = Arc::new(Timer::default());
        let own = timer.clone();
        let work = Work::named(name, move |work| {
            func(&Self { work: work.clone(), timer: own.clone(), until: PhantomData });
        });
        Self { work, timer, until: PhantomData }
    }

    /// Creates an item that belongs to `owner`, as [`Work::for_weak`] does.
    pub fn for_weak<T: Send + Sync + 'static>(
        owner: &Arc<T>,
        func: impl FnMut(&T) + Send + 'static,
    ) -> Self {
        let name = Name::of(&func);
        let mut func = with_owner(owner, func);
        Self::named(name, move |_| func())
    }

    /// Returns `true` if the item waits to be queued, or is queued and has not started. Briefly
    /// acquires a lock. The result may be outdated when this returns.
    #[doc(alias = "delayed_work_pending")]
    pub fn is_pending(&self) -> bool {
        self.busy().pending
    }

    /// Returns whether the item is pending (which includes its wait), and whether it is executing.
    /// Blocks as [`is_pending`](Self::is_pending) does.
    pub fn busy(&self) -> Busy {
        let armed = self.timer.is_armed();
        let mut busy = self.work.busy();
        busy.pending |= armed;
        busy
    }

    /// Cancels the wait or the enqueue if the item has not started; returns `true` if it did so.
    /// Blocks as [`Work::cancel`] does, and not for the delay or the grace period.
    #[doc(alias = "cancel_delayed_work")]
    pub fn cancel(&self) -> bool {
        self.timer.disarm() || self.work.cancel()
    }

    /// Cancels the item as [`Work::cancel_sync`] does; returns `true` if it was pending.
    #[doc(alias("cancel_delayed_work_sync", "timer_delete_sync", "del_timer_sync"))]
    pub fn cancel_sync(&self) -> bool {
        let was_pending = self.disable_sync();
        self.enable();
        was_pending
    }

    /// Disables the item as [`Work::disable`] does; returns `true` if it was pending.
    #[doc(alias = "disable_delayed_work")]
    pub fn disable(&self) -> bool {
        let was_queued = self.work.disable();
        // A thread that arms the item after this point sees that it is disabled.
        self.timer.disarm() || was_queued
    }

    /// Disables the item as [`Work::disable_sync`] does; returns `true` if it was pending.
    #[doc(alias = "disable_delayed_work_sync")]
    pub fn disable_sync(&self) -> bool {
        self.work.must_be_free_to_wait();
        let was_pending = self.disable();
        self.work.wait_for_run();
        was_pending
    }

    /// Reverts one [`disable`](Self::disable) as [`Work::enable`] does; returns `true` if the item
    /// can be queued again.
    #[doc(alias = "enable_delayed_work")]
    pub fn enable(&self) -> bool {
        self.work.enable()
    }

    /// Waits for the item as [`Work::flush`] does. An item whose timer is armed is queued at once;
    /// an item that waits for a grace period is queued when the grace period has ended.
    ///
    /// Returns `true` if the item was armed, queued or running. A concurrent cancel also ends the
    /// wait, so `true` does not prove that the item has run.
    ///
    /// Blocks, fails and panics as [`Work::flush`] does. If the item waits for a grace period, this
    /// also blocks as [`rcu::barrier`] does, must not be called in an RCU callback, and panics in a
    /// read-side section.
    #[doc(alias("flush_delayed_work", "flush_rcu_work"))]
    pub fn flush(&self) -> Result<bool, FlushError> {
        must_not_be_lost(self.timer.is_lost());
        let awaits = || self.timer.lock(&mut Dust::default()).awaits_grace_period();
        let pending = awaits();
        let mut backoff = Backoff::new();
        while pending.is_some() && awaits() == pending {
            #[cfg(feature = "rcu")]
            rcu::barrier();
            if twin::armed("rcu_work: flush asks once") {
                break;
            }
            // The thread that armed the item may not have queued the callback yet.
            backoff.pause();
        }
        loop {
            if let Some(was_busy) = self.timer.expedite(&self.work) {
                return Ok(self.work.flush()? || was_busy || pending.is_some());
            }
            backoff.pause();
        }
    }
}

impl DelayedWork {
    /// Allows the item to be queued up to `slack` late, so that it can share a wake-up with others.
    /// By default, there is no slack.
    ///
    /// Differs from Linux: a deferrable timer there waits for any other wake-up of its CPU.
    #[doc(alias = "INIT_DEFERRABLE_WORK")]
    pub fn with_slack(self, slack: Duration) -> Self {
        self.timer.set_slack(slack);
        self
    }
}

impl Workqueue {
    /// Queues `work` after `delay`, or at once if the delay is zero. Returns `false` if the item is
    /// already pending or is disabled, or if [`enqueue`](Self::enqueue) would reject it.
    /// [`reschedule`](Self::reschedule) moves a pending item, and returns an error if the item is
    /// rejected. Briefly acquires two locks; otherwise blocks as [`enqueue`](Self::enqueue) does.
    #[doc(alias("queue_delayed_work", "schedule_delayed_work"))]
    pub fn enqueue_after(&self, work: &DelayedWork, delay: Duration) -> bool {
        self.task().enqueue_after(work, delay)
    }

    /// Queues `work` on this queue `delay` from now, even if it is already pending. Returns
    /// `Ok(true)` if the item was not pending, and `Ok(false)` if it was and has been moved.
    ///
    /// `true` means the same as for [`enqueue`](Self::enqueue): this call made the item pending.
    ///
    /// Differs from Linux: `mod_delayed_work` returns `true` if the item was pending.
    ///
    /// # Errors
    ///
    /// Returns an error if the queue was destroyed or is being shut down, if it is being drained
    /// and the caller is not one of its items, or if the item is disabled. During a shutdown, the
    /// queue's own items may still queue items with a `delay` of zero. The item has not changed,
    /// except that one that was already queued is cancelled if the queue is closed during this
    /// call. The error is never [full](TrySpawnError::is_full), because delayed items are not
    /// counted.
    ///
    /// # Blocking
    ///
    /// The same as [`enqueue_after`](Self::enqueue_after) and [`DelayedWork::cancel`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use afterwork::workqueue::{DelayedWork, Workqueue};
    ///
    /// // Runs once, after no call has occurred for a while.
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = DelayedWork::new(|| ());
    /// assert!(queue.reschedule(&work, Duration::from_secs(3600))?);
    /// for _ in 0..10 {
    ///     let is_first = queue.reschedule(&work, Duration::from_secs(3600))?;
    ///     assert!(!is_first, "it was moved");
    /// }
    /// work.flush()?;
    /// queue.shutdown(Duration::MAX)?;
    /// assert!(queue.reschedule(&work, Duration::ZERO).is_err_and(|error| error.is_closed()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("mod_delayed_work", "mod_delayed", "mod_timer", "debounce"))]
    pub fn reschedule(&self, work: &DelayedWork, delay: Duration) -> Result<bool, TrySpawnError> {
        self.task().reschedule(work, delay)
    }
}

impl TaskOptions<'_> {
    /// Queues `work` after `delay` as [`Workqueue::enqueue_after`] does, with these options.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use afterwork::workqueue::{CpuId, DelayedWork, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").per_cpu().build()?;
    /// let work = DelayedWork::new(|| println!("on the first CPU"));
    /// let on_first = queue.task().on_cpu(CpuId::new(0));
    /// assert!(on_first.enqueue_after(&work, Duration::from_millis(1)));
    /// work.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("queue_delayed_work_on", "schedule_delayed_work_on"))]
    pub fn enqueue_after(self, work: &DelayedWork, delay: Duration) -> bool {
        work.timer.arm(&work.work, &self, delay, None) == Arming::Done
    }

    /// Queues `work` after `delay` as [`Workqueue::reschedule`] does, with these options.
    #[doc(alias = "mod_delayed_work_on")]
    pub fn reschedule(self, work: &DelayedWork, delay: Duration) -> Result<bool, TrySpawnError> {
        let mut was_pending = false;
        let mut backoff = Backoff::new();
        loop {
            match work.timer.arm(&work.work, &self, delay, Some(&mut was_pending)) {
                Arming::Done => return Ok(!was_pending),
                Arming::Refused(error) => return Err(error),
                // Cancel without the timer's lock, because the item may be in a list.
                Arming::Pending if work.work.cancel() => was_pending = true,
                // Another thread is changing the item's state.
                Arming::Pending => backoff.pause(),
            }
        }
    }
}

base::internal::impl_debug!(Deferred[U], it => is_armed: it.timer.is_armed(), work: it.work);
