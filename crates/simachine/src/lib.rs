//! A simulated machine of 1 to 1024 CPUs, on which the shipped code runs, through the facade `afterwork-sync`.
//!
//! ```
//! # #[cfg(sim)] {
//! use afterwork_simachine::{Costs, Machine, run, work_ns};
//! let machine = Machine::new(topology::Topology::synthetic("8 core").unwrap(), Costs::example());
//! let outcome = run(machine, || work_ns(1_000)).unwrap();
//! assert_eq!(outcome.counts.spawns, 0);
//! # }
//! ```
//!
//! With `--cfg sim` the facade's atomics, locks, futexes, threads, clocks and CPU numbers are those of a machine whose threads
//! are coroutines on one OS thread. Each access costs what its cache line costs: nothing but a hit where the CPU has the line,
//! a transfer and a wait in its queue where another one has it. Sleeps, wake-ups, switches and interrupts cost what
//! `Costs` says. The dice start from a seed: equal seeds give equal runs.
//!
//! It is a profiler of scaling: it shows which line saturates first, and who waits for it. Its absolute figures rest on
//! costs of which many are guesses.
//!
//! # What it does not see
//!
//! Caches that are full, the bandwidth of memory and mesh, prefetching, and whatever runs besides. All accesses are in one order:
//! orderings are what loom checks. `time::Instant` is the host's. In a build by a nightly compiler that shows them
//! (`sees_plain`), plain accesses and the counts of `Arc`s are seen. Otherwise the only plain accesses seen are to the first lines
//! of the data that a lock guards.

// An access: `atomic.rs` pays by `memory.rs`, which asks the ledger of `line.rs`, and may suspend the task; so does one past the facade,
// by `plain.rs`. The engine
// (`engine.rs`) then gives the turn to the CPU with the least time, by `clock.rs`. `cpu.rs` is the scheduler, `placement.rs` its
// decision where a woken task goes. `futex.rs`, `timers.rs` and `life.rs` are system calls; `task.rs` has a thread's state,
// `tls.rs` its thread-locals, `kernel.rs` what a model of kernel code can do besides. `lock.rs`, `once.rs` and `thread.rs` stand for the standard library's. `arena.rs` gives memory at
// addresses that do not depend on the host; `report.rs` tells what was seen.

#![cfg(sim)]

// Hidden modules and functions are the back end of `afterwork-sync`.

mod arena;
#[doc(hidden)]
pub mod atomic;
mod clock;
mod costs;
mod cpu;
mod engine;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod futex;
pub mod kernel;
mod life;
mod line;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod lock;
mod mask;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod memory;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod once;
mod placement;
mod plain;
mod report;
mod seen;
mod task;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod thread;
mod timers;
pub mod tls;

pub use arena::Arena;
pub use costs::Costs;
pub use engine::{Machine, run, unseen};
pub use mask::MAX_CPUS;
pub use report::{Counts, Failure, HotLine, LockStat, Outcome};
pub use seen::is_seen as sees_plain;

use engine::{running, with};
use topology::{CpuId, CpuSet, Topology};

/// Returns `true` if a simulation runs on this thread.
pub fn is_running() -> bool {
    running().is_some()
}

/// Spends CPU time.
pub fn work_ns(ns: u64) {
    if is_running() {
        memory::work(ns * 1000);
        engine::sync();
    }
}

/// A hint of a spin loop.
#[inline(never)]
pub fn pause() {
    if is_running() {
        engine::engine(|e| e.advance(e.costs.pause));
        engine::sync();
    }
}

/// Fetches a line for a write, as a store does that nobody waits for.
#[track_caller]
pub fn prefetch_write(addr: usize) {
    memory::touch(addr, memory::Access::Store, std::panic::Location::caller());
}

/// Returns the clock in nanoseconds; nothing outside. The CPU's counter is another clock of the same rate.
pub fn clock_ns(is_counter: bool) -> Option<u64> {
    with(|e| {
        let cost = if is_counter {
            e.costs.tsc
        } else {
            e.costs.clock
        };
        e.advance(cost);
        e.now() / 1000
    })
}

/// Returns the CPU that runs this thread.
pub fn current_cpu() -> Option<CpuId> {
    with(|e| {
        e.advance(e.costs.getcpu);
        CpuId::new(e.cpu as u32)
    })
}

/// Returns the CPUs that this thread may run on.
pub fn affinity() -> Option<CpuSet> {
    with(|e| {
        e.task()
            .allowed
            .iter()
            .map(|cpu| CpuId::new(cpu as u32))
            .collect()
    })
}

/// Binds a thread. Returns `false` if there is no such thread, or none of the CPUs.
pub fn set_affinity(thread: Option<u32>, cpus: &CpuSet) -> bool {
    if !is_running() {
        return true;
    }
    let mask: mask::Mask = cpus.iter().map(|cpu| cpu.index()).collect();
    let nr_cpus = engine::engine(|e| e.cpus.len());
    let mask: mask::Mask = mask.iter().filter(|&cpu| cpu < nr_cpus).collect();
    let task = thread.map(thread::task_of);
    if mask.len() == 0 || task == Some(None) {
        return false;
    }
    life::set_affinity(task.flatten(), mask);
    true
}

/// Returns the simulated machine's CPUs; nothing outside.
pub fn topology() -> Option<Topology> {
    with(|e| e.machine.topology.clone())
}

/// Returns the CPU time that a thread has had.
pub fn cpu_ns(thread: u32) -> Option<u64> {
    let task = thread::task_of(thread)?;
    with(|e| e.cpu_time(task) / 1000)
}

/// Forgets what was counted and seen of locks and lines so far, so that the outcome tells what follows.
pub fn measure_from_here() {
    with(|e| {
        e.counts = Counts::default();
        e.locks.clear();
        e.samples = Default::default();
        e.lines.forget_sites();
    });
}
