//! The guarantees of pods.

use std::collections::BTreeMap;

use afterwork_topology::{AffinityScope, CpuId, CpuSet, Pods, ShardParams, Topology};
use proptest::prelude::*;

use crate::machine::machine;

/// Returns limits from 0 (no limit) to more cores than any cache of these machines has.
fn params() -> impl Strategy<Value = ShardParams> {
    (0usize..40).prop_map(|cache_shard_size| ShardParams { cache_shard_size })
}

fn all_pods(topology: &Topology, params: &ShardParams) -> [Pods; 6] {
    AffinityScope::ALL.map(|scope| topology.pods(scope, params))
}

fn nr_cores(topology: &Topology, cpus: &CpuSet) -> usize {
    topology.cores().iter().filter(|core| !core.cpus.is_disjoint(cpus)).count()
}

proptest! {
    #[test]
    fn every_scope_partitions_the_allowed_cpus(topology in machine(), params in params()) {
        for pods in all_pods(&topology, &params) {
            let mut seen = CpuSet::new();
            for (index, pod) in pods.iter().enumerate() {
                prop_assert!(!pod.cpus.is_empty());
                prop_assert!(pod.cpus.is_disjoint(&seen), "{} pods overlap", pods.scope());
                prop_assert_eq!(pods.pod(index), pod);
                seen = seen.union(&pod.cpus);
            }
            prop_assert_eq!(&seen, topology.allowed());
            for cpu in (0..topology.nr_cpus() as u32 + 70).map(CpuId::new) {
                let found = pods.iter().position(|pod| pod.cpus.contains(cpu));
                prop_assert_eq!(pods.pod_of(cpu), found);
            }
            let firsts: Vec<_> = pods.iter().map(|pod| pod.cpus.first()).collect();
            prop_assert!(firsts.is_sorted());
        }
    }

    #[test]
    fn each_scope_refines_the_next(topology in machine(), params in params()) {
        let pods = all_pods(&topology, &params);
        for (finer, coarser) in pods.iter().zip(&pods[1..]) {
            for pod in finer {
                let around = pod.cpus.first().and_then(|cpu| coarser.pod_of(cpu)).map(|index| coarser.pod(index));
                let within = around.is_some_and(|around| pod.cpus.is_subset(&around.cpus));
                prop_assert!(within, "{} pod {} is in no {} pod", finer.scope(), pod.cpus, coarser.scope());
            }
        }
        prop_assert_eq!(pods[5].len(), 1);
        prop_assert_eq!(pods[0].len(), topology.allowed().len());
    }

    #[test]
    fn no_core_is_split_at_smt_and_above(topology in machine(), params in params()) {
        for pods in &all_pods(&topology, &params)[1..] {
            for core in topology.cores() {
                let cpus = core.cpus.intersection(topology.allowed());
                // A core that spans caches or nodes is divided along them and no further.
                let mut pieces: BTreeMap<_, CpuSet> = BTreeMap::new();
                for cpu in &cpus {
                    let facts = topology.cpu(cpu).unwrap();
                    pieces.entry((facts.node, facts.llc)).or_default().insert(cpu);
                }
                for piece in pieces.values() {
                    let pod = pods.pod_of(piece.first().unwrap()).unwrap();
                    prop_assert!(piece.is_subset(&pods.pod(pod).cpus), "{} splits {}", pods.scope(), piece);
                }
            }
        }
    }

    #[test]
    fn shards_are_level_and_no_larger_than_asked(topology in machine(), params in params()) {
        let [_, _, shards, caches, _, _] = all_pods(&topology, &params);
        for cache in &caches {
            let sizes: Vec<usize> = shards
                .iter()
                .filter(|shard| shard.cpus.is_subset(&cache.cpus))
                .map(|shard| nr_cores(&topology, &shard.cpus))
                .collect();
            let (min, max) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
            prop_assert!(max - min <= 1, "{sizes:?}");
            match params.cache_shard_size {
                0 => prop_assert_eq!(sizes.len(), 1),
                limit => {
                    prop_assert!(*max <= limit, "{sizes:?}");
                    prop_assert_eq!(sizes.len(), nr_cores(&topology, &cache.cpus).div_ceil(limit));
                }
            }
        }
    }

    #[test]
    fn pod_names_a_node_only_if_all_of_it_is_there(topology in machine(), params in params()) {
        for pods in all_pods(&topology, &params) {
            for pod in &pods {
                let home = topology.nodes().iter().find(|node| pod.cpus.is_subset(&node.cpus));
                prop_assert_eq!(pod.node, home.map(|node| node.id));
            }
        }
    }
}
