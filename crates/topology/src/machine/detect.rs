//! Detection of this machine's topology.

use std::path::Path;

use crate::cpu_id::CpuId;
use crate::cpuset::CpuSet;
use crate::machine::build::{CpuFacts, Facts, build};
use crate::machine::error::Error;
use crate::machine::faults::Faults;
use crate::machine::quota::CpuQuota;
use crate::machine::topology::{Topology, some_allowed};
use crate::machine::{bounds, cgroup, sysfs};

/// Maximum number of restarts because of added or removed CPUs. Even two in a row are unlikely.
const MAX_RETRIES: usize = 3;

impl Topology {
    /// Detects this machine and the CPUs that this process may use.
    ///
    /// A CPU is allowed if it is online, in the calling thread's affinity mask, and in the cpuset
    /// of its cgroup (version 1 or 2). A mask or cpuset that cannot be found sets no bound. The
    /// [quota](Self::quota) is the tightest among the cgroups that contain the process.
    ///
    /// Sandboxes show only parts of sysfs and procfs. Detection ignores each file that is missing,
    /// unreadable or malformed or that contradicts another one, and the result reports this with
    /// [`Quirk::Ignored`](crate::Quirk::Ignored). Without any file the result is a
    /// [flat](Self::flat) machine with the number of CPUs that the system reports.
    ///
    /// # Blocking
    ///
    /// Reads files of sysfs and procfs, about twenty for each online CPU.
    ///
    /// # Errors
    ///
    /// There are no errors at present, because files that cannot be read are ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork_topology::Topology;
    ///
    /// let topology = Topology::detect()?;
    /// assert!(topology.allowed().is_subset(topology.online()));
    /// # Ok::<(), afterwork_topology::Error>(())
    /// ```
    pub fn detect() -> Result<Self, Error> {
        Self::detect_in(Path::new("/"), None)
    }

    /// Returns the [possible](Self::possible) CPUs of the machine. Reads two files.
    ///
    /// # Errors
    ///
    /// The errors of [`detect`](Self::detect).
    pub fn detect_possible() -> Result<CpuSet, Error> {
        sysfs::possible(Path::new("/sys"))
    }

    /// Does the same as [`detect`](Self::detect), with an affinity mask that the caller provides.
    ///
    /// Use it if you got the mask from a system call, so that detection also works without procfs.
    /// If sysfs reports no CPU of the mask as online, all of them count as online. Reads files as
    /// [`detect`](Self::detect) does.
    ///
    /// # Errors
    ///
    /// The errors of [`detect`](Self::detect).
    pub fn detect_for(affinity: &CpuSet) -> Result<Self, Error> {
        Self::detect_in(Path::new("/"), Some(affinity))
    }

    /// Detects the machine again if its CPUs, the allowed CPUs or the CPU quota have changed since
    /// this topology was detected. Otherwise returns `None`.
    ///
    /// Use this only for an unmodified topology from [`detect`](Self::detect) or
    /// [`detect_for`](Self::detect_for). `affinity` is the mask of a thread whose mask has not
    /// changed since the first detection; `None` means the calling thread's mask, if procfs shows
    /// it.
    ///
    /// # Blocking
    ///
    /// Reads a handful of files, and about twenty for each CPU if there is a change.
    ///
    /// # Errors
    ///
    /// The errors of [`detect`](Self::detect).
    pub fn changed(&self, affinity: Option<&CpuSet>) -> Result<Option<Self>, Error> {
        self.changed_in(Path::new("/"), affinity)
    }

    fn changed_in(&self, root: &Path, affinity: Option<&CpuSet>) -> Result<Option<Self>, Error> {
        let (online, allowed) = usable(root, affinity, &mut Faults::ignored())?;
        if online == self.online && allowed == self.allowed {
            let quota = seen_quota(root);
            return Ok((quota != self.quota).then(|| self.clone().with_quota(quota)));
        }
        Self::detect_in(root, affinity).map(Some)
    }

    /// Creates a machine from its CPUs alone: each is a core of its own, and all share one cache.
    ///
    /// # Errors
    ///
    /// [`Error::NothingAllowed`] if `cpus` is empty.
    pub fn flat(cpus: &CpuSet) -> Result<Self, Error> {
        let online = some_allowed(cpus, cpus)?;
        let facts = |cpu| {
            let siblings = CpuSet::from_iter([cpu]).into();
            (cpu, CpuFacts { siblings, ..CpuFacts::default() })
        };
        let cpus = online.iter().map(facts).collect();
        Ok(build(Facts { allowed: online.clone(), online, cpus, ..Facts::default() }))
    }

    /// Detects the machine below `root`, with a mask that the caller knows or that procfs shows.
    fn detect_in(root: &Path, affinity: Option<&CpuSet>) -> Result<Self, Error> {
        let sys = root.join("sys");
        let read = || {
            let mut faults = Faults::ignored();
            let (online, allowed) = usable(root, affinity, &mut faults)?;
            let mut facts = sysfs::facts(&sys, online, &mut faults)?;
            facts.allowed = allowed;
            facts.quirks.extend(faults.quirk());
            Ok(facts)
        };
        let online = || sysfs::online(&sys).ok();
        let mut facts = settled(online, read, |facts| facts.quirks.is_empty())?;
        facts.quota = seen_quota(root);
        Ok(build(facts))
    }
}

/// Returns the online CPUs, and the subset that a thread with the mask `affinity` may use.
fn usable(
    root: &Path,
    affinity: Option<&CpuSet>,
    faults: &mut Faults,
) -> Result<(CpuSet, CpuSet), Error> {
    let listed = faults.or(sysfs::online(&root.join("sys")).map(Some), None)?;
    let shown = match affinity {
        Some(_) => None,
        None => faults.or(bounds::affinity(root), None)?,
    };
    let mask = affinity.cloned().or(shown).filter(|mask| !mask.is_empty());
    let bound = faults.or(bounds::cpuset(root), None)?;

    let mut online = listed
        .or_else(|| mask.clone())
        .or_else(|| bound.clone())
        .unwrap_or_else(as_many_as_reported);
    let mut allowed = online.clone();
    if let Some(mask) = mask {
        match some_allowed(&online, &mask) {
            Ok(both) => allowed = both,
            // The kernel runs this thread on the CPUs of the mask, so they are online.
            Err(wrong) => {
                faults.refuse(wrong)?;
                (online, allowed) = (mask.clone(), mask);
            }
        }
    }
    if let Some(bound) = bound {
        allowed = faults.or(some_allowed(&allowed, &bound), allowed)?;
    }
    Ok((online, allowed))
}

/// Returns CPUs numbered from 0: as many as the standard library reports, and at least one.
fn as_many_as_reported() -> CpuSet {
    let nr = std::thread::available_parallelism().map_or(1, usize::from);
    (0..nr as u32).map(CpuId::new).collect()
}

/// Returns the CPU quota, or `None` if there is none or it cannot be read.
fn seen_quota(root: &Path) -> Option<CpuQuota> {
    cgroup::quota(root).unwrap_or_default()
}

/// Reads again if something is missing *and* CPUs were added or removed during the read.
fn settled<T>(
    online: impl Fn() -> Option<CpuSet>,
    mut read: impl FnMut() -> Result<T, Error>,
    is_whole: impl Fn(&T) -> bool,
) -> Result<T, Error> {
    for _ in 0..MAX_RETRIES {
        let before = online();
        let outcome = read();
        if outcome.as_ref().is_ok_and(&is_whole) || online() == before {
            return outcome;
        }
    }
    read()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;
    use crate::machine::bounds::tests::write;
    use crate::machine::quirk::Quirk;

    #[test]
    fn affinity_and_cpuset_bound_the_allowed_cpus() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| write(root.path(), path, text);
        write("sys/devices/system/cpu/online", "0-3\n");
        for cpu in 0..4 {
            let path = format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list");
            write(&path, &cpu.to_string());
        }
        let allowed = || {
            Topology::detect_in(root.path(), None).map(|topology| topology.allowed().to_string())
        };
        assert_eq!(allowed().unwrap(), "0-3");

        write("proc/self/status", "Cpus_allowed_list:\t1-9\n");
        assert_eq!(allowed().unwrap(), "1-3");

        write("proc/self/cgroup", "0::/\n");
        write("proc/self/mountinfo", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/cpuset.cpus.effective", "0-2\n");
        assert_eq!(allowed().unwrap(), "1-2");

        let before = Topology::detect_in(root.path(), None).unwrap();
        let changed = || before.changed_in(root.path(), None).unwrap();
        assert_eq!(changed(), None);
        write("sys/fs/cgroup/cpuset.cpus.effective", "0-1\n");
        assert_eq!(changed().unwrap().allowed().to_string(), "1");
        write("sys/fs/cgroup/cpuset.cpus.effective", "0-2\n");
        assert_eq!(changed(), None);
        write("sys/devices/system/cpu/online", "0-1\n");
        assert_eq!(changed().unwrap().allowed().to_string(), "1");
        write("sys/devices/system/cpu/online", "0-3\n");

        assert_eq!(before.quota(), None);
        write("sys/fs/cgroup/cpu.max", "150000 100000\n");
        let limited = changed().unwrap();
        assert_eq!(limited.quota().unwrap().nr_cpus(), 2);
        assert_eq!(limited.changed_in(root.path(), None).unwrap(), None);
        write("sys/fs/cgroup/cpu.max", "what is this?\n");
        let changed = limited.changed_in(root.path(), None).unwrap();
        assert_eq!(changed, Some(before.clone()));
        assert_eq!(Topology::detect_in(root.path(), None).unwrap().quota(), None);

        // A cpuset that leaves no CPU is ignored.
        write("sys/fs/cgroup/cpuset.cpus.effective", "0\n");
        assert_eq!(allowed().unwrap(), "1-3");
    }

    #[test]
    fn flat_machine_is_one_cache_of_single_cores() {
        let topology = Topology::flat(&"1-3".parse().unwrap()).unwrap();
        assert_eq!(sizes(&topology), [3, 1, 0, 3]);
        let none = Topology::flat(&CpuSet::new());
        assert!(matches!(none, Err(Error::NothingAllowed { .. })));
    }

    /// Writes a machine of four CPUs in two cores, and returns its root.
    fn machine() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let system = root.path().join("sys/devices/system");
        let write = |path: &str, text: &str| write(&system, path, text);
        write("cpu/online", "0-3\n");
        write("cpu/possible", "0-3\n");
        write("node/node0/cpulist", "0-3\n");
        for cpu in 0..4 {
            let core = if cpu < 2 { "0-1\n" } else { "2-3\n" };
            for (file, text) in [
                ("topology/core_cpus_list", core),
                ("topology/physical_package_id", "0\n"),
                ("cache/index2/level", "2\n"),
                ("cache/index2/type", "Unified\n"),
                ("cache/index2/shared_cpu_list", core),
                ("cache/index3/level", "3\n"),
                ("cache/index3/type", "Unified\n"),
                ("cache/index3/size", "8M\n"),
                ("cache/index3/shared_cpu_list", "0-3\n"),
            ] {
                write(&format!("cpu/cpu{cpu}/{file}"), text);
            }
        }
        root
    }

    fn detected(root: &Path, mask: &str) -> Topology {
        let mask = mask.parse().unwrap();
        let topology = Topology::detect_in(root, Some(&mask)).unwrap();
        assert_eq!(topology.changed_in(root, Some(&mask)).unwrap(), None);
        topology
    }

    fn ignored(topology: &Topology) -> Option<(&str, usize)> {
        topology.quirks().iter().find_map(|quirk| match quirk {
            Quirk::Ignored { first, nr_more } => Some((first.as_str(), *nr_more)),
            _ => None,
        })
    }

    fn sizes(topology: &Topology) -> [usize; 4] {
        let (cores, llcs) = (topology.cores().len(), topology.llcs().len());
        let (nodes, cpus) = (topology.nodes().len(), topology.allowed().len());
        [cores, llcs, nodes, cpus]
    }

    #[test]
    fn without_any_file_the_cpus_of_the_mask_are_a_flat_machine() {
        let root = tempfile::tempdir().unwrap();
        let topology = detected(root.path(), "2,5-6");
        assert_eq!(sizes(&topology), [3, 1, 0, 3]);
        assert_eq!(topology.allowed().to_string(), "2,5-6");
        let (first, nr_more) = ignored(&topology).unwrap();
        let expected = "cpu/online: there is no such file";
        assert!(first.ends_with(expected), "{first}");
        assert_eq!(nr_more, 3);
        // Even without a mask, there is a CPU.
        let topology = Topology::detect_in(root.path(), None).unwrap();
        assert_eq!(topology.allowed(), &as_many_as_reported());
    }

    #[test]
    fn each_missing_or_spoilt_file_leaves_the_rest_in_use() {
        let sound = machine();
        assert_eq!(sizes(&detected(sound.path(), "0-3")), [2, 1, 1, 4]);
        assert_eq!(ignored(&detected(sound.path(), "0-3")), None);
        // The numbers of cores, caches, nodes and CPUs if the file is missing or wrong.
        for (path, parts) in [
            ("cpu", [4, 1, 1, 4]),
            ("node/node0/cpulist", [2, 1, 0, 4]),
            ("cpu/online", [2, 1, 1, 4]),
            ("cpu/possible", [2, 1, 1, 4]),
            ("cpu/isolated", [2, 1, 1, 4]),
            ("cpu/cpu3", [2, 1, 1, 4]),
            ("cpu/cpu3/topology", [2, 1, 1, 4]),
            ("cpu/cpu0/topology/core_cpus_list", [3, 1, 1, 4]),
            ("cpu/cpu0/topology/physical_package_id", [2, 1, 1, 4]),
            ("cpu/cpu3/cache", [2, 1, 1, 4]),
            ("cpu/cpu0/cache/index3/level", [2, 2, 1, 4]),
            ("cpu/cpu0/cache/index3/type", [2, 2, 1, 4]),
            ("cpu/cpu0/cache/index3/size", [2, 1, 1, 4]),
            ("cpu/cpu0/cache/index3/shared_cpu_list", [2, 2, 1, 4]),
        ] {
            // A CPU without files belongs to the parts that list it in the files of a lower CPU.
            for spoil in [b"\xff".as_slice(), b"", b"99999\n", b"7\n"] {
                let root = machine();
                let whole = root.path().join("sys/devices/system").join(path);
                if whole.is_dir() {
                    fs::remove_dir_all(&whole).unwrap();
                }
                fs::write(&whole, spoil).unwrap();
                let topology = detected(root.path(), "0-3");
                assert_eq!(topology.allowed().to_string(), "0-3", "{path} {spoil:?}");
                // The other texts may be valid in some of the files.
                if spoil == b"\xff" {
                    assert!(ignored(&topology).is_some(), "{path} {spoil:?}");
                    assert_eq!(sizes(&topology), parts, "{path} {spoil:?}");
                }
            }
        }
    }

    #[test]
    fn a_mask_outside_of_the_cpus_in_sysfs_is_believed() {
        let root = machine();
        let topology = detected(root.path(), "8-9");
        assert_eq!(sizes(&topology), [2, 1, 1, 2]);
        assert_eq!(topology.allowed().to_string(), "8-9");
        let (first, _) = ignored(&topology).unwrap();
        assert_eq!(first, "no CPU is both online (0-3) and allowed (8-9)");
    }

    #[test]
    fn a_cpu_of_two_nodes_belongs_to_the_lower_node() {
        let root = machine();
        write(root.path(), "sys/devices/system/node/node1/cpulist", "2-3\n");
        let topology = detected(root.path(), "0-3");
        assert_eq!(topology.nodes()[0].cpus.to_string(), "0-3");
        assert!(topology.nodes()[1].cpus.is_empty());
        assert!(ignored(&topology).is_some());
    }

    fn failure<T>() -> Result<T, Error> {
        Err(Error::inconsistent(Path::new("cpu3"), "gone"))
    }

    /// Returns a function that finds another CPU online at each call.
    fn hotplug() -> impl Fn() -> Option<CpuSet> {
        let nr_online = Cell::new(0);
        move || {
            nr_online.set(nr_online.get() + 1);
            Some(CpuSet::from_iter([CpuId::new(nr_online.get())]))
        }
    }

    #[test]
    fn failure_is_retried_only_during_cpu_hotplug() {
        let mut outcomes = [failure(), failure(), Ok("read")].into_iter();
        let read = || outcomes.next().unwrap();
        assert_eq!(settled(hotplug(), read, |_| true).unwrap(), "read");
        assert!(settled(hotplug(), failure::<()>, |_| true).is_err(), "it never ends");
        // An incomplete read is repeated as well.
        let mut nr_reads = 0;
        let read = || {
            nr_reads += 1;
            Ok(nr_reads)
        };
        assert_eq!(settled(hotplug(), read, |&read| read == 2).unwrap(), 2);
        let mut nr_reads = 0;
        let read = || {
            nr_reads += 1;
            failure::<()>()
        };
        let at_rest = || Some(CpuSet::from_iter([CpuId::new(0)]));
        assert!(settled(at_rest, read, |_| true).is_err());
        assert_eq!(nr_reads, 1);
    }
}
