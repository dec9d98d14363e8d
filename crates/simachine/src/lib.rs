//! A simulated machine with 1 to 1024 CPUs. It runs the code above the facade `afterwork-sync`.
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
//! With `--cfg sim`, the facade's atomics, locks, futexes, threads, clocks and CPU numbers are
//! those of a machine whose threads are coroutines on one OS thread. The cost of an access depends
//! on its cache line: a hit if the CPU has the line, otherwise the wait in the line's queue and a
//! transfer. `Costs` contains the costs of sleeps, wake-ups, switches and interrupts. Equal seeds
//! give equal runs.
//!
//! The simulation shows which line saturates first, and which threads wait for it. Its absolute
//! figures depend on guessed costs.
//!
//! # Limits
//!
//! The simulation does not model the size of caches, the bandwidth of memory and mesh, prefetching,
//! or other programs on the machine. All accesses have one total order; loom checks orderings.
//! `time::Instant` reads the host's clock. Plain accesses and the counts of `Arc`s are visible only
//! in builds that a nightly compiler has instrumented (`sees_plain`). In other builds, the only
//! visible plain accesses are those to the first lines of the data that a lock guards.

// An atomic access is charged in `memory.rs`, which consults the ledger of `line.rs` and may
// suspend the task. Accesses that bypass the facade enter through `plain.rs`. The engine
// (`engine.rs`) then gives the turn to the CPU with the earliest time (`clock.rs`). `cpu.rs` is the
// scheduler, and `placement.rs` decides where a woken task runs. `futex.rs`, `timers.rs` and
// `life.rs` implement system calls. `sync/` and `thread.rs` replace their counterparts in the
// standard library.

#![cfg(sim)]

// Hidden modules and functions are the back end of `afterwork-sync`.

mod arena;
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
mod mask;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod memory;
mod placement;
mod plain;
mod report;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod sync;
mod task;
#[doc(hidden)]
#[allow(missing_docs)]
pub mod thread;
mod timers;
pub mod tls;

pub use arena::Arena;
pub use costs::Costs;
pub use engine::{Machine, run, unseen};
use engine::{running, with};
pub use mask::MAX_CPUS;
pub use plain::is_seen as sees_plain;
pub use report::{Counts, Failure, HotLine, LockStat, Outcome};
use topology::{CpuId, CpuSet, Topology};

/// Returns `true` if a simulation runs on this thread.
pub fn is_running() -> bool {
    running().is_some()
}

/// Spends `ns` nanoseconds of CPU time.
pub fn work_ns(ns: u64) {
    if is_running() {
        memory::work(ns * 1000);
        engine::sync();
    }
}

/// Simulates a spin-loop hint.
#[inline(never)]
pub fn pause() {
    if is_running() {
        engine::engine(|e| e.advance(e.costs.pause));
        engine::sync();
    }
}

/// Fetches a line for a write, like a store that no later instruction waits for.
#[track_caller]
pub fn prefetch_write(addr: usize) {
    memory::touch(addr, memory::Access::Store, std::panic::Location::caller());
}

/// Returns the simulated time in nanoseconds, or `None` outside a simulation. Charges for a read of
/// the CPU's counter if `is_counter` is set, otherwise for a read of the clock.
pub fn clock_ns(is_counter: bool) -> Option<u64> {
    with(|e| {
        let cost = if is_counter { e.costs.tsc } else { e.costs.clock };
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

/// Returns the CPUs on which this thread may run.
pub fn affinity() -> Option<CpuSet> {
    with(|e| e.task().allowed.iter().map(|cpu| CpuId::new(cpu as u32)).collect())
}

/// Binds a thread to CPUs. Returns `false` if the thread does not exist or no CPU is valid.
pub fn set_affinity(thread: Option<u32>, cpus: &CpuSet) -> bool {
    if !is_running() {
        return true;
    }
    let nr_cpus = engine::engine(|e| e.cpus.len());
    let known = cpus.iter().map(CpuId::index).filter(|&cpu| cpu < nr_cpus);
    let mask: mask::Mask = known.collect();
    let task = thread.map(thread::task_of);
    if mask.len() == 0 || task == Some(None) {
        return false;
    }
    life::set_affinity(task.flatten(), mask);
    true
}

/// Returns the simulated machine's CPUs; `None` outside a simulation.
pub fn topology() -> Option<Topology> {
    with(|e| e.machine.topology.clone())
}

/// Returns the CPU time that a thread has used.
pub fn cpu_ns(thread: u32) -> Option<u64> {
    let task = thread::task_of(thread)?;
    with(|e| e.cpu_time(task) / 1000)
}

/// Resets all counts, locks and lines, so that the outcome covers only the rest of the run.
pub fn measure_from_here() {
    with(|e| {
        e.counts = Counts::default();
        e.locks.clear();
        e.samples = Default::default();
        e.lines.forget_sites();
    });
}
