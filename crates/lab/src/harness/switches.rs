//! Context switches and CPU time of this process, of its children, or of one thread.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use rustix::time::{ClockId, clock_gettime};

const NS_PER_S: u64 = 1_000_000_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The number of voluntary context switches: one for each sleep, and so one for each wake-up.
    pub slept: u64,
    pub preempted: u64,
    pub cpu_ns: u64,
}

impl Usage {
    /// Reads the counters of this process, including threads that have exited.
    pub fn now() -> Self {
        Self::of(UsageWho::RUSAGE_SELF)
    }

    pub fn of_children() -> Self {
        Self::of(UsageWho::RUSAGE_CHILDREN)
    }

    pub fn of_thread() -> Self {
        // This is more precise than the times of `getrusage`, which some kernels count in ticks.
        let cpu = clock_gettime(ClockId::ThreadCPUTime);
        let cpu_ns = cpu.tv_sec as u64 * NS_PER_S + cpu.tv_nsec as u64;
        Self { cpu_ns, ..Self::of(UsageWho::RUSAGE_THREAD) }
    }

    fn of(who: UsageWho) -> Self {
        let usage = getrusage(who).expect("Linux knows `who`, and the result is on the stack");
        let cpu = usage.user_time() + usage.system_time();
        Self {
            slept: usage.voluntary_context_switches() as u64,
            preempted: usage.involuntary_context_switches() as u64,
            cpu_ns: cpu.num_nanoseconds() as u64,
        }
    }

    pub fn since(self, earlier: Self) -> Self {
        Self {
            slept: self.slept.saturating_sub(earlier.slept),
            preempted: self.preempted.saturating_sub(earlier.preempted),
            cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns),
        }
    }

    pub fn switches(self) -> u64 {
        self.slept + self.preempted
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
        let (usage, proc) = (Usage::of_thread(), in_proc());
        let mut slept_in_proc = 0;
        // A sleep that ends before the thread has left its CPU is not counted.
        while slept_in_proc < 5 {
            std::thread::sleep(Duration::from_micros(10));
            slept_in_proc = in_proc() - proc;
        }
        let slept = Usage::of_thread().since(usage).slept;
        // Reading /proc may also sleep, before or after the other reading.
        assert!(slept.abs_diff(slept_in_proc) <= 2, "{slept} sleeps");
    }

    #[test]
    fn another_threads_work_counts_for_the_process_alone() {
        let (process, thread) = (Usage::now(), Usage::of_thread());
        let burn = || {
            let start = Usage::of_thread();
            while Usage::of_thread().since(start).cpu_ns < 20_000_000 {}
            std::thread::sleep(Duration::from_millis(1));
        };
        std::thread::spawn(burn).join().unwrap();
        let (all, own) = (Usage::now().since(process), Usage::of_thread().since(thread));
        assert!(own.cpu_ns < 20_000_000 && all.cpu_ns > own.cpu_ns, "{own:?} of {all:?}");
        assert!(all.switches() >= 1, "{all:?}");
    }
}
