//! The operations that the programs need from their machine, simulated or real.

use std::sync::Arc;

#[cfg(sim)]
pub use sync::sim::{measure_from_here, unseen, work_ns};
use sync::thread::{self, JoinHandle};
use topology::{CpuId, CpuSet};

pub fn pin(cpu: CpuId) {
    let here: CpuSet = [cpu].into_iter().collect();
    sync::cpu::set_affinity(None, &here).expect("the CPU is there");
}

/// Starts a thread on each of `cpus`. Each thread passes its index to `body`.
pub fn start_on(
    cpus: impl IntoIterator<Item = CpuId>,
    body: impl Fn(usize) + Send + Sync + 'static,
) -> Vec<JoinHandle> {
    let body = Arc::new(body);
    let start = |(index, cpu)| {
        let body = body.clone();
        let run = move || {
            pin(cpu);
            body(index);
        };
        thread::spawn(&format!("cpu-{index}"), run).expect("a thread")
    };
    cpus.into_iter().enumerate().map(start).collect()
}

/// Joins `threads`. If a thread has panicked, resumes its panic.
pub fn join(threads: impl IntoIterator<Item = JoinHandle>) {
    for thread in threads {
        if let Err(payload) = thread.join() {
            std::panic::resume_unwind(payload);
        }
    }
}

#[cfg(not(sim))]
pub fn work_ns(ns: u64) {
    let end_ns = sync::time::now_ns() + ns;
    while ns > 0 && sync::time::now_ns() < end_ns {
        std::hint::spin_loop();
    }
}

/// Runs `step`, and records its duration in nanoseconds. The recording costs no simulated time.
#[cfg(sim)]
pub fn timed(took_ns: &mut Vec<u32>, step: impl FnOnce()) {
    let start_ps = sync::sim::kernel::now_ps();
    step();
    let took_ps = sync::sim::kernel::now_ps() - start_ps;
    unseen(|| took_ns.push((took_ps / 1000) as u32));
}

/// Runs `step` without recording its duration, because recording it would take time.
#[cfg(not(sim))]
pub fn timed(_: &mut Vec<u32>, step: impl FnOnce()) {
    step();
}

/// Runs `step`, which does not belong to the measured program.
#[cfg(not(sim))]
pub fn unseen<R>(step: impl FnOnce() -> R) -> R {
    step()
}

#[cfg(not(sim))]
pub fn measure_from_here() {}
