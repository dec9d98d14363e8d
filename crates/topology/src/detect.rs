//! Detection of this machine's topology.

use std::path::Path;

use crate::bounds;
use crate::build::{CpuFacts, Facts, build};
use crate::cgroup;
use crate::cpuset::CpuSet;
use crate::error::Error;
use crate::quota::CpuQuota;
use crate::sysfs;
use crate::topology::{Topology, some_allowed};

/// How often detection starts again because CPUs came or went meanwhile. Each change needs an administrator, so two in a row are
/// unlikely already.
const MAX_RETRIES: usize = 3;

impl Topology {
    /// Detects this machine, and the CPUs of it that this process may use.
    ///
    /// Allowed are the CPUs that are online, in the calling thread's affinity mask, and in the cpuset of its cgroup (version 1
    /// or 2). A bound that cannot be found does not bound. The [quota](Self::quota) is the tightest of the cgroups around it.
    ///
    /// # Blocking
    ///
    /// Reads files of sysfs and procfs, about twenty for each online CPU.
    ///
    /// # Errors
    ///
    /// If sysfs is missing or contradictory, as in some sandboxes. The error names the file. A program that must run there, too,
    /// falls back to [`Topology::flat`].
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

    /// Returns the CPUs that the machine may have, as [`possible`](Self::possible) does, without a look at the rest.
    ///
    /// # Blocking
    ///
    /// Reads two files.
    ///
    /// # Errors
    ///
    /// As of [`detect`](Self::detect).
    pub fn detect_possible() -> Result<CpuSet, Error> {
        sysfs::possible(Path::new("/sys"))
    }

    /// Detects the machine again if CPUs have come or gone, or others may be used, or the CPU quota has changed, since this topology was detected. Else
    /// returns `None`.
    ///
    /// Only for a topology that [`detect`](Self::detect) returned, without restrictions of the caller. If `thread` is given, by
    /// its kernel number, the affinity mask is that of this thread. It should be a thread that keeps the mask under which the
    /// first topology was detected.
    ///
    /// # Blocking
    ///
    /// Reads a handful of files, and twenty for each CPU if there is a change.
    ///
    /// # Errors
    ///
    /// As of [`detect`](Self::detect).
    pub fn changed(&self, thread: Option<u32>) -> Result<Option<Self>, Error> {
        self.changed_in(Path::new("/"), thread)
    }

    fn changed_in(&self, root: &Path, thread: Option<u32>) -> Result<Option<Self>, Error> {
        let online = sysfs::online(&root.join("sys"))?;
        let allowed = match bounds::bounds(root, thread)? {
            Some(bound) => some_allowed(&online, &bound)?,
            None => online.clone(),
        };
        if online == self.online && allowed == self.allowed {
            let quota = seen_quota(root);
            return Ok((quota != self.quota).then(|| self.clone().with_quota(quota)));
        }
        Self::detect_in(root, thread).map(Some)
    }

    /// Makes a machine of which only the CPUs are known: each is a core, and all share one cache.
    ///
    /// # Errors
    ///
    /// [`Error::NothingAllowed`] if there is no CPU.
    pub fn flat(cpus: &CpuSet) -> Result<Self, Error> {
        let online = some_allowed(cpus, cpus)?;
        let cpus = online
            .iter()
            .map(|cpu| {
                (
                    cpu,
                    CpuFacts {
                        siblings: CpuSet::from_iter([cpu]).into(),
                        ..CpuFacts::default()
                    },
                )
            })
            .collect();
        Ok(build(Facts {
            allowed: online.clone(),
            online,
            cpus,
            ..Facts::default()
        }))
    }

    /// Does what [`detect`](Self::detect) does, with `root` instead of `/`.
    fn detect_in(root: &Path, thread: Option<u32>) -> Result<Self, Error> {
        let sys = root.join("sys");
        let mut facts = settled(|| sysfs::online(&sys), || sysfs::facts(&sys))?;
        if let Some(bound) = bounds::bounds(root, thread)? {
            facts.allowed = some_allowed(&facts.allowed, &bound)?;
        }
        facts.quota = seen_quota(root);
        Ok(build(facts))
    }
}

/// Returns the CPU quota, which is none where it cannot be told: nothing breaks without.
fn seen_quota(root: &Path) -> Option<CpuQuota> {
    cgroup::quota(root).unwrap_or_default()
}

/// Reads again while a reading fails *and* CPUs came or went meanwhile: the files of a CPU disappear with it.
fn settled<T>(
    online: impl Fn() -> Result<CpuSet, Error>,
    mut read: impl FnMut() -> Result<T, Error>,
) -> Result<T, Error> {
    for _ in 0..MAX_RETRIES {
        let before = online()?;
        let outcome = read();
        if outcome.is_ok() || online()? == before {
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
    use crate::cpu_id::CpuId;

    #[test]
    fn affinity_and_cpuset_bound_what_is_allowed() {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/devices/system/cpu/online", "0-3\n");
        for cpu in 0..4 {
            write(
                &format!("sys/devices/system/cpu/cpu{cpu}/topology/core_cpus_list"),
                &format!("{cpu}\n"),
            );
        }
        let allowed = || {
            Topology::detect_in(root.path(), None).map(|topology| topology.allowed().to_string())
        };
        assert_eq!(allowed().unwrap(), "0-3");

        write("proc/self/status", "Cpus_allowed_list:\t1-9\n");
        assert_eq!(allowed().unwrap(), "1-3");

        write("proc/self/cgroup", "0::/\n");
        write(
            "proc/self/mountinfo",
            "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
        );
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
        assert_eq!(
            limited.changed_in(root.path(), None).unwrap(),
            Some(before.clone())
        );
        assert_eq!(
            Topology::detect_in(root.path(), None).unwrap().quota(),
            None
        );

        write("sys/fs/cgroup/cpuset.cpus.effective", "0\n");
        let error = allowed().unwrap_err().to_string();
        assert_eq!(error, "no CPU is both online (0-3) and allowed (none)");
    }

    #[test]
    fn flat_machine_is_one_cache_of_single_cores() {
        let topology = Topology::flat(&"1-3".parse().unwrap()).unwrap();
        assert_eq!(
            (
                topology.cores().len(),
                topology.llcs().len(),
                topology.nodes().len()
            ),
            (3, 1, 0)
        );
        assert!(matches!(
            Topology::flat(&CpuSet::new()),
            Err(Error::NothingAllowed { .. })
        ));
    }

    fn failure() -> Error {
        Error::inconsistent(Path::new("cpu3"), "gone")
    }

    #[test]
    fn failure_while_cpus_come_and_go_is_tried_again() {
        let nr_online = Cell::new(0);
        let online = || {
            nr_online.set(nr_online.get() + 1);
            Ok(CpuSet::from_iter([CpuId::new(nr_online.get())]))
        };
        let mut failures = 2;
        let read = || {
            failures -= 1;
            if failures >= 0 {
                Err(failure())
            } else {
                Ok("read")
            }
        };
        assert_eq!(settled(online, read).unwrap(), "read");
    }

    #[test]
    fn failure_on_a_machine_at_rest_is_reported_at_once() {
        let mut nr_reads = 0;
        let outcome = settled(
            || Ok(CpuSet::from_iter([CpuId::new(0)])),
            || {
                nr_reads += 1;
                Err::<(), _>(failure())
            },
        );
        assert!(outcome.is_err());
        assert_eq!(nr_reads, 1);
    }

    #[test]
    fn machine_that_never_rests_ends_in_its_failure() {
        let nr_online = Cell::new(0);
        let online = || {
            nr_online.set(nr_online.get() + 1);
            Ok(CpuSet::from_iter([CpuId::new(nr_online.get())]))
        };
        assert!(settled(online, || Err::<(), _>(failure())).is_err());
    }
}
