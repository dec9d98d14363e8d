//! Measures time without counting pauses in which the process was stopped.
//!
//! A clock keeps running while a laptop is suspended, a process is stopped or a virtual machine is
//! migrated. At most [`MOST`] counts between two readings, so any pause counts as one second.

use core::time::Duration;

/// The longest time that counts between two readings. A second is shorter than every useful
/// threshold of a report, and longer than the time that a thread usually waits for a CPU.
pub const MOST: Duration = Duration::from_secs(1);

/// Returns the part of the time since `checked_ns` that counts at `now_ns`.
pub fn counted_ns(checked_ns: u64, now_ns: u64) -> u64 {
    now_ns.saturating_sub(checked_ns).min(MOST.as_nanos() as u64)
}

/// The time that a wait has lasted.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    checked_ns: u64,
    counted_ns: u64,
}

impl Span {
    /// Begins a span at `now_ns`.
    pub fn new(now_ns: u64) -> Self {
        Self { checked_ns: now_ns, counted_ns: 0 }
    }

    /// Records the reading `now_ns`, and returns the length of the span.
    pub fn measure(&mut self, now_ns: u64) -> Duration {
        self.counted_ns += counted_ns(self.checked_ns, now_ns);
        self.checked_ns = now_ns;
        Duration::from_nanos(self.counted_ns)
    }

    /// Returns the time to sleep before the next reading, if an action is due at length `at`.
    pub fn until(&self, at: Duration) -> Duration {
        at.saturating_sub(Duration::from_nanos(self.counted_ns)).min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_pause_of_any_length_counts_as_a_second() {
        let mut span = Span::new(5 * S);
        assert_eq!(span.measure(5 * S + S / 2), Duration::from_millis(500));
        assert_eq!(span.measure(3600 * S), Duration::from_millis(1500));
        assert_eq!(span.measure(3601 * S), Duration::from_millis(2500));
        // A clock that moves backward counts as stopped.
        assert_eq!(span.measure(0), Duration::from_millis(2500));
    }

    #[test]
    fn a_long_wait_is_measured_once_a_second() {
        let mut span = Span::new(0);
        let at = Duration::from_millis(2100);
        let mut now = Duration::ZERO;
        let mut nr_measured = 0;
        while span.measure(now.as_nanos() as u64) < at {
            let pause = span.until(at);
            assert!(!pause.is_zero() && pause <= MOST);
            now += pause;
            nr_measured += 1;
        }
        assert_eq!((now, nr_measured), (at, 3));
    }
}
