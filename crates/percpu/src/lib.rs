//! Per-CPU data that other threads can drain without disturbing its owner.
//!
//! ```
//! use afterwork::percpu::{PerCpu, Qpw};
//!
//! let hits = PerCpu::builder().qpw(Qpw::OnDemand).build(|_cpu| 0u64)?;
//! hits.with_current(|hits| *hits += 1); // on the slot of this CPU
//! assert_eq!(hits.sum_over(|hits| *hits), 1); // over all slots
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A [`PerCpu`] holds one slot of data for each CPU of the machine. A thread that stays on a CPU
//! *owns* its slot ([`PerCpu::attach`]) and works on it with plain loads and stores
//! ([`Owner::with`]). Sometimes another thread must access the slot: to flush a cache, to read a
//! sum, or because the CPU goes offline. The mode ([`Qpw`]), which is chosen when the program
//! starts, decides whether that thread queues the work to the owner, or does it itself. The
//! functions to call, and their effects, are the same in all modes.
//!
//! | [`Qpw`] | the owner gives up its slot | an operation of the owner costs | a remote call |
//! |---|---|---|---|
//! | `Queue` | never | nothing | is queued; the owner runs it when it [polls](Owner::poll) |
//! | `OnDemand` | at its next operation if asked | a load | runs on the caller, after that |
//! | `EveryOp` | after each operation | a locked instruction | runs on the caller, at once |
//!
//! A slot that has no owner, or whose owner is [parked](Owner::park), is free in every mode. In
//! data built with [`Builder::build_compiled_out`], the mode is `Queue`, and no operation tests it.
//!
//! # Waiting
//!
//! An owner waits only for a remote call that is inside its own slot. A waiter spins for a few
//! microseconds, and then sleeps until the slot is handed over. An owner that is preempted inside
//! an operation holds its slot until it runs again, and remote callers wait, so keep operations
//! short; see [`PerCpu::try_run_on`].
//!
//! A busy owner does not starve callers. In `OnDemand` and `EveryOp`, a caller that sleeps is next:
//! the owner begins no operation until it has woken the caller and the call has run, or 10 ms have
//! passed. This costs the owner one system call for each remote call that finds it inside a long
//! operation. A caller therefore waits for one operation and for one call of each caller that has
//! waited longer. An owner that sleeps is next in the same way, so busy callers do not starve it.
//! In `Queue`, an owner that has run a queued call wakes its caller.
//!
//! # Escalation
//!
//! In `OnDemand`, a remote caller waits forever if the owner neither operates nor polls.
//! [`Builder::escalate`] allows it to take the slot from an owner that is not inside an operation.
//! See [`Escalate`] for the methods and their cost.
//!
//! Differs from Linux: there a thread owns its CPU's data while preemption is off; here it declares
//! that it owns a slot. `Queue` and `EveryOp` are `qpw=0` and `qpw=1` of the kernel's proposal for
//! remote per-CPU work (version 3; version 4 renames QPW to PW); the kernel has no `OnDemand`.

#![deny(unsafe_op_in_unsafe_fn, clippy::undocumented_unsafe_blocks)]

mod absent;
mod attempt;
mod backoff;
mod bias;
mod builder;
mod call;
mod call_queue;
mod choice;
mod counter;
mod drain;
mod fork;
mod leaked;
mod owner;
mod remote;
mod slot;
mod table;

pub use absent::{DrainedWhenAbsent, set_online_cpus};
pub use base::internal::params::Qpw;
pub use builder::{BuildError, Builder};
pub use choice::{COMPILED_OUT, Escalate};
pub use counter::SloppyCounter;
pub use owner::{AttachError, Owner, Parked};
pub use remote::{NotRun, PerCpu};
pub use topology::{CpuId, CpuSet, Error as TopologyError, Topology};

base::internal::impl_debug! {
    impl[] Builder;
    impl[] DrainedWhenAbsent;
    impl[T, const C: bool] Owner<'_, T, C>;
    impl[T, const C: bool] Parked<'_, T, C>;
    impl[T, const C: bool] PerCpu<T, C>;
}
