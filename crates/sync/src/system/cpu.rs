//! The CPU of this thread, and the CPUs on which it may run.

use std::{io, ptr};

#[cfg(feature = "machine")]
use topology::Topology;
use topology::{CpuId, CpuSet};

use crate::system::checked;
#[cfg(feature = "machine")]
use crate::system::set_once::SetOnce;
use crate::thread::ThreadId;

/// The number of CPUs in the C library's `cpu_set_t`.
const NR_MASKED: usize = 1024;

/// The bits of a `cpu_set_t`: CPU `n` is bit `n % 64` of word `n / 64`.
pub(crate) type Mask = [u64; NR_MASKED / 64];

/// Returns the CPUs on which `thread` may run, where 0 means this thread.
pub(crate) fn mask_of(thread: u32) -> io::Result<Mask> {
    let mut mask = Mask::default();
    let place = (&raw mut mask).cast();
    // SAFETY: the call writes the mask, and `size_of` is its length.
    checked(unsafe { libc::sched_getaffinity(thread as _, size_of::<Mask>(), place) })?;
    Ok(mask)
}

/// Binds `thread` to the CPUs of `mask`, where 0 means this thread.
pub(crate) fn set_mask(thread: u32, mask: &Mask) -> io::Result<()> {
    let mask = ptr::from_ref(mask).cast();
    // SAFETY: the call reads the mask, whose length is the second argument.
    checked(unsafe { libc::sched_setaffinity(thread as _, size_of::<Mask>(), mask) })
}

/// Returns the CPU on which this thread runs. The thread may move to another CPU at any moment.
///
/// This costs a load if glibc has registered restartable sequences (2.35 and later), otherwise a
/// `getcpu` call of the vDSO. Returns CPU 0 in a model.
#[inline]
pub fn current() -> CpuId {
    #[cfg(sim)]
    if let Some(cpu) = crate::sim::current_cpu() {
        return cpu;
    }
    #[cfg(not(any(loom, shuttle)))]
    return CpuId::new(real::current());
    #[cfg(any(loom, shuttle))]
    CpuId::new(0)
}

/// Returns the CPUs that this thread may run on.
///
/// # Errors
///
/// Returns the system's error, for example if the machine has more than 1024 CPUs.
pub fn affinity() -> io::Result<CpuSet> {
    #[cfg(sim)]
    if let Some(cpus) = crate::sim::affinity() {
        return Ok(cpus);
    }
    mask_of(0).map(cpus_in)
}

fn cpus_in(mask: Mask) -> CpuSet {
    let cpus = (0..NR_MASKED).filter(|&cpu| mask[cpu / 64] >> (cpu % 64) & 1 != 0);
    cpus.map(|cpu| CpuId::new(cpu as u32)).collect()
}

/// Binds `thread` to `cpus`. `None` means this thread. Does nothing in a model.
///
/// # Errors
///
/// Returns `InvalidInput` if `cpus` is empty or contains a CPU above 1023, or the system's error,
/// for example if none of the CPUs is online or the thread does not exist.
pub fn set_affinity(thread: Option<ThreadId>, cpus: &CpuSet) -> io::Result<()> {
    let mut mask = Mask::default();
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    for cpu in cpus {
        if cpu.index() >= NR_MASKED {
            return Err(invalid(format!("{cpu} is past the {NR_MASKED} CPUs of an affinity mask")));
        }
        mask[cpu.index() / 64] |= 1 << (cpu.index() % 64);
    }
    if cpus.is_empty() {
        return Err(invalid("an empty set of CPUs".into()));
    }
    #[cfg(sim)]
    if !crate::sim::set_affinity(thread.map(|id| id.0), cpus) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if !cfg!(any(loom, shuttle, sim)) {
        set_mask(thread.map_or(0, |id| id.0), &mask)?;
    }
    Ok(())
}

/// Returns the machine of this process: the simulated one, that of [`set_topology`], or the
/// detected one. The first detection that has to ignore a fault of the machine writes one line on
/// stderr.
///
/// # Errors
///
/// Returns the same errors as [`Topology::detect`].
#[cfg(feature = "machine")]
pub fn topology() -> Result<Topology, topology::Error> {
    #[cfg(sim)]
    if let Some(machine) = crate::sim::topology() {
        return Ok(machine);
    }
    if let Some(given) = given() {
        return Ok(given.clone());
    }
    let detected = match affinity() {
        Ok(affinity) => Topology::detect_for(&affinity)?,
        // This detection uses only files.
        Err(_) => Topology::detect()?,
    };
    if !cfg!(any(loom, shuttle, sim)) {
        report_ignored(&detected);
    }
    Ok(detected)
}

/// Detects the machine again if it has changed since `seen`. `thread` still has the affinity mask
/// with which `seen` was detected. A machine that the program has set never changes.
#[cfg(feature = "machine")]
pub fn topology_changed(seen: &Topology, thread: ThreadId) -> Option<Topology> {
    if given().is_some() {
        return None;
    }
    let affinity = mask_of(thread.0).map(cpus_in).ok();
    seen.changed(affinity.as_ref()).ok()?
}

/// The machine that the program has set, or `None` if it can set none any more.
#[cfg(feature = "machine")]
static GIVEN: SetOnce<Option<Topology>> = SetOnce::new();

/// Returns the machine that the program has set. From now on, [`set_topology`] fails.
#[cfg(feature = "machine")]
fn given() -> Option<&'static Topology> {
    if GIVEN.get().is_none() {
        GIVEN.set(None).ok();
    }
    GIVEN.get()?.as_ref()
}

/// Sets the machine that [`topology()`] returns from now on.
///
/// # Errors
///
/// Returns `machine` if this function or [`topology()`] has determined the machine already.
#[cfg(feature = "machine")]
pub fn set_topology(machine: Topology) -> Result<(), Box<Topology>> {
    let known = GIVEN.set(Some(machine));
    known.map_err(|refused| Box::new(refused.expect("the argument is a machine")))
}

/// Reports the ignored faults of the machine on stderr, once for a process and its children.
#[cfg(feature = "machine")]
fn report_ignored(machine: &Topology) {
    use std::sync::atomic::{AtomicBool, Ordering};

    static IS_REPORTED: AtomicBool = AtomicBool::new(false);
    let mut quirks = machine.quirks().iter();
    if let Some(quirk) = quirks.find(|quirk| matches!(quirk, topology::Quirk::Ignored { .. }))
        && !IS_REPORTED.swap(true, Ordering::Relaxed)
    {
        let allowed = machine.allowed();
        crate::process::write_line(&format!(
            "the machine is not known in full: {quirk}; the CPUs {allowed} are used, and CPUs of unknown position share one cache"
        ));
    }
}

/// Miri has no `getcpu`. A thread never moves there, so its number selects one CPU of its mask.
#[cfg(miri)]
mod real {
    pub fn current() -> u32 {
        // Miri emulates 64 CPUs at most.
        let mask = super::mask_of(0).expect("Miri knows the mask")[0];
        let mut cpus = (0..64).filter(|cpu| mask >> cpu & 1 != 0);
        let which = crate::thread::current().0 % mask.count_ones();
        cpus.nth(which as usize).expect("a thread may run somewhere")
    }
}

#[cfg(not(any(loom, shuttle, miri)))]
mod real {
    use crate::atomic::{AtomicIsize, Ordering};
    use crate::system::rseq::Area;

    /// The offset of `cpu_id` from the thread pointer, [`UNKNOWN`] before the first call, or
    /// [`ABSENT`].
    static CPU_ID_OFFSET: AtomicIsize = AtomicIsize::new(UNKNOWN);
    const UNKNOWN: isize = isize::MIN;
    const ABSENT: isize = isize::MAX;

    #[inline]
    pub fn current() -> u32 {
        let offset = CPU_ID_OFFSET.load(Ordering::Relaxed);
        if offset != UNKNOWN && offset != ABSENT {
            // SAFETY: `Area::find` got this offset from glibc, which keeps a registered
            // `struct rseq` there for every thread that it starts, as long as that thread runs.
            let cpu = unsafe { load_at_thread_pointer(offset) };
            // The value is -1 or -2 for a thread that glibc could not register.
            if cpu <= i32::MAX as u32 {
                return cpu;
            }
        }
        slow(offset)
    }

    #[cold]
    fn slow(offset: isize) -> u32 {
        if offset == UNKNOWN {
            CPU_ID_OFFSET.store(find_offset(), Ordering::Relaxed);
        }
        // SAFETY: the call only returns a number.
        unsafe { libc::sched_getcpu() as u32 }
    }

    fn find_offset() -> isize {
        /// `offsetof(struct rseq, cpu_id)` in linux/rseq.h.
        const CPU_ID: isize = 4;
        Area::find().map_or(ABSENT, |area| area.offset + CPU_ID)
    }

    /// # Safety
    ///
    /// 1. A `u32` of this thread is at `offset` from its thread pointer.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    unsafe fn load_at_thread_pointer(offset: isize) -> u32 {
        let value: u32;
        // SAFETY: (1); fs is the thread pointer, and a load changes nothing. The option `pure` is
        // absent because the kernel changes the word when the thread moves.
        unsafe {
            core::arch::asm!(
                "mov {value:e}, dword ptr fs:[{offset}]",
                value = out(reg) value,
                offset = in(reg) offset,
                options(nostack, preserves_flags, readonly),
            );
        }
        value
    }

    /// # Safety
    ///
    /// 1. A `u32` of this thread is at `offset` from its thread pointer.
    #[cfg(not(target_arch = "x86_64"))]
    #[inline(always)]
    unsafe fn load_at_thread_pointer(offset: isize) -> u32 {
        // SAFETY: (1). The load is volatile, because the kernel changes the word when the thread
        // moves.
        unsafe {
            crate::system::rseq::thread_pointer().offset(offset).cast::<u32>().read_volatile()
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_thread_is_where_it_was_pinned() {
        let visit_all = || {
            for cpu in &affinity().unwrap() {
                set_affinity(None, &[cpu].into_iter().collect()).unwrap();
                assert_eq!([current(), current()], [cpu; 2]);
            }
        };
        std::thread::spawn(visit_all).join().unwrap();
    }

    #[test]
    fn empty_set_is_rejected() {
        let error = set_affinity(None, &CpuSet::new()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
