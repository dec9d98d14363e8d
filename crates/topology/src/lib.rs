//! The CPUs of a machine: which exist, which may be used, and which share caches and memory.
//!
//! ```
//! use afterwork_topology::{AffinityScope, CpuId, ShardParams, Topology};
//!
//! let topology = Topology::synthetic("2 numa x 4 llc x 12 core x 2 smt")?;
//! let pods = topology.pods(AffinityScope::CacheShard, &ShardParams::default());
//!
//! // Twelve cores exceed the limit of eight for one shard, so there are two shards of six.
//! assert_eq!(pods.len(), 2 * 4 * 2);
//! let pod = pods.pod_of(CpuId::new(0)).expect("CPU 0 is allowed");
//! assert_eq!(pods.pod(pod).cpus.to_string(), "0-11");
//! assert_eq!(pods.pod(pod).node, Some(0));
//! # Ok::<(), afterwork_topology::Error>(())
//! ```
//!
//! Deferred work runs best near its caller, on a CPU that shares its caches and its memory. This
//! crate finds these CPUs and divides the machine into *pods*, whose CPUs share a worker pool.
//!
//! ```text
//!   /sys, /proc            a saved tree        "2 numa x 4 llc x 8 core x 2 smt"
//!   Topology::detect       ::from_sysfs        ::synthetic
//!         └───────────────────┬───────────────────┘
//!                          Topology   online, allowed, isolated CPUs; cores, caches, nodes; quota
//!                             │  pods(scope, params)
//!                            Pods     a partition of the allowed CPUs
//! ```
//!
//! # Guarantees
//!
//! - [`Topology::pods`] partitions the allowed CPUs: each is in one pod, and others are in none.
//! - Each scope refines the next coarser one on any machine, even if its hardware or firmware
//!   contradicts that; see [`AffinityScope`].
//! - No input makes this crate panic. A malformed saved file or string is an [`Error`] that names
//!   the file and the position, in one line.
//! - [`Topology::detect`] always finds CPUs. It ignores the parts of this machine that it cannot
//!   read, and reports that ([`Quirk::Ignored`]).
//! - A [`Topology`] describes one moment and never changes; see [`Topology::changed`].
//!
//! # Cost
//!
//! Detection reads about twenty small files for each online CPU, once, at start-up.
//! [`Pods::pod_of`] is one array access. The other functions are meant for start-up and for tools.

#![forbid(unsafe_code)]

// Every other crate builds after this one, so other platforms report only this error.
#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
compile_error!("afterwork needs 64-bit Linux: its waits are futexes, and its words are of 64 bits");

mod bounds;
mod build;
mod cgroup;
mod cpu_id;
mod cpuset;
mod detect;
mod error;
mod faults;
mod file;
mod list;
mod parts;
mod pods;
mod quirk;
mod quota;
mod scope;
mod shard;
mod snapshot;
mod sorted;
mod synthetic;
mod sysfs;
mod text;
mod topology;

pub use crate::bounds::current_bounds;
pub use crate::cgroup::current_quota;
pub use crate::cpu_id::CpuId;
pub use crate::cpuset::{CpuSet, Iter};
pub use crate::error::Error;
pub use crate::list::ParseCpuListError;
pub use crate::parts::{Core, Cpu, Llc, LlcSource, Node, Package};
pub use crate::pods::{Pod, Pods};
pub use crate::quirk::Quirk;
pub use crate::quota::CpuQuota;
pub use crate::scope::{AffinityScope, UnknownScope};
pub use crate::shard::ShardParams;
pub use crate::snapshot::save_snapshot;
pub use crate::synthetic::SyntheticError;
pub use crate::topology::Topology;
