//! The owner of a slot, which operates on the slot, polls and parks.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use base::internal::params::Qpw;
use sync::slice::Section;
use sync::twin;
use topology::CpuId;

use super::choice::{Kind, chosen};
use super::slot::Slot;

/// Ownership of one CPU's slot of a [`PerCpu`](super::PerCpu). It belongs to the thread that
/// created it.
///
/// A slot has at most one owner, which stays on its thread. That thread should run on the slot's
/// CPU, which is faster but not required. Dropping the owner gives up the slot.
///
/// # Guarantees
///
/// - No two operations on a slot overlap. [`with`](Self::with) takes `&mut self`, so an operation
///   cannot begin inside another one, and remote callers use the data only while the owner is not
///   inside an operation.
/// - An owner that polls, parks or is dropped runs its queued calls. No call is lost.
///
/// # Examples
///
/// ```
/// use afterwork::percpu::{PerCpu, Qpw};
///
/// let hits = PerCpu::builder().qpw(Qpw::OnDemand).build(|_| 0u64)?;
/// let cpu = hits.cpus().first().unwrap();
/// let mut owner = hits.attach(cpu)?;
/// for _ in 0..10 {
///     owner.with(|hits| *hits += 1);
/// }
/// let parked = owner.park();
/// assert_eq!(hits.run_on(cpu, |hits| *hits), 10);
/// # drop(parked);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// An operation inside another one does not compile:
///
/// ```compile_fail
/// # use afterwork::percpu::PerCpu;
/// # let hits = PerCpu::builder().build(|_| 0u64).unwrap();
/// # let mut owner = hits.attach(hits.cpus().first().unwrap()).unwrap();
/// owner.with(|_| owner.with(|hits| *hits += 1));
/// ```
///
/// Moving an owner to another thread does not compile either:
///
/// ```compile_fail
/// # use afterwork::percpu::PerCpu;
/// # let hits = PerCpu::builder().build(|_| 0u64).unwrap();
/// # let mut owner = hits.attach(hits.cpus().first().unwrap()).unwrap();
/// std::thread::scope(|scope| {
///     scope.spawn(move || owner.poll());
/// });
/// ```
pub struct Owner<'p, T, const C: bool = false> {
    slot: &'p Slot<T>,
    /// A copy that can stay in a register.
    kind: Kind,
    // The owner is bound to its thread.
    _not_send: PhantomData<*mut ()>,
}

/// An owner that has given up its slot, so that any thread may take it; created by [`Owner::park`].
/// Dropping it leaves the slot without an owner.
pub struct Parked<'p, T, const C: bool = false> {
    owner: Owner<'p, T, C>,
}

/// The error of [`PerCpu::attach`](super::PerCpu::attach).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AttachError {
    /// The slot has an [`Owner`], parked or not.
    Owned(CpuId),
    /// There is no slot for this CPU.
    NoSuchCpu(CpuId),
    /// The CPU is isolated, and the mode is fixed to `Queue` at compile time.
    Isolated(CpuId),
}

/// An operation, dropped only during a panic.
struct Operation<'p, T> {
    slot: &'p Slot<T>,
    kind: Kind,
    asked: bool,
}

impl<'p, T> Operation<'p, T> {
    #[inline(always)]
    fn begin(slot: &'p Slot<T>, kind: Kind) -> Self {
        let asked = slot.enter(kind);
        Self { slot, kind, asked }
    }

    /// # Safety
    ///
    /// 1. The caller is the owner, and is inside the slot only through `self`.
    #[inline(always)]
    unsafe fn run<R>(self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: (1), and after `enter` the slot is ours until `exit`.
        let result = unsafe { self.slot.touch(f) };
        let Self { slot, kind, asked } = *ManuallyDrop::new(self);
        slot.exit(kind, asked);
        result
    }
}

impl<'p, T, const C: bool> Owner<'p, T, C> {
    pub(super) fn attach(slot: &'p Slot<T>) -> Result<Self, AttachError> {
        let kind = chosen::<C>(slot.kind());
        if kind != slot.kind() {
            return Err(AttachError::Isolated(slot.cpu()));
        }
        if !slot.claim() && !slot.take_over() {
            return Err(AttachError::Owned(slot.cpu()));
        }
        slot.take_back();
        Ok(Self { slot, kind, _not_send: PhantomData })
    }

    /// Leaks the owner, and makes its thread appear to have exited afterwards.
    #[cfg(any(loom, shuttle))]
    #[doc(hidden)]
    pub fn leak_by_an_ended_thread(self) {
        let owner = self.slot.owner().of_thread(sync::thread::ENDED);
        self.slot.far.owner.store(owner.0, sync::atomic::Ordering::Relaxed);
        std::mem::forget(self);
    }

    /// Returns the CPU whose slot this is.
    pub fn cpu(&self) -> CpuId {
        self.slot.cpu()
    }

    /// Returns the mode in which remote callers access this slot: that of the data, but
    /// [`EveryOp`](Qpw::EveryOp) instead of `Queue` on an isolated CPU.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::percpu::{PerCpu, Qpw};
    /// let hits = PerCpu::builder().qpw(Qpw::OnDemand).build(|_| 0u64)?;
    /// let owner = hits.attach(hits.cpus().first().unwrap())?;
    /// assert_eq!(owner.qpw(), Qpw::OnDemand);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn qpw(&self) -> Qpw {
        chosen::<C>(self.kind).qpw()
    }

    /// Calls `f` with the data. A panic in `f` ends the operation and leaves the data as it is.
    ///
    /// Keep `f` short: remote callers wait until it ends, even while this thread is preempted.
    /// Costs nothing, a load, or a locked instruction, depending on the [mode](super), if the
    /// `Owner` is in a local variable of the loop that uses it.
    ///
    /// # Blocking
    ///
    /// In [`OnDemand`](Qpw::OnDemand) and [`EveryOp`](Qpw::EveryOp), blocks while a remote caller
    /// is inside the slot, and for up to 10 ms for callers that it has woken. Never blocks in
    /// `Queue`.
    #[inline(always)]
    #[doc(alias("this_cpu_add", "local_lock"))]
    pub fn with<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        let slot = self.slot;
        // One arm per kind: the end of an operation does not test the kind again.
        match chosen::<C>(self.kind) {
            // SAFETY: we are the only owner, and `&mut self` means that we are not inside:
            // functions that run queued calls also take `&mut self`.
            Kind::Queue => unsafe { Operation::begin(slot, Kind::Queue).run(f) },
            // SAFETY: as above.
            Kind::OnDemand => unsafe { Operation::begin(slot, Kind::OnDemand).run(f) },
            // SAFETY: as above.
            Kind::Breakable => unsafe { Operation::begin(slot, Kind::Breakable).run(f) },
            Kind::EveryOp => {
                let operation = Operation::begin(slot, Kind::EveryOp);
                let _section = Section::enter();
                // SAFETY: as above.
                unsafe { operation.run(f) }
            }
        }
    }

    /// Runs the queued calls, or hands the slot over to a thread that asks for it. Call it between
    /// units of work, and in loops that do not use the slot. Costs a load if there is nothing to
    /// do.
    ///
    /// # Blocking
    ///
    /// Blocks as [`with`](Self::with) does, and while the queued calls run.
    #[inline]
    pub fn poll(&mut self) {
        self.slot.poll(chosen::<C>(self.kind));
    }

    /// Gives up the slot until [`Parked::unpark`], for example before a sleep, or before a loop
    /// that must not be disturbed and does not use the slot.
    ///
    /// # Blocking
    ///
    /// Blocks while it runs the queued calls.
    pub fn park(self) -> Parked<'p, T, C> {
        self.slot.give_up();
        Parked { owner: self }
    }

    /// Calls `wait`, which may sleep or call this [`PerCpu`](super::PerCpu), while the slot is
    /// given up.
    ///
    /// # Blocking
    ///
    /// Blocks as `wait` does, and then while another thread is inside the slot.
    ///
    /// # Examples
    ///
    /// ```
    /// # use afterwork::percpu::PerCpu;
    /// let cache = PerCpu::builder().build(|_| vec![1])?;
    /// let cpu = cache.cpus().first().unwrap();
    /// let mut owner = cache.attach(cpu)?;
    /// owner.while_parked(|| cache.drain_all(|_, items| items.clear()));
    /// owner.with(|items| assert!(items.is_empty()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn while_parked<R>(&mut self, wait: impl FnOnce() -> R) -> R {
        struct Back<'a, T>(&'a Slot<T>);
        impl<T> Drop for Back<'_, T> {
            fn drop(&mut self) {
                if !twin::torn_down() {
                    self.0.take_back();
                }
            }
        }
        self.slot.give_up();
        let _back = Back(self.slot);
        wait()
    }
}

impl<'p, T, const C: bool> Parked<'p, T, C> {
    /// Takes the slot back.
    ///
    /// # Blocking
    ///
    /// Blocks while another thread is inside the slot.
    ///
    /// # Panics
    ///
    /// Panics if this thread is inside the slot through a call. In that case the slot has no owner.
    pub fn unpark(self) -> Owner<'p, T, C> {
        let Self { owner } = self;
        owner.slot.check_not_called_here();
        owner.slot.take_back();
        owner
    }
}

impl<T, const C: bool> Drop for Owner<'_, T, C> {
    fn drop(&mut self) {
        if !twin::torn_down() {
            // A parked owner has already given up the slot.
            if self.slot.is_mine() {
                self.slot.give_up();
            }
            self.slot.disclaim();
        }
    }
}

impl<T> Drop for Operation<'_, T> {
    fn drop(&mut self) {
        if !twin::torn_down() {
            // Only this call is inlined, which keeps the operation in registers until a panic.
            self.slot.exit_by_panic(self.kind, self.asked);
        }
    }
}

base::internal::impl_error!(AttachError {
    Owned(cpu) => ResourceBusy, "the slot of CPU {cpu} has an owner";
    NoSuchCpu(cpu) => InvalidInput, "CPU {cpu} has no slot";
    Isolated(cpu) => InvalidInput, "CPU {cpu} is isolated: nothing is queued onto it";
});
