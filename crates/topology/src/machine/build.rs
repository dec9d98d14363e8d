//! Builds the parts of a machine from the reports of its CPUs, with pure functions on sets.
//!
//! Cores and caches must be partitions of the online CPUs; otherwise pods could not be a partition.
//! However, each CPU reports for itself, and reports may contradict each other. The CPUs are
//! therefore visited in ascending order. The first CPU that is in no part yet founds one. This part
//! consists of the CPUs in its report that are online and in no other part. If all reports agree,
//! the parts are as reported. If they do not, a [`Quirk`] reports the contradiction.

use std::sync::Arc;

use crate::cpu_id::CpuId;
use crate::cpuset::CpuSet;
use crate::machine::parts::{Core, Cpu, Llc, LlcSource, Node, Package};
use crate::machine::quirk::Quirk;
use crate::machine::quota::CpuQuota;
use crate::machine::sorted::Sorted;
use crate::machine::topology::Topology;

/// The facts about a machine before its parts are built.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) possible: CpuSet,
    pub(crate) online: CpuSet,
    pub(crate) allowed: CpuSet,
    pub(crate) isolated: CpuSet,
    pub(crate) nohz_full: CpuSet,
    pub(crate) cpus: Sorted<CpuId, CpuFacts>,
    pub(crate) nodes: Sorted<u32, CpuSet>,
    pub(crate) quota: Option<CpuQuota>,
    pub(crate) quirks: Vec<Quirk>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct CpuFacts {
    /// The SMT siblings of the CPU, including the CPU itself.
    pub(crate) siblings: Arc<CpuSet>,
    pub(crate) package: Option<u32>,
    /// The last-level cache of the CPU, if it reports caches.
    pub(crate) cache: Option<CacheFacts>,
}

#[derive(Clone, Debug)]
pub(crate) struct CacheFacts {
    pub(crate) level: u32,
    pub(crate) size: Option<u64>,
    /// The CPUs that share the cache, including the CPU itself.
    pub(crate) cpus: Arc<CpuSet>,
}

/// Builds the topology of a machine.
///
/// The caller ensures that exactly the CPUs of `online` have an entry in `cpus`, that each CPU
/// names itself among its siblings and sharers, that `allowed` is a non-empty subset of `online`,
/// and that nodes are disjoint.
pub(crate) fn build(facts: Facts) -> Topology {
    let Facts { online, cpus: said, mut quirks, .. } = facts;
    let possible = facts.possible.union(&online);

    let nodes = facts.nodes.into_iter();
    let nodes: Vec<Node> =
        nodes.map(|(id, cpus)| Node { id, cpus: cpus.intersection(&online) }).collect();
    let packages = packages(&said);
    let caches = caches(&said, &packages, &nodes);
    let sharers = |cpu| &caches[cpu].cpus;
    let llc = |(founder, cpus)| {
        let Cache { source, size, .. } = caches[founder];
        Llc { cpus, source, size }
    };
    let llcs = partition("last-level cache", &online, sharers, &mut quirks);
    let llcs: Vec<Llc> = llcs.into_iter().map(llc).collect();
    let cores = partition("core", &online, |cpu| &said[cpu].siblings, &mut quirks);
    let cores: Vec<Core> = cores.into_iter().map(|(_, cpus)| Core { cpus }).collect();

    let node_of = index_by_cpu(nodes.iter().map(|node| &node.cpus));
    let package_of = index_by_cpu(packages.iter().map(|package| &package.cpus));
    let llc_of = index_by_cpu(llcs.iter().map(|llc| &llc.cpus));
    let core_of = index_by_cpu(cores.iter().map(|core| &core.cpus));

    quirks.extend(spans(&online, &llcs, &cores, &node_of, &llc_of));

    let mut cpus = vec![None; possible.last().map_or(0, |last| last.index() + 1)];
    for id in &possible {
        cpus[id.index()] = Some(Cpu {
            id,
            online: online.contains(id),
            core: core_of.get(id),
            llc: llc_of.get(id),
            package: package_of.get(id),
            node: node_of.get(id).map(|node| nodes[node].id),
        });
    }
    Topology {
        possible,
        online,
        allowed: facts.allowed,
        isolated: facts.isolated,
        nohz_full: facts.nohz_full,
        cpus,
        cores,
        llcs,
        packages,
        nodes,
        quirks,
        quota: facts.quota,
    }
}

/// Groups the CPUs by their package. CPUs whose package is unknown come last.
fn packages(said: &Sorted<CpuId, CpuFacts>) -> Vec<Package> {
    let mut by_id: Sorted<u32, CpuSet> = Sorted::default();
    let mut unknown = CpuSet::new();
    for &(cpu, ref facts) in said.iter() {
        match facts.package {
            Some(id) => by_id.or_insert_with(id, CpuSet::new).insert(cpu),
            None => unknown.insert(cpu),
        };
    }
    let known = by_id.into_iter().map(|(id, cpus)| Package { id: Some(id), cpus });
    let unknown = Some(unknown).filter(|cpus| !cpus.is_empty());
    known.chain(unknown.map(|cpus| Package { id: None, cpus })).collect()
}

/// The CPUs that share a last-level cache, and the source of that information.
struct Cache {
    source: LlcSource,
    size: Option<u64>,
    cpus: Arc<CpuSet>,
}

/// Assigns each CPU the cache that it reports, or one presumed for the CPUs that report none.
fn caches(
    said: &Sorted<CpuId, CpuFacts>,
    packages: &[Package],
    nodes: &[Node],
) -> Sorted<CpuId, Cache> {
    let mut caches = Sorted::default();
    let mut silent = CpuSet::new();
    for &(cpu, ref facts) in said.iter() {
        if let Some(cache) = &facts.cache {
            let source = LlcSource::Cache { level: cache.level };
            let (size, cpus) = (cache.size, cache.cpus.clone());
            caches.or_insert_with(cpu, || Cache { source, size, cpus });
        } else {
            silent.insert(cpu);
        }
    }
    let everyone = silent.clone();
    let presumed = packages
        .iter()
        .filter(|package| package.id.is_some())
        .map(|package| (LlcSource::Package, &package.cpus))
        .chain(nodes.iter().map(|node| (LlcSource::Node, &node.cpus)))
        .chain([(LlcSource::System, &everyone)]);
    for (source, cpus) in presumed {
        let cpus = Arc::new(cpus.intersection(&silent));
        silent = silent.difference(&cpus);
        for cpu in cpus.iter() {
            caches.or_insert_with(cpu, || Cache { source, size: None, cpus: Arc::clone(&cpus) });
        }
    }
    caches
}

/// Partitions `online`. Returns each part with the CPU that founded it, in ascending order.
fn partition<'a>(
    what: &'static str,
    online: &CpuSet,
    named_by: impl Fn(CpuId) -> &'a Arc<CpuSet>,
    quirks: &mut Vec<Quirk>,
) -> Vec<(CpuId, CpuSet)> {
    let mut free = online.clone();
    let mut parts = Vec::new();
    while let Some(founder) = free.first() {
        let named = named_by(founder);
        let mut part = named.intersection(&free);
        part.insert(founder);
        let dissents = |&other: &CpuId| {
            let others = named_by(other);
            !Arc::ptr_eq(named, others) && named.intersection(online) != others.intersection(online)
        };
        if let Some(other) = part.iter().find(dissents) {
            quirks.push(Quirk::UnevenSharing { what, believed: founder, other });
        }
        free = free.difference(&part);
        parts.push((founder, part));
    }
    parts
}

/// Returns a quirk for each part that does not nest in the next coarser one.
fn spans(
    online: &CpuSet,
    llcs: &[Llc],
    cores: &[Core],
    node_of: &ByCpu,
    llc_of: &ByCpu,
) -> Vec<Quirk> {
    let differ = |cpus: &CpuSet, place_of: &ByCpu| {
        let mut places = cpus.iter().map(|cpu| place_of.get(cpu));
        let first = places.next();
        places.any(|place| Some(place) != first)
    };
    let wide_llcs = llcs
        .iter()
        .filter(|llc| differ(&llc.cpus, node_of))
        .map(|llc| Quirk::CacheSpansNodes { cpus: llc.cpus.clone() });
    let wide_cores = cores
        .iter()
        .filter(|core| differ(&core.cpus, node_of) || differ(&core.cpus, llc_of))
        .map(|core| Quirk::CoreSpansCaches { cpus: core.cpus.clone() });
    let homeless: CpuSet = online.iter().filter(|&cpu| node_of.get(cpu).is_none()).collect();
    let no_node = Some(homeless)
        .filter(|cpus| !cpus.is_empty() && !node_of.0.is_empty())
        .map(|cpus| Quirk::NoNode { cpus });
    wide_llcs.chain(wide_cores).chain(no_node).collect()
}

/// The index of each CPU's part, by CPU number. It is empty if no part has a CPU.
struct ByCpu(Vec<Option<usize>>);

impl ByCpu {
    fn get(&self, cpu: CpuId) -> Option<usize> {
        self.0.get(cpu.index()).copied().flatten()
    }
}

fn index_by_cpu<'a>(parts: impl Iterator<Item = &'a CpuSet>) -> ByCpu {
    let mut by_cpu = Vec::new();
    for (index, cpus) in parts.enumerate() {
        for cpu in cpus {
            if by_cpu.len() <= cpu.index() {
                by_cpu.resize(cpu.index() + 1, None);
            }
            by_cpu[cpu.index()] = Some(index);
        }
    }
    ByCpu(by_cpu)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    /// Builds a machine from each CPU's reports of core, cache and node, as `cpu: list` pairs.
    fn machine(cores: &[&str], caches: &[Option<&str>], nodes: &[&str]) -> Topology {
        let online: CpuSet = (0..cores.len() as u32).map(CpuId::new).collect();
        let facts = |cpu: CpuId| {
            let cache = |list| CacheFacts { level: 3, size: None, cpus: Arc::new(set(list)) };
            let cache = caches[cpu.index()].map(cache);
            (cpu, CpuFacts { siblings: Arc::new(set(cores[cpu.index()])), package: None, cache })
        };
        let cpus = online.iter().map(facts).collect();
        let nodes = nodes.iter().zip(0..).map(|(list, id)| (id, set(list))).collect();
        build(Facts { online: online.clone(), allowed: online, cpus, nodes, ..Facts::default() })
    }

    fn lists<'a>(sets: impl Iterator<Item = &'a CpuSet>) -> Vec<String> {
        sets.map(CpuSet::to_string).collect()
    }

    fn caches(topology: &Topology) -> Vec<String> {
        lists(topology.llcs().iter().map(|llc| &llc.cpus))
    }

    #[test]
    fn lower_cpu_is_believed_where_two_disagree() {
        let topology = machine(
            &["0-1", "1", "2", "3"],
            &[Some("0-1"), Some("0-2"), Some("0-3"), Some("2-3")],
            &[],
        );
        let cores = lists(topology.cores().iter().map(|core| &core.cpus));
        assert_eq!(cores, ["0-1", "2", "3"]);
        assert_eq!(caches(&topology), ["0-1", "2-3"]);
        let uneven = |what, cpus: [u32; 2]| {
            let [believed, other] = cpus.map(CpuId::new);
            Quirk::UnevenSharing { what, believed, other }
        };
        let cache = |cpus| uneven("last-level cache", cpus);
        assert_eq!(topology.quirks(), [cache([0, 1]), cache([2, 3]), uneven("core", [0, 1])]);
    }

    #[test]
    fn cpu_without_a_cache_joins_the_cache_that_lists_it() {
        let topology = machine(&["0", "1", "2", "3"], &[None, Some("1-2"), None, None], &["0,3"]);
        assert_eq!(caches(&topology), ["0,3", "1-2"]);
        assert_eq!(topology.llcs()[0].source, LlcSource::Node);
        let no_node = Quirk::NoNode { cpus: set("1-2") };
        assert!(topology.quirks().contains(&no_node));
    }

    #[test]
    fn non_nested_parts_are_reported() {
        let all = Some("0-3");
        let topology = machine(&["0", "1-2", "1-2", "3"], &[all; 4], &["0-1", "2-3"]);
        let cache = Quirk::CacheSpansNodes { cpus: set("0-3") };
        let core = Quirk::CoreSpansCaches { cpus: set("1-2") };
        assert_eq!(topology.quirks(), [cache, core]);
    }
}
