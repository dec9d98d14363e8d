//! Clocks: a monotonic one in nanoseconds, and the CPU's own in cycles.

/// Returns nanoseconds since some fixed moment, never going back; 0 in a model.
///
/// Costs about 35 ns: too dear to call for every work item.
#[inline]
pub fn now_ns() -> u64 {
    #[cfg(not(any(loom, shuttle)))]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
    #[cfg(any(loom, shuttle))]
    0
}

/// Returns the CPU's cycle counter (TSC on x86-64, the virtual counter on aarch64); 0 in a model.
///
/// It ticks at a constant rate and is not ordered against neighbouring instructions. See
/// [`cycles_per_us`] for its unit.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle))))]
    {
        // SAFETY: rdtsc reads a counter; user space may execute it unless CR4.TSD is set, which Linux
        // leaves clear.
        unsafe { core::arch::x86_64::_rdtsc() }
    }
    #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle))))]
    {
        let count: u64;
        // SAFETY: Linux lets user space read the virtual counter; nothing else is touched.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack));
        }
        count
    }
    #[cfg(any(
        loom,
        shuttle,
        not(any(target_arch = "x86_64", target_arch = "aarch64"))
    ))]
    {
        now_ns()
    }
}

/// Returns how many [`cycles`] pass in a microsecond, at least 1; 1 in a model.
///
/// # Blocking
///
/// The first call spins for half a millisecond to measure it (x86-64); later ones are a load.
pub fn cycles_per_us() -> u64 {
    #[cfg(any(loom, shuttle))]
    return 1;
    #[cfg(not(any(loom, shuttle)))]
    {
        static RATE: std::sync::OnceLock<u64> = std::sync::OnceLock::new();
        *RATE.get_or_init(measure_rate)
    }
}

#[cfg(all(target_arch = "aarch64", not(any(loom, shuttle))))]
fn measure_rate() -> u64 {
    let hertz: u64;
    // SAFETY: the frequency register is readable from user space and has no side effect.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack));
    }
    (hertz / 1_000_000).max(1)
}

#[cfg(all(not(target_arch = "aarch64"), not(any(loom, shuttle))))]
fn measure_rate() -> u64 {
    // Long enough that the two clock readings' own cost (35 ns) is below a thousandth.
    const SPAN_NS: u64 = 500_000;
    let (start_ns, start) = (now_ns(), cycles());
    loop {
        let passed_ns = now_ns() - start_ns;
        if passed_ns >= SPAN_NS {
            return ((cycles() - start) * 1000 / passed_ns).max(1);
        }
        crate::hint::spin_loop();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn clocks_never_go_back() {
        let (ns, count) = (now_ns(), cycles());
        for _ in 0..1000 {
            assert!(now_ns() >= ns);
        }
        assert!(cycles() >= count);
        assert!(cycles_per_us() >= 1);
    }
}
