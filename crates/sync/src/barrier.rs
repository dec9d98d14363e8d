//! Full fences that some machines have already passed.

/// Passes a full fence, by a thread whose latest store to shared memory that matters was a read-modify-write.
///
/// It orders the read-modify-write, and what came before it, before the loads that follow. Of two threads that
/// each change a word by a read-modify-write, pass this, and load the other's word, at least one sees the other's
/// change. On x86-64 a read-modify-write is a full fence of the machine, so only the compiler is told; elsewhere,
/// and in a model, it is a full fence.
///
/// A *plain store* between the read-modify-write and this is not ordered before the loads.
///
/// Differs from Linux: `smp_mb__after_atomic()` is the same idea, with that store ordered too.
#[inline(always)]
pub fn after_rmw() {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    crate::atomic::compiler_fence(crate::atomic::Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    crate::atomic::fence(crate::atomic::Ordering::SeqCst);
}
