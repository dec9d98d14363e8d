//! The CPU time that this process may use: the quota of its cgroup and of that cgroup's ancestors.
//!
//! When the quota of a period is used up, all threads of the process are stopped until the next
//! period begins, so running more threads than the quota can sustain gains nothing.
//!
//! The tightest quota of all cgroups that contain the process applies, whatever their hierarchy,
//! because the kernel enforces each of them. Cgroups that a container cannot see are ignored.

use std::path::Path;

use crate::machine::bounds::{self, Hierarchy};
use crate::machine::error::Error;
use crate::machine::file;
use crate::machine::quota::CpuQuota;
use crate::text::{Cursor, Mismatch};

const CPU_MAX: &str = "cpu.max";
const QUOTA_V1: &str = "cpu.cfs_quota_us";
const PERIOD_V1: &str = "cpu.cfs_period_us";

/// Returns the tightest CPU quota among this process's visible cgroups (version 1 or 2), if any.
///
/// # Blocking
///
/// Reads procfs and a file or two for each cgroup that contains this process.
///
/// # Errors
///
/// If a file of `/proc` or of the cgroup is malformed or cannot be read. The error names the file.
/// [`Topology::detect`](crate::Topology::detect) treats such a quota as absent.
pub fn current_quota() -> Result<Option<CpuQuota>, Error> {
    quota(Path::new("/"))
}

/// Does the same as [`current_quota`], with `root` instead of `/`.
pub(crate) fn quota(root: &Path) -> Result<Option<CpuQuota>, Error> {
    let mut tightest: Option<CpuQuota> = None;
    for hierarchy in bounds::hierarchies(root, "cpu")? {
        let mount = root.join(&hierarchy.mount);
        for cgroup in hierarchy.cgroup.ancestors() {
            let found = quota_of(&mount.join(cgroup), &hierarchy)?;
            tightest = tightest.into_iter().chain(found).min();
        }
    }
    Ok(tightest)
}

fn quota_of(cgroup: &Path, hierarchy: &Hierarchy) -> Result<Option<CpuQuota>, Error> {
    if hierarchy.is_v2 {
        return cpu_max(&cgroup.join(CPU_MAX));
    }
    // A negative number means no quota.
    let quota_us = file::lone(&cgroup.join(QUOTA_V1), |cursor| {
        let is_none = cursor.eat(&['-']);
        Ok(Some(time(cursor, "a quota")?).filter(|_| !is_none))
    })?;
    let Some(quota_us) = quota_us.flatten() else {
        return Ok(None);
    };
    let period_us = file::lone(&cgroup.join(PERIOD_V1), |cursor| time(cursor, "a period"))?;
    Ok(period_us.and_then(|period_us| CpuQuota::new(quota_us, period_us)))
}

/// Reads a file in the format of `cpu.max`: a quota, or `max`, and a period.
pub(crate) fn cpu_max(path: &Path) -> Result<Option<CpuQuota>, Error> {
    let quota = file::lone(path, |cursor| {
        let is_none = cursor.take_while(|c| c.is_ascii_lowercase()) == "max";
        let quota_us = if is_none { None } else { Some(time(cursor, "a quota or max")?) };
        cursor.skip_whitespace();
        let period_us = time(cursor, "a period")?;
        Ok(quota_us.and_then(|quota_us| CpuQuota::new(quota_us, period_us)))
    })?;
    Ok(quota.flatten())
}

/// Reads a time in microseconds, which must not be zero.
fn time(cursor: &mut Cursor<'_>, what: &str) -> Result<u64, Mismatch> {
    let start = cursor.at();
    let time = cursor.take_while(|c| c.is_ascii_digit()).parse().ok().filter(|&time| time > 0);
    time.ok_or_else(|| cursor.mismatch_at(start, format!("{what} in microseconds")))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use proptest::prelude::*;

    use super::*;
    use crate::machine::bounds::tests::{V2, machine};

    const V1: &str =
        "35 31 0:32 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct\n";

    fn quota_of(files: &[(&str, &str)]) -> String {
        let quota = quota(machine(files).path()).unwrap();
        quota.map_or("none".into(), |quota| quota.to_string())
    }

    #[test]
    fn missing_file_is_no_quota() {
        assert_eq!(quota_of(&[]), "none");
        let unlimited = ("sys/fs/cgroup/a/cpu.max", "max 100000\n");
        let files = [("proc/self/cgroup", "0::/a\n"), ("proc/self/mountinfo", V2), unlimited];
        assert_eq!([quota_of(&files[..2]), quota_of(&files)], ["none"; 2]);
    }

    #[test]
    fn tightest_enclosing_cgroup_counts() {
        let here = [("proc/self/cgroup", "0::/pod/leaf\n"), ("proc/self/mountinfo", V2)];
        let leaf = "sys/fs/cgroup/pod/leaf/cpu.max";
        let pod = "sys/fs/cgroup/pod/cpu.max";
        let top = "sys/fs/cgroup/cpu.max";
        let with = |more: &[(&str, &str)]| quota_of(&[&here, more].concat());
        assert_eq!(with(&[(leaf, "150000 100000\n")]), "1.5 CPUs");
        // This is an unlimited leaf in a pod with a limit.
        let limited = (pod, "200000 100000\n");
        assert_eq!(with(&[(leaf, "max 100000\n"), limited]), "2 CPUs");
        assert_eq!(with(&[limited]), "2 CPUs");
        // Quotas are compared by their share of a CPU, not by their microseconds.
        assert_eq!(with(&[(leaf, "10000 1000\n"), limited]), "2 CPUs");
        assert_eq!(with(&[(top, "50000 100000\n"), limited]), "0.5 CPUs");
    }

    #[test]
    fn quotas_of_both_versions_bound_together() {
        let mounts = format!("{V1}31 23 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        let here = [
            ("proc/self/cgroup", "4:cpu,cpuacct:/docker/1\n2:cpuset:/\n0::/docker/1\n"),
            ("proc/self/mountinfo", &mounts),
        ];
        let quota_us = "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us";
        let period_us = "sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us";
        let parent_us = "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us";
        let with = |more: &[(&str, &str)]| quota_of(&[&here, more].concat());
        assert_eq!(with(&[(quota_us, "-1\n"), (period_us, "100000\n")]), "none");
        assert_eq!(with(&[(quota_us, "300000\n")]), "none", "no period");
        let one = [(quota_us, "300000\n"), (period_us, "100000\n")];
        assert_eq!(with(&one), "3 CPUs");
        let period_us = "sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us";
        let parent = [(parent_us, "100000\n"), (period_us, "100000\n")];
        assert_eq!(with(&[&one[..], &parent].concat()), "1 CPU");
        let unified = ("sys/fs/cgroup/unified/docker/1/cpu.max", "50000 100000");
        assert_eq!(with(&[&one[..], &[unified]].concat()), "0.5 CPUs");
    }

    #[test]
    fn malformed_files_are_named() {
        let root = machine(&[("proc/self/cgroup", "0::/\n"), ("proc/self/mountinfo", V2)]);
        let path = root.path().join("sys/fs/cgroup/cpu.max");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // Each line has a text, the position of the error, and the error.
        let cases = r#"
             | 1:1: expected a quota or max in microseconds, found the end
            max | 1:4: expected a period in microseconds, found the end
            min 100000 | 1:4: expected a quota or max in microseconds, found
            0 100000 | 1:1: expected a quota or max in microseconds, found "0"
            100000 0 | 1:8: expected a period in microseconds, found "0"
            -1 100000 | 1:1: expected a quota or max in microseconds, found
            1 2 3 | 1:5: expected the end, found "3"
            99999999999999999999 1 | 1:1: expected a quota or max in microseconds
        "#;
        for case in cases.trim_matches(['\n', ' ']).lines() {
            let (text, expected) = case.split_once(" | ").unwrap_or(("", &case[2..]));
            let (text, expected) = (text.trim_start(), format!("cpu.max:{expected}"));
            fs::write(&path, text).unwrap();
            let error = quota(root.path()).unwrap_err().to_string();
            assert!(error.contains(&expected), "{text:?}: {error}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_files_never_panic(text in "(max|[0-9]{0,25}| |-|\n|\\PC)*") {
            let root = machine(&[
                ("proc/self/cgroup", "0::/\n3:cpu:/\n"),
                ("proc/self/mountinfo", &format!("{V2}{V1}")),
                ("sys/fs/cgroup/cpu.max", &text),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", &text),
                ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", &text),
            ]);
            if let Ok(Some(quota)) = quota(root.path()) {
                prop_assert!(quota.nr_cpus() > 0);
                let _ = quota.to_string();
            }
        }
    }
}
