//! Items that are queued when something is over: a delay here, a grace period of RCU in `rcu_work.rs`.
//!
//! What such an item waits for is its timer's concern (`timers.rs` of the queues has the protocol and its models); all else
//! about it is the same, and stands here once.

use std::{fmt, marker::PhantomData, time::Duration};

use sync::{Patience, twin, unmodelled::Arc};
use topology::CpuId;

use crate::{
    execute::{
        wait::must_not_be_lost,
        work::{Busy, FlushError, Work},
    },
    queues::{
        queue::Workqueue,
        timers::{Arming, Dust, Timer},
    },
};

/// Defers a piece of work until something is over: a delay ([`DelayedWork`]), or a grace period of RCU ([`RcuWork`]).
///
/// A handle; clones are handles of the same item. The item is pending while it waits for that, as it is in a queue.
///
/// [`RcuWork`]: crate::RcuWork
#[derive(Clone)]
pub struct Deferred<U> {
    pub(super) work: Work,
    pub(super) timer: Arc<Timer>,
    until: PhantomData<fn() -> U>,
}

/// Defers a piece of work for some time, as often as it is queued, and never runs it twice at once.
///
/// Its timer and its place in a queue are one: while its timer runs the item is pending, and queueing it does nothing and
/// says so.
///
/// # Guarantees
///
/// - It is never queued before its delay is over. How much later depends on when the system lets the registry's own
///   thread run, usually within 0.2 ms, and on [`slack`](Deferred::with_slack).
/// - It goes to the pool of the pod from which it was queued, or of the CPU that was [said](Workqueue::enqueue_after_on).
/// - An item whose handles are all gone is still queued when its time comes. With the last handle of its queue the timer
///   goes: the item is not pending any more, and nothing runs. A drain does not wait for timers; what they bring is queued also while one is under
///   way.
///
/// # Cost
///
/// Arming and disarming take two short locks; only a timer that becomes the first to expire wakes a thread. While no
/// timer is armed there are no wake-ups.
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

/// What a [`DelayedWork`] waits for.
#[derive(Clone, Copy, Debug)]
pub enum Delay {}

impl<U: 'static> Deferred<U> {
    /// Makes an item that runs `func`.
    #[doc(alias("INIT_DELAYED_WORK", "INIT_RCU_WORK"))]
    #[doc(alias("DECLARE_DELAYED_WORK", "timer_setup"))]
    pub fn new(mut func: impl FnMut() + Send + 'static) -> Self {
        Self::with_handle(move |_| func())
    }

    /// Makes an item that runs `func` with a handle of the item itself, so that it can queue itself again.
    pub fn with_handle(mut func: impl FnMut(&Self) + Send + 'static) -> Self {
        let timer = Arc::new(Timer::default());
        let own = timer.clone();
        let work = Work::with_handle(move |work| {
            func(&Self {
                work: work.clone(),
                timer: own.clone(),
                until: PhantomData,
            });
        });
        Self {
            work,
            timer,
            until: PhantomData,
        }
    }

    /// Returns `true` if it waits for its time, or is queued and has not started.
    ///
    /// # Blocking
    ///
    /// For a short lock. The answer may be old when it arrives.
    #[doc(alias = "delayed_work_pending")]
    pub fn is_pending(&self) -> bool {
        self.busy().pending
    }

    /// Returns whether the item is pending, its wait included, and whether it is executing.
    ///
    /// # Blocking
    ///
    /// As [`is_pending`](Self::is_pending).
    pub fn busy(&self) -> Busy {
        let armed = self.timer.is_armed();
        let mut busy = self.work.busy();
        busy.pending |= armed;
        busy
    }

    /// Takes the item out of its wait or the queue if it has not started; returns `true` if it did.
    ///
    /// # Blocking
    ///
    /// As [`Work::cancel`]; not for what it waits for.
    #[doc(alias = "cancel_delayed_work")]
    pub fn cancel(&self) -> bool {
        self.timer.disarm() || self.work.cancel()
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
    #[doc(alias = "cancel_delayed_work_sync")]
    #[doc(alias("timer_delete_sync", "del_timer_sync"))]
    pub fn cancel_sync(&self) -> bool {
        let was_pending = self.disable_sync();
        self.enable();
        was_pending
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
    #[doc(alias = "disable_delayed_work")]
    pub fn disable(&self) -> bool {
        let was_queued = self.work.disable();
        // Whoever arms it from now on sees that it is disabled.
        self.timer.disarm() || was_queued
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
    #[doc(alias = "disable_delayed_work_sync")]
    pub fn disable_sync(&self) -> bool {
        self.work.must_be_free_to_wait();
        let was_pending = self.disable();
        self.work.wait_for_run();
        was_pending
    }

    /// Takes one [`disable`](Self::disable) back; returns `true` if the item may be queued again.
    ///
    /// # Panics
    ///
    /// When the item is not disabled.
    #[doc(alias = "enable_delayed_work")]
    pub fn enable(&self) -> bool {
        self.work.enable()
    }

    /// Waits for the item as [`Work::flush`] does, and queues it first if it waits: at once if its timer runs, after the grace
    /// period if it waits for one.
    ///
    /// # Blocking
    ///
    /// Until the run has ended; as [`rcu::barrier`], when it waits for a grace period. Never in a section then, nor in a
    /// callback of RCU.
    ///
    /// # Panics
    ///
    /// In a section, when it waits for a grace period.
    ///
    /// # Errors
    ///
    /// As of [`Work::flush`].
    #[doc(alias("flush_delayed_work", "flush_rcu_work"))]
    pub fn flush(&self) -> Result<bool, FlushError> {
        must_not_be_lost(self.timer.is_lost());
        let awaits = || self.timer.lock(&mut Dust::default()).awaits_grace_period();
        let pending = awaits();
        let mut patience = Patience::new();
        while pending.is_some() && awaits() == pending {
            #[cfg(feature = "rcu")]
            rcu::barrier();
            if twin::armed("rcu_work: flush asks once") {
                break;
            }
            // It may be armed by somebody who has not handed the callback over yet.
            patience.pause();
        }
        loop {
            if let Some(was_busy) = self.timer.expedite(&self.work) {
                return Ok(self.work.flush()? || was_busy || pending.is_some());
            }
            patience.pause();
        }
    }
}

impl DelayedWork {
    /// Lets the item come late by up to `slack`, so that it shares a wake-up with others; none by default.
    ///
    /// Differs from Linux: a deferrable timer there waits for any other wake-up of its CPU, however late.
    #[doc(alias = "INIT_DEFERRABLE_WORK")]
    pub fn with_slack(self, slack: Duration) -> Self {
        self.timer.set_slack(slack);
        self
    }
}

impl Workqueue {
    /// Queues `work` after `delay`, at once if that is zero; false when it was pending already, or is disabled, or where
    /// [`enqueue`](Self::enqueue) refuses.
    ///
    /// # Blocking
    ///
    /// For two short locks; see also [`enqueue`](Self::enqueue).
    #[doc(alias("queue_delayed_work", "schedule_delayed_work"))]
    pub fn enqueue_after(&self, work: &DelayedWork, delay: Duration) -> bool {
        work.timer.arm(&work.work, self, None, delay, false) == Arming::Done
    }

    /// Queues `work` after `delay` as [`enqueue_after`](Self::enqueue_after) does, on the pool of `cpu`'s pod, as
    /// [`enqueue_on`](Self::enqueue_on) does.
    ///
    /// # Blocking
    ///
    /// As [`enqueue_after`](Self::enqueue_after).
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use afterwork::workqueue::{CpuId, DelayedWork, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").per_cpu().build()?;
    /// let work = DelayedWork::new(|| println!("on the first CPU"));
    /// assert!(queue.enqueue_after_on(CpuId::new(0), &work, Duration::from_millis(1)));
    /// work.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("queue_delayed_work_on", "schedule_delayed_work_on"))]
    pub fn enqueue_after_on(&self, cpu: CpuId, work: &DelayedWork, delay: Duration) -> bool {
        let timer = &work.timer;
        timer.arm(&work.work, self, Some(cpu), delay, false) == Arming::Done
    }

    /// Makes `work` be queued after `delay` as [`mod_delayed`](Self::mod_delayed) does, on the pool of `cpu`'s pod; returns `true`
    /// if it was pending.
    ///
    /// # Blocking
    ///
    /// As [`mod_delayed`](Self::mod_delayed).
    #[doc(alias = "mod_delayed_work_on")]
    pub fn mod_delayed_on(&self, cpu: CpuId, work: &DelayedWork, delay: Duration) -> bool {
        self.mod_delayed_at(Some(cpu), work, delay)
    }

    /// Makes `work`, pending or not, be queued here after `delay` from now; returns `true` if it was pending.
    ///
    /// A disabled item stays as it is, not pending.
    ///
    /// # Blocking
    ///
    /// As [`enqueue_after`](Self::enqueue_after), and as [`DelayedWork::cancel`].
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    /// use afterwork::workqueue::{DelayedWork, Workqueue};
    ///
    /// // Runs once, when nothing has happened for a while.
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = DelayedWork::new(|| ());
    /// for _ in 0..10 {
    ///     queue.mod_delayed(&work, Duration::from_secs(3600));
    /// }
    /// assert!(queue.mod_delayed(&work, Duration::ZERO));
    /// work.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "mod_delayed_work")]
    #[doc(alias = "mod_timer")]
    pub fn mod_delayed(&self, work: &DelayedWork, delay: Duration) -> bool {
        self.mod_delayed_at(None, work, delay)
    }

    fn mod_delayed_at(&self, cpu: Option<CpuId>, work: &DelayedWork, delay: Duration) -> bool {
        let mut was_pending = false;
        let mut patience = Patience::new();
        loop {
            match work.timer.arm(&work.work, self, cpu, delay, true) {
                Arming::Done | Arming::Refused => return was_pending,
                Arming::Armed => return true,
                // Not under the timer's lock: it may have to be cut out of a list.
                Arming::Pending if work.work.cancel() => was_pending = true,
                // Somebody is in the middle of a step.
                Arming::Pending => patience.pause(),
            }
        }
    }
}

impl<U> fmt::Debug for Deferred<U> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deferred")
            .field("is_armed", &self.timer.is_armed())
            .field("work", &self.work)
            .finish()
    }
}
