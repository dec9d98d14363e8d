//! What to tell the machine while spinning.

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
