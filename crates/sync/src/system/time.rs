//! A monotonic clock in nanoseconds, and the CPU's own clock in cycles.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
/// A moment of the monotonic clock, as it appears in public interfaces.
pub use std::time::Instant;

/// Returns the nanoseconds since a fixed moment, which never decrease, or 0 in a model. Costs about
/// 35 ns, which is too expensive for every work item.
#[inline]
pub fn now_ns() -> u64 {
    #[cfg(sim)]
    if let Some(now) = crate::sim::clock_ns(false) {
        return now;
    }
    if cfg!(any(loom, shuttle)) {
        return 0;
    }
    read(libc::CLOCK_MONOTONIC)
}

/// Returns an earlier value of [`now_ns`], usually the one at the last tick of the kernel's timer,
/// which is at most 10 ms ago. Costs about 5 ns.
#[inline]
pub fn coarse_ns() -> u64 {
    if cfg!(any(loom, shuttle, sim, miri)) {
        return now_ns();
    }
    read(libc::CLOCK_MONOTONIC_COARSE)
}

#[inline]
fn read(clock: libc::clockid_t) -> u64 {
    let mut now = std::mem::MaybeUninit::<libc::timespec>::uninit();
    // SAFETY: the call writes the structure, which outlives it.
    unsafe { libc::clock_gettime(clock, now.as_mut_ptr()) };
    // SAFETY: every kernel has these clocks, so the call has written it.
    let now = unsafe { now.assume_init() };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Converts `span` to the kernel's representation of a timeout.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn timespec(span: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: span.as_secs().min(i64::MAX as u64) as _,
        tv_nsec: span.subsec_nanos() as _,
    }
}

/// Returns the moment `at` on the clock of [`now_ns`], or the moment of the call if `at` is over. A
/// moment that is too far away becomes the maximum. In a model, the result is the time until `at`.
pub fn ns_of(at: Instant) -> u64 {
    // The remaining time is read first, so that the result is not too early.
    ns_after(at.saturating_duration_since(Instant::now()))
}

/// Returns the moment `span` from now on the clock of [`now_ns`], or the maximum.
pub fn ns_after(span: Duration) -> u64 {
    now_ns().saturating_add(nanos(span))
}

/// Returns the length of `span` in nanoseconds. A span that is too long becomes the maximum.
pub fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the CPU's cycle counter (TSC on x86-64, the virtual counter on aarch64), or 0 in a
/// model. It ticks at a constant rate, [`cycles_per_us`], and is not ordered with other
/// instructions.
#[inline(always)]
pub fn cycles() -> u64 {
    #[cfg(sim)]
    if let Some(now) = crate::sim::clock_ns(true) {
        return now;
    }
    // SAFETY: rdtsc reads a counter, which Linux permits in user space.
    #[cfg(all(target_arch = "x86_64", not(any(loom, shuttle, miri))))]
    return unsafe { core::arch::x86_64::_rdtsc() };
    #[cfg(all(target_arch = "aarch64", not(any(loom, shuttle, miri))))]
    {
        let count: u64;
        // SAFETY: Linux lets user space read the virtual counter; no memory is accessed.
        unsafe {
            core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack));
        }
        count
    }
    #[cfg(any(loom, shuttle, miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
    now_ns()
}

/// The rate, or 0 if it is not known yet.
static RATE: AtomicU64 = AtomicU64::new(0);

/// Returns the result of an earlier [`cycles_per_us`], or 1 if there was none. Costs a load.
#[inline]
pub fn known_cycles_per_us() -> u64 {
    #[cfg(sim)]
    if crate::sim::is_running() {
        return 1000;
    }
    RATE.load(Ordering::Relaxed).max(1)
}

/// Returns the number of [`cycles`] per microsecond, which is at least 1. It is 1 in a model.
///
/// # Blocking
///
/// On x86-64, calls spin for half a millisecond until one has finished. Later calls cost a load.
pub fn cycles_per_us() -> u64 {
    #[cfg(sim)]
    if crate::sim::is_running() {
        return 1000;
    }
    if cfg!(any(loom, shuttle)) {
        return 1;
    }
    match RATE.load(Ordering::Relaxed) {
        0 => settle_rate(&RATE, measure_rate),
        rate => rate,
    }
}

/// Measures the rate, unless another thread has finished first. There is no lock, because in a
/// child of `fork` the lock could be held by a thread that does not exist.
#[cold]
fn settle_rate(rate: &AtomicU64, measure: impl FnOnce() -> u64) -> u64 {
    let measured = measure();
    match rate.compare_exchange(0, measured, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => measured,
        Err(rate) => rate,
    }
}

/// Converts [`cycles`] to nanoseconds. Blocks like [`cycles_per_us`].
pub fn cycles_to_ns(cycles: u64) -> u64 {
    (u128::from(cycles) * 1000 / u128::from(cycles_per_us())) as u64
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
fn measure_rate() -> u64 {
    let hertz: u64;
    // SAFETY: the frequency register is readable from user space and has no side effect.
    unsafe {
        core::arch::asm!("mrs {}, cntfrq_el0", out(reg) hertz, options(nomem, nostack));
    }
    (hertz / 1_000_000).max(1)
}

#[cfg(any(miri, not(target_arch = "aarch64")))]
fn measure_rate() -> u64 {
    // This is long enough that two clock readings (35 ns each) cost less than a thousandth of it.
    const SPAN_NS: u64 = 500_000;
    let (start_ns, start) = (now_ns(), cycles());
    loop {
        let passed_ns = now_ns() - start_ns;
        if passed_ns >= SPAN_NS {
            return (cycles().saturating_sub(start) * 1000 / passed_ns).max(1);
        }
        crate::hint::spin_loop();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn measuring_thread_blocks_no_other() {
        let rate = AtomicU64::new(0);
        let (go, may_go) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| {
                settle_rate(&rate, || {
                    go.send(()).unwrap();
                    while rate.load(Ordering::Relaxed) == 0 {
                        std::thread::yield_now();
                    }
                    7
                })
            });
            may_go.recv().unwrap();
            assert_eq!(settle_rate(&rate, || 5), 5);
            assert_eq!(slow.join().unwrap(), 5);
        });
    }

    #[test]
    fn moments_are_read_from_the_same_clock() {
        let span = Duration::from_secs(5);
        let (before_ns, now) = (now_ns(), Instant::now());
        let (past_ns, later_ns) = (ns_of(now), ns_of(now + span));
        assert!((before_ns..=now_ns()).contains(&past_ns));
        assert!((before_ns..=now_ns() + 5_000_000_000).contains(&later_ns));
        let far = now + Duration::from_secs(1 << 40);
        assert_eq!(ns_of(far), u64::MAX);
    }

    #[test]
    fn clocks_never_go_back() {
        let (ns, count) = (now_ns(), cycles());
        assert!((0..1000).all(|_| now_ns() >= ns));
        let coarse_ns = coarse_ns();
        assert!((1..=now_ns()).contains(&coarse_ns), "{coarse_ns}");
        assert!(cycles() >= count, "{count}");
        assert!(cycles_per_us() >= 1);
    }
}
