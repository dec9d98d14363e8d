//! Per-CPU data as everybody sees it: calls on the slot of any CPU.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use sync::atomic::{AtomicU64, Ordering};
use sync::unmodelled::Arc;
use topology::{CpuId, CpuSet};

use super::attempt::Attempt;
use super::choice::{AtStart, Choice, Escalation, Kind};
use super::fork::Listed;
use super::owner::{AttachError, Owner};
use super::patience::{self, Deadline};
use super::slot::Slot;
use super::table::Table;
use super::tally::{MAILED, Tally, WAITED, tally};
use crate::panics::{self, Foreign};
use crate::params::Qpw;

/// Called after queued work panicked.
pub(super) type PanicHandler = Box<dyn Fn(CpuId) + Send + Sync>;

/// Holds one `T` for each CPU that the machine can have.
///
/// [The module's page](super) tells how owners and others share it.
///
/// # Guarantees
///
/// - An operation on a slot has it alone: no other one, of owner or remote caller, overlaps it.
/// - What an operation did is visible to the next one on that slot, whoever makes it.
/// - Remote calls run once, in order where one caller makes them one after another on one slot; a call that has
///   returned has run. [Queued work](Self::queue_percpu_work) has run when a [`flush`](Self::flush) that began after it
///   returns.
/// - CPUs that go offline keep their slots: what is in there is still reached by every call, and brought elsewhere by
///   [`drain_when_absent`](Self::drain_when_absent).
///
/// - In a child of `fork` slots are there that nobody had, with their data, and those whose owner is the thread that forked.
///   A call on one that a thread had that is not there panics: its data may be half changed. Queued work is the parent's.
///
/// # Blocking
///
/// Calls on a slot wait for whoever is inside. A call on an owned slot waits in [`Qpw::Queue`](super::Qpw) until the
/// owner polls or parks, in `OnDemand` until it operates, polls or parks (see [`Escalate`](super::Escalate)), and not
/// at all in `EveryOp`. A thread that owns a slot and does not serve it meanwhile may wait for somebody who waits for it:
/// [park](Owner::while_parked) first.
pub struct PerCpu<T, C: Choice = AtStart> {
    /// Dropped before the slots are.
    listed: Listed,
    pub(super) table: Table<T>,
    pub(super) escalation: Escalation,
    /// Shared with mail.
    pub(super) panics: Arc<Panics>,
    pub(super) tally: Tally,
    choice: PhantomData<fn() -> C>,
}

/// What becomes of panics of queued work.
pub(super) struct Panics {
    nr: AtomicU64,
    handler: Option<Foreign<PanicHandler>>,
}

impl Panics {
    pub(super) fn count(&self, cpu: CpuId) {
        self.nr.fetch_add(1, Ordering::Relaxed);
        if let Some(handler) = &self.handler {
            // FOREIGN(percpu-on-panic): the handler, on whoever holds the slot, inside it; a panic ends here.
            panics::contain(|| handler(cpu));
        }
    }
}

/// Why a call with a deadline was not run; the closure is in it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NotRun<F> {
    /// The slot could not be had in time.
    Busy(F),
    /// There is no slot for this CPU.
    NoSuchCpu(F),
}

impl<T, C: Choice> PerCpu<T, C> {
    pub(super) fn from_parts(
        table: Table<T>,
        escalation: Escalation,
        on_panic: Option<PanicHandler>,
        name: &str,
        qpw: Qpw,
    ) -> Self {
        let panics = Arc::new(Panics {
            nr: AtomicU64::new(0),
            handler: on_panic.map(Foreign::new),
        });
        let seen = panics.clone();
        let nr_panicked = move || seen.nr.load(Ordering::Relaxed);
        let tally = tally(name, qpw, table.slots.len(), nr_panicked);
        Self {
            listed: Listed::new(&table),
            table,
            escalation,
            panics,
            tally,
            choice: PhantomData,
        }
    }

    /// Returns the CPUs that have a slot: all that the machine can have.
    pub fn cpus(&self) -> &CpuSet {
        &self.table.cpus
    }

    /// Counts the panics of queued work, and of [drains](Self::drain_when_absent) of CPUs that left.
    pub fn nr_panics(&self) -> u64 {
        self.panics.nr.load(Ordering::Relaxed)
    }

    /// Makes the calling thread the owner of a CPU's slot.
    ///
    /// It does not pin the thread there.
    ///
    /// # Blocking
    ///
    /// As long as somebody is inside the slot.
    ///
    /// # Errors
    ///
    /// See [`AttachError`].
    ///
    /// # Panics
    ///
    /// If the calling thread is inside the slot.
    pub fn attach(&self, cpu: CpuId) -> Result<Owner<'_, T, C>, AttachError> {
        let slot = self.table.slot(cpu).ok_or(AttachError::NoSuchCpu(cpu))?;
        slot.check_not_called_here();
        Owner::attach(slot)
    }

    /// Returns the data of all slots, by CPU.
    pub fn into_data(self) -> impl Iterator<Item = (CpuId, T)> {
        drop(self.listed);
        let slots = self.table.slots.into_iter();
        slots.map(|slot| (slot.cpu(), slot.into_data()))
    }
}

impl<T: Send, C: Choice> PerCpu<T, C> {
    /// Calls `f` on the data of `cpu`, and returns what it returns.
    ///
    /// It runs here, or by the owner in [`Qpw::Queue`](super::Qpw); a panic of it goes on here in either case.
    ///
    /// # Blocking
    ///
    /// Until it has run: see the type.
    ///
    /// # Panics
    ///
    /// If `cpu` has no slot, or the calling thread owns it and has not parked, or is inside that slot already; before
    /// anything was done.
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
    pub fn run_on<R: Send>(&self, cpu: CpuId, f: impl FnOnce(&mut T) -> R + Send) -> R {
        self.call(self.not_mine(self.slot(cpu)), f)
    }

    /// Calls `f` on the data of the CPU that this thread runs on, for a thread that owns no slot.
    ///
    /// The thread may be elsewhere by the time that `f` runs, so this is a hint that makes sharing rare. On a slot
    /// without an owner it costs a locked instruction. On an owned slot it is a remote call like any other.
    ///
    /// # Blocking
    ///
    /// As [`run_on`](Self::run_on).
    ///
    /// # Panics
    ///
    /// As [`run_on`](Self::run_on), of that CPU.
    #[inline]
    pub fn with_current<R: Send>(&self, f: impl FnOnce(&mut T) -> R + Send) -> R {
        let slot = self.table.current();
        self.call(self.not_mine(slot), f)
    }

    /// Calls `f` on the data of `cpu`, if that can be begun within `deadline`.
    ///
    /// A deadline of zero takes the slot if nobody has it, and disturbs nobody else.
    ///
    /// # Blocking
    ///
    /// For `deadline`, and for as long as `f` takes if it has begun by then.
    ///
    /// # Errors
    ///
    /// [`NotRun`], with `f`.
    ///
    /// # Panics
    ///
    /// As [`run_on`](Self::run_on), except that a CPU without a slot is an error.
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
    /// // In the mode `Queue` an owner that does not poll, like this thread, answers nobody.
    /// let owner = lists.attach(cpu)?;
    /// std::thread::scope(|scope| {
    ///     let late = scope.spawn(|| lists.try_run_on(cpu, Duration::from_millis(1), |list| list.len()).is_err());
    ///     assert!(late.join().unwrap());
    /// });
    /// # drop(owner);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_run_on<R: Send, F>(
        &self,
        cpu: CpuId,
        deadline: Duration,
        f: F,
    ) -> Result<R, NotRun<F>>
    where
        F: FnOnce(&mut T) -> R + Send,
    {
        let Some(slot) = self.table.slot(cpu) else {
            return Err(NotRun::NoSuchCpu(f));
        };
        let mut attempt = Attempt::new(self.not_mine(slot), self.escalation, f);
        if let Some(result) = attempt.try_now() {
            return Ok(result);
        }
        if !deadline.is_zero() {
            let mut deadline = Deadline::after(deadline);
            let ended = patience::wait_for(|| match deadline.is_over() {
                true => Some(None),
                false => attempt.look().map(Some),
            });
            if let Some(result) = ended {
                return Ok(result);
            }
        }
        match attempt.cancel() {
            Ok(f) => Err(NotRun::Busy(f)),
            Err(result) => Ok(result),
        }
    }

    /// Has `work` run on the data of `cpu`, soon.
    ///
    /// Where the mode queues and the slot is owned, it is mailed to the owner, and runs when that polls, parks or ends.
    /// Otherwise it runs here and now. From inside a call on that slot, or work queued for it, it runs after that, by the
    /// same thread or, while the slot is owned, as other mail. A panic of it is caught and counted, and handed to
    /// [`Builder::on_panic`](super::Builder::on_panic).
    ///
    /// # Blocking
    ///
    /// In `Queue` never, except that it may run other mail of a slot that it finds free; else as
    /// [`run_on`](Self::run_on).
    ///
    /// # Panics
    ///
    /// If `cpu` has no slot, or the calling thread owns it, has not parked, and does not call from inside such work.
    ///
    /// Differs from Linux: a work item there is queued once until it runs; here each call is work of its own.
    pub fn queue_percpu_work(&self, cpu: CpuId, work: impl FnOnce(&mut T) + Send + 'static) {
        let slot = self.slot(cpu);
        let panics = self.panics.clone();
        let contained = move |data: &mut T| {
            // FOREIGN(percpu-work): queued work, on whoever holds the slot; a panic ends here, and is counted.
            if panics::contain(|| work(data)) {
                panics.count(cpu);
            }
        };
        if slot.is_called_here() {
            // From a section of that very slot: after it.
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
            self.tally[MAILED].add(1);
            slot.post(Box::new(contained));
        }
    }

    /// Waits until all work that was queued for `cpu` before has run.
    ///
    /// # Blocking
    ///
    /// Until then.
    ///
    /// # Panics
    ///
    /// As [`run_on`](Self::run_on).
    pub fn flush(&self, cpu: CpuId) {
        let slot = self.not_mine(self.slot(cpu));
        let nr_posted = slot.mail().nr_posted();
        patience::wait_for(|| {
            slot.help();
            slot.must_not_be_lost();
            slot.mail().is_done(nr_posted).then_some(())
        });
    }

    #[inline]
    fn call<R: Send>(&self, slot: &Slot<T>, f: impl FnOnce(&mut T) -> R + Send) -> R {
        let mut attempt = Attempt::new(slot, self.escalation, f);
        if let Some(result) = attempt.try_now() {
            return result;
        }
        self.tally[WAITED].add(1);
        patience::wait_for(|| attempt.look())
    }

    fn slot(&self, cpu: CpuId) -> &Slot<T> {
        self.table
            .slot(cpu)
            .unwrap_or_else(|| panic!("CPU {cpu} has no slot"))
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

impl<F> NotRun<F> {
    /// Returns the closure.
    pub fn into_inner(self) -> F {
        match self {
            Self::Busy(f) | Self::NoSuchCpu(f) => f,
        }
    }
}

// By hand: closures cannot be printed.
impl<F> fmt::Debug for NotRun<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy(_) => "Busy(..)",
            Self::NoSuchCpu(_) => "NoSuchCpu(..)",
        })
    }
}

impl<F> fmt::Display for NotRun<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Busy(_) => "the slot could not be had in time",
            Self::NoSuchCpu(_) => "the CPU has no slot",
        })
    }
}

impl<F> std::error::Error for NotRun<F> {}

impl<T, C: Choice> fmt::Debug for PerCpu<T, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerCpu")
            .field("cpus", &self.table.cpus)
            .field("escalation", &self.escalation)
            .finish_non_exhaustive()
    }
}
