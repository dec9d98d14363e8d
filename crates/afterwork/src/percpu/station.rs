//! Slots whose owners are the workers that are bound to their CPUs.
//!
//! Such an owner has no [`Owner`](super::Owner): its items reach the slot by the calls that everybody has, and these
//! find that the thread which makes them is the owner. So nothing but `within` keeps an operation from beginning
//! inside another one: the owner alone reads and writes it.

use std::fmt;

use sync::atomic::Ordering;
use sync::identity;
use sync::twin;
use sync::unmodelled::Arc;
use topology::CpuId;

use super::choice::{Choice, Kind};
use super::owner::Operation;
use super::remote::PerCpu;
use super::slot::{STATIONED, Slot};
use crate::wake::station::{self, Offered};

/// Has workers own the slots of a [`PerCpu`] until dropped; made by [`PerCpu::let_workers_own`].
#[must_use = "workers own slots until this is dropped"]
pub struct OwnedByWorkers {
    _enrolment: station::Enrolment,
}

impl<T: Send + 'static, C: Choice> PerCpu<T, C> {
    /// Lets workers of workqueues own the slots of the CPUs that they are bound to.
    ///
    /// Bound to a CPU is a worker of a queue whose scope is `Cpu`. It becomes the owner when it takes a batch of items,
    /// [polls](super::Owner::poll) between items, and gives the slot up before it sleeps: for want of work, in
    /// `workqueue::blocking`, in waits of this library. Of several workers on one CPU the first owns the slot; others call
    /// it as anybody does.
    ///
    /// An item works on the slot by [`with_current`](Self::with_current) and the like, which cost it what an
    /// [operation](super::Owner::with) of an owner's costs, and a look at who the owner is. A call on the slot from inside
    /// an operation on it panics; [queued work](Self::queue_percpu_work) comes after the operation.
    ///
    /// A remote call waits until the item that runs on that CPU ends or sleeps by way of this library. An item that sleeps
    /// without a word, or inside an operation, has the slot meanwhile. Workers hold a pointer to the data while they own
    /// a slot of it, so it may be dropped by one of them.
    ///
    /// # Blocking
    ///
    /// Never. Workers take note when they take their next batch.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::sync::Arc;
    /// use afterwork::percpu::{PerCpu, Qpw};
    /// use afterwork::workqueue::{AffinityScope, Workqueue};
    ///
    /// let hits = Arc::new(PerCpu::builder().qpw(Qpw::Queue).build(|_| 0u64)?);
    /// let owned = hits.let_workers_own();
    /// let queue = Workqueue::builder("hits").scope(AffinityScope::Cpu).build()?;
    /// let handles = [(); 100].map(|()| {
    ///     let hits = hits.clone();
    ///     queue.spawn(move || hits.with_current(|hits| *hits += 1))
    /// });
    /// for handle in handles {
    ///     handle.join()?;
    /// }
    /// assert_eq!(hits.sum_over(|hits| *hits), 100);
    /// # drop(owned);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn let_workers_own(self: &Arc<Self>) -> OwnedByWorkers {
        let offered: Arc<dyn Offered> = self.clone();
        OwnedByWorkers {
            _enrolment: station::enrol(Arc::downgrade(&offered)),
        }
    }
}

impl<T: Send, C: Choice> Offered for PerCpu<T, C> {
    fn attach(&self, cpu: CpuId) -> bool {
        let slot = self.table.slot(cpu);
        // Where the mode is compiled out a slot of another kind has no owner.
        slot.is_some_and(|slot| C::kind(slot.kind()) == slot.kind() && slot.station())
    }

    fn poll(&self, cpu: CpuId) {
        if let Some(slot) = self.table.slot(cpu) {
            slot.poll_as_stationed();
        }
    }

    fn detach(&self, cpu: CpuId) -> bool {
        self.table.slot(cpu).is_none_or(Slot::unstation)
    }
}

impl<T> Slot<T> {
    /// Makes this thread the stationed owner, if nobody owns or has the slot; returns `true` if it did.
    fn station(&self) -> bool {
        if !self.claim(STATIONED) {
            return false;
        }
        if self.kind() == Kind::Queue {
            if !self.try_take() {
                self.disclaim();
                return false;
            }
            self.keep();
        }
        self.unpark();
        true
    }

    /// Ends being the stationed owner, unless this thread is inside; returns `true` if it did.
    fn unstation(&self) -> bool {
        if self.is_within() && !twin::armed("percpu: leaves from inside") {
            return false;
        }
        self.give_up();
        self.disclaim();
        true
    }

    /// Returns `true` if the calling thread is the stationed owner.
    #[inline]
    pub(super) fn is_stationed_here(&self) -> bool {
        self.far.owner.load(Ordering::Relaxed) == identity::mine().get() | STATIONED
    }

    /// Returns `true` if the calling thread is the stationed owner, and inside.
    #[inline]
    pub(super) fn is_within(&self) -> bool {
        self.is_stationed_here() && self.far.within.load(Ordering::Relaxed)
    }

    /// Works on the data, as the stationed owner.
    ///
    /// # Panics
    ///
    /// If this thread is inside.
    #[inline]
    pub(super) fn operate_as_stationed<R>(&self, f: impl FnOnce(&mut T) -> R) -> R {
        let _within = Within::enter(self);
        if self.kind() == Kind::Queue {
            // What was mailed comes first.
            self.run_mail();
        }
        let operation = Operation::begin(self, self.kind());
        // SAFETY: this thread is the owner, which it became by `station`; `within` says that it was not inside already.
        unsafe { operation.run(f) }
    }

    /// Runs what operations of the stationed owner left for after them, where nobody polls for mail.
    #[cold]
    fn operate_on_own_mail(&self) {
        let kind = self.kind();
        let asked = self.enter(kind);
        self.run_own_mail();
        self.exit(kind, asked);
    }

    /// Lets others in, as the stationed owner.
    pub(super) fn poll_as_stationed(&self) {
        let _within = Within::enter(self);
        self.poll(self.kind());
    }
}

/// The stationed owner is inside, until dropped.
struct Within<'s, T>(&'s Slot<T>);

impl<'s, T> Within<'s, T> {
    #[inline]
    fn enter(slot: &'s Slot<T>) -> Self {
        if slot.far.within.load(Ordering::Relaxed) {
            slot.refuse_inside();
        }
        slot.far.within.store(true, Ordering::Relaxed);
        Self(slot)
    }
}

impl<T> Drop for Within<'_, T> {
    fn drop(&mut self) {
        if !twin::torn_down() {
            if !self.0.mail().is_empty() && self.0.kind() != Kind::Queue {
                self.0.operate_on_own_mail();
            }
            self.0.far.within.store(false, Ordering::Relaxed);
        }
    }
}

impl fmt::Debug for OwnedByWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnedByWorkers")
    }
}
