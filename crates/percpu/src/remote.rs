//! Per-CPU data, and calls on the slot of any CPU.

use std::time::Duration;

use base::internal::page;
use base::internal::panics::{self, Foreign};
use sync::atomic::{AtomicU64, Ordering};
use sync::unmodelled::Arc;
use topology::{CpuId, CpuSet};

use super::attempt::Attempt;
use super::backoff::{self, Deadline, Step};
use super::choice::{Escalation, Kind};
use super::fork::Listed;
use super::owner::{AttachError, Owner};
use super::slot::Slot;
use super::table::Table;

/// The counters of remote calls, not of owners' operations, that the process's page shows.
pub(super) type Tally = page::Tally<4>;

pub(super) const DRAINS: usize = 0;
pub(super) const DRAINED: usize = 1;
pub(super) const WAITED: usize = 2;
pub(super) const QUEUED: usize = 3;

pub(super) type PanicHandler = Box<dyn Fn(CpuId) + Send + Sync>;

/// Holds one `T` for each CPU that the machine can have.
///
/// See [the module page](super) for how owners and other threads share the data.
///
/// # Guarantees
///
/// - Operations of the owner and of remote callers on a slot never overlap.
/// - The effects of an operation are visible to the next operation on that slot, whichever thread
///   performs it.
/// - A remote call runs `f` exactly once, and returns after `f` has run. Calls of one thread on one
///   slot run in order.
/// - [Queued work](Self::queue_percpu_work) has run when a later [`flush`](Self::flush) returns.
/// - CPUs that go offline keep their slots. Calls still reach the data, and
///   [`drain_when_absent`](Self::drain_when_absent) drains it.
/// - In a child of `fork`, free slots and slots of the thread that forked keep their data. A call
///   on another held slot panics, because its data may be partly changed. Queued work runs only in
///   the parent.
///
/// # Blocking
///
/// A call waits while another thread is inside the slot. On an owned slot it also waits, in
/// [`Qpw::Queue`](super::Qpw), until the owner polls or parks, and in `OnDemand`, until the owner
/// operates, polls or parks (see [`Escalate`](super::Escalate)). In `EveryOp` there is no such
/// wait. An owner that operates all the time does not starve callers: see [Waiting](super#waiting)
/// for the bound. An owner that was leaked (`mem::forget`) keeps its slot until its thread has
/// exited. After ten seconds, a call that waits for an owner prints a message to stderr that names
/// the owner's thread. Two owners that call each other's slots may wait forever, unless they
/// [park](Owner::while_parked) first.
#[doc(alias("DEFINE_PER_CPU", "alloc_percpu"))]
pub struct PerCpu<T, const C: bool = false> {
    /// Dropped before the slots.
    pub(super) listed: Listed,
    pub(super) table: Table<T>,
    pub(super) escalation: Escalation,
    pub(super) panics: Arc<Panics>,
    pub(super) tally: Tally,
}

pub(super) struct Panics {
    pub(super) nr: AtomicU64,
    pub(super) handler: Option<Foreign<PanicHandler>>,
}

impl Panics {
    pub(super) fn count(&self, cpu: CpuId) {
        self.nr.fetch_add(1, Ordering::Relaxed);
        if let Some(handler) = &self.handler {
            // FOREIGN(percpu-on-panic): the handler, on the thread inside. A panic is caught.
            panics::contain(|| handler(cpu));
        }
    }
}

/// The error of [`PerCpu::try_run_on`], which contains the closure.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRun<F> {
    /// The slot could not be taken in time.
    Busy(F),
    /// There is no slot for this CPU.
    NoSuchCpu(F),
}

impl<T, const C: bool> PerCpu<T, C> {
    /// Returns the CPUs that have a slot: all possible CPUs of the machine.
    pub fn cpus(&self) -> &CpuSet {
        &self.table.cpus
    }

    /// Returns the number of caught panics in queued work and in [drains](Self::drain_when_absent).
    pub fn nr_panics(&self) -> u64 {
        self.panics.nr.load(Ordering::Relaxed)
    }

    /// Makes the calling thread the owner of a CPU's slot. Does not pin the thread to the CPU.
    ///
    /// # Blocking
    ///
    /// Blocks while another thread is inside the slot.
    ///
    /// # Errors
    ///
    /// See [`AttachError`]. A leaked owner (`mem::forget`) does not count if its thread has exited.
    ///
    /// # Panics
    ///
    /// Panics if the calling thread is inside the slot.
    pub fn attach(&self, cpu: CpuId) -> Result<Owner<'_, T, C>, AttachError> {
        let slot = self.table.slot(cpu).ok_or(AttachError::NoSuchCpu(cpu))?;
        slot.check_not_called_here();
        Owner::attach(slot)
    }

    /// Returns the data of all slots, by CPU.
    pub fn into_data(self) -> impl Iterator<Item = (CpuId, T)> {
        drop(self.listed);
        let slots = self.table.slots.into_iter();
        slots.map(|slot| (slot.cpu(), slot.data.into_inner()))
    }
}

impl<T: Send, const C: bool> PerCpu<T, C> {
    /// Calls `f` on the data of `cpu`, and returns its result.
    ///
    /// `f` runs on the calling thread, or in [`Qpw::Queue`](super::Qpw) on the owner. A panic in
    /// `f` is resumed on the caller in either case.
    ///
    /// # Blocking
    ///
    /// Blocks until `f` has run; see [`PerCpu`].
    ///
    /// # Panics
    ///
    /// Panics if `cpu` has no slot, or if the calling thread owns the slot and has not parked, or
    /// is inside it. In that case `f` has not run.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::percpu::PerCpu;
    /// let names = PerCpu::builder().build(|cpu| cpu.to_string())?;
    /// let cpu = names.cpus().last().unwrap();
    /// assert_eq!(names.run_on(cpu, |name| name.len()), cpu.to_string().len());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "smp_call_function_single")]
    pub fn run_on<R: Send>(&self, cpu: CpuId, f: impl FnOnce(&mut T) -> R + Send) -> R {
        self.call(self.not_mine(self.slot(cpu)), f)
    }

    /// Calls `f` on the data of the CPU on which this thread runs. Use it on threads that own no
    /// slot. Costs one locked instruction on a slot without an owner.
    ///
    /// The thread may have moved to another CPU when `f` runs; the choice of the slot only makes
    /// contention rare.
    ///
    /// # Blocking
    ///
    /// The same as [`run_on`](Self::run_on).
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`run_on`](Self::run_on) for that CPU.
    #[inline]
    #[doc(alias("get_cpu_ptr", "put_cpu_ptr"))]
    pub fn with_current<R: Send>(&self, f: impl FnOnce(&mut T) -> R + Send) -> R {
        let slot = self.table.current();
        self.call(self.not_mine(slot), f)
    }

    /// Calls `f` on the data of `cpu`, if `f` can begin within `deadline`. With a deadline of zero,
    /// takes the slot only if it is free, and does not ask the owner for it.
    ///
    /// # Blocking
    ///
    /// Blocks for at most `deadline`. If `f` has begun by then, blocks until `f` has run.
    ///
    /// # Errors
    ///
    /// Returns [`NotRun`], with `f`.
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`run_on`](Self::run_on), except that a CPU without a slot is an
    /// error.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::percpu::{PerCpu, Qpw};
    /// use std::time::Duration;
    ///
    /// let lists = PerCpu::builder().qpw(Qpw::Queue).build(|_| Vec::<u32>::new())?;
    /// let cpu = lists.cpus().first().unwrap();
    /// let emptied = lists.try_run_on(cpu, Duration::from_millis(1), |list| list.clear());
    /// assert!(emptied.is_ok());
    ///
    /// // In the mode `Queue`, an owner that does not poll, like this thread, runs no calls.
    /// let owner = lists.attach(cpu)?;
    /// std::thread::scope(|scope| {
    ///     let late = scope.spawn(|| {
    ///         let timeout = Duration::from_millis(1);
    ///         lists.try_run_on(cpu, timeout, |list| list.len()).is_err()
    ///     });
    ///     assert!(late.join().unwrap());
    /// });
    /// # drop(owner);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_run_on<R: Send, F: FnOnce(&mut T) -> R + Send>(
        &self,
        cpu: CpuId,
        deadline: Duration,
        f: F,
    ) -> Result<R, NotRun<F>> {
        let Some(slot) = self.table.slot(cpu) else {
            return Err(NotRun::NoSuchCpu(f));
        };
        let mut attempt = Attempt::new(self.not_mine(slot), self.escalation, f);
        if let Some(result) = attempt.try_now() {
            return Ok(result);
        }
        if !deadline.is_zero() {
            let mut deadline = Deadline::after(deadline);
            let ended = backoff::wait_for(|step| match deadline.is_over() {
                true => Some(None),
                false => attempt.step(step).map(Some),
            });
            if let Some(result) = ended {
                return Ok(result);
            }
        }
        attempt.cancel().map_or_else(Ok, |f| Err(NotRun::Busy(f)))
    }

    /// Runs `work` on the data of `cpu`, now or later.
    ///
    /// - In the mode `Queue`, if the slot is owned, `work` is queued to the owner, and runs when
    ///   the owner polls, parks or is dropped.
    /// - Inside a call on that slot, or its queued work, `work` runs after that call or work.
    /// - Otherwise `work` runs on the calling thread before this returns.
    ///
    /// A panic in `work` is caught, counted, and reported to
    /// [`Builder::on_panic`](super::Builder::on_panic).
    ///
    /// Differs from Linux: there a work item is queued once until it runs; here each call queues a
    /// separate unit of work.
    ///
    /// # Blocking
    ///
    /// In `Queue`, never blocks, but may run other queued calls of a slot that it finds free. In
    /// other modes, the same as [`run_on`](Self::run_on).
    ///
    /// # Panics
    ///
    /// Panics if `cpu` has no slot, or if the calling thread owns the slot and has not parked. It
    /// does not panic inside work of that slot.
    pub fn queue_percpu_work(&self, cpu: CpuId, work: impl FnOnce(&mut T) + Send + 'static) {
        let slot = self.slot(cpu);
        let panics = self.panics.clone();
        let contained = move |data: &mut T| {
            // FOREIGN(percpu-work): queued work, on the thread inside the slot. A panic is counted.
            if panics::contain(|| work(data)) {
                panics.count(cpu);
            }
        };
        if slot.is_called_here() {
            // The work runs after the current call.
            return slot.post(Box::new(contained));
        }
        self.not_mine(slot);
        if slot.kind() != Kind::Queue {
            return self.call(slot, contained);
        }
        let mut attempt = Attempt::new(slot, self.escalation, contained);
        if attempt.try_now().is_none()
            && let Ok(contained) = attempt.cancel()
        {
            self.tally[QUEUED].add(1);
            slot.post(Box::new(contained));
        }
    }

    /// Waits until all work that was queued for `cpu` before this call has run.
    ///
    /// # Blocking
    ///
    /// Blocks until that work has run. Otherwise the same as [`run_on`](Self::run_on).
    ///
    /// # Panics
    ///
    /// Panics in the same cases as [`run_on`](Self::run_on).
    pub fn flush(&self, cpu: CpuId) {
        let slot = self.not_mine(self.slot(cpu));
        let nr_posted = slot.far.call_queue.nr_posted();
        backoff::wait_for(|step| {
            let is_done = || slot.far.call_queue.is_done(nr_posted);
            match step {
                Step::Look(due) => {
                    slot.check_owner(due);
                    slot.help();
                    slot.must_not_be_lost();
                }
                Step::Nap => slot.nap(is_done),
            }
            is_done().then_some(())
        });
    }

    #[inline]
    fn call<R: Send>(&self, slot: &Slot<T>, f: impl FnOnce(&mut T) -> R + Send) -> R {
        let mut attempt = Attempt::new(slot, self.escalation, f);
        if let Some(result) = attempt.try_now() {
            return result;
        }
        self.tally[WAITED].add(1);
        backoff::wait_for(|step| attempt.step(step))
    }

    fn slot(&self, cpu: CpuId) -> &Slot<T> {
        self.table.slot(cpu).unwrap_or_else(|| panic!("CPU {cpu} has no slot"))
    }

    #[inline]
    pub(super) fn not_mine<'p>(&self, slot: &'p Slot<T>) -> &'p Slot<T> {
        assert!(
            !slot.is_mine(),
            "this thread owns the slot of CPU {}: use its `Owner`, or park first",
            slot.cpu()
        );
        slot.check_not_called_here();
        slot
    }
}

#[cfg(any(loom, shuttle))]
impl<T, const C: bool> PerCpu<T, C> {
    /// Returns `true` if a caller has announced that it waits for the slot of `cpu`.
    #[doc(hidden)]
    pub fn has_announced_caller(&self, cpu: CpuId) -> bool {
        let slot = self.table.slot(cpu);
        slot.is_some_and(|slot| slot.eldest.load(Ordering::Relaxed) != 0)
    }
}

impl<F> NotRun<F> {
    /// Returns the closure.
    pub fn into_inner(self) -> F {
        match self {
            Self::Busy(f) | Self::NoSuchCpu(f) => f,
        }
    }
}

base::internal::impl_error! {
    /// Converts the error and drops the closure.
    NotRun[F] {
        Busy(..) => TimedOut, "the slot did not become free in time";
        NoSuchCpu(..) => InvalidInput, "the CPU has no slot";
    }
}
