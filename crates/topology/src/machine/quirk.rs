//! Irregularities of a machine that detection worked around.

use std::fmt;

use crate::cpu_id::CpuId;
use crate::cpuset::CpuSet;

/// An irregularity that detection worked around. It explains why a pod is smaller than expected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Quirk {
    /// Two CPUs contradict each other about a shared core or cache.
    UnevenSharing {
        /// `core` or `last-level cache`.
        what: &'static str,
        /// The CPU whose report was used.
        believed: CpuId,
        /// The CPU that contradicts it.
        other: CpuId,
    },
    /// A last-level cache serves CPUs of several nodes (sub-NUMA clustering, or one node per die
    /// quarter). A cache pod is then the part of the cache in one node.
    CacheSpansNodes {
        /// The CPUs that share the cache.
        cpus: CpuSet,
    },
    /// The siblings of a core are not all on one cache and node. Each SMT pod is a part that is.
    CoreSpansCaches {
        /// The siblings.
        cpus: CpuSet,
    },
    /// Some files of this machine are missing, unreadable or malformed, or contradict others. The
    /// topology is built as if they did not exist: a CPU without files is a core of its own, and
    /// shares one cache with the other CPUs without files.
    Ignored {
        /// The first fault, in one line that names the file.
        first: String,
        /// The number of further faults.
        nr_more: usize,
    },
    /// The machine has nodes, but some online CPUs are in none. These CPUs are a pod of their own.
    NoNode {
        /// The CPUs that are in no node.
        cpus: CpuSet,
    },
}

impl fmt::Display for Quirk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnevenSharing { what, believed, other } => {
                write!(f, "CPU {believed} and CPU {other} disagree about which CPUs share ")?;
                write!(f, "their {what}; the report of CPU {believed} is used")
            }
            Self::CacheSpansNodes { cpus } => {
                write!(f, "the last-level cache of CPUs {cpus} spans several nodes; ")?;
                f.write_str("a cache pod is the part in one node")
            }
            Self::CoreSpansCaches { cpus } => {
                write!(f, "the core of CPUs {cpus} spans several caches or nodes; ")?;
                f.write_str("an SMT pod is the part in one of each")
            }
            Self::Ignored { first, nr_more: 0 } => write!(f, "{first}; this is ignored"),
            Self::Ignored { first, nr_more } => {
                write!(f, "{first}; this and {nr_more} more such faults are ignored")
            }
            Self::NoNode { cpus } => {
                write!(f, "CPUs {cpus} are in no node; they form their own pod")
            }
        }
    }
}
