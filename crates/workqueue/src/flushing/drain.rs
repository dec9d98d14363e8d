//! Drains, pauses and destroys a queue.
//!
//! A *round* of a drain is a flush: it ends when all items that were in flight at its start have
//! ended. If items queue other items or themselves, a drain takes many rounds, which are counted
//! only so that a long drain can be reported.

use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::internal::panics::Foreign;
use item::internal::cleanups;
use limit::internal::settled::TaskSeat;
use sync::atomic::{Ordering, fence};
use sync::unmodelled::Arc;
use sync::{time, twin};

use super::flush::{Flush, OwnQueueError};
use crate::execute::wait;
use crate::observe::left::{Doing, LeftItems, StillBusy};
use crate::observe::report::{ItemName, Report};
use crate::pools::pwq::{Pwq, WaitingPwq};
use crate::queues::queue::{Draining, Inner, Workqueue};
use crate::route::plan::Plan;

/// The error of a drain with a time limit.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DrainError {
    /// The caller is an item of the queue, or the queue is process-wide.
    OwnQueue(OwnQueueError),
    /// The time limit has passed, and the queue still has these items.
    StillBusy(StillBusy),
}

base::internal::impl_error!(DrainError {
    OwnQueue(error) => Other, "{error}";
    StillBusy(error) => TimedOut, "{error}";
});

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

/// A future that drains a queue, created by [`Workqueue::drain_async`].
#[must_use = "a future does nothing until it is polled"]
pub struct Drain<'a> {
    queue: &'a Workqueue,
    /// Set from the first poll until the drain ends.
    under_way: Option<UnderWay<'a>>,
}

struct UnderWay<'a> {
    seat: TaskSeat,
    rounds: Rounds<'a>,
    _draining: Draining<'a>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pass {
    First,
    Second,
}

/// Calls `read` for pairs of passes, until both passes of a pair return the same count. Returns
/// `false` if a pass finds an item in flight.
pub(super) fn passes_agree<C: PartialEq>(mut read: impl FnMut(Pass) -> Option<C>) -> bool {
    loop {
        match (read(Pass::First), read(Pass::Second)) {
            (Some(first), Some(second)) if first == second => return true,
            (Some(_), Some(_)) => {}
            _ => return false,
        }
    }
}

impl Workqueue {
    /// Waits until the queue has no queued, running or suspended item. During the wait, the queue
    /// accepts items only from its own items. Other enqueues are rejected and counted (`refused` of
    /// [`QueueStats`](crate::QueueStats)), but one that races with the start of the drain may still
    /// succeed. [`flush`](Self::flush) waits without rejecting items.
    ///
    /// # Blocking
    ///
    /// Blocks until the queue is empty. If items keep queueing new items, the drain never ends, and
    /// is reported ([`Report::LongDrain`](crate::Report::LongDrain)). Nor does it end if an item of
    /// the queue waits for the caller, for example by joining an item of another queue that calls
    /// `drain`, or while a suspended future is not woken; [`drain_timeout`](Self::drain_timeout)
    /// names that future. A thread that must not block uses [`drain_async`](Self::drain_async). See
    /// also [`pause`](Self::pause).
    ///
    /// # Errors
    ///
    /// Returns [`OwnQueueError`] for a process-wide queue, such as [`system`](crate::system). Also
    /// returns it from inside an item of this queue, or a running item that is also queued on this
    /// queue, because the drain would wait for itself. The queue is then unchanged. The check is
    /// made once, at the start. If the running item is queued on this queue later, by its timer or
    /// by another thread, the drain does not end.
    ///
    /// # Panics
    ///
    /// Panics inside an item of a bottom-half queue, which must not wait. The queue is then
    /// unchanged.
    #[doc(alias = "drain_workqueue")]
    pub fn drain(&self) -> Result<(), OwnQueueError> {
        self.inner.may_be_stopped()?;
        self.inner.may_wait()?;
        let _draining = self.inner.closed.while_draining();
        self.inner.drain();
        Ok(())
    }

    /// Drains the queue as [`drain`](Self::drain) does, but waits at most `timeout`, and then
    /// returns the remaining items as an error.
    ///
    /// After an error the queue accepts items again, and the remaining items continue. To shut a
    /// program down, stop adding work, call this, and then call [`cancel_all`](Self::cancel_all) or
    /// [`shutdown_background`](Self::shutdown_background) for the remaining items.
    ///
    /// Blocks and panics as [`drain`](Self::drain) does, for at most `timeout`. With zero, the
    /// queue is checked once; an item that has just ended may still count.
    ///
    /// # Errors
    ///
    /// Returns [`DrainError::OwnQueue`] in the cases in which [`drain`](Self::drain) returns an
    /// error; the queue is then unchanged. Returns [`DrainError::StillBusy`] if the queue is not
    /// drained within `timeout`.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::workqueue::{Doing, DrainError, Workqueue};
    /// use std::time::Duration;
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let (send, receive) = std::sync::mpsc::channel::<()>();
    /// queue.spawn_detached(move || drop(receive.recv())).unwrap();
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
        let end_ns = time::ns_after(timeout);
        let _draining = self.inner.closed.while_draining();
        if self.inner.drain_by(Some(end_ns)) {
            Ok(())
        } else {
            Err(self.inner.left_and(Vec::new()).into())
        }
    }

    /// Returns a future that drains the queue as [`drain`](Self::drain) does, for async tasks.
    ///
    /// From the first poll on, the queue rejects enqueues from outside its items.
    ///
    /// # Guarantees
    ///
    /// - The future is woken only when the queue may have been drained. It does not spin.
    /// - Dropping the future stops the drain: the queue accepts items again, and its items
    ///   continue. A [`timeout`](crate::timeout()) can therefore limit a drain. If it elapses,
    ///   [`drain_timeout`](Self::drain_timeout) with a zero timeout, which never blocks for items,
    ///   returns the remaining ones.
    ///
    /// # Blocking
    ///
    /// A poll never waits for an item. It briefly locks each of the queue's pools, and reports a
    /// long drain as `drain` does.
    ///
    /// # Errors
    ///
    /// Returns [`OwnQueueError`] for a process-wide queue. Also returns it if polled inside an item
    /// or a future of this queue, or inside a running item that is also queued on this queue,
    /// because the drain would wait for that item.
    ///
    /// # Panics
    ///
    /// A poll panics in a child of `fork` (see [`Workqueue`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Elapsed, Workqueue, block_on, timeout};
    /// # use std::time::Duration;
    /// let requests = Workqueue::builder("requests").build()?;
    /// let tasks = Workqueue::builder("tasks").build()?;
    /// let answer = requests.spawn(|| 42);
    /// let shutdown = tasks.spawn_async(async move {
    ///     requests.drain_async().await?;
    ///     requests.close_in_background();
    ///     Ok::<_, afterwork::workqueue::OwnQueueError>(())
    /// });
    /// shutdown.join()??;
    /// assert!(answer.is_finished());
    ///
    /// // With a time limit, and the names of the remaining items.
    /// let queue = Workqueue::builder("example").build()?;
    /// let mut handle = queue.spawn_async(std::future::pending::<()>());
    /// let drained = block_on(timeout(Duration::from_millis(1), queue.drain_async()));
    /// assert_eq!(drained, Err(Elapsed));
    /// println!("{}", queue.drain_timeout(Duration::ZERO).unwrap_err());
    /// # handle.cancel();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "drain_workqueue")]
    pub fn drain_async(&self) -> Drain<'_> {
        Drain { queue: self, under_way: None }
    }

    /// Pauses the queue: no item starts until [`resume`](Self::resume). Returns `true` if the queue
    /// was not paused.
    ///
    /// Items can still be queued. Running items continue, and workers finish their local batches;
    /// to wait for that, poll `nr_active` of [`stats`](Self::stats). An item of the queue may still
    /// run an item that it joins. Dropping the last handle to the queue resumes it.
    ///
    /// A process-wide queue, such as [`system`](crate::system), is never paused: this does nothing
    /// and returns `false`.
    ///
    /// # Blocking
    ///
    /// Never blocks. A waiter for a queued item waits until the queue is resumed.
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
    #[doc(alias("freeze_workqueues_begin", "WQ_FREEZABLE", "system_freezable_wq"))]
    pub fn pause(&self) -> bool {
        self.inner.must_be_at_home();
        !self.inner.for_all && self.inner.set_paused(true)
    }

    /// Allows items to start again. Returns `true` if the queue was paused. Never blocks, but may
    /// wake workers.
    #[doc(alias = "thaw_workqueues")]
    pub fn resume(&self) -> bool {
        self.inner.must_be_at_home();
        self.inner.set_paused(false)
    }
}

impl Inner {
    pub(crate) fn set_paused(&self, paused: bool) -> bool {
        self.change_pauses(|plan| mem::replace(&mut plan.paused, paused) != paused)
    }

    /// Resumes a queue that is being destroyed. From now on it ignores pauses of its group.
    pub(crate) fn pass_pauses(&self) {
        self.change_pauses(|plan| (plan.paused, plan.ends) = (false, true));
    }

    /// Applies `change`, and then pauses or resumes the queue. A group changes its own pause before
    /// it makes such calls, so the last call sees all changes.
    pub(crate) fn change_pauses<R>(&self, change: impl FnOnce(&mut Plan) -> R) -> R {
        let mut plan = self.plan.lock();
        let result = change(&mut plan);
        let by_group = self.group.as_ref().is_some_and(|group| group.is_paused());
        let waiters = plan.apply_pauses(by_group);
        drop(plan);
        waiters.into_iter().for_each(WaitingPwq::take_seat);
        result
    }

    /// Calls `body` for each pwq. The plan's lock keeps the pwqs alive, even if the queue has no
    /// handle. Returns the wakers that `body` would have fired, to be called with no lock held.
    pub(super) fn for_each_pwq(&self, body: impl FnMut(&Arc<Pwq>)) -> Vec<Foreign<Waker>> {
        let for_each = || self.plan.lock().pwqs.iter().for_each(body);
        cleanups::with_wakers_aside(for_each).1
    }

    /// Returns `true` if no item is queued or running. Otherwise `settled` notifies its waiters
    /// when that may have changed. Cancelled items are removed first, because no worker removes
    /// them while the queue is paused.
    ///
    /// One pass checks the pools one after the other. It misses an item that queues another item,
    /// or itself, on a pool that has already been checked, and that ends before its own pool is
    /// checked. Two passes must therefore count the same number of items.
    pub(crate) fn is_drained(&self) -> bool {
        self.reap_cancelled();
        passes_agree(|pass| self.read_pass(pass))
    }

    /// Makes one pass of a drain check. A drain of a group makes each pass over all its queues. If
    /// no item is in flight, returns the total number of adopted and helped items. Otherwise
    /// ensures that `settled` notifies its waiters.
    pub(super) fn read_pass(&self, pass: Pass) -> Option<u64> {
        // Only this counter and the gate count an item that a helper took back from an injector.
        let nr_helped = self.core.nr_helped.load(Ordering::Relaxed) + self.plan.lock().nr_helped();
        // Check every pool: each check that fails requests a notification from that pool.
        let (mut nr_busy, mut nr_seen) = (0, nr_helped);
        let wakers = self.for_each_pwq(|pwq| match pwq.pool.is_drained(pwq.slot) {
            Some(nr_adopted) => nr_seen += nr_adopted,
            None => nr_busy += 1,
        });
        cleanups::fire_all(wakers);
        // ORDER(taken-back): publish and consume, other end in `Injector::take_back`.
        //   help: acquire a seat;  injector = without the item, Release
        //   here: injector is empty (read by `adopt`);  fence Acquire;  read the seats
        // If the removal comes first, our read of the seats finds the helper's seat. If our read of
        // the injector comes first, we find the item there.
        // Test: queue_is_not_destroyed_before_its_items_have_run
        // In the second pass the fence also acquires the seats that the first pass read, so the
        // twin with relaxed reads of the seats omits it.
        let relaxed = pass == Pass::Second && twin::armed("drain: relaxed read of the seats");
        if !twin::armed("drain: no fence") && !relaxed {
            fence(Ordering::Acquire);
        }
        // Only the gate counts a helper that took its item from the injector, and a seat in
        // transfer to a pwq whose items were cut out.
        let mut idle = true;
        for gate in self.plan.lock().gates() {
            // Each gate that is not idle notifies `settled` later.
            idle &= gate.is_idle();
        }
        let idle = idle || twin::armed("drain: forgets the seat holders");
        (nr_busy == 0 && idle).then_some(nr_seen)
    }

    pub(crate) fn drain(&self) {
        self.drain_by(None);
    }

    pub(super) fn drain_by(&self, end_ns: Option<u64>) -> bool {
        wait::before_flushing(&self.core);
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

    pub(super) fn left_and(&self, others: Vec<LeftItems>) -> StillBusy {
        let left = self.left_items().into_iter().chain(others);
        StillBusy::new("workqueue", &self.core.name, left)
    }

    pub(super) fn left_items(&self) -> Vec<LeftItems> {
        self.reap_cancelled();
        let mut left = Vec::new();
        let wakers = self.for_each_pwq(|pwq| {
            let mut guard = pwq.pool.lock_to_act();
            guard.adopt(&pwq.pool.injector);
            guard.recall_local_batches(pwq.slot);
            guard.left(pwq.slot, &mut left);
            guard.pick_if_needed();
        });
        cleanups::fire_all(wakers);
        let gates = self.plan.lock().gates();
        let nr_helped = gates.iter().map(|gate| gate.nr_helpers()).sum();
        left.extend((nr_helped > 0).then(|| LeftItems::new(Doing::Runs, None, nr_helped)));
        left
    }
}

impl Future for Drain<'_> {
    type Output = Result<(), OwnQueueError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let inner = &this.queue.inner;
        inner.may_be_stopped()?;
        inner.may_be_awaited()?;
        // FOREIGN(waker-clone): the clone of a user's waker, on the polling thread, with no lock
        // held; it may unwind into the caller of the poll.
        let waker = Foreign::new(context.waker().clone());
        let settled = &inner.core.settled;
        let under_way = this.under_way.get_or_insert_with(|| UnderWay {
            seat: TaskSeat::default(),
            rounds: Rounds::new(inner),
            _draining: inner.closed.while_draining(),
        });
        let mut waker = Some(waker);
        let late = twin::armed("drain: registers its waker after the check");
        let mut leave =
            || waker.take().map(|waker| settled.leave_waker(&mut under_way.seat, waker));
        if !late {
            // Drops the previous waker with no lock held.
            drop(leave());
        }
        if under_way.rounds.have_ended() {
            this.under_way_is_over();
            return Poll::Ready(Ok(()));
        }
        drop(leave());
        Poll::Pending
    }
}

impl Drain<'_> {
    /// Removes the waker, and lets the queue accept items again.
    fn under_way_is_over(&mut self) {
        if let Some(mut under_way) = self.under_way.take()
            // In a child of `fork` the lock may never be released.
            && self.queue.inner.is_at_home()
        {
            let waker = self.queue.inner.core.settled.take_waker(&mut under_way.seat);
            drop(under_way);
            drop(waker);
        }
    }
}

sync::on_drop!(Drain<'_>, it => it.under_way_is_over());

base::internal::impl_debug!(Drain<'_>, it => queue: it.queue.name(), is_under_way: it.under_way.is_some());

/// A drain that has not yet found the queue empty.
pub(crate) struct Rounds<'a> {
    inner: &'a Inner,
    round: Option<Flush<'a>>,
    nr_rounds: u64,
}

/// Returns `true` if a [`Report::LongDrain`] is due after `nr_rounds` rounds.
fn is_worth_reporting(nr_rounds: u64) -> bool {
    nr_rounds == 10 || (1..=10).contains(&(nr_rounds / 100)) && nr_rounds.is_multiple_of(100)
}

impl<'a> Rounds<'a> {
    pub(crate) fn new(inner: &'a Inner) -> Self {
        Self { inner, round: None, nr_rounds: 0 }
    }

    /// Returns `true` if the queue is drained. Otherwise the queue's `settled` notifies its waiters
    /// when to check again. Call it with no lock held, because it may report the drain.
    pub(crate) fn have_ended(&mut self) -> bool {
        while !self.inner.is_drained() {
            if !self.go_on() {
                return false;
            }
            self.report();
        }
        true
    }

    /// If the current round has ended, counts it and begins the next one. Returns `true` if the
    /// drain is to be reported.
    fn go_on(&mut self) -> bool {
        let before = self.nr_rounds;
        if let Some(round) = &mut self.round {
            if !round.has_ended() {
                return false;
            }
            self.nr_rounds += 1;
        }
        let next = self.round.insert(Flush::new(self.inner));
        // If the round has already ended, the drain check itself gets the notification.
        next.has_ended();
        self.nr_rounds > before && is_worth_reporting(self.nr_rounds)
    }

    fn report(&self) {
        let pwqs = self.inner.plan.lock().pwqs.clone();
        let Some(manager) = pwqs.first().map(|pwq| &pwq.pool.manager) else {
            return;
        };
        let queue = &self.inner.core.name;
        let mut comers = pwqs.iter().filter_map(|pwq| pwq.pool.lock().name_one(pwq.slot));
        manager.report(&[Report::LongDrain {
            queue: queue.to_string(),
            rounds: self.nr_rounds,
            item: comers.next().map(|func| ItemName { queue: queue.to_string(), func }),
        }]);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn drain_is_reported_at_rounds_10_and_100_to_1000() {
        let reported: Vec<_> = (0..5000).filter(|&count| is_worth_reporting(count)).collect();
        let expected = [10, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000];
        assert_eq!(reported, expected);
    }
}
