//! Decides when a pool is stalled, and how often to repeat a report.
//!
//! A pool is *stalled* if items wait for a worker and none has been taken for `watchdog_thresh_ms`.
//! The same item has then been first during that time. Items that wait for a seat in their queue do
//! not count, because they wait by design. The manager checks this when it samples pools in which
//! work waits, so an idle program runs no watchdog.
//!
//! A pause of the machine is not a stall: of the time between two samples, at most one second
//! counts (`sync::span`).

use sync::span;

/// The time for which a pool has taken no item even though some were waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct StallDetector {
    nr_taken: u64,
    checked_ns: u64,
    /// Set if items waited at the last sample. Items queued later have not waited since.
    waited: bool,
    age_ns: u64,
    report_ns: u64,
}

impl StallDetector {
    /// Records a sample of a pool. Returns the age of the stall if it must be reported: after
    /// `thresh_ns`, twice that, four times that, … A threshold of 0 disables reports.
    pub(crate) fn sample(
        &mut self,
        waits: bool,
        nr_taken: u64,
        now_ns: u64,
        thresh_ns: u64,
    ) -> Option<u64> {
        let passed_ns = span::counted_ns(self.checked_ns, now_ns);
        self.checked_ns = now_ns;
        let waited = std::mem::replace(&mut self.waited, waits);
        if !waits || !waited || self.nr_taken != nr_taken || thresh_ns == 0 {
            self.nr_taken = nr_taken;
            self.age_ns = 0;
            self.report_ns = thresh_ns;
            return None;
        }
        self.age_ns += passed_ns;
        (self.age_ns >= self.report_ns).then(|| {
            self.report_ns = self.age_ns.saturating_mul(2);
            self.age_ns
        })
    }

    /// Returns the age at the last sample, if no item has been taken since.
    pub(crate) fn age_ns(&self, nr_taken: u64) -> u64 {
        if self.nr_taken == nr_taken { self.age_ns } else { 0 }
    }
}

/// Returns `true` if the `count`th occurrence is to be reported: the 1st, 2nd, 4th, 8th, …
pub(crate) fn worth_reporting(count: u64) -> bool {
    count.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const THRESH_NS: u64 = 30_000 * MS;

    /// Once a second, samples a pool in which items wait. Returns the seconds of the reports.
    fn reported(
        stall_detector: &mut StallDetector,
        nr_taken: u64,
        seconds: std::ops::Range<u64>,
    ) -> Vec<u64> {
        let mut sample = |s: &u64| stall_detector.sample(true, nr_taken, s * 1000 * MS, THRESH_NS);
        seconds.filter(|s| sample(s).is_some()).collect()
    }

    #[test]
    fn stall_is_reported_at_the_threshold_and_at_twice_the_age() {
        let mut stall_detector = StallDetector::default();
        stall_detector.sample(true, 7, 0, THRESH_NS);
        assert_eq!(reported(&mut stall_detector, 7, 1..130), [30, 60, 120]);
    }

    #[test]
    fn progressing_work_is_not_a_stall() {
        let mut stall_detector = StallDetector::default();
        stall_detector.sample(false, 0, 0, THRESH_NS);
        for nr_taken in 0..10 {
            let from = nr_taken * 29;
            assert!(reported(&mut stall_detector, nr_taken, from + 1..from + 29).is_empty());
        }
    }

    #[test]
    fn new_item_of_an_empty_pool_is_not_a_stall() {
        let mut stall_detector = StallDetector::default();
        assert_eq!(stall_detector.sample(true, 0, 90_000 * MS, THRESH_NS), None, "the first");
        // The manager does this if no items wait.
        stall_detector.sample(false, 0, 91_000 * MS, 0);
        assert_eq!(stall_detector.sample(true, 0, 91_001 * MS, THRESH_NS), None);
        assert_eq!(reported(&mut stall_detector, 0, 92..130), [122]);
    }

    #[test]
    fn empty_pool_is_not_a_stall() {
        let mut stall_detector = StallDetector::default();
        for s in 0..100 {
            assert_eq!(stall_detector.sample(false, 0, s * 1000 * MS, THRESH_NS), None, "{s} s");
        }
    }

    #[test]
    fn a_threshold_of_zero_turns_the_watchdog_off() {
        let mut stall_detector = StallDetector::default();
        for s in 0..100 {
            assert_eq!(stall_detector.sample(true, 0, s * 1000 * MS, 0), None, "{s} s");
        }
    }

    #[test]
    fn paused_machine_is_not_a_stall() {
        let mut stall_detector = StallDetector::default();
        stall_detector.sample(true, 1, 0, THRESH_NS);
        let hour_ns = 3_600_000 * MS;
        for pauses in 1..29 {
            assert_eq!(stall_detector.sample(true, 1, pauses * hour_ns, THRESH_NS), None);
        }
        // Further samples at the usual interval do detect the stall.
        let last_ns = 28 * hour_ns;
        let samples = (1..).find(|ms| {
            let now_ns = last_ns + ms * MS;
            stall_detector.sample(true, 1, now_ns, THRESH_NS).is_some()
        });
        assert_eq!(samples, Some(2000));
    }

    #[test]
    fn repeated_reports_become_rarer() {
        let reported: Vec<_> = (0..20).filter(|&count| worth_reporting(count)).collect();
        assert_eq!(reported, [1, 2, 4, 8, 16]);
    }
}
