//! Time that is measured by looks at a clock, without the time in which the process was stopped.
//!
//! A clock runs on while a laptop is suspended, a process is stopped or a virtual machine is moved.
//! Of the time between two looks at most [`MOST`] counts, so a pause of any length counts as one
//! second. A thread that reports a long wait looks at least once a second, so that all other time
//! counts.

use core::time::Duration;

/// The most that counts of the time between two looks. A second is short against every threshold
/// that is worth a report, and long against the time for which a thread that wants to run waits for
/// a CPU.
pub const MOST: Duration = Duration::from_secs(1);

/// Returns how much of the time since `looked_ns` counts at `now_ns`.
pub fn counted_ns(looked_ns: u64, now_ns: u64) -> u64 {
    now_ns.saturating_sub(looked_ns).min(MOST.as_nanos() as u64)
}

/// How long a wait has lasted.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    looked_ns: u64,
    counted_ns: u64,
}

impl Span {
    /// Begins a span at `now_ns`.
    pub fn new(now_ns: u64) -> Self {
        Self {
            looked_ns: now_ns,
            counted_ns: 0,
        }
    }

    /// Looks at the clock, which shows `now_ns`, and returns how long the span is.
    pub fn look(&mut self, now_ns: u64) -> Duration {
        self.counted_ns += counted_ns(self.looked_ns, now_ns);
        self.looked_ns = now_ns;
        Duration::from_nanos(self.counted_ns)
    }

    /// Returns how long to sleep until the next look, if something is to happen when the span is
    /// `at` long.
    pub fn until(&self, at: Duration) -> Duration {
        at.saturating_sub(Duration::from_nanos(self.counted_ns))
            .min(MOST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn a_pause_of_any_length_counts_as_a_second() {
        let mut span = Span::new(5 * S);
        assert_eq!(span.look(5 * S + S / 2), Duration::from_millis(500));
        assert_eq!(span.look(3600 * S), Duration::from_millis(1500));
        assert_eq!(span.look(3601 * S), Duration::from_millis(2500));
        // A clock that went back counts as one that stood still.
        assert_eq!(span.look(0), Duration::from_millis(2500));
    }

    #[test]
    fn a_long_wait_is_looked_at_once_a_second() {
        let mut span = Span::new(0);
        let at = Duration::from_millis(2100);
        let mut now = Duration::ZERO;
        let mut nr_looks = 0;
        while span.look(now.as_nanos() as u64) < at {
            let pause = span.until(at);
            assert!(!pause.is_zero() && pause <= MOST);
            now += pause;
            nr_looks += 1;
        }
        assert_eq!((now, nr_looks), (at, 3));
    }
}
