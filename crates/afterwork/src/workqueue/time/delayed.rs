//! Items that are queued when a delay is over.

use std::{fmt, time::Duration};

use sync::{Patience, unmodelled::Arc};

use crate::workqueue::{
    execute::work::{Busy, FlushError, Work},
    queues::queue::Workqueue,
    queues::timers::{Arming, Timer},
};

/// Defers a piece of work for some time, as often as it is queued, and never runs it twice at once.
///
/// A `DelayedWork` is a handle; clones are handles of the same item. Its timer and its place in a queue are one:
/// while its timer runs the item is pending, and queueing it does nothing and says so.
///
/// # Guarantees
///
/// - It is never queued before its delay is over. How much later depends on when the system lets the registry's own
///   thread run, usually within 0.2 ms, and on [`slack`](Self::with_slack).
/// - It goes to the pool of the pod from which it was queued.
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
#[derive(Clone)]
pub struct DelayedWork {
    pub(crate) work: Work,
    pub(crate) timer: Arc<Timer>,
}

impl DelayedWork {
    /// Makes an item that runs `func`.
    pub fn new(mut func: impl FnMut() + Send + 'static) -> Self {
        Self::with_handle(move |_| func())
    }

    /// Makes an item that runs `func` with a handle of the item itself, so that it can queue itself again.
    pub fn with_handle(mut func: impl FnMut(&DelayedWork) + Send + 'static) -> Self {
        let timer = Arc::new(Timer::default());
        let own = timer.clone();
        let work = Work::with_handle(move |work| {
            func(&DelayedWork {
                work: work.clone(),
                timer: own.clone(),
            });
        });
        Self { work, timer }
    }

    /// Lets the item come late by up to `slack`, so that it shares a wake-up with others; none by default.
    ///
    /// Differs from Linux: a deferrable timer there waits for any other wake-up of its CPU, however late.
    pub fn with_slack(self, slack: Duration) -> Self {
        self.timer.set_slack(slack);
        self
    }

    /// Returns `true` if its timer runs, or it is queued and has not started.
    ///
    /// # Blocking
    ///
    /// For a short lock. The answer may be old when it arrives.
    pub fn is_pending(&self) -> bool {
        self.busy().pending
    }

    /// Returns `true` if the item is pending, its timer included, executing, or both.
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

    /// Takes the item out of the timer or the queue if it has not started; returns `true` if it did.
    ///
    /// # Blocking
    ///
    /// As [`Work::cancel`].
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
    pub fn enable(&self) -> bool {
        self.work.enable()
    }

    /// Queues the item at once if its timer runs, and waits for it as [`Work::flush`] does.
    ///
    /// # Blocking
    ///
    /// Until the run has ended.
    ///
    /// # Errors
    ///
    /// As of [`Work::flush`].
    pub fn flush(&self) -> Result<bool, FlushError> {
        let mut patience = Patience::new();
        loop {
            if let Some(was_busy) = self.timer.expedite(&self.work) {
                return Ok(self.work.flush()? || was_busy);
            }
            patience.pause();
        }
    }
}

impl Workqueue {
    /// Queues `work` after `delay`, at once if that is zero; false when it was pending already, or is disabled, or where
    /// [`enqueue`](Self::enqueue) refuses.
    ///
    /// # Blocking
    ///
    /// For two short locks; see also [`enqueue`](Self::enqueue).
    pub fn enqueue_after(&self, work: &DelayedWork, delay: Duration) -> bool {
        work.timer.arm(&work.work, self, delay, false) == Arming::Done
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
    pub fn mod_delayed(&self, work: &DelayedWork, delay: Duration) -> bool {
        let mut was_pending = false;
        let mut patience = Patience::new();
        loop {
            match work.timer.arm(&work.work, self, delay, true) {
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

impl fmt::Debug for DelayedWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DelayedWork")
            .field("is_armed", &self.timer.is_armed())
            .field("work", &self.work)
            .finish()
    }
}
