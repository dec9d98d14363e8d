//! A full fence that is free after a read-modify-write on x86-64.

/// Orders this thread's last read-modify-write, and all before it, before the following loads.
///
/// Suppose that each of two threads changes a word with a read-modify-write, calls this function,
/// and loads the other thread's word. If one thread's read-modify-write comes first, the other
/// thread's load sees it.
///
/// It is a full fence, except on x86-64 outside a model, where it is only a compiler barrier.
///
/// Differs from Linux: a *plain store* between the read-modify-write and this call is not ordered
/// before the loads. `smp_mb__after_atomic()` also orders that store.
#[inline(always)]
pub fn after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    // A read-modify-write is a full fence for the CPU. The other end is at the caller.
    crate::atomic::compiler_fence(crate::atomic::Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    crate::atomic::fence(crate::atomic::Ordering::SeqCst);
}
