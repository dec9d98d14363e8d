//! The cost of a period of work: context switches and CPU time of this process.

use std::io;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

/// The process's counters at one moment. They include threads that have exited.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    switches: u64,
    cpu_ns: u64,
}

/// The difference of the counters between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// The number of context switches of all threads, voluntary and involuntary.
    pub switches: u64,
    /// The CPU time of all threads, in user space and in the kernel.
    pub cpu_ns: u64,
}

impl Usage {
    /// Reads the counters with one system call.
    ///
    /// # Errors
    ///
    /// The error of the system call, which does not fail on Linux.
    pub fn now() -> io::Result<Self> {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    /// Reads the counters of child processes that have ended.
    ///
    /// # Errors
    ///
    /// See [`now`](Self::now).
    pub fn of_children() -> io::Result<Self> {
        Self::of(UsageWho::RUSAGE_CHILDREN)
    }

    fn of(who: UsageWho) -> io::Result<Self> {
        let usage = getrusage(who)?;
        let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
        let cpu = usage.user_time() + usage.system_time();
        Ok(Self { switches: switches as u64, cpu_ns: cpu.num_nanoseconds() as u64 })
    }

    /// Returns the resources used since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Spent {
        Spent {
            switches: self.switches.saturating_sub(earlier.switches),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_sleep_in_another_thread_counts_as_a_switch() {
        let before = Usage::now().unwrap();
        std::thread::spawn(|| std::thread::sleep(Duration::from_millis(1))).join().unwrap();
        let spent = Usage::now().unwrap().since(&before);
        assert!(spent.switches >= 1, "{spent:?}");
    }

    #[test]
    fn burning_costs_cpu_time() {
        let before = Usage::now().unwrap();
        let mut spent = Spent::default();
        // The loop ends as soon as the counter advances. If the counter is broken, the test hangs.
        while spent.cpu_ns == 0 {
            std::hint::black_box((0..10_000).sum::<u64>());
            spent = Usage::now().unwrap().since(&before);
        }
    }
}
