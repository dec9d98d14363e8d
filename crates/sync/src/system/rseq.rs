//! The `struct rseq` of a thread, which glibc 2.35 and later registers with the kernel.

use std::ffi::CStr;

/// The place of the structure.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// The offset from the thread pointer, the same in all threads.
    pub offset: isize,
    /// `__rseq_size`: the bytes in use. In glibc 2.35 to 2.39 it is 32, which means 20.
    pub size: u32,
}

impl Area {
    /// Returns the place of the structure if glibc has registered it.
    pub fn find() -> Option<Self> {
        if !cfg!(any(target_arch = "x86_64", target_arch = "aarch64")) {
            return None;
        }
        // SAFETY: the call only looks the name up.
        let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let (offset, size) = (find(c"__rseq_offset"), find(c"__rseq_size"));
        if offset.is_null() || size.is_null() {
            return None;
        }
        // SAFETY: glibc documents both as constants of these types, valid while it is loaded.
        let (offset, size) =
            unsafe { (*offset.cast::<libc::ptrdiff_t>(), *size.cast::<libc::c_uint>()) };
        // A size of zero means that registration was disabled or failed.
        (size != 0).then_some(Self { offset, size })
    }
}

/// Returns the thread pointer of this thread.
#[inline(always)]
pub fn thread_pointer() -> *mut u8 {
    let base: *mut u8;
    // SAFETY: reading the thread pointer changes nothing. On x86-64 its first word is its address.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        core::arch::asm!(
            "mov {}, qword ptr fs:[0]", out(reg) base, options(nostack, preserves_flags, readonly)
        );
        #[cfg(target_arch = "aarch64")]
        core::arch::asm!(
            "mrs {}, tpidr_el0", out(reg) base, options(nomem, nostack, preserves_flags)
        );
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    unreachable!("`Area::find` finds nothing");
    base
}
