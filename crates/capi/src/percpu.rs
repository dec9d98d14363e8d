//! `afterwork/percpu.h`.
//!
//! [`aw_alloc_percpu`] returns the part of CPU 0. The part of each other CPU is `stride` bytes
//! after the previous part, and the stride is stored before the first part. There is no table that
//! must be locked, or that a child of `fork` could find half-updated.

use std::alloc::{self, Layout};
use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use afterwork::params::{Params, Qpw};
use sync::atomic::{AtomicU32, Ordering};
use sync::cpu;
use sync::futex::Futex;
use topology::Topology;

use crate::boundary::{misuse, within};

/// The alignment of a part: two cache lines, which CPUs may fetch together.
const LINE: usize = 128;
/// Distinguishes per-CPU data from other memory.
const MAGIC: usize = 0xf770_6572_6370_7521;

/// The header before the part of CPU 0.
#[repr(C)]
struct Before {
    magic: usize,
    align: usize,
    size: usize,
    /// The distance between two parts. It is the last field, because the C header reads it.
    stride: usize,
}

/// Returns one more than the highest possible CPU number, which does not change while the process
/// runs, because the layout of the parts depends on it.
pub(crate) fn nr_cpu_ids() -> u32 {
    let known = aw_nr_cpu_ids.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let possible = Topology::detect_possible().or_else(|_| cpu::affinity()).ok();
    let last = possible.and_then(|cpus| cpus.last());
    let nr = last.map_or(1, |cpu| cpu.as_u32() + 1);
    // If another thread stored a number first, that number is used.
    let first = aw_nr_cpu_ids.compare_exchange(0, nr, Ordering::Relaxed, Ordering::Relaxed);
    first.map_or_else(|first| first, |_| nr)
}

/// The value of [`nr_cpu_ids`], for C, or 0 before the loader has called [`set_nr_cpu_ids`]. If a
/// program has a copy of it, the loader makes the library use this copy as well.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "as C names it")]
pub static aw_nr_cpu_ids: AtomicU32 = AtomicU32::new(0);

/// Makes the loader call [`set_nr_cpu_ids`]. The section has the highest priority that programs may
/// use, so that their constructors find the number, even with a static library.
#[used]
#[unsafe(link_section = ".init_array.00101")]
static SET_NR_CPU_IDS: extern "C" fn() = set_nr_cpu_ids;

extern "C" fn set_nr_cpu_ids() {
    within("nr_cpu_ids", || _ = nr_cpu_ids());
}

/// Returns the CPU of the caller at some moment during the call. The CPU always has a part.
#[unsafe(no_mangle)]
extern "C" fn aw_raw_smp_processor_id() -> c_uint {
    within("raw_smp_processor_id", || {
        let (cpu, nr) = (cpu::current().as_u32(), nr_cpu_ids());
        if cpu < nr { cpu } else { cpu % nr }
    })
}

/// Returns `true` if a CPU is online.
#[unsafe(no_mangle)]
extern "C" fn aw_cpu_online(cpu: c_uint) -> bool {
    within("cpu_online", || {
        let topology = cpu::topology();
        topology.is_ok_and(|topology| topology.online().contains(topology::CpuId::new(cpu)))
    })
}

/// Allocates zeroed data for each CPU. Returns null without memory or for an invalid argument.
#[unsafe(no_mangle)]
extern "C" fn aw_alloc_percpu(size: usize, align: usize) -> *mut c_void {
    within("alloc_percpu", || {
        let nr = nr_cpu_ids() as usize;
        let align = align.max(LINE);
        let describe = || {
            let stride = size.checked_next_multiple_of(align).filter(|_| size > 0)?;
            let size = stride.checked_mul(nr)?.checked_add(align)?;
            Some((stride, Layout::from_size_align(size, align).ok()?))
        };
        let Some((stride, layout)) = describe() else {
            return ptr::null_mut();
        };
        // SAFETY: the size is not zero.
        let base = unsafe { alloc::alloc_zeroed(layout) };
        if base.is_null() {
            return ptr::null_mut();
        }
        let (align, size) = (layout.align(), layout.size());
        let first = base.wrapping_add(align);
        let before = Before { magic: MAGIC, align, size, stride };
        // SAFETY: `align` bytes precede the first part, which is enough space for `Before`.
        unsafe { first.cast::<Before>().sub(1).write(before) };
        first.cast()
    })
}

/// Frees per-CPU data. Null is ignored.
///
/// # Safety
///
/// 1. [`aw_alloc_percpu`] returned `data`, which is no longer used.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_free_percpu(data: *mut c_void) {
    within("free_percpu", || {
        if data.is_null() {
            return;
        }
        let before = data.cast::<Before>().wrapping_sub(1);
        // SAFETY: (1). The check detects other pointers only if the memory before them is readable.
        let has_magic = || unsafe { (&raw const (*before).magic).read() } == MAGIC;
        if !data.addr().is_multiple_of(LINE) || !has_magic() {
            return misuse("free_percpu", &"this is not per-CPU data, or it was freed", ());
        }
        // SAFETY: (1): the header was written when the data was allocated.
        let (align, size) = unsafe { ((*before).align, (*before).size) };
        // This makes it possible to detect a second free. The compiler would remove a plain store
        // before the free.
        // SAFETY: (1).
        unsafe { (&raw mut (*before).magic).write_volatile(0) };
        let layout = Layout::from_size_align(size, align).expect("it was made of this");
        // SAFETY: (1), and the memory was allocated with this layout.
        unsafe { alloc::dealloc(data.cast::<u8>().sub(align), layout) };
    });
}

// ---- the lock of one CPU's part ----

const FREE: u32 = 0;
/// The lock is held, and no thread sleeps.
const HELD: u32 = 1;
/// The lock is held, and threads may sleep.
const WAITED: u32 = 2;
/// The polls before a waiter sleeps, an estimate: a section takes a few dozen instructions.
const NR_LOOKS: u32 = 100;

/// A lock with the layout of C's `pw_lock_t`. A lock of all zeroes is unlocked.
#[repr(C)]
#[derive(Debug)]
pub struct PwLock(Futex);

const _: () = assert!(size_of::<PwLock>() == 4 && align_of::<PwLock>() == 4);

impl PwLock {
    fn try_take(&self) -> bool {
        // ORDER(pw-lock): publish and consume, other end in `release`.
        //   release: writes of the section;  word = FREE  Release
        //   here:    word = HELD  Acquire;   the next section
        // If the release comes first, we acquire the lock and see everything that the releasing
        // thread wrote in its section. If our exchange comes first, it fails, and this returns
        // `false`.
        // Test: the_suite_passes
        let (taken, failed) = (Ordering::Acquire, Ordering::Relaxed);
        let word = self.0.word();
        word.compare_exchange(FREE, HELD, taken, failed).is_ok()
    }

    #[cold]
    fn wait(&self) {
        for _ in 0..NR_LOOKS {
            sync::hint::spin_loop();
            if self.0.word().load(Ordering::Relaxed) == FREE && self.try_take() {
                return;
            }
        }
        // Acquires the lock as `WAITED`, because other threads may still sleep.
        // ORDER(pw-lock): the acquire end; see `try_take`.
        // Test: the_suite_passes
        while self.0.word().swap(WAITED, Ordering::Acquire) != FREE {
            self.0.wait(WAITED);
        }
    }

    /// Releases the lock. Returns `false` if it was not held.
    fn release(&self) -> bool {
        // After the release the lock's memory may be freed, so this takes the key first.
        let key = self.0.key();
        // ORDER(pw-lock): the release end; see `try_take`.
        // Test: the_suite_passes
        let was = self.0.word().swap(FREE, Ordering::Release);
        if was == WAITED {
            key.wake(1);
        }
        was != FREE
    }
}

/// Defines the functions that take a lock.
macro_rules! of_lock {
    ($($name:ident = $kernel:literal -> $answer:ty = $none:expr => |$lock:ident| $call:expr;)*) => { $(
        /// # Safety
        ///
        /// 1. `lock` is null or points to a lock.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(lock: *const PwLock) -> $answer {
            // SAFETY: (1).
            match unsafe { lock.as_ref() } {
                Some($lock) => $call,
                None => misuse($kernel, &"the lock is NULL", $none),
            }
        }
    )* };
}

of_lock! {
    aw_pw_lock = "pw_lock" -> () = () => |lock| if !lock.try_take() {
        lock.wait();
    };
    aw_pw_trylock = "pw_trylock" -> bool = false => |lock| lock.try_take();
    aw_pw_unlock = "pw_unlock" -> () = () => |lock| if !lock.release() {
        misuse("pw_unlock", &"the lock is not held", ());
    };
}

/// Returns 1 if the caller must run work for another CPU itself, 0 if it must queue it there.
#[unsafe(no_mangle)]
extern "C" fn aw_pw_runs_here() -> c_int {
    /// 0 if the answer is not known yet, otherwise one more than the answer.
    static KNOWN: AtomicU32 = AtomicU32::new(0);
    within("pw_queue_on", || {
        let known = KNOWN.load(Ordering::Relaxed);
        if known != 0 {
            return c_int::from(known == 2);
        }
        let runs_here = match Params::from_env() {
            Ok(params) => params.qpw != Qpw::Queue,
            Err(error) => misuse("pw_queue_on", &error, false),
        };
        KNOWN.store(1 + u32::from(runs_here), Ordering::Relaxed);
        c_int::from(runs_here)
    })
}
