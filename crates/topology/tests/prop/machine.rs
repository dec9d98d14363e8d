//! Random machines.

use std::fs;

use afterwork_topology::{CpuId, CpuSet, Topology};
use proptest::prelude::*;

/// A machine of up to a few hundred CPUs, a random subset of which is allowed.
pub fn machine() -> impl Strategy<Value = Topology> {
    let machine = prop_oneof![3 => tidy(), 1 => untidy()];
    (machine, any::<prop::sample::Index>(), prop::collection::vec(prop::bool::weighted(0.7), 1..64))
        .prop_map(|(topology, keep, pattern)| {
            let all: Vec<CpuId> = topology.allowed().iter().collect();
            let kept = all.iter().zip(pattern.iter().cycle()).filter(|(_, kept)| **kept);
            let mut kept: CpuSet = kept.map(|(cpu, _)| *cpu).collect();
            kept.insert(*keep.get(&all));
            topology.restricted_to(&kept).unwrap()
        })
}

/// A machine whose levels nest, in one of the valid orders.
fn tidy() -> impl Strategy<Value = Topology> {
    let place = |levels: &[&str; 3], name| levels.iter().position(|level| *level == name);
    let outer = Just(["socket", "numa", "llc"]).prop_shuffle();
    let outer = outer.prop_filter("no package within a cache", move |levels| {
        place(levels, "socket") < place(levels, "llc")
    });
    let counts = (1u32..3, 1u32..4, 1u32..4, 1u32..25, 1u32..5);
    let named = prop::collection::vec(any::<bool>(), 5);
    (outer, counts, named).prop_map(|(outer, (a, b, c, cores, threads), named)| {
        let levels =
            [(a, outer[0]), (b, outer[1]), (c, outer[2]), (cores, "core"), (threads, "smt")];
        let named = levels.iter().zip(&named).filter(|(_, named)| **named).map(|(level, _)| level);
        let named: Vec<String> = named.map(|(count, name)| format!("{count} {name}")).collect();
        let description = if named.is_empty() { "1 core".to_owned() } else { named.join(" x ") };
        Topology::synthetic(&description).unwrap()
    })
}

/// A machine whose CPUs contradict each other: every CPU names random siblings and sharers.
fn untidy() -> impl Strategy<Value = Topology> {
    let cpus = |max| prop::collection::vec(0u32..12, 0..max);
    let stories = prop::collection::vec((cpus(6), prop::option::of(cpus(12))), 1..12);
    (stories, prop::collection::vec(prop::option::of(0u32..3), 12)).prop_map(|(stories, nodes)| {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: String, text: String| {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let with = |cpu: u32, others: &[u32]| {
            others.iter().copied().chain([cpu]).map(CpuId::new).collect::<CpuSet>().to_string()
        };
        write("devices/system/cpu/online".into(), format!("0-{}", stories.len() - 1));
        for (cpu, (siblings, sharers)) in (0..).zip(&stories) {
            let cpu_dir = format!("devices/system/cpu/cpu{cpu}");
            write(format!("{cpu_dir}/topology/core_cpus_list"), with(cpu, siblings));
            if let Some(sharers) = sharers {
                write(format!("{cpu_dir}/cache/index3/level"), "3".into());
                write(format!("{cpu_dir}/cache/index3/type"), "Unified".into());
                write(format!("{cpu_dir}/cache/index3/shared_cpu_list"), with(cpu, sharers));
            }
        }
        for node in 0..3 {
            let cpus = (0..).zip(&nodes).filter(|(_, home)| **home == Some(node));
            let cpus: CpuSet = cpus.map(|(cpu, _)| CpuId::new(cpu)).collect();
            write(format!("devices/system/node/node{node}/cpulist"), cpus.to_string());
        }
        Topology::from_sysfs(dir.path()).unwrap()
    })
}
