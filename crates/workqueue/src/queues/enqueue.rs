//! Queues reusable items: a thread claims an item in its state word, and pushes it to a pool.
//!
//! Claiming and pushing are separate because some callers, such as a timer, claim under their own
//! lock and push after they release it. They release the item's in-flight count on another pwq, if
//! it has one, only after the unlock, because the release can wake tasks that await a drain.

use std::ptr::NonNull;

use base::internal::wake::lane::Lane;
use item::internal::head::{Enqueue, Head};
use item::internal::list::set_fresh_next;
use sync::atomic::Ordering;
use sync::twin;
use topology::CpuId;

use super::admission::TrySpawnError;
use super::queue::{Inner, Workqueue};
use crate::execute::run::{self, CountToRelease};
use crate::execute::wait::must_not_be_lost;
use crate::execute::work::Work;
use crate::pools::pwq::Pwq;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planned {
    /// The caller must push the item's list link.
    Push,
    /// The list link is already on the right list.
    InPlace,
    Pending,
    /// The item is disabled, or the queue was destroyed.
    Disabled,
}

impl Planned {
    #[inline]
    fn is_queued(self) -> bool {
        matches!(self, Self::Push | Self::InPlace)
    }

    #[inline]
    fn carry_out(self, work: &Work, home: &Pwq) {
        match self {
            Self::Push => home.push(work.item()),
            // SAFETY: the item was just made pending, and `work` keeps it alive.
            Self::InPlace => unsafe { home.emit_queued(work.item()) },
            Self::Pending | Self::Disabled => {}
        }
    }
}

/// An item with the plan for its link. Unless the plan is `Pending` or `Disabled`, the caller made
/// the item pending.
#[must_use = "an item that is not pushed never runs"]
pub(crate) struct Claimed<'a> {
    home: &'a Pwq,
    work: &'a Work,
    planned: Planned,
    left: Option<CountToRelease>,
}

impl Claimed<'_> {
    /// Pushes the item, if it has to be pushed. Returns the item's in-flight count on another pwq,
    /// if any. Drop it with no lock held.
    pub(crate) fn push(self) -> Option<CountToRelease> {
        self.planned.carry_out(self.work, self.home);
        self.left
    }
}

/// A chain of pending items that have not been pushed: its newest and its oldest item. A thread
/// that needs one of their links waits for the push, so a thread with a chain must not wait.
struct Chain(Option<(NonNull<Head>, NonNull<Head>)>);

impl Chain {
    /// Adds a pending item that its user keeps alive.
    fn add(&mut self, item: NonNull<Head>) {
        self.0 = Some(match self.0 {
            None => (item, item),
            Some((newest, oldest)) => {
                set_fresh_next(item, newest.as_ptr());
                (item, oldest)
            }
        });
    }

    fn push_to(&mut self, home: &Pwq) {
        if let Some((newest, oldest)) = self.0.take() {
            home.pool.push_chain(newest, oldest);
        }
    }
}

impl Workqueue {
    /// Queues `work` on the worker pool of the current CPU's pod. Returns `false` if the item is
    /// already pending or is disabled (as while a thread is in [`Work::cancel_sync`]), if the queue
    /// was destroyed, or if it is being drained and the caller is not one of its items.
    /// [`try_enqueue`](Self::try_enqueue) returns an error in these cases. The item does not count
    /// toward the queue's capacity.
    ///
    /// # Blocking
    ///
    /// See [`Workqueue`]. If the item has a tombstone on the list of another queue, the call first
    /// removes the tombstone, under the lock of that pool.
    #[doc(alias("queue_work", "schedule_work"))]
    #[inline]
    pub fn enqueue(&self, work: &Work) -> bool {
        self.enqueue_at(self.here(), work)
    }

    #[inline]
    pub(crate) fn enqueue_at(&self, home: &Pwq, work: &Work) -> bool {
        if !self.admits() {
            return false;
        }
        must_not_be_lost(work.is_lost());
        self.inner.plan_and_push(work, home, false) == Ok(true)
    }

    /// Queues `work` as [`enqueue`](Self::enqueue) does, if there is free capacity.
    ///
    /// Returns `Ok(false)` if the item is already pending, even if the queue is full.
    ///
    /// Blocks as [`enqueue`](Self::enqueue) does.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`try_spawn`](Self::try_spawn), and an error if the item is
    /// [disabled](TrySpawnError::is_disabled).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Work, Workqueue};
    /// let queue = Workqueue::builder("example").capacity(1).build()?;
    /// queue.pause();
    /// let (one, other) = (Work::new(|| ()), Work::new(|| ()));
    /// assert!(queue.try_enqueue(&one)?);
    /// assert!(!queue.try_enqueue(&one)?, "it is pending");
    /// assert!(queue.try_enqueue(&other).is_err_and(|error| error.is_full()));
    /// one.cancel();
    /// assert!(queue.try_enqueue(&other)?);
    /// queue.resume();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_enqueue(&self, work: &Work) -> Result<bool, TrySpawnError> {
        self.task().try_enqueue(work)
    }

    pub(super) fn enqueue_all_at(&self, home: &Pwq, works: &[Work]) -> usize {
        if !self.admits() {
            return 0;
        }
        // This is checked once for all items, because only a forked child can have lost items.
        must_not_be_lost(sync::fork::is_child() && works.iter().any(Work::is_lost));
        let mut nr_queued = 0;
        let mut chain = Chain(None);
        let mut left = Vec::new();
        for work in works {
            // Push the chain before waiting: another thread may wait for an item in this chain
            // while it holds the item that this thread waits for.
            let before_wait = || {
                if !twin::armed("enqueue all: waits with an unpushed chain") {
                    chain.push_to(home);
                }
            };
            let claimed = self.inner.plan(work, home, false, before_wait);
            nr_queued += usize::from(claimed.planned.is_queued());
            if claimed.planned == Planned::Push {
                let item = work.item();
                // SAFETY: the item was just made pending, and `work` keeps it alive.
                unsafe { home.emit_queued(item) };
                chain.add(item);
            } else {
                claimed.planned.carry_out(work, home);
            }
            left.extend(claimed.left);
        }
        chain.push_to(home);
        nr_queued
    }
}

impl Inner {
    /// Queues `work` at `home`. `has_permit` is set if the caller holds a capacity permit for it.
    /// Returns `false` if it was pending already, or an error if it is disabled.
    #[inline]
    pub(crate) fn plan_and_push(
        &self,
        work: &Work,
        home: &Pwq,
        has_permit: bool,
    ) -> Result<bool, TrySpawnError> {
        // The compiler inlines these calls, so that the plan of a fresh item is never in memory.
        let Claimed { planned, left, .. } = self.plan(work, home, has_permit, || ());
        planned.carry_out(work, home);
        drop(left);
        if planned == Planned::Disabled {
            return Err(TrySpawnError::DISABLED);
        }
        Ok(planned.is_queued())
    }

    /// Queues `work` at `home`, without an event. Calls `pushed` as soon as a flush can find the
    /// item, and runs no user code before that.
    pub(crate) fn plan_and_push_then(&self, work: &Work, home: &Pwq, pushed: impl FnOnce()) {
        let claimed = self.plan(work, home, false, || ());
        let is_pushed = claimed.planned == Planned::Push;
        let finds_worker = is_pushed && home.pool.injector.push(work.item());
        pushed();
        if finds_worker {
            home.pool.find_worker();
        }
    }

    /// Claims `work` for this queue, and decides whether its list link must be pushed to `home`. If
    /// the link is on another list, calls `before_wait`, and then waits until the link is removed
    /// there. In this case, the result contains the item's in-flight count on that list's pwq.
    #[inline]
    fn plan<'a>(
        &self,
        work: &'a Work,
        home: &'a Pwq,
        has_permit: bool,
        before_wait: impl FnOnce(),
    ) -> Claimed<'a> {
        let mut left = None;
        // An item whose tombstone is in the other lane is moved.
        let is_ours = |candidate| self.route_table.routes().has(candidate, home.lane);
        let head = work.head();
        let enqueue = head.enqueue(home, is_ours, has_permit, Some(work.revivable()));
        let planned = match enqueue {
            Enqueue::Push(_) => Planned::Push,
            Enqueue::Revive(_) => Planned::InPlace,
            Enqueue::Claim(_) | Enqueue::Elsewhere(_) => {
                if matches!(enqueue, Enqueue::Elsewhere(_)) {
                    before_wait();
                    left = Some(run::cut_out(work.item()));
                }
                head.home.store(home.as_home(), Ordering::Relaxed);
                head.update(|state| Some(state.publish()));
                Planned::Push
            }
            Enqueue::Pending => Planned::Pending,
            Enqueue::Disabled => Planned::Disabled,
        };
        Claimed { home, work, planned, left }
    }

    /// Returns the pwq for an item that is queued on `cpu`, by default the current CPU.
    pub(super) fn home(&self, cpu: Option<CpuId>, lane: Lane) -> &Pwq {
        let routes = self.route_table.routes();
        cpu.map_or_else(|| routes.here(), |cpu| routes.at_cpu(cpu)).in_lane(lane)
    }

    /// Returns `true` if queueing `work` in `lane` must wait until its list link has been removed
    /// from the list of another queue or lane.
    pub(crate) fn must_cut_out(&self, work: &Work, lane: Lane) -> bool {
        let head = work.head();
        let home = head.home.load(Ordering::Relaxed).cast_const();
        head.load().has_link() && !self.route_table.routes().has(home, lane)
    }

    /// Claims `work` for queueing on `cpu`, or on the current CPU. Returns `None` if the item is
    /// already pending or is disabled.
    pub(crate) fn claim<'a>(
        &'a self,
        cpu: Option<CpuId>,
        work: &'a Work,
        lane: Lane,
    ) -> Option<Claimed<'a>> {
        let claimed = self.plan(work, self.home(cpu, lane), false, || ());
        claimed.planned.is_queued().then_some(claimed)
    }

    /// Claims `work`, which is not pending, for queueing on `cpu`, even during a drain. Returns
    /// `None` if the item is disabled. If the queue was destroyed, the result claims nothing.
    pub(crate) fn claim_at<'a>(
        &'a self,
        cpu: CpuId,
        work: &'a Work,
        lane: Lane,
    ) -> Option<Claimed<'a>> {
        if !self.closed.is_destroyed() {
            return self.claim(Some(cpu), work, lane);
        }
        let home = self.home(Some(cpu), lane);
        Some(Claimed { home, work, planned: Planned::Disabled, left: None })
    }
}
