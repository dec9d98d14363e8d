//! Hints for the CPU.

/// Hints to the CPU that this is a spin loop. Yields in a model, so that the loop ends.
#[inline(always)]
pub fn spin_loop() {
    #[cfg(sim)]
    crate::sim::pause();
    #[cfg(not(any(loom, shuttle, sim)))]
    core::hint::spin_loop();
    #[cfg(any(loom, shuttle))]
    crate::backend::thread::yield_now();
}

/// Checks `done` until it returns `true`, at most `nr_spins + 1` times, with a [`spin_loop`] hint
/// in between. Returns the last result.
#[inline]
pub fn spin_until(nr_spins: u32, mut done: impl FnMut() -> bool) -> bool {
    for _ in 0..nr_spins {
        if done() {
            return true;
        }
        spin_loop();
    }
    done()
}

/// Prefetches the cache line at `line` for a write. Any address is valid. A store to a line of
/// another CPU does not wait for the line, but the next locked instruction does.
#[inline(always)]
#[cfg_attr(sim, track_caller)]
pub fn prefetch_write<T>(line: *const T) {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri, sim))))]
    {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a prefetch accesses no memory. Without the instruction this does nothing.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(line.cast()) };
    }
    #[cfg(sim)]
    crate::sim::prefetch_write(line.addr());
    let _ = line;
}
