//! The topologies and pods of saved machines: see `tests/fixtures/README.md`.

mod machines;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use afterwork_topology::AffinityScope::{self, Cache, CacheShard, Numa, Smt, System};
use afterwork_topology::{
    CpuId, CpuSet, LlcSource, Pods, Quirk, ShardParams, Topology, save_snapshot,
};

fn dir(machine: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(machine)
}

fn load(machine: &str) -> Topology {
    Topology::from_sysfs(&dir(machine)).unwrap_or_else(|error| panic!("{error}"))
}

fn pods_of(topology: &Topology, scope: AffinityScope) -> Pods {
    topology.pods(scope, &ShardParams::default())
}

fn pods(topology: &Topology, scope: AffinityScope) -> Vec<String> {
    cpus_of(&pods_of(topology, scope))
}

fn cpus_of(pods: &Pods) -> Vec<String> {
    pods.iter().map(|pod| pod.cpus.to_string()).collect()
}

/// Returns the cache shards of `size` cores.
fn shards(topology: &Topology, size: usize) -> Pods {
    topology.pods(CacheShard, &ShardParams { cache_shard_size: size })
}

/// Returns the number of pods of each scope, from the finest to the coarsest.
fn nr_pods(topology: &Topology) -> [usize; 6] {
    AffinityScope::ALL.map(|scope| pods_of(topology, scope).len())
}

fn files_under(dir: &Path, root: &Path, files: &mut BTreeMap<String, String>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_under(&path, root, files);
        } else {
            let name = path.strip_prefix(root).unwrap().to_str().unwrap();
            files.insert(name.to_owned(), fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn saved_machines_match_their_generator() {
    for machine in machines::all() {
        let (name, mut files) = (machine.name, BTreeMap::new());
        files_under(&dir(name), &dir(name), &mut files);
        let is_equal = files == machine.files;
        assert!(is_equal, "{name} differs from its description: run the example make_fixtures");
    }
}

#[test]
fn every_saved_machine_is_in_the_table() {
    let table = fs::read_to_string(dir("README.md")).unwrap();
    for machine in machines::all() {
        let row = format!("| {} | {} |", machine.name, machine.about);
        assert!(table.lines().any(|line| line == row), "{row}");
    }
}

#[test]
fn every_saved_machine_is_partitioned_and_nests() {
    for machine in machines::all() {
        let topology = load(machine.name);
        let mut finer: Option<Pods> = None;
        for scope in AffinityScope::ALL {
            let what = format!("{} {scope}", machine.name);
            let pods = pods_of(&topology, scope);
            let around = |cpu| -> &CpuSet { &pods.pod(pods.pod_of(cpu).expect(&what)).cpus };
            let total: usize = pods.iter().map(|pod| pod.cpus.len()).sum();
            assert_eq!(total, topology.allowed().len(), "{what}");
            assert!(topology.allowed().iter().all(|cpu| around(cpu).contains(cpu)), "{what}");
            for pod in finer.iter().flatten() {
                assert!(pod.cpus.is_subset(around(pod.cpus.first().unwrap())), "{what}");
            }
            finer = Some(pods);
        }
    }
}

#[test]
fn snapshot_of_a_machine_reads_back_as_the_same_machine() {
    for machine in machines::all() {
        let (name, copy) = (machine.name, tempfile::tempdir().unwrap());
        let nr_files = save_snapshot(&dir(name), None, copy.path()).unwrap();
        assert_eq!(nr_files, machine.files.len(), "{name}");
        assert_eq!(Topology::from_sysfs(copy.path()).unwrap(), load(name), "{name}");
    }
}

#[test]
fn xeon_with_sub_numa_clusters_cuts_its_caches_by_node() {
    let topology = load("xeon-snc2");
    assert_eq!((topology.packages().len(), topology.cores().len()), (2, 32));
    assert_eq!((topology.llcs().len(), topology.llcs()[0].size), (2, Some(22 << 20)));
    assert_eq!(nr_pods(&topology), [64, 32, 4, 4, 4, 1]);

    let nodes = [
        "0-3,8-11,32-35,40-43",
        "4-7,12-15,36-39,44-47",
        "16-19,24-27,48-51,56-59",
        "20-23,28-31,52-55,60-63",
    ];
    assert_eq!(pods(&topology, Numa), nodes);
    assert_eq!(pods(&topology, Cache), nodes);
    let spans = topology.quirks().iter().map(|quirk| match quirk {
        Quirk::CacheSpansNodes { cpus } => cpus.to_string(),
        other => panic!("{other}"),
    });
    assert_eq!(spans.collect::<Vec<_>>(), ["0-15,32-47", "16-31,48-63"]);

    let cache = pods_of(&topology, Cache);
    assert_eq!(cache.pod(cache.pod_of(CpuId::new(36)).unwrap()).node, Some(1));
    assert_eq!(pods_of(&topology, System).pod(0).node, None);

    let of_three = cpus_of(&shards(&topology, 3));
    assert_eq!(of_three.len(), 4 * 3);
    assert_eq!(of_three[..3], ["0-2,32-34", "3,8-9,35,40-41", "4-6,36-38"]);
}

#[test]
fn epyc_has_a_pod_for_each_of_its_caches() {
    let topology = load("epyc-8ccx");
    assert_eq!(nr_pods(&topology), [128, 64, 8, 8, 1, 1]);
    assert_eq!(pods(&topology, CacheShard)[7], "56-63,120-127");
    assert_eq!(topology.smt_siblings(CpuId::new(70)).unwrap().to_string(), "6,70");
    assert!(topology.quirks().is_empty());
}

#[test]
fn hybrid_laptop_shards_cores_with_any_number_of_siblings() {
    let topology = load("laptop-hybrid");
    assert_eq!(nr_pods(&topology), [22, 16, 3, 2, 1, 1]);
    assert_eq!(pods(&topology, Cache), ["0-19", "20-21"]);
    // Two shards of seven cores. The first one has the six cores with siblings and one more.
    assert_eq!(pods(&topology, CacheShard), ["0-12", "13-19", "20-21"]);
    let sources = topology.llcs().iter().map(|llc| llc.source);
    assert!(sources.eq([LlcSource::Cache { level: 3 }, LlcSource::Cache { level: 2 }]));
    assert!(topology.nohz_full().is_empty());
}

#[test]
fn offline_cpus_are_possible_and_in_no_pod() {
    let topology = load("server-holes");
    assert_eq!(topology.nr_cpus(), 32);
    assert_eq!(topology.allowed().to_string(), "0-2,4-6,8-11,15");
    assert_eq!(pods(&topology, Smt), ["0,8", "1,9", "2,10", "4", "5", "6", "11", "15"]);
    assert_eq!(pods(&topology, Cache), ["0-2,8-11", "4-6,15"]);

    let offline = topology.cpu(CpuId::new(3)).expect("CPU 3 is possible");
    assert!(!offline.online && offline.core.is_none());
    assert!(offline.llc.is_none() && offline.node.is_none());
    assert_eq!(topology.smt_siblings(CpuId::new(3)), None);
    assert!(topology.llc_of(CpuId::new(3)).is_none());
    assert_eq!(topology.cpu(CpuId::new(32)), None);
    let system = pods_of(&topology, System);
    assert_eq!([3, 32].map(|cpu| system.pod_of(CpuId::new(cpu))), [None; 2]);
}

#[test]
fn seventy_two_cores_under_one_cache_make_nine_shards_of_eight() {
    let topology = load("grace-72");
    assert_eq!(nr_pods(&topology), [72, 72, 9, 1, 1, 1]);
    let of_eight = pods_of(&topology, CacheShard);
    assert!(of_eight.iter().all(|pod| pod.cpus.len() == 8));
    assert_eq!(shards(&topology, 0).len(), 1);
    let memory_only = &topology.nodes()[1];
    assert!((memory_only.id, memory_only.cpus.is_empty()) == (1, true));
}

#[test]
fn machine_silent_about_its_caches_shares_one_per_package() {
    let topology = load("vm-tiny");
    assert_eq!(nr_pods(&topology), [2, 2, 1, 1, 1, 1]);
    assert_eq!(topology.llcs()[0].source, LlcSource::Package);
    assert_eq!(pods_of(&topology, System).pod(0).node, None);
    assert!(topology.nodes().is_empty() && topology.quirks().is_empty());
}

#[test]
fn machine_silent_about_caches_and_packages_shares_one_per_node() {
    let topology = load("vm-nodes");
    assert_eq!(pods(&topology, Cache), ["0-1", "2-3"]);
    let mut llcs = topology.llcs().iter();
    assert!(llcs.all(|llc| llc.source == LlcSource::Node));
    assert!((topology.packages().len(), topology.packages()[0].id) == (1, None));
}

#[test]
fn isolated_cpus_are_known_and_not_allowed() {
    let topology = load("server-isolated");
    let sets = [topology.isolated(), topology.nohz_full(), topology.online()];
    assert_eq!(sets.map(CpuSet::to_string), ["4-7,12-15", "4-7,12-15", "0-15"]);
    assert_eq!([System, Cache].map(|scope| pods(&topology, scope)), [["0-3,8-11"]; 2]);
}
