//! The CPU time that a process may use.

use std::cmp::Ordering;
use std::fmt;

/// CPU time that may be used in each period of wall-clock time. Quotas that allow the same share
/// are equal, even if their periods differ.
///
/// # Examples
///
/// ```
/// use afterwork_topology::CpuQuota;
///
/// let quota = CpuQuota::new(150_000, 100_000).expect("neither is zero");
/// assert_eq!(quota.to_string(), "1.5 CPUs");
/// assert_eq!(quota.nr_cpus(), 2);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct CpuQuota {
    quota_us: u64,
    period_us: u64,
}

impl CpuQuota {
    /// Creates a quota of `quota_us` microseconds in each `period_us`; `None` if either is zero.
    #[must_use]
    pub fn new(quota_us: u64, period_us: u64) -> Option<Self> {
        (quota_us > 0 && period_us > 0).then_some(Self { quota_us, period_us })
    }

    /// Returns the number of busy CPUs that use up the quota, rounded up so that none is wasted: at
    /// least one.
    #[must_use]
    pub fn nr_cpus(self) -> u32 {
        u32::try_from(self.quota_us.div_ceil(self.period_us)).unwrap_or(u32::MAX)
    }

    /// Returns the quota in thousandths of a CPU, rounded down.
    #[must_use]
    pub fn millicpus(self) -> u64 {
        let milli = u128::from(self.quota_us) * 1000 / u128::from(self.period_us);
        u64::try_from(milli).unwrap_or(u64::MAX)
    }
}

impl PartialEq for CpuQuota {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for CpuQuota {}

impl PartialOrd for CpuQuota {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CpuQuota {
    fn cmp(&self, other: &Self) -> Ordering {
        let crosswise = |quota: u64, period: u64| u128::from(quota) * u128::from(period);
        crosswise(self.quota_us, other.period_us).cmp(&crosswise(other.quota_us, self.period_us))
    }
}

impl fmt::Display for CpuQuota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let milli = self.millicpus();
        let fraction = format!("{:03}", milli % 1000);
        let fraction = fraction.trim_end_matches('0');
        let dot = if fraction.is_empty() { "" } else { "." };
        let plural = if milli == 1000 { "" } else { "s" };
        write!(f, "{}{dot}{fraction} CPU{plural}", milli / 1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotas_are_rounded_up_and_never_to_none() {
        let of = |quota_us, period_us| {
            let quota = CpuQuota::new(quota_us, period_us).unwrap();
            (quota.nr_cpus(), quota.millicpus())
        };
        assert_eq!(of(1, 1_000_000), (1, 0));
        assert_eq!(of(100_000, 100_000), (1, 1000));
        assert_eq!(of(100_001, 100_000), (2, 1000));
        assert_eq!(of(250_000, 100_000), (3, 2500));
        assert_eq!(of(u64::MAX, 1), (u32::MAX, u64::MAX));
        assert_eq!(CpuQuota::new(0, 1), None);
        assert_eq!(CpuQuota::new(1, 0), None);
    }
}
