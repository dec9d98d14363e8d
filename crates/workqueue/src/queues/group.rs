//! Groups of queues: the handle, the members, the ceiling, the shares and the pause.
//!
//! # The protocol
//!
//! The ceiling of a group is a gate, as in a queue. `pools/seats.rs` describes how a pwq gets a
//! seat in both. A pause, a drain and a change of shares are applied to the group first, and then
//! to each member. A new member does the opposite:
//!
//! ```text
//! pause:  paused = true;  lock members: copy;  for each: stop if paused
//! shares: lock shares: set;  lock members: copy;  for each: set
//! drain:  lock members: nr_drains += 1, close each
//! joiner: lock members: add, close if nr_drains > 0;  stop if paused;  lock shares: set
//! ```
//!
//! If a pause copies the list before the addition, the joiner finds `paused`. Otherwise the pause
//! finds the joiner. The same holds for shares, whose lock is held until all members have them, so
//! that the last change is also the last one that each member receives. Twins `group: a pause
//! overlooks who joins`, `group: shares overlook who joins` and `group drain: overlooks who joins`.
//!
//! A queue that is being destroyed ignores the pauses of its group, as it ignores its own, because
//! the thread that drops its last handle waits for its items.

use std::ptr;

use base::internal::page::Record;
use limit::internal::active::Gate;
use sync::atomic::{AtomicBool, Ordering};
use sync::fork::Process;
use sync::unmodelled::Arc;
use sync::{Mutex, twin};

use super::queue::Inner;
use super::registry::Registry;
use crate::execute::lend;
use crate::execute::run::runs_in_group;
use crate::pools::pwq::WaitingPwq;
use crate::pools::seats::GroupGate;
use crate::route::attrs::{BuildError, MAX_GROUP_ACTIVE, MAX_GROUP_PER_CPU, check_shares};
use crate::route::machine::{Follower, Machine, Queues};
use crate::route::stats::{GroupStats, QueueReport};

/// A group of queues that share a ceiling and can be paused, drained and cancelled together.
///
/// ```
/// use afterwork::workqueue::{Group, Workqueue};
/// use std::time::Duration;
///
/// let tenant = Group::builder("tenant 7").max_active(8).build()?;
/// let reads = Workqueue::builder("reads").group(&tenant).build()?;
/// let index = Workqueue::builder("index").group(&tenant).max_active(2).build()?;
/// let found = reads.spawn(|| "found");
/// index.spawn_detached(|| ())?;
///
/// tenant.set_max_active(2)?; // from now on, two items of both queues run at once
/// if let Err(left) = tenant.drain_timeout(Duration::from_secs(5)) {
///     eprintln!("{left}");
///     tenant.cancel_all();
/// }
/// assert_eq!(found.join()?, "found");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A `Group` is a handle, whose drop never waits. The group exists as long as one of its handles or
/// queues does.
///
/// A group has no shutdown. To end its queues, call
/// [`shutdown_in_order`](crate::shutdown_in_order) with all of them. If items remain, end each
/// handle to these queues with
/// [`close_in_background`](crate::Workqueue::close_in_background).
///
/// # Guarantees
///
/// - If the group has a ceiling, an item of its queues starts only while fewer than `max_active`
///   threads run items of the group, in the whole process. Each queue's `max_active` also applies.
/// - If the group is full, its queues take turns in proportion to their shares, regardless of the
///   number of pools in which they have items. A queue that waits for a seat in the group holds a
///   seat of its own, which counts in `nr_active` of its [`stats`](crate::Workqueue::stats).
/// - A queue requests its seat in the group when its turn in the pool comes. If it has to wait for
///   the seat, the next worker of the pool that ends a batch runs its items, and the seat is held
///   until then. If all workers of the pool run long items of other queues, one seat is idle.
/// - While an item waits in this library (in a join, a flush, a drain, for capacity, in
///   [`block_on`](crate::block_on), in a scope, in a mailbox or a grace period), it does not count
///   toward the group's `max_active`, so items of one group may wait for each other. Afterwards it
///   continues at once, even if the group is full, so more than `max_active` threads may run items.
///   The excess is at most the number of threads that have waited, and no other item starts until
///   it is gone.
/// - An item that blocks in any other way still counts: on I/O, on a lock, or in
///   [`blocking`](crate::blocking). If the holders of all seats block until an item of the group
///   has run, none of them makes progress.
/// - A joiner runs its item on its own thread only if the group has a free seat, or if the joiner
///   runs an item of the group itself.
/// - A rescuer ([`with_rescuer`](crate::Builder::with_rescuer)) runs items of a full group, too.
///
/// # Cost
///
/// Each batch of items acquires and releases a seat in the group, which costs about as much as a
/// seat in the queue. A queue without a group pays one comparison per batch.
///
/// # Panics
///
/// In a child of `fork`, each call panics, as it does for a queue.
#[derive(Clone)]
#[doc(alias("cgroup", "scheduling_group", "tenant", "resource_group"))]
pub struct Group {
    pub(crate) inner: Arc<GroupInner>,
}

pub(crate) struct GroupInner {
    /// I
    pub(crate) name: Box<str>,
    /// A: the seats of the group.
    pub(crate) gate: GroupGate,
    /// I
    machine: Arc<Machine>,
    /// I
    process: Process,
    /// A
    paused: AtomicBool,
    members: Mutex<Members>,
    ceiling: Mutex<Ceiling>,
    /// The shares of CPU time; 0 if not set.
    shares: Mutex<u32>,
}

#[derive(Default)]
struct Members {
    queues: Queues<Inner>,
    nr_drains: u32,
}

/// A drain in progress. Until it is dropped, even by unwinding, the queues reject outside items.
pub(crate) struct GroupDrain<'a>(&'a GroupInner);

#[derive(Clone, Copy, PartialEq, Debug)]
enum Ceiling {
    None,
    Max(u32),
    PerCpu(f64),
}

/// The number of seats in a group without a ceiling: half of the number that a gate can count, so
/// that the gate can also count threads that return from a wait.
const UNLIMITED: u32 = 1 << 15;

impl Ceiling {
    fn check(self) -> Result<Self, BuildError> {
        match self {
            Self::Max(max) if !(1..=MAX_GROUP_ACTIVE).contains(&max) => {
                Err(BuildError::GroupMaxActive(max))
            }
            Self::PerCpu(factor) if !(factor > 0.0 && factor <= MAX_GROUP_PER_CPU) => {
                Err(BuildError::GroupPerCpu(factor))
            }
            _ => Ok(self),
        }
    }

    fn nr_seats(self, millicpus: u64) -> u32 {
        match self {
            Self::None => UNLIMITED,
            Self::Max(max) => max,
            // A conversion from a float saturates.
            Self::PerCpu(factor) => {
                ((factor * millicpus as f64 / 1000.0).ceil() as u32).clamp(1, UNLIMITED)
            }
        }
    }
}

/// Configures a group and builds it; created by [`Group::builder`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct GroupBuilder {
    name: String,
    ceiling: Ceiling,
    shares: Option<u32>,
}

impl GroupBuilder {
    /// Sets how many threads run items of the group at once, from 1 to
    /// [`MAX_GROUP_ACTIVE`](crate::MAX_GROUP_ACTIVE). The default is no ceiling.
    pub fn max_active(self, max_active: u32) -> Self {
        Self { ceiling: Ceiling::Max(max_active), ..self }
    }

    /// Sets how many threads run items of the group at once: `factor` times the number of CPUs that
    /// the process may use, or times the CPU quota if that is less, rounded up. The factor must be
    /// above 0 and at most 64.
    ///
    /// The ceiling follows changes to the machine and to the quota.
    pub fn max_active_per_cpu(self, factor: f64) -> Self {
        Self { ceiling: Ceiling::PerCpu(factor), ..self }
    }

    /// Sets the group's share of the CPU time of each pool in which its queues have items, from 1
    /// to [`MAX_SHARES`](crate::MAX_SHARES).
    ///
    /// A group competes with other groups and with queues without a group, as a queue competes with
    /// others: see [`Builder::shares`](crate::Builder::shares). Its queues compete with each other
    /// for the group's time, by their own shares, so a tenant gains no time by more queues.
    ///
    /// As soon as a queue or a group in a pool has set shares, shares apply to all groups of the
    /// pool. The default is 100.
    ///
    /// ```
    /// use afterwork::workqueue::{Group, Workqueue};
    ///
    /// let [paying, free] = [("paying", 900), ("free", 100)].map(|(name, shares)| {
    ///     let group = Group::builder(name).shares(shares).build().unwrap();
    ///     Workqueue::builder(name).group(&group).build().unwrap()
    /// });
    /// let flood: Vec<_> = (0..1000).map(|_| free.spawn(|| ())).collect();
    /// assert_eq!(paying.spawn(|| "answer").join()?, "answer");
    /// for item in flood {
    ///     item.join()?;
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias("weight", "cpu_weight"))]
    pub fn shares(self, shares: u32) -> Self {
        Self { shares: Some(shares), ..self }
    }

    /// Builds the group for queues of the process-wide registry.
    ///
    /// Blocks as [`Builder::build`](crate::Builder::build) does.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::GroupMaxActive`] or [`BuildError::GroupPerCpu`] if the ceiling is out
    /// of range, [`BuildError::Shares`] if the shares are, and [`BuildError::Registry`] if the
    /// registry cannot be created.
    pub fn build(self) -> Result<Group, BuildError> {
        let registry = Registry::global().map_err(BuildError::Registry)?;
        self.build_in(registry)
    }

    /// Builds the group for queues of `registry`, as [`build`](Self::build) does.
    pub fn build_in(self, registry: &Registry) -> Result<Group, BuildError> {
        registry.check_here()?;
        let ceiling = self.ceiling.check()?;
        self.shares.map_or(Ok(()), check_shares)?;
        // Loom's models of whole queues use no seat caches.
        let nr_cpus = registry.topology().allowed().len() as u32;
        let stocks_for = if cfg!(loom) { 0 } else { nr_cpus };
        lend::begin();
        let group = Arc::new(GroupInner {
            name: self.name.into(),
            gate: Arc::new(Gate::new(UNLIMITED, 1, &[], stocks_for)),
            machine: registry.machine().clone(),
            process: Process::this(),
            paused: AtomicBool::new(false),
            members: Mutex::default(),
            ceiling: Mutex::new(ceiling),
            shares: Mutex::new(self.shares.unwrap_or(0)),
        });
        let follower = Arc::<GroupInner>::downgrade(&group);
        registry.machine().add_queue(follower);
        group.set_ceiling(None);
        Ok(Group { inner: group })
    }
}

impl Group {
    /// Returns a builder for a group called `name`.
    pub fn builder(name: &str) -> GroupBuilder {
        GroupBuilder { name: name.into(), ceiling: Ceiling::None, shares: None }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Changes how many threads run items of the group at once; `None` removes the ceiling.
    ///
    /// If the ceiling rises, more items start immediately. If it falls, batches that have started
    /// are completed, and no other batch starts until fewer than `max_active` threads run items.
    ///
    /// # Blocking
    ///
    /// Briefly acquires pool locks, and may wake workers.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::GroupMaxActive`], without a change, if `max_active` is not between 1
    /// and [`MAX_GROUP_ACTIVE`](crate::MAX_GROUP_ACTIVE).
    pub fn set_max_active(&self, max_active: impl Into<Option<u32>>) -> Result<(), BuildError> {
        self.change_ceiling(max_active.into().map_or(Ceiling::None, Ceiling::Max))
    }

    /// Changes the ceiling to `factor` times the number of CPUs; see
    /// [`GroupBuilder::max_active_per_cpu`]. Blocks as [`set_max_active`](Self::set_max_active)
    /// does. If the factor is out of range, returns [`BuildError::GroupPerCpu`], without a change.
    pub fn set_max_active_per_cpu(&self, factor: f64) -> Result<(), BuildError> {
        self.change_ceiling(Ceiling::PerCpu(factor))
    }

    fn change_ceiling(&self, ceiling: Ceiling) -> Result<(), BuildError> {
        self.inner.must_be_at_home();
        self.inner.set_ceiling(Some(ceiling.check()?));
        Ok(())
    }

    /// Sets the group's share of the CPU time of its pools; see [`GroupBuilder::shares`]. It also
    /// applies to items that are already waiting.
    ///
    /// # Blocking
    ///
    /// Briefly acquires the lock of each pool of each queue. The first call visits each pending
    /// item.
    ///
    /// # Errors
    ///
    /// Returns [`BuildError::Shares`], without a change, if `shares` is not between 1 and
    /// [`MAX_SHARES`](crate::MAX_SHARES).
    pub fn set_shares(&self, shares: u32) -> Result<(), BuildError> {
        check_shares(shares)?;
        let inner = &*self.inner;
        inner.must_be_at_home();
        let mut its = inner.shares.lock();
        *its = shares;
        let queues = inner.queues();
        queues.iter().for_each(|queue| queue.set_group_shares(shares));
        // Unlock before the queues are dropped, because one of them may be the last reference.
        drop(its);
        Ok(())
    }

    /// Pauses the group: no item of its queues starts until [`resume`](Self::resume) is called.
    /// Returns `true` if the group was not paused.
    ///
    /// Each queue is paused as if by [`Workqueue::pause`](crate::Workqueue::pause), even one that
    /// joins the group later. A queue that was paused on its own stays paused when the group is
    /// resumed. Destroying a queue or dropping its last handle resumes that queue.
    ///
    /// # Blocking
    ///
    /// Briefly acquires locks of each queue. A wait for a queued item lasts until the resume.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Group, Workqueue};
    /// let tenant = Group::builder("tenant").build()?;
    /// let queue = Workqueue::builder("example").group(&tenant).build()?;
    /// tenant.pause();
    /// let handle = queue.spawn(|| "thawed");
    /// assert!(!handle.is_finished());
    /// tenant.resume();
    /// assert_eq!(handle.join()?, "thawed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn pause(&self) -> bool {
        self.inner.set_paused(true)
    }

    /// Allows items to start again. Returns `true` if the group was paused. Blocks as
    /// [`pause`](Self::pause) does, and may wake workers.
    pub fn resume(&self) -> bool {
        self.inner.set_paused(false)
    }

    /// Returns the counters of the group, and the sums over its current queues.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::workqueue::{Group, Workqueue};
    /// let tenant = Group::builder("tenant").max_active(4).build()?;
    /// let queue = Workqueue::builder("example").group(&tenant).build()?;
    /// queue.spawn(|| ()).join()?;
    /// let stats = tenant.stats();
    /// assert_eq!((stats.nr_queues, stats.max_active), (1, Some(4)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Blocking
    ///
    /// Briefly acquires the lock of each pool of each queue.
    pub fn stats(&self) -> GroupStats {
        self.inner.must_be_at_home();
        self.inner.stats()
    }
}

impl GroupInner {
    fn stats(&self) -> GroupStats {
        let queues = self.queues();
        let ceiling = *self.ceiling.lock();
        let shares = *self.shares.lock();
        let (nr_active, max) = (self.gate.nr_active(), self.gate.max());
        let mut stats = GroupStats {
            max_active: (ceiling != Ceiling::None).then_some(max),
            shares: (shares > 0).then_some(shares),
            nr_active,
            nr_over: nr_active.saturating_sub(max),
            nr_waiting: self.gate.nr_waiting(),
            nr_queues: queues.len(),
            ..GroupStats::default()
        };
        queues.iter().for_each(|queue| stats.add(&queue.stats()));
        stats
    }

    pub(crate) fn is_paused(&self) -> bool {
        // Relaxed: see `set_paused`.
        self.paused.load(Ordering::Relaxed)
    }

    pub(crate) fn runs_here(&self) -> bool {
        runs_in_group(&self.gate)
    }

    pub(super) fn add(&self, queue: &Arc<Inner>) {
        let mut members = self.members.lock();
        members.queues.add(Arc::<Inner>::downgrade(queue));
        if members.nr_drains > 0 && !twin::armed("group drain: overlooks who joins") {
            queue.closed.set_group_drains(true);
        }
        drop(members);
        if !twin::armed("group: a pause overlooks who joins") {
            queue.change_pauses(|_| ());
        }
        let shares = self.shares.lock();
        if *shares > 0 && !twin::armed("group: shares overlook who joins") {
            queue.set_group_shares(*shares);
        }
    }

    /// Removes a queue that was destroyed. The pointer is only compared.
    pub(super) fn remove(&self, queue: *const Inner) {
        self.members.lock().queues.remove(queue);
    }

    /// Returns the queues of the group. Drop them with no lock held.
    pub(crate) fn queues(&self) -> Vec<Arc<Inner>> {
        self.members.lock().queues.all()
    }

    /// Closes all queues, including those that join later, to items from outside the group.
    pub(crate) fn while_draining(&self) -> GroupDrain<'_> {
        self.change_drains(|nr_drains| nr_drains + 1);
        GroupDrain(self)
    }

    fn change_drains(&self, change: impl FnOnce(u32) -> u32) {
        let mut members = self.members.lock();
        members.nr_drains = change(members.nr_drains);
        let queues = members.queues.all();
        for queue in &queues {
            queue.closed.set_group_drains(members.nr_drains > 0);
        }
        // Drop the lock before the queues, because one of them may be the last reference.
        drop(members);
    }

    fn set_paused(&self, paused: bool) -> bool {
        self.must_be_at_home();
        // Relaxed suffices. The lock of the members orders the store before the read by each queue
        // that joins later, and our own reads follow it. The last read for each queue, under the
        // lock of its plan, sees at least what the earlier reads saw.
        let changed = self.paused.swap(paused, Ordering::Relaxed) != paused;
        for queue in self.queues() {
            queue.change_pauses(|_| ());
        }
        changed
    }

    fn set_ceiling(&self, new: Option<Ceiling>) {
        let mut ceiling = self.ceiling.lock();
        *ceiling = new.unwrap_or(*ceiling);
        let max = ceiling.nr_seats(self.machine.millicpus());
        let waiters = self.gate.set_max(max);
        drop(ceiling);
        waiters.into_iter().for_each(WaitingPwq::take_seat);
    }

    pub(crate) fn check_registry(&self, registry: &Registry) -> Result<(), BuildError> {
        if Arc::ptr_eq(&self.machine, registry.machine()) {
            Ok(())
        } else {
            Err(BuildError::GroupRegistry(self.name.clone()))
        }
    }

    pub(crate) fn must_be_at_home(&self) {
        let name = &self.name;
        assert!(
            self.process.is_this(),
            "group {name:?} was made before the process was forked, and its workers are not in the child: make a \
             group there"
        );
    }
}

impl Follower for GroupInner {
    fn follow(&self, _machine: &Machine) {
        self.set_ceiling(None);
    }

    fn report(&self) -> Option<QueueReport> {
        None
    }

    fn group_record(&self) -> Option<Record> {
        Some(self.stats().record(&self.name))
    }
}

// In a child of `fork` the lock may be held forever.
sync::on_drop!(GroupInner, it => if it.process.is_this() {
    it.machine.remove_queue(ptr::from_ref(it));
});

sync::on_drop!(GroupDrain<'_>, it => it.0.change_drains(|nr_drains| nr_drains - 1));

base::internal::impl_debug!(Group, it => name: it.inner.name, nr_active: it.inner.gate.nr_active());

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn ceiling_per_cpu_rounds_up_and_is_at_least_one() {
        for (factor, millicpus, expected) in [
            (2.0, 8000, 16),
            (0.5, 3000, 2),
            (0.1, 1000, 1),
            (1.0, 1500, 2),
            (64.0, 1_000_000, UNLIMITED),
        ] {
            assert_eq!(Ceiling::PerCpu(factor).nr_seats(millicpus), expected);
        }
    }

    #[test]
    fn ceiling_out_of_range_is_rejected() {
        for factor in [0.0, -1.0, 64.1, f64::NAN, f64::INFINITY] {
            assert!(Ceiling::PerCpu(factor).check().is_err(), "{factor}");
        }
        for max in [0, MAX_GROUP_ACTIVE + 1] {
            assert!(Ceiling::Max(max).check().is_err(), "{max}");
        }
        assert!(Ceiling::Max(MAX_GROUP_ACTIVE).check().is_ok());
    }
}
