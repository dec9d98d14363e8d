//! Reads the machine from sysfs, or from a saved copy of it.
//!
//! ```text
//! devices/system/cpu/online                              required in a saved copy
//!                    possible isolated nohz_full         empty if missing
//!                    cpu3/topology/                      required for an online CPU of such a copy
//!                                  core_cpus_list        or thread_siblings_list, its old name
//!                                  physical_package_id   -1 or missing: unknown
//!                    cpu3/cache/index2/level type size shared_cpu_list
//! devices/system/node/node0/cpulist                      if the directory is missing: no nodes
//! allowed quota                                          only in a saved copy; quota: as cpu.max
//! ```
//!
//! Instruction caches, and caches without a level, a type or sharers, are ignored.

use std::path::Path;
use std::sync::Arc;

use crate::cpu_id::CpuId;
use crate::cpuset::CpuSet;
use crate::machine::build::{CacheFacts, CpuFacts, Facts, build};
use crate::machine::error::Error;
use crate::machine::faults::Faults;
use crate::machine::sorted::Sorted;
use crate::machine::topology::{Topology, some_allowed};
use crate::machine::{cgroup, file};

pub(crate) const CPU_DIR: &str = "devices/system/cpu";
pub(crate) const NODE_DIR: &str = "devices/system/node";
pub(crate) const ALLOWED: &str = "allowed";
pub(crate) const QUOTA: &str = "quota";

const POSSIBLE: &str = "possible";
const ONLINE: &str = "online";
const ISOLATED: &str = "isolated";
const NOHZ_FULL: &str = "nohz_full";

pub(crate) const TOPOLOGY_DIR: &str = "topology";
const CORE_CPUS_LIST: &str = "core_cpus_list";
const THREAD_SIBLINGS_LIST: &str = "thread_siblings_list";
const PHYSICAL_PACKAGE_ID: &str = "physical_package_id";

pub(crate) const CACHE_DIR: &str = "cache";
pub(crate) const CACHE_INDEX: &str = "index";
const LEVEL: &str = "level";
const TYPE: &str = "type";
const SIZE: &str = "size";
const SHARED_CPU_LIST: &str = "shared_cpu_list";

pub(crate) const CPULIST: &str = "cpulist";

/// Every file that is read for the machine, a CPU and a cache. A snapshot contains these files.
pub(crate) const CPU_DIR_FILES: [&str; 4] = [POSSIBLE, ONLINE, ISOLATED, NOHZ_FULL];
pub(crate) const TOPOLOGY_FILES: [&str; 3] =
    [CORE_CPUS_LIST, THREAD_SIBLINGS_LIST, PHYSICAL_PACKAGE_ID];
pub(crate) const CACHE_FILES: [&str; 4] = [LEVEL, TYPE, SIZE, SHARED_CPU_LIST];

/// Highest valid level. No cache hierarchy is that deep; a higher number is an error.
const MAX_CACHE_LEVEL: u32 = 15;

impl Topology {
    /// Reads a machine from a tree like `/sys`, such as one from
    /// [`save_snapshot`](crate::save_snapshot).
    ///
    /// The bounds of this process are ignored. If `root` contains a file `allowed` with a CPU list,
    /// only these CPUs are allowed. If it contains a file `quota` in the format of `cpu.max`, the
    /// quota is read from that file.
    ///
    /// # Errors
    ///
    /// If a file is malformed, is not readable, is required and missing, is not a regular file (so
    /// that the call never blocks), or contradicts another one. The error names the file.
    pub fn from_sysfs(root: &Path) -> Result<Self, Error> {
        let online = online(root)?;
        let mut facts = facts(root, online, &mut Faults::Refuse)?;
        if let Some(allowed) = file::list(&root.join(ALLOWED))? {
            facts.allowed = some_allowed(&facts.online, &allowed)?;
        }
        facts.quota = cgroup::cpu_max(&root.join(QUOTA))?;
        Ok(build(facts))
    }
}

/// Reads the facts about the CPUs in `online` from a tree. All of them are allowed.
pub(crate) fn facts(root: &Path, online: CpuSet, faults: &mut Faults) -> Result<Facts, Error> {
    let dir = root.join(CPU_DIR);
    let mut cpus = Sorted::default();
    for cpu in &online {
        *cpus.or_insert_with(cpu, CpuFacts::default) = cpu_facts(&dir, cpu, faults)?;
    }
    let possible = file::list(&dir.join(POSSIBLE)).map(Option::unwrap_or_default);
    let mut or_none = |list| faults.or(list, CpuSet::new());
    Ok(Facts {
        possible: or_none(possible)?,
        isolated: or_none(file::list_or_null(&dir.join(ISOLATED)))?,
        nohz_full: or_none(file::list_or_null(&dir.join(NOHZ_FULL)))?,
        cpus,
        nodes: nodes(&root.join(NODE_DIR), faults)?,
        allowed: online.clone(),
        online,
        ..Facts::default()
    })
}

/// Reads the possible CPUs, which include at least the online ones.
pub(crate) fn possible(root: &Path) -> Result<CpuSet, Error> {
    let possible = file::list(&root.join(CPU_DIR).join(POSSIBLE))?.unwrap_or_default();
    Ok(possible.union(&online(root)?))
}

pub(crate) fn online(root: &Path) -> Result<CpuSet, Error> {
    let path = root.join(CPU_DIR).join(ONLINE);
    let online = needed(&path, file::list(&path)?)?;
    if online.is_empty() {
        return Err(Error::inconsistent(&path, "no CPU is online"));
    }
    Ok(online)
}

fn cpu_facts(dir: &Path, cpu: CpuId, faults: &mut Faults) -> Result<CpuFacts, Error> {
    let dir = dir.join(format!("cpu{cpu}"));
    let topology = dir.join(TOPOLOGY_DIR);
    let siblings = faults.or(siblings(&topology, cpu), CpuSet::from_iter([cpu]))?;
    let package = file::number_or_unknown(&topology.join(PHYSICAL_PACKAGE_ID), "a package number");
    Ok(CpuFacts {
        siblings: Arc::new(siblings),
        package: faults.or(package, None)?,
        cache: last_level_cache(&dir.join(CACHE_DIR), cpu, faults)?,
    })
}

fn siblings(topology: &Path, cpu: CpuId) -> Result<CpuSet, Error> {
    for name in [CORE_CPUS_LIST, THREAD_SIBLINGS_LIST] {
        let path = topology.join(name);
        if let Some(siblings) = file::list(&path)? {
            return including(cpu, siblings, &path);
        }
    }
    let neither = format!("neither {CORE_CPUS_LIST} nor {THREAD_SIBLINGS_LIST}");
    Err(Error::inconsistent(topology, format!("CPU {cpu} is online and has {neither}")))
}

fn last_level_cache(
    dir: &Path,
    cpu: CpuId,
    faults: &mut Faults,
) -> Result<Option<CacheFacts>, Error> {
    let mut last: Option<CacheFacts> = None;
    let caches = faults.or(file::numbered(dir, CACHE_INDEX), None)?;
    for (_, index) in caches.unwrap_or_default() {
        let above = last.as_ref().map(|last| last.level);
        if let Some(cache) = faults.or(cache_above(above, &index, cpu), None)? {
            let size = faults.or(file::size(&index.join(SIZE)), None)?;
            last = Some(CacheFacts { size, ..cache });
        }
    }
    Ok(last)
}

/// Reads a data cache, without its size, if its level is higher than `above`.
fn cache_above(above: Option<u32>, index: &Path, cpu: CpuId) -> Result<Option<CacheFacts>, Error> {
    let Some(level) = file::number(&index.join(LEVEL), "a cache level", MAX_CACHE_LEVEL)? else {
        return Ok(None);
    };
    if above.is_some_and(|above| above >= level) || !holds_data(&index.join(TYPE))? {
        return Ok(None);
    }
    let path = index.join(SHARED_CPU_LIST);
    let Some(cpus) = file::list(&path)? else {
        return Ok(None);
    };
    Ok(Some(CacheFacts { level, size: None, cpus: Arc::new(including(cpu, cpus, &path)?) }))
}

fn holds_data(path: &Path) -> Result<bool, Error> {
    let kind = file::one_of(path, &["Unified", "Data", "Instruction"])?;
    Ok(matches!(kind, Some("Unified" | "Data")))
}

/// Reads the nodes. If a CPU is in two nodes and faults are ignored, the lower node keeps it.
fn nodes(dir: &Path, faults: &mut Faults) -> Result<Sorted<u32, CpuSet>, Error> {
    let mut nodes = Sorted::default();
    let mut seen = CpuSet::new();
    let found = faults.or(file::numbered(dir, "node"), None)?;
    for (id, node) in found.unwrap_or_default() {
        let path = node.join(CPULIST);
        let listed = file::list(&path).and_then(|cpus| needed(&path, cpus).map(Some));
        let Some(mut cpus) = faults.or(listed, None)? else {
            continue;
        };
        if let Some(cpu) = cpus.intersection(&seen).first() {
            let what = format!("CPU {cpu} is in another node too");
            faults.refuse(Error::inconsistent(&path, what))?;
            cpus = cpus.difference(&seen);
        }
        seen = seen.union(&cpus);
        *nodes.or_insert_with(id, CpuSet::new) = cpus;
    }
    Ok(nodes)
}

/// Checks that `cpus`, the CPUs with which `cpu` shares a part, includes `cpu` itself.
fn including(cpu: CpuId, cpus: CpuSet, path: &Path) -> Result<CpuSet, Error> {
    if cpus.contains(cpu) {
        return Ok(cpus);
    }
    let list = cpus.to_string();
    Err(Error::inconsistent(path, format!("CPU {cpu} is not in its own list, which is {list:?}")))
}

fn needed<T>(path: &Path, value: Option<T>) -> Result<T, Error> {
    value.ok_or_else(|| Error::unreadable(path, std::io::ErrorKind::NotFound.into()))
}
