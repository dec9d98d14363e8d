//! A fence that costs one side nothing and the other everything.
//!
//! [`light`] and [`heavy`] pair like two `fence(SeqCst)`: of a store before the one and a load after it,
//! and a store before the other and a load after it, at least one load sees the other side's store. The
//! kernel's `membarrier` makes `light` a mere compiler barrier: `heavy` interrupts every CPU that runs a
//! thread of this process (11-20 µs on a virtual machine, and a pause for whoever runs there).
//!
//! Where the system call is missing or refused both are real fences, and so they are in a model. Should it be refused
//! *after* it was registered, by a sandbox that was entered late, there is no way on: earlier `light`s were no fences. Then
//! the process ends, with a line on stderr.

use crate::atomic::{Ordering, fence};

/// Orders this thread's earlier stores before its later loads, as seen across a [`heavy`].
///
/// # Blocking
///
/// Never. A compiler barrier where `membarrier` works, else a full fence.
#[inline(always)]
pub fn light() {
    #[cfg(not(any(loom, shuttle)))]
    if real::EXPEDITED.load(Ordering::Relaxed) {
        crate::atomic::compiler_fence(Ordering::SeqCst);
    } else {
        real::full_fence();
    }
    #[cfg(any(loom, shuttle))]
    fence(Ordering::SeqCst);
}

/// Makes every thread of this process pass a full fence, and passes one itself.
///
/// # Blocking
///
/// Microseconds: a system call that interrupts the other CPUs.
///
/// Ends the process where the kernel refuses what it allowed [`init`].
pub fn heavy() {
    fence(Ordering::SeqCst);
    #[cfg(not(any(loom, shuttle)))]
    if real::EXPEDITED.load(Ordering::Relaxed) {
        real::membarrier();
        fence(Ordering::SeqCst);
    }
}

/// Waits until every thread of the machine has passed a full fence by itself, and passes one; returns `true` if it could.
///
/// A [`heavy`] that interrupts nobody. False where the kernel refuses: it does on a machine with `nohz_full` CPUs,
/// for a thread there may never enter the kernel.
///
/// # Blocking
///
/// Milliseconds: a system call that waits for a grace period of the kernel's.
pub fn heavy_quiet() -> bool {
    fence(Ordering::SeqCst);
    #[cfg(not(any(loom, shuttle)))]
    return real::membarrier_global();
    #[cfg(any(loom, shuttle))]
    true
}

/// Registers this process for expedited membarriers and says whether [`light`] is now free.
///
/// Call it before the first protocol that uses the pair goes live. A protocol in which a `light` may have
/// run as a full fence before the registration stays correct: a full fence is the stronger.
pub fn init() -> bool {
    // First: whoever forks while we register waits for that.
    crate::fork::Process::this();
    #[cfg(not(any(loom, shuttle)))]
    return real::init();
    #[cfg(any(loom, shuttle))]
    false
}

/// Registers a child of `fork` as its parent was.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn after_fork() {
    if real::EXPEDITED.load(Ordering::Relaxed) {
        real::register();
    }
}

#[cfg(not(any(loom, shuttle)))]
mod real {
    use crate::{
        atomic::{AtomicBool, Ordering},
        fault,
    };
    use std::sync::OnceLock;

    pub static EXPEDITED: AtomicBool = AtomicBool::new(false);

    // From linux/membarrier.h; libc does not name them on every target.
    const CMD_GLOBAL: libc::c_int = 1;
    const CMD_PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
    const CMD_REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

    fn call(command: libc::c_int) -> bool {
        // Miri knows no membarrier: the pair are full fences there.
        if cfg!(miri) {
            return false;
        }
        // SAFETY: membarrier takes two integers and touches no memory of the caller's.
        unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
    }

    pub fn register() -> bool {
        call(CMD_REGISTER_PRIVATE_EXPEDITED)
    }

    pub fn init() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| {
            let works = !fault::fails(fault::Point::Membarrier)
                && register()
                && call(CMD_PRIVATE_EXPEDITED);
            EXPEDITED.store(works, Ordering::SeqCst);
            works
        })
    }

    /// Out of the way of whoever has `membarrier`.
    #[cold]
    #[inline(never)]
    pub fn full_fence() {
        crate::atomic::fence(Ordering::SeqCst);
    }

    pub fn membarrier_global() -> bool {
        let done = !fault::fails(fault::Point::Membarrier) && call(CMD_GLOBAL);
        crate::atomic::fence(Ordering::SeqCst);
        done
    }

    pub fn membarrier() {
        if !call(CMD_PRIVATE_EXPEDITED) {
            // Light fences have been none since it was registered, and a caller is in the middle of something.
            crate::process::die(
                "the membarrier system call was allowed first and is refused now: a sandbox must allow it, or be \
                 entered before the library is used",
            );
        }
    }
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
