//! The parts of a machine: CPUs, cores, last-level caches, packages, nodes.

use crate::cpu_id::CpuId;
use crate::cpuset::CpuSet;

/// The parts of the machine to which one CPU belongs, which are known for online CPUs only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cpu {
    /// The number of the CPU.
    pub id: CpuId,
    /// `true` if the CPU is online, so that threads can run on it.
    pub online: bool,
    /// Its core, an index into [`Topology::cores`](crate::Topology::cores).
    pub core: Option<usize>,
    /// Its last-level cache, an index into [`Topology::llcs`](crate::Topology::llcs).
    pub llc: Option<usize>,
    /// Its package, an index into [`Topology::packages`](crate::Topology::packages).
    pub package: Option<usize>,
    /// The kernel's number for its NUMA node; `None` if it is in none or the kernel knows no nodes.
    pub node: Option<u32>,
}

/// A core: the online CPUs that are its SMT siblings, or a single CPU if there is no SMT.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Core {
    /// The siblings that are online.
    pub cpus: CpuSet,
}

/// A last-level cache: the online CPUs that share it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Llc {
    /// The online CPUs that share it.
    pub cpus: CpuSet,
    /// The source of the information about the sharing.
    pub source: LlcSource,
    /// Its size in bytes, if known.
    pub size: Option<u64>,
}

/// The source of the information about which CPUs share a last-level cache. Some machines, usually
/// small virtual ones, report no caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LlcSource {
    /// The machine reports the sharing. The level is usually 2 or 3.
    Cache {
        /// The highest level that has a unified or data cache.
        level: u32,
    },
    /// The machine does not report the sharing. The CPUs of a package are assumed to share a cache.
    Package,
    /// The packages are not known either. The CPUs of a node are assumed to share a cache.
    Node,
    /// No package or node is known either. All such CPUs are assumed to share one cache.
    System,
}

/// A package: the CPUs of one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Package {
    /// The kernel's number for it; `None` if the kernel does not know the package of these CPUs.
    pub id: Option<u32>,
    /// Its online CPUs.
    pub cpus: CpuSet,
}

/// A NUMA node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Node {
    /// The kernel's number for it.
    pub id: u32,
    /// Its online CPUs; empty for a node with memory only.
    pub cpus: CpuSet,
}
