//! What to tell the machine ahead of time.

/// Tells the CPU, or the model, that this is a spin loop.
///
/// In a model it yields: a loop that spins for another thread's progress would never end otherwise.
#[inline(always)]
pub fn spin_loop() {
    #[cfg(not(any(loom, shuttle)))]
    core::hint::spin_loop();
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(shuttle)]
    shuttle::thread::yield_now();
}

/// Asks for the cache line at `line`, to be written soon. Any address will do; it is not accessed.
///
/// A store that finds its line at another CPU is no matter as such, but the next locked instruction waits for it.
#[inline(always)]
pub fn prefetch_write<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch accesses nothing; on a machine without it, it does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.cast()) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(loom, shuttle, miri)))))]
    let _ = line;
}
