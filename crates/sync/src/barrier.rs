//! A full fence that is free after a read-modify-write on x86-64.

/// Orders this thread's last read-modify-write, and everything before it, before the following
/// loads.
///
/// Let each of two threads change a word by a read-modify-write, call this, and load the other
/// thread's word. If one thread's read-modify-write comes first, the other thread's load sees it.
///
/// On x86-64 a read-modify-write is a full fence of the CPU, so this is a compiler barrier. On
/// other machines, and in a model, it is a full fence.
///
/// A *plain store* between the read-modify-write and this call is not ordered before the loads.
///
/// Differs from Linux: `smp_mb__after_atomic()` also orders that store.
#[inline(always)]
pub fn after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    // The CPU keeps the order, and this makes the compiler keep it. The caller has the other end.
    crate::atomic::compiler_fence(crate::atomic::Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    crate::atomic::fence(crate::atomic::Ordering::SeqCst);
}
