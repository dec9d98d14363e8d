//! Emptying a queue: draining, pausing, and its end.

use std::{fmt, time::Duration};

use sync::{
    atomic::{Ordering, fence},
    time, twin,
};

use super::{flush::OwnQueueError, rounds::Rounds};
use crate::{
    execute::dependency,
    observe::left::{Doing, LeftItems, StillBusy},
    queues::{
        queue::{Inner, Workqueue},
        timers::Due,
    },
};

/// The error of a drain that has a time to end in.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DrainError {
    /// An item was about to wait for its own queue.
    OwnQueue(OwnQueueError),
    /// The time is over, and the queue has these.
    StillBusy(StillBusy),
}

impl fmt::Display for DrainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OwnQueue(error) => error.fmt(f),
            Self::StillBusy(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DrainError {}

impl From<OwnQueueError> for DrainError {
    fn from(error: OwnQueueError) -> Self {
        Self::OwnQueue(error)
    }
}

impl From<StillBusy> for DrainError {
    fn from(error: StillBusy) -> Self {
        Self::StillBusy(error)
    }
}

/// Which of the two looks of a drain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    First,
    Second,
}

impl Workqueue {
    /// Waits until nothing of this queue is queued or running and no future of it waits, and meanwhile takes items from its own items alone.
    ///
    /// What others queue while a drain is under way is refused and counted (`refused` of
    /// [`QueueStats`](crate::QueueStats)); an enqueue that races with the beginning of the drain may still come in.
    /// [`flush`](Self::flush) waits without refusing anybody.
    ///
    /// # Blocking
    ///
    /// Until then; for ever if items go on queueing themselves, which is reported ([`Report::LongDrain`]), and while a future
    /// waits that nobody wakes: [`drain_timeout`](Self::drain_timeout) names it. [`drain_async`](Self::drain_async) is for
    /// threads that must not block. See also [`pause`](Self::pause).
    ///
    /// [`Report::LongDrain`]: crate::Report::LongDrain
    ///
    /// # Panics
    ///
    /// Inside an item of a bottom-half queue, which must not wait; nothing is changed then.
    ///
    /// # Errors
    ///
    /// [`OwnQueueError`] from inside an item of this queue, because the drain would wait for
    /// itself, and for a process-wide queue, such as [`system`](crate::system). Nothing
    /// has changed then.
    #[doc(alias = "drain_workqueue")]
    pub fn drain(&self) -> Result<(), OwnQueueError> {
        self.inner.may_be_stopped()?;
        self.inner.may_wait()?;
        let _draining = self.inner.closed.while_draining();
        self.inner.drain();
        Ok(())
    }

    /// Drains the queue as [`drain`](Self::drain) does, at most for `timeout`; where that is too short, names what is left.
    ///
    /// After an error the queue takes items again, and what it has goes on. To shut a program down: no more work in, this, and
    /// then [`cancel_all`](Self::cancel_all) or [`shutdown_background`](Self::shutdown_background) for what did not end in time.
    ///
    /// # Blocking
    ///
    /// As [`drain`](Self::drain), and no longer than `timeout`, which may be zero: then it looks once.
    ///
    /// # Panics
    ///
    /// As [`drain`](Self::drain).
    ///
    /// # Errors
    ///
    /// [`DrainError::OwnQueue`] from inside an item of this queue, and for a process-wide queue;
    /// nothing has changed then. [`DrainError::StillBusy`] if the queue is not drained within
    /// `timeout`.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{Doing, DrainError, Workqueue};
    /// use std::time::Duration;
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let (send, receive) = std::sync::mpsc::channel::<()>();
    /// queue.spawn_detached(move || drop(receive.recv()));
    /// let Err(DrainError::StillBusy(busy)) = queue.drain_timeout(Duration::from_millis(1)) else {
    ///     unreachable!("it waits for the channel");
    /// };
    /// assert_eq!(busy.nr_left, 1);
    /// // "workqueue "example" still has 1 item: 1 of example::main::{{closure}} runs"
    /// println!("{busy}");
    /// drop(send);
    /// queue.drain_timeout(Duration::MAX)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn drain_timeout(&self, timeout: Duration) -> Result<(), DrainError> {
        self.inner.may_be_stopped()?;
        self.inner.may_wait()?;
        let timeout_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        // More than five hundred years from now is never.
        let end_ns = time::now_ns().saturating_add(timeout_ns);
        let _draining = self.inner.closed.while_draining();
        if self.inner.drain_by(Some(end_ns)) {
            Ok(())
        } else {
            Err(self.inner.left().into())
        }
    }

    /// Drains the queue, and refuses whatever is queued from then on. A paused queue is resumed first. What waits for its time, or
    /// for a grace period, is cancelled: a flush of it returns `Ok(false)`, and it may be queued elsewhere.
    ///
    /// # Blocking
    ///
    /// As [`drain`](Self::drain).
    ///
    /// # Panics
    ///
    /// As [`drain`](Self::drain).
    ///
    /// # Errors
    ///
    /// [`OwnQueueError`] from inside an item of this queue, and for a process-wide queue. Nothing
    /// has changed then.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// let handle = queue.spawn(|| 1);
    /// queue.destroy()?;
    /// assert_eq!(handle.join()?, 1);
    /// let refused = queue.try_spawn(|| 2).unwrap_err();
    /// assert_eq!(refused.into_inner()(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "destroy_workqueue")]
    pub fn destroy(&self) -> Result<(), OwnQueueError> {
        self.inner.may_be_stopped()?;
        self.inner.may_wait()?;
        self.inner.closed.destroy();
        let due = self.inner.timers.cancel();
        // A destructor may wait for an item of the queue.
        self.resume();
        Due::drop_all(due);
        self.inner.drain();
        Ok(())
    }

    /// Starts no more items until [`resume`](Self::resume); returns `true` if it was not paused already.
    ///
    /// Items may be queued meanwhile. Those that run go on, and workers finish what they have in hand; to wait for
    /// that, look at `nr_active` of [`stats`](Self::stats). An item of the queue may still run one that it waits for.
    ///
    /// A process-wide queue, such as [`system`](crate::system), is never paused: this
    /// does nothing and returns `false`.
    ///
    /// # Blocking
    ///
    /// Never. What waits for queued items waits until the queue is resumed; dropping its last handle resumes it.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::Workqueue;
    /// let queue = Workqueue::builder("example").build()?;
    /// queue.pause();
    /// let handle = queue.spawn(|| "thawed");
    /// assert!(!handle.is_finished());
    /// queue.resume();
    /// assert_eq!(handle.join()?, "thawed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "freeze_workqueues_begin")]
    #[doc(alias("WQ_FREEZABLE", "system_freezable_wq"))]
    pub fn pause(&self) -> bool {
        self.inner.must_be_at_home();
        !self.inner.for_all && self.inner.set_paused(true)
    }

    /// Lets items start again; returns `true` if the queue was paused.
    ///
    /// # Blocking
    ///
    /// Never; it may wake workers.
    #[doc(alias = "thaw_workqueues")]
    pub fn resume(&self) -> bool {
        self.inner.must_be_at_home();
        self.inner.set_paused(false)
    }
}

impl Inner {
    pub(crate) fn set_paused(&self, paused: bool) -> bool {
        let (changed, seekers) = self.plan.lock().set_paused(paused);
        for seeker in seekers {
            seeker.take_seat();
        }
        changed
    }

    /// Returns `true` if nothing is queued or running; if not, `settled` will tell when that may have changed. What was cancelled
    /// before is neither, though no worker comes to it, for the queue is paused.
    ///
    /// One look takes the pools in turn, and an item that queues another one, or itself, on a pool that has been
    /// looked at, and ends before its own pool is, would slip through. So nothing may have come between two looks.
    pub(crate) fn is_drained(&self) -> bool {
        self.reap_cancelled();
        loop {
            match (self.look(Look::First), self.look(Look::Second)) {
                (Some(first), Some(second)) if first == second => return true,
                (Some(_), Some(_)) => {}
                _ => return false,
            }
        }
    }

    /// Looks once; returns how many items there have ever been if none was seen, else sees to it that `settled` will
    /// tell.
    fn look(&self, look: Look) -> Option<u64> {
        // Items that their helpers took back from an injector are counted here and by the gate, and nowhere else.
        let nr_helped = self.core.nr_helped.load(Ordering::Relaxed) + self.plan.lock().nr_helped();
        // No short cut: each look that fails asks that pool to tell.
        let (mut nr_busy, mut nr_seen) = (0, nr_helped);
        for pwq in self.plan.lock().links() {
            match pwq.pool.is_drained(pwq.slot) {
                Some(nr_adopted) => nr_seen += nr_adopted,
                None => nr_busy += 1,
            }
        }
        // ORDER(taken-back): publish and consume, other end in `Injector::take_back`.
        //   help: takes a seat;  injector = without the item, Release
        //   here: injector is empty (read by `adopt`);  fence Acquire;  is anybody seated?
        // A helper's item is thus seen in the injector, or the helper on his seat.
        // Test: a_queue_does_not_go_before_its_items_have_run
        // On the second look it also acquires what was seen of the seats on the first one, which is why the twin
        // that looks at them relaxed must do without.
        let relaxed = look == Look::Second && twin::armed("drain: relaxed look at the seats");
        if !twin::armed("drain: no fence") && !relaxed {
            fence(Ordering::Acquire);
        }
        // A helper that has taken its item back from the injector is counted nowhere but here, nor is a seat on its
        // way to a link whose items have been cut out meanwhile.
        let mut idle = true;
        for gate in self.plan.lock().gates() {
            // Each that is not idle will tell.
            idle &= gate.is_idle();
        }
        let idle = idle || twin::armed("drain: forgets the seated");
        (nr_busy == 0 && idle).then_some(nr_seen)
    }

    pub(crate) fn drain(&self) {
        self.drain_by(None);
    }

    /// Waits until it is drained, not beyond the time `end_ns`; returns `true` if it is.
    fn drain_by(&self, end_ns: Option<u64>) -> bool {
        dependency::before_flushing(&self.core);
        let mut rounds = Rounds::new(self);
        let (settled, ended) = (&self.core.settled, || rounds.have_ended());
        match end_ns {
            Some(end_ns) => settled.wait_until_by(end_ns, ended),
            None => {
                settled.wait_until(ended);
                true
            }
        }
    }

    /// Names what there is.
    fn left(&self) -> StillBusy {
        let plan = self.plan.lock();
        let (links, gates) = (plan.links().to_vec(), plan.gates());
        drop(plan);
        self.reap_cancelled();
        let mut left = Vec::new();
        for link in links {
            let mut guard = link.pool.lock_to_act();
            guard.adopt(&link.pool.injector);
            guard.take_hands_back(link.slot);
            guard.left(link.slot, &mut left);
            guard.pick_if_needed();
        }
        let nr_helped = gates.iter().map(|gate| gate.nr_helpers()).sum();
        let helped = (nr_helped > 0).then(|| LeftItems::new(Doing::Runs, None, nr_helped));
        StillBusy::new(&self.core.name, left.into_iter().chain(helped))
    }
}
