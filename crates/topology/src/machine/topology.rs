//! The topology of a machine.

use crate::cpu_id::CpuId;
use crate::cpuset::CpuSet;
use crate::machine::error::Error;
use crate::machine::parts::{Core, Cpu, Llc, Node, Package};
use crate::machine::pods::Pods;
use crate::machine::quirk::Quirk;
use crate::machine::quota::CpuQuota;
use crate::machine::shard::ShardParams;
use crate::scope::AffinityScope;

/// The CPUs of a machine at the moment of its detection, what they share, and which of them may be
/// used. Parts contain online CPUs, and pods only allowed ones.
///
/// # Examples
///
/// ```
/// use afterwork_topology::{CpuId, Topology};
///
/// let topology = Topology::synthetic("2 socket x 4 core x 2 smt")?;
/// let cpu = CpuId::new(5);
/// assert_eq!(topology.smt_siblings(cpu).map(|cpus| cpus.to_string()), Some("4-5".into()));
/// assert_eq!(topology.cpu(cpu).and_then(|cpu| cpu.node), Some(0));
/// assert_eq!(topology.cpu(CpuId::new(99)), None);
/// # Ok::<(), afterwork_topology::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub(crate) possible: CpuSet,
    pub(crate) online: CpuSet,
    pub(crate) allowed: CpuSet,
    pub(crate) isolated: CpuSet,
    pub(crate) nohz_full: CpuSet,
    /// The CPUs by number; `None` for a number that is not possible.
    pub(crate) cpus: Vec<Option<Cpu>>,
    pub(crate) cores: Vec<Core>,
    pub(crate) llcs: Vec<Llc>,
    pub(crate) packages: Vec<Package>,
    pub(crate) nodes: Vec<Node>,
    pub(crate) quirks: Vec<Quirk>,
    pub(crate) quota: Option<CpuQuota>,
}

impl Topology {
    /// Returns the CPUs that may ever come online, including those that are online.
    #[must_use]
    pub fn possible(&self) -> &CpuSet {
        &self.possible
    }

    /// Returns the CPUs that are online.
    #[must_use]
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// Returns the online CPUs that this process may use. The set is never empty.
    #[must_use]
    pub fn allowed(&self) -> &CpuSet {
        &self.allowed
    }

    /// Returns the CPUs that are excluded from general work (`isolcpus=`, isolated cpusets).
    #[must_use]
    pub fn isolated(&self) -> &CpuSet {
        &self.isolated
    }

    /// Returns the CPUs whose timer tick stops while one thread runs (`nohz_full=`).
    #[must_use]
    pub fn nohz_full(&self) -> &CpuSet {
        &self.nohz_full
    }

    /// Returns one more than the highest possible CPU number: the length of an array that is
    /// indexed by [`CpuId::index`]. This is the kernel's `nr_cpu_ids`.
    #[must_use]
    pub fn nr_cpus(&self) -> usize {
        self.cpus.len()
    }

    /// Returns the parts of a CPU, or `None` if the CPU is not possible.
    #[must_use]
    pub fn cpu(&self, cpu: CpuId) -> Option<&Cpu> {
        self.cpus.get(cpu.index())?.as_ref()
    }

    /// Returns an iterator over the possible CPUs in ascending order.
    pub fn cpus(&self) -> impl Iterator<Item = &Cpu> {
        self.cpus.iter().flatten()
    }

    /// Returns the cores, in ascending order of their lowest CPUs.
    #[must_use]
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// Returns the last-level caches, in ascending order of their lowest CPUs.
    #[must_use]
    pub fn llcs(&self) -> &[Llc] {
        &self.llcs
    }

    /// Returns the packages in ascending order of their numbers, and last the CPUs whose package is
    /// unknown.
    #[must_use]
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// Returns the NUMA nodes in ascending order of their numbers, including those without CPUs.
    /// The slice is empty if the kernel knows no nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Returns the online CPUs of a CPU's core, including itself, or `None` if it is not online.
    #[must_use]
    pub fn smt_siblings(&self, cpu: CpuId) -> Option<&CpuSet> {
        Some(&self.cores[self.cpu(cpu)?.core?].cpus)
    }

    /// Returns a CPU's last-level cache, or `None` if the CPU is not online.
    #[must_use]
    pub fn llc_of(&self, cpu: CpuId) -> Option<&Llc> {
        Some(&self.llcs[self.cpu(cpu)?.llc?])
    }

    /// Returns the irregularities of the machine that detection worked around.
    #[must_use]
    pub fn quirks(&self) -> &[Quirk] {
        &self.quirks
    }

    /// Returns the CPU quota of this process, according to its cgroups, or `None` if there is no
    /// limit.
    #[must_use]
    pub fn quota(&self) -> Option<CpuQuota> {
        self.quota
    }

    /// Returns the same machine with another quota.
    #[must_use]
    pub fn with_quota(self, quota: Option<CpuQuota>) -> Self {
        Self { quota, ..self }
    }

    /// Divides the allowed CPUs into pods, whose CPUs share the part that `scope` names, in
    /// ascending order of their lowest CPUs. Takes microseconds on a small machine and milliseconds
    /// on the largest, so keep the result.
    #[must_use]
    pub fn pods(&self, scope: AffinityScope, params: &ShardParams) -> Pods {
        Pods::cut(self, scope, params)
    }

    /// Returns the same machine with fewer allowed CPUs: those that are also in `cpus`.
    ///
    /// # Errors
    ///
    /// [`Error::NothingAllowed`] if no CPU is left.
    pub fn restricted_to(&self, cpus: &CpuSet) -> Result<Self, Error> {
        let allowed = some_allowed(&self.allowed, cpus)?;
        Ok(Self { allowed, ..self.clone() })
    }
}

pub(crate) fn some_allowed(online: &CpuSet, allowed: &CpuSet) -> Result<CpuSet, Error> {
    let both = online.intersection(allowed);
    if both.is_empty() {
        return Err(Error::NothingAllowed { online: online.clone(), allowed: allowed.clone() });
    }
    Ok(both)
}
