//! The sleeps and the CPU time of one thread.

use std::io;

use nix::sys::resource::{UsageWho, getrusage};
use rustix::time::{ClockId, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

/// The counters of the calling thread at one moment.
#[derive(Clone, Copy, Debug)]
pub struct ThreadUsage {
    slept: u64,
    cpu_ns: u64,
}

/// The usage of a thread between two moments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadSpent {
    /// The number of voluntary context switches, as in `/proc/self/task/<tid>/status`. There is one
    /// for each sleep, and therefore one for each wake-up. Preemptions are not counted.
    pub slept: u64,
    /// The CPU time in user space and in the kernel.
    pub cpu_ns: u64,
}

impl ThreadUsage {
    /// Reads the counters of the calling thread with two system calls.
    ///
    /// # Errors
    ///
    /// If a system call fails, which does not happen on Linux.
    pub fn now() -> io::Result<Self> {
        let usage = getrusage(UsageWho::RUSAGE_THREAD)?;
        // This is more precise than the times in `usage`, which some kernels count in ticks.
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        Ok(Self {
            slept: usage.voluntary_context_switches() as u64,
            cpu_ns: cpu.tv_sec as u64 * NS_PER_S + cpu.tv_nsec as u64,
        })
    }

    /// Returns the usage since `earlier`, which must have been read on the same thread.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> ThreadSpent {
        ThreadSpent {
            slept: self.slept.saturating_sub(earlier.slept),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    fn in_proc() -> u64 {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.unwrap().trim().parse().unwrap()
    }

    #[test]
    fn sleeps_are_counted_as_proc_counts_them() {
        let (usage, proc) = (ThreadUsage::now().unwrap(), in_proc());
        let mut slept_in_proc = 0;
        // A sleep that ends before the thread has left its CPU is not counted.
        while slept_in_proc < 5 {
            std::thread::sleep(Duration::from_micros(10));
            slept_in_proc = in_proc() - proc;
        }
        let slept = ThreadUsage::now().unwrap().since(&usage).slept;
        // Reading /proc may also sleep, before or after the other reading.
        assert!(slept.abs_diff(slept_in_proc) <= 2, "{slept} sleeps");
    }

    #[test]
    fn another_threads_work_is_not_counted() {
        let before = ThreadUsage::now().unwrap();
        let burn = || {
            let start = ThreadUsage::now().unwrap();
            while ThreadUsage::now().unwrap().since(&start).cpu_ns < 20_000_000 {}
        };
        std::thread::spawn(burn).join().unwrap();
        let spent = ThreadUsage::now().unwrap().since(&before);
        assert!(spent.cpu_ns < 20_000_000, "{spent:?}");
    }
}
