//! Queueing reusable items: an item is claimed by a step of its state, and then left for a pool.
//!
//! The two are apart for who holds a lock between them, a timer's for one: he claims under it, and pushes after it. After that,
//! too, he gives back what the item was counted as elsewhere: that may wake tasks that await a drain.

use std::ptr::NonNull;

use sync::{atomic::Ordering, twin};
use topology::CpuId;

use super::queue::{Inner, Workqueue};
use crate::{
    execute::{
        run::{self, LeftCount},
        wait::must_not_be_lost,
        work::Work,
    },
    item::{head::Head, lane::Lane, list::set_fresh_next, state::Enqueue},
    pools::pwq::Pwq,
};

/// What became of an attempt to queue an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planned {
    /// Its link must be pushed.
    Push,
    /// Its link is where it must be.
    InPlace,
    /// It is not ours to queue.
    Refused,
}

impl Planned {
    /// Pushes `work` to `home` if that is what is planned.
    #[inline]
    fn carry_out(self, work: &Work, home: &Pwq) {
        match self {
            Self::Push => home.push(work.item()),
            // SAFETY: it has just been made pending, and `work` keeps it.
            Self::InPlace => unsafe { home.tell_queued(work.item()) },
            Self::Refused => {}
        }
    }
}

/// An item that is pending, and may have to be pushed.
#[derive(Debug)]
#[must_use = "an item that is not pushed never runs"]
pub(crate) struct Claimed<'a> {
    home: &'a Pwq,
    work: &'a Work,
    planned: Planned,
    left: Option<LeftCount>,
}

impl Claimed<'_> {
    /// Pushes it. Returns what it was counted as elsewhere, to be given back with no lock held.
    #[must_use = "it is waited for until it is given back"]
    pub(crate) fn push(self) -> Option<LeftCount> {
        self.planned.carry_out(self.work, self.home);
        self.left
    }
}

/// Pending items that have not been pushed, the newest and the oldest. Who wants the link of one, for it was cancelled meanwhile,
/// waits until it is pushed: so whoever has a chain in hand must not wait.
struct Chain(Option<(NonNull<Head>, NonNull<Head>)>);

impl Chain {
    /// Adds an item that is pending, and that its user keeps.
    fn add(&mut self, item: NonNull<Head>) {
        self.0 = Some(match self.0 {
            None => (item, item),
            Some((newest, oldest)) => {
                set_fresh_next(item, newest.as_ptr());
                (item, oldest)
            }
        });
    }

    /// Pushes what there is.
    fn push_to(&mut self, home: &Pwq) {
        if let Some((newest, oldest)) = self.0.take() {
            home.pool.push_chain(newest, oldest);
        }
    }
}

/// Makes `home` the home of an item that the caller has claimed.
fn move_here(work: &Work, home: &Pwq) -> Planned {
    let head = work.head();
    head.home.store(home.as_home(), Ordering::Relaxed);
    head.update(|state| Some(state.publish()));
    Planned::Push
}

impl Workqueue {
    /// Queues `work` on the pool of this CPU's pod; false when it was pending already, or is
    /// disabled (as it also is while somebody waits in [`Work::cancel_sync`]), or when the queue is being drained by
    /// somebody else. Where the queue has a capacity the item waits beside it: see [`try_enqueue`](Self::try_enqueue).
    ///
    /// # Blocking
    ///
    /// See [`Workqueue`]. An item whose cancelled place is still in another queue's list is first taken out of
    /// there, under that pool's lock.
    #[doc(alias("queue_work", "schedule_work"))]
    #[inline]
    pub fn enqueue(&self, work: &Work) -> bool {
        self.enqueue_at(self.here(), work)
    }

    /// Queues `work` at `home`, a link of this queue.
    #[inline]
    pub(crate) fn enqueue_at(&self, home: &Pwq, work: &Work) -> bool {
        if !self.admits() {
            return false;
        }
        must_not_be_lost(work.is_lost());
        self.inner.plan_and_push(work, home, false)
    }

    /// Takes back one [`Work::disable`], and queues `work` if that was the last one; returns `true` if it was queued.
    ///
    /// # Panics
    ///
    /// When the item is not disabled, and in a child of `fork` (see [`Workqueue`]).
    ///
    /// # Blocking
    ///
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Work, Workqueue};
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = Work::new(|| ());
    /// work.disable();
    /// assert!(!queue.enqueue(&work));
    /// assert!(queue.enable_and_queue(&work));
    /// work.flush()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "enable_and_queue_work")]
    pub fn enable_and_queue(&self, work: &Work) -> bool {
        self.inner.must_be_at_home();
        must_not_be_lost(work.is_lost());
        work.enable() && self.enqueue(work)
    }

    /// Queues each of `works` that is not pending, in their order, and returns how many that were.
    ///
    /// The items go to one pool as one chain: for tiny items about twice as fast as one by one.
    ///
    /// # Blocking
    ///
    /// As [`enqueue`](Self::enqueue).
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Work, Workqueue};
    /// let queue = Workqueue::builder("example").build()?;
    /// let works: Vec<_> = (0..100).map(|i| Work::new(move || drop(i))).collect();
    /// assert_eq!(queue.enqueue_all(&works), 100);
    /// queue.drain()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn enqueue_all(&self, works: &[Work]) -> usize {
        let home = self.here();
        if !self.admits() {
            return 0;
        }
        // Asked once: in a process that was not forked none is.
        must_not_be_lost(sync::fork::is_child() && works.iter().any(Work::is_lost));
        let mut nr_queued = 0;
        let mut chain = Chain(None);
        let mut left = Vec::new();
        for work in works {
            let cut = |item| {
                // Somebody may wait for what is in the chain, with what we are about to wait for in his own.
                if !twin::armed("enqueue all: waits with a chain in hand") {
                    chain.push_to(home);
                }
                left.push(run::cut_out(item));
            };
            let planned = self.inner.plan(work, home, false, cut);
            nr_queued += usize::from(planned != Planned::Refused);
            if planned == Planned::Push {
                let item = work.item();
                // SAFETY: it has just been made pending, and `work` keeps it.
                unsafe { home.tell_queued(item) };
                chain.add(item);
            } else {
                planned.carry_out(work, home);
            }
        }
        chain.push_to(home);
        left.into_iter().for_each(LeftCount::give_back);
        nr_queued
    }
}

impl Inner {
    /// Queues `work` at `home`, with a place of the queue's capacity if the caller `has_place`; returns `true` if it was queued.
    #[inline]
    pub(crate) fn plan_and_push(&self, work: &Work, home: &Pwq, has_place: bool) -> bool {
        let mut left = None;
        let cut = |item| left = Some(run::cut_out(item));
        let planned = self.plan(work, home, has_place, cut);
        planned.carry_out(work, home);
        if let Some(left) = left {
            left.give_back();
        }
        planned != Planned::Refused
    }

    /// Claims `work` for this queue; returns `true` if its link is still to be pushed to `home`. Where that is in another list the
    /// caller is to `cut` it out, and to give back what it was counted as there.
    #[inline]
    fn plan(
        &self,
        work: &Work,
        home: &Pwq,
        has_place: bool,
        cut: impl FnOnce(NonNull<Head>),
    ) -> Planned {
        // One that has its place in the other lane is moved.
        let is_ours = |link| self.route_table.routes().has(link, home.lane);
        match (work.head()).enqueue(home, is_ours, has_place, Some(work.revivable())) {
            Enqueue::Push(_) => Planned::Push,
            Enqueue::Revive(_) => Planned::InPlace,
            Enqueue::Claim(_) => move_here(work, home),
            Enqueue::Elsewhere(_) => {
                cut(work.item());
                move_here(work, home)
            }
            Enqueue::Pending | Enqueue::Disabled => Planned::Refused,
        }
    }

    /// Returns `true` if to queue `work` in `lane` is to wait until its link has been got out of another queue's list, or lane.
    pub(crate) fn must_cut_out(&self, work: &Work, lane: Lane) -> bool {
        let head = work.head();
        let home = head.home.load(Ordering::Relaxed).cast_const();
        head.load().has_link() && !self.route_table.routes().has(home, lane)
    }

    /// Claims `work` to be queued on `cpu`, or from here; none where it is pending already, or disabled.
    pub(crate) fn claim<'a>(
        &'a self,
        cpu: Option<CpuId>,
        work: &'a Work,
        lane: Lane,
    ) -> Option<Claimed<'a>> {
        let routes = &self.route_table;
        let home = cpu.map_or_else(|| routes.here(), |cpu| routes.at_cpu(cpu));
        let home = home.in_lane(lane);
        let mut left = None;
        let cut = |item| left = Some(run::cut_out(item));
        let planned = self.plan(work, home, false, cut);
        let claimed = Claimed {
            home,
            work,
            planned,
            left,
        };
        (planned != Planned::Refused).then_some(claimed)
    }

    /// Claims `work`, which is not pending anywhere, to be queued on `cpu`, also in a drain; `None` when it is disabled.
    /// Nothing is claimed where the queue was destroyed.
    pub(crate) fn claim_at<'a>(
        &'a self,
        cpu: CpuId,
        work: &'a Work,
        lane: Lane,
    ) -> Option<Claimed<'a>> {
        if !self.is_destroyed() {
            return self.claim(Some(cpu), work, lane);
        }
        Some(Claimed {
            home: self.route_table.at_cpu(cpu).in_lane(lane),
            work,
            planned: Planned::Refused,
            left: None,
        })
    }
}
