//! Pods: the allowed CPUs, divided by a scope.
//!
//! Each allowed CPU has an address: node, cache, shard, core, number. CPUs whose addresses have the
//! same prefix are in one pod: `numa` uses the node, `cache` uses node and cache, and so on. Each
//! scope therefore refines the next, on any hardware.

use std::slice;

use crate::cpu_id::CpuId;
use crate::cpuset::CpuSet;
use crate::machine::parts::Cpu;
use crate::machine::shard::{ShardParams, shard_sizes};
use crate::machine::sorted::Sorted;
use crate::machine::topology::Topology;
use crate::scope::AffinityScope;

/// A set of CPUs that share a worker pool.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Pod {
    /// The CPUs of the pod, at least one.
    pub cpus: CpuSet,
    /// Their common NUMA node; `None` if they are in several or the kernel knows no nodes.
    pub node: Option<u32>,
}

/// A partition of the allowed CPUs into pods.
///
/// # Guarantees
///
/// Each allowed CPU is in exactly one pod, and no other CPU is in any. There is at least one pod.
/// Pods are in ascending order of their lowest CPUs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pods {
    scope: AffinityScope,
    pods: Vec<Pod>,
    /// The index of each CPU's pod, by CPU number; `NO_POD` for a CPU that is in no pod.
    pod_of: Vec<u32>,
}

const NO_POD: u32 = u32::MAX;

impl Pods {
    pub(crate) fn cut(topology: &Topology, scope: AffinityScope, params: &ShardParams) -> Self {
        let mut cut: Sorted<Address, CpuSet> = Sorted::default();
        for (cpu, address) in addresses(topology, params) {
            cut.or_insert_with(address.seen_by(scope), CpuSet::new).insert(cpu);
        }
        let mut pods: Sorted<Option<CpuId>, Pod> = Sorted::default();
        for cpus in cut.into_values() {
            pods.or_insert_with(cpus.first(), || Pod { node: node_of_all(topology, &cpus), cpus });
        }
        let pods: Vec<Pod> = pods.into_values().collect();

        let mut pod_of = vec![NO_POD; topology.nr_cpus()];
        for (pod, index) in pods.iter().zip(0..) {
            for cpu in &pod.cpus {
                pod_of[cpu.index()] = index;
            }
        }
        Self { scope, pods, pod_of }
    }

    /// Returns the scope by which the CPUs were divided.
    #[must_use]
    pub fn scope(&self) -> AffinityScope {
        self.scope
    }

    /// Returns the number of pods, at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always a pod")]
    pub fn len(&self) -> usize {
        self.pods.len()
    }

    /// Returns a pod by its index.
    ///
    /// # Panics
    ///
    /// If `index` is not below [`len`](Self::len).
    #[must_use]
    pub fn pod(&self, index: usize) -> &Pod {
        &self.pods[index]
    }

    /// Returns the index of a CPU's pod, if the CPU is allowed. Costs one array access.
    #[must_use]
    pub fn pod_of(&self, cpu: CpuId) -> Option<usize> {
        match self.pod_of.get(cpu.index()) {
            None | Some(&NO_POD) => None,
            Some(&pod) => Some(pod as usize),
        }
    }

    /// Returns the pods in the order of their indices.
    pub fn iter(&self) -> slice::Iter<'_, Pod> {
        self.pods.iter()
    }
}

impl<'a> IntoIterator for &'a Pods {
    type Item = &'a Pod;
    type IntoIter = slice::Iter<'a, Pod>;

    fn into_iter(self) -> slice::Iter<'a, Pod> {
        self.iter()
    }
}

/// The parts to which a CPU belongs, the coarsest first. Unused parts have their default value.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Address {
    node: Option<u32>,
    llc: Option<usize>,
    shard: usize,
    core: Option<usize>,
    cpu: Option<CpuId>,
}

impl Address {
    fn seen_by(self, scope: AffinityScope) -> Self {
        let Self { node, llc, shard, core, cpu } = self;
        let nowhere = Self::default();
        match scope {
            AffinityScope::Cpu => Self { node, llc, shard, core, cpu },
            AffinityScope::Smt => Self { node, llc, shard, core, ..nowhere },
            AffinityScope::CacheShard => Self { node, llc, shard, ..nowhere },
            AffinityScope::Cache => Self { node, llc, ..nowhere },
            AffinityScope::Numa => Self { node, ..nowhere },
            AffinityScope::System => nowhere,
        }
    }
}

fn addresses(topology: &Topology, params: &ShardParams) -> Vec<(CpuId, Address)> {
    let mut caches: Sorted<Address, Vec<(CpuId, Address)>> = Sorted::default();
    for &Cpu { id, node, llc, core, .. } in
        topology.allowed().iter().flat_map(|id| topology.cpu(id))
    {
        let address = Address { node, llc, shard: 0, core, cpu: Some(id) };
        caches.or_insert_with(address.seen_by(AffinityScope::Cache), Vec::new).push((id, address));
    }
    caches.into_values().flat_map(|cache| sharded(cache, params)).collect()
}

/// Assigns shards to the CPUs of one cache. Neighboring cores go to the same shard.
fn sharded(cache: Vec<(CpuId, Address)>, params: &ShardParams) -> Vec<(CpuId, Address)> {
    let mut cores: Sorted<Option<usize>, Vec<(CpuId, Address)>> = Sorted::default();
    for (cpu, address) in cache {
        cores.or_insert_with(address.core, Vec::new).push((cpu, address));
    }
    let sizes = shard_sizes(cores.len(), params.cache_shard_size);
    let shards = sizes.enumerate().flat_map(|(shard, size)| std::iter::repeat_n(shard, size));
    let cores = cores.into_values().zip(shards);
    let placed = |(core, shard): (Vec<(CpuId, Address)>, usize)| {
        core.into_iter().map(move |(cpu, address)| (cpu, Address { shard, ..address }))
    };
    cores.flat_map(placed).collect()
}

fn node_of_all(topology: &Topology, cpus: &CpuSet) -> Option<u32> {
    let mut nodes = cpus.iter().map(|cpu| topology.cpu(cpu).and_then(|cpu| cpu.node));
    let first = nodes.next()??;
    nodes.all(|node| node == Some(first)).then_some(first)
}
