//! Critical sections in which the kernel may extend the time slice of a thread.
//!
//! If a thread is preempted in a critical section, the threads that need the section wait for a
//! time slice or longer. Linux 7.0 and later can let such a thread run for a few microseconds more,
//! if the thread has enabled this and requests it in each section.
//!
//! # Protocol
//!
//! The field `slice_ctrl` of the thread's `struct rseq` has two bytes, which only the thread, and
//! the kernel when it interrupts the thread, access:
//!
//! | `request` | `granted` | state | next transition |
//! |---|---|---|---|
//! | 0 | 0 | no section, or the kernel has revoked the extension | begin: `request = 1` |
//! | 1 | 0 | in a section | grant, by the kernel: both change; end: `request = 0` |
//! | 0 | 1 | in a section, with an extension | end: `rseq_slice_yield`, which clears both |
//!
//! The kernel revokes an extension by clearing both bytes: after 5 µs by default, and at every
//! system call. A section that begins while either byte is set is nested, and changes nothing.
//!
//! A thread must not wait for another one, or leave its outermost section, with `request` set: the
//! kernel would extend the time slice of a thread that delays no other thread.
//!
//! [`turn_on`] enables extensions for its caller. The threads that this crate starts afterwards
//! enable them at their start. The kernel ignores the requests of other threads, unless the program
//! has called `prctl(PR_RSEQ_SLICE_EXTENSION, …)` on them.
//!
//! Models, the simulated machine and Miri extend no time slice: [`turn_on`] returns `false` there.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

use crate::system::rseq::{Area, thread_pointer};
use crate::system::set_once::SetOnce;

/// Set if sections request extensions.
static KERNEL: SetOnce<Kernel> = SetOnce::new();

/// `true` if a kernel may extend time slices.
const MAY_EXTEND: bool = cfg!(not(any(loom, shuttle, sim, miri)));

#[inline(always)]
fn kernel() -> Option<&'static Kernel> {
    if MAY_EXTEND { KERNEL.get() } else { None }
}

// From Linux: include/uapi/linux/rseq.h, prctl.h and asm-generic/unistd.h.
/// `offsetof(struct rseq, slice_ctrl)`.
const SLICE_CTRL: isize = 28;
/// The end of `slice_ctrl`. Areas with it are larger, because an `Area::size` of 32 means 20.
const SLICE_CTRL_END: u32 = 32;
const PR_RSEQ_SLICE_EXTENSION: libc::c_int = 79;
const PR_RSEQ_SLICE_EXTENSION_SET: libc::c_ulong = 2;
const PR_RSEQ_SLICE_EXT_ENABLE: libc::c_ulong = 1;
const SYS_RSEQ_SLICE_YIELD: libc::c_long = 471;

/// The offset of `slice_ctrl` from the thread pointer, and the calls, which a test replaces.
#[doc(hidden)]
#[derive(Debug)]
pub struct Kernel {
    offset: isize,
    enable: fn() -> bool,
    slice_yield: fn(),
}

/// The bytes of `slice_ctrl` that have a meaning.
#[doc(hidden)]
#[repr(C)]
#[derive(Debug, Default)]
pub struct Ctrl {
    pub request: AtomicU8,
    pub granted: AtomicU8,
}

/// A critical section, until it is dropped. It begins after a lock is acquired, and ends after the
/// lock is released. Without extensions it costs a load and a branch at each end.
#[must_use]
#[derive(Debug)]
pub struct Section {
    /// `true` if this section made the request: it is the outermost one.
    requests: bool,
    /// Prevents this type from being `Send`, because a request belongs to a thread.
    _thread: PhantomData<*mut ()>,
}

impl Section {
    /// Begins a section of this thread.
    #[inline(always)]
    pub fn enter() -> Self {
        let requests = kernel().is_some_and(Kernel::request);
        Self { requests, _thread: PhantomData }
    }
}

impl Drop for Section {
    #[inline(always)]
    fn drop(&mut self) {
        if self.requests
            && let Some(kernel) = kernel()
        {
            kernel.withdraw();
        }
    }
}

/// A wait, perhaps inside a section: until it is dropped, this thread requests nothing.
#[must_use]
#[derive(Debug)]
pub struct Wait {
    /// The kernel, if the wait is inside a section.
    inside: Option<&'static Kernel>,
    _thread: PhantomData<*mut ()>,
}

impl Wait {
    /// Withdraws the request of this thread. Gives up an extension.
    #[inline(always)]
    pub fn begin() -> Self {
        let inside = kernel().filter(|kernel| kernel.ctrl().is_inside());
        inside.inspect(|kernel| kernel.withdraw());
        Self { inside, _thread: PhantomData }
    }
}

impl Drop for Wait {
    #[inline(always)]
    fn drop(&mut self) {
        // The outermost section withdraws this request.
        self.inside.map(Kernel::request);
    }
}

/// Returns `true` if sections request extensions.
#[inline(always)]
pub fn is_on() -> bool {
    kernel().is_some()
}

/// Makes sections request extensions. Returns `false` if the kernel or the C library has none.
pub fn turn_on() -> bool {
    is_on() || MAY_EXTEND && Area::find().and_then(Kernel::of).is_some_and(turn_on_with)
}

/// Turns extensions on with `kernel`, unless they are on. Returns `false` if `kernel` refuses.
#[doc(hidden)]
pub fn turn_on_with(kernel: Kernel) -> bool {
    let is_enabled = (kernel.enable)();
    if is_enabled {
        KERNEL.set(kernel).ok();
    }
    is_enabled
}

/// Enables extensions for this thread, if they are on and the kernel permits it.
#[doc(hidden)]
pub fn enable_thread() {
    if let Some(kernel) = kernel() {
        (kernel.enable)();
    }
}

impl Ctrl {
    #[inline(always)]
    fn is_inside(&self) -> bool {
        self.request.load(Ordering::Relaxed) | self.granted.load(Ordering::Relaxed) != 0
    }
}

impl Kernel {
    /// Returns the kernel of this machine, if `area` contains a `slice_ctrl`.
    fn of(area: Area) -> Option<Self> {
        let offset = area.offset + SLICE_CTRL;
        (area.size > SLICE_CTRL_END).then_some(Self { offset, enable, slice_yield })
    }

    /// Creates a kernel for a test. `ctrl` is in a thread-local of the calling thread.
    ///
    /// # Safety
    ///
    /// 1. Every thread has a `Ctrl` at the same distance from its thread pointer, until it ends:
    ///    the thread-local is in the executable, and has no destructor.
    #[doc(hidden)]
    pub unsafe fn new(ctrl: *const Ctrl, enable: fn() -> bool, slice_yield: fn()) -> Self {
        let offset = ctrl.addr() as isize - thread_pointer().addr() as isize;
        Self { offset, enable, slice_yield }
    }

    /// Returns this thread's bytes.
    #[inline(always)]
    fn ctrl(&self) -> &Ctrl {
        // SAFETY: glibc keeps an area that it has registered until the thread ends, and gives all
        // threads one at this offset. For a test, (1) of `new` is the same.
        unsafe { &*thread_pointer().offset(self.offset).cast() }
    }

    /// Requests an extension. Returns `false` if the thread is already inside a section.
    #[cold]
    #[inline(never)]
    fn request(&self) -> bool {
        let ctrl = self.ctrl();
        let is_nested = ctrl.is_inside();
        if !is_nested {
            ctrl.request.store(1, Ordering::Relaxed);
            // The compiler keeps the section behind the store. The other end is an interrupt.
            compiler_fence(Ordering::SeqCst);
        }
        !is_nested
    }

    /// Withdraws the request. If the kernel has granted it, gives up the extension.
    #[cold]
    #[inline(never)]
    fn withdraw(&self) {
        let ctrl = self.ctrl();
        // The compiler keeps the section before the store, as in `request`.
        compiler_fence(Ordering::SeqCst);
        ctrl.request.store(0, Ordering::Relaxed);
        // An interrupt before the store leaves its grant to the load; a later one finds no request.
        compiler_fence(Ordering::SeqCst);
        if ctrl.granted.load(Ordering::Relaxed) != 0 {
            (self.slice_yield)();
        }
    }
}

fn enable() -> bool {
    let (set, on) = (PR_RSEQ_SLICE_EXTENSION_SET, PR_RSEQ_SLICE_EXT_ENABLE);
    // SAFETY: the call takes numbers. The kernel then writes to the thread's area, which glibc
    // keeps.
    unsafe { libc::prctl(PR_RSEQ_SLICE_EXTENSION, set, on, 0_u64, 0_u64) == 0 }
}

fn slice_yield() {
    // SAFETY: the call takes no arguments.
    unsafe { libc::syscall(SYS_RSEQ_SLICE_YIELD) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_without_the_field_are_not_used() {
        let of = |size| Kernel::of(Area { offset: 64, size }).map(|kernel| kernel.offset);
        // glibc 2.35 registers 32 bytes, of which it uses 20; Linux 6.3 has 28 bytes.
        assert_eq!([20, 28, 32].map(of), [None; 3]);
        assert_eq!([33, 64].map(of), [Some(92); 2]);
    }
}
