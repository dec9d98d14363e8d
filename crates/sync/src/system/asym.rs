//! A pair of asymmetric barriers: one is free, and the other bears the cost of both.
//!
//! [`light`] and [`heavy`] pair like two `fence(SeqCst)`. Suppose that each of two threads stores a
//! word, passes its barrier, and loads the other thread's word. If the light barrier comes first,
//! the thread that passes the heavy one sees the other thread's store. Otherwise the thread that
//! passes the light one does.
//!
//! With the kernel's `membarrier`, `light` is only a compiler barrier. `heavy` interrupts every CPU
//! that runs a thread of this process, for 11 to 20 µs on a virtual machine.
//!
//! If the system call is missing or rejected, both are full fences, as in a model. If the kernel
//! rejects it *after* the registration in [`init`], for example because the process entered a
//! sandbox late, earlier calls to `light` were not fences. The process then aborts.

#[cfg(not(any(loom, shuttle)))]
use crate::atomic::AtomicBool;
use crate::atomic::{Ordering, compiler_fence, fence};
// In a model the flag is always `false`, because there is no system call, so models do not observe
// its accesses.
#[cfg(any(loom, shuttle))]
use crate::unmodelled::AtomicBool;
use crate::{OnceLock, fault, fork, process};

/// Set if [`light`] is only a compiler barrier.
static EXPEDITED: AtomicBool = AtomicBool::new(false);

// From linux/membarrier.h; libc does not name them on every target.
const CMD_GLOBAL: libc::c_int = 1;
const CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

/// Orders this thread's earlier stores before its later loads, as seen across a [`heavy`]. Never
/// blocks.
#[inline(always)]
pub fn light() {
    if EXPEDITED.load(Ordering::Relaxed) {
        // The compiler keeps the order. `heavy` makes the CPU keep it, with a fencing interrupt.
        compiler_fence(Ordering::SeqCst);
    } else {
        full_fence();
    }
}

#[cold]
#[inline(never)]
fn full_fence() {
    // The slow path of `light`; the other end is in `heavy`.
    fence(Ordering::SeqCst);
}

/// Makes every thread of this process pass a full fence, and passes one itself.
///
/// # Blocking
///
/// Blocks for microseconds, in a system call that interrupts the other CPUs.
pub fn heavy() {
    // Other end in `light`. Our stores come before this fence, and so before the interrupts. If a
    // thread's `light` comes before its interrupt, its stores are visible to our loads below. If it
    // comes after, its loads see our stores.
    fence(Ordering::SeqCst);
    if EXPEDITED.load(Ordering::Relaxed) {
        if !membarrier(CMD_PRIVATE_EXPEDITED) {
            // Calls to `light` since the registration were not fences, and callers rely on them.
            process::die(
                "the membarrier system call was allowed at first and is rejected now: a sandbox must allow it, or be \
                 entered before the library is used",
            );
        }
        // Our loads come after the interrupts.
        fence(Ordering::SeqCst);
    }
}

/// Waits until every thread of the machine has passed a full fence, like [`heavy`], but interrupts
/// no CPU. Returns `false` if the kernel rejects the call, as it does on a machine with `nohz_full`
/// CPUs.
///
/// # Blocking
///
/// Blocks for milliseconds, in a system call that waits for a grace period of the kernel.
pub fn heavy_quiet() -> bool {
    // As in `heavy`.
    fence(Ordering::SeqCst);
    if cfg!(any(loom, shuttle)) {
        return true;
    }
    let done = !fault::fails(fault::Point::Membarrier) && membarrier(CMD_GLOBAL);
    // The caller's loads come after the fences of the other threads.
    fence(Ordering::SeqCst);
    done
}

/// Registers this process for expedited membarriers, before the first [`heavy`]. Returns `true` if
/// [`light`] is now free. Earlier calls to `light` are full fences.
pub fn init() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    // Registers the fork handlers, so that a thread that forks waits for the registration below.
    fork::Process::this();
    *REGISTERED.get_or_init(|| {
        let works = !fault::fails(fault::Point::Membarrier)
            && membarrier(CMD_REGISTER_PRIVATE_EXPEDITED)
            && membarrier(CMD_PRIVATE_EXPEDITED);
        // The ordering does not matter: the `OnceLock` makes this store visible to callers of
        // `heavy`, and a `light` that still reads `false` is a full fence.
        EXPEDITED.store(works, Ordering::SeqCst);
        works
    })
}

/// Registers a child of `fork` if its parent was registered.
pub(crate) fn after_fork() {
    if EXPEDITED.load(Ordering::Relaxed) {
        membarrier(CMD_REGISTER_PRIVATE_EXPEDITED);
    }
}

#[cfg(sim)]
fn membarrier(_: libc::c_int) -> bool {
    crate::sim::memory::membarrier();
    true
}

#[cfg(not(sim))]
fn membarrier(command: libc::c_int) -> bool {
    // Miri does not support membarrier, so both barriers are full fences there.
    if cfg!(any(loom, shuttle, miri)) {
        return false;
    }
    // SAFETY: membarrier takes integers and accesses no memory of the caller.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn registering_twice_gives_the_same_answer() {
        assert_eq!(init(), init());
        light();
        heavy();
        heavy_quiet();
    }
}
