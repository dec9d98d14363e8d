//! The CPUs that this process may use: its affinity mask and its cgroup's cpuset.
//!
//! The mask alone is nearly always enough, because the kernel narrows it to the cpuset. There are
//! two exceptions: under cgroup version 1 a mask may be older than a cpuset that shrank, and in
//! some sandboxes `/proc` hides the mask.
//!
//! A missing source (no `/proc`, no cgroups, no cpuset controller) sets no bound.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use crate::cpuset::CpuSet;
use crate::list;
use crate::machine::error::Error;
use crate::machine::file;
use crate::text::Mismatch;

/// The thread's own file comes first, so that a pinned thread finds its own mask.
const STATUS: [&str; 2] = ["proc/thread-self/status", "proc/self/status"];
const AFFINITY: &str = "Cpus_allowed_list:";
const CGROUP: &str = "proc/self/cgroup";
const MOUNTS: &str = "proc/self/mountinfo";
const CPUSET_V1: [&str; 2] = ["cpuset.effective_cpus", "cpuset.cpus"];
const CPUSET_V2: [&str; 1] = ["cpuset.cpus.effective"];

/// Returns the CPUs, online or not, that the calling thread's affinity mask and its cgroup's cpuset
/// allow. Returns `None` if neither can be found.
///
/// # Blocking
///
/// Reads a handful of files of procfs and cgroupfs.
///
/// # Errors
///
/// If a file of `/proc` or of the cgroup is malformed or cannot be read. The error names the file.
pub fn current_bounds() -> Result<Option<CpuSet>, Error> {
    let root = Path::new("/");
    Ok(tighter(affinity(root)?, cpuset(root)?))
}

/// Returns the CPUs that both bounds allow. `None` sets no bound.
fn tighter(one: Option<CpuSet>, other: Option<CpuSet>) -> Option<CpuSet> {
    one.into_iter().chain(other).reduce(|one, other| one.intersection(&other))
}

/// Reads the affinity mask of the calling thread. Returns `None` if procfs does not show it.
pub(crate) fn affinity(root: &Path) -> Result<Option<CpuSet>, Error> {
    for status in STATUS {
        if let Some(affinity) = file::parsed(&root.join(status), affinity_in)? {
            return Ok(affinity);
        }
    }
    Ok(None)
}

/// Reads the cpusets of this process's cgroups, of versions 1 and 2.
pub(crate) fn cpuset(root: &Path) -> Result<Option<CpuSet>, Error> {
    let mut bound = None;
    for hierarchy in hierarchies(root, "cpuset")? {
        bound = tighter(bound, nearest_cpuset(root, &hierarchy)?);
    }
    Ok(bound)
}

fn affinity_in(status: &str) -> Result<Option<CpuSet>, Mismatch> {
    let mut start = 0;
    for line in status.split_inclusive('\n') {
        if let Some(list) = line.strip_prefix(AFFINITY) {
            let shift = start + AFFINITY.len();
            let moved = |mismatch: Mismatch| Mismatch { at: mismatch.at + shift, ..mismatch };
            return list::parse(list).map(Some).map_err(moved);
        }
        start += line.len();
    }
    Ok(None)
}

/// A cgroup hierarchy that may bound this process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// Its mount point, relative to the root of the file system.
    pub(crate) mount: PathBuf,
    /// The cgroup of this process, relative to the mount point.
    pub(crate) cgroup: PathBuf,
    pub(crate) is_v2: bool,
}

/// Returns the hierarchies in which `controller` may bound the cgroup of this process.
pub(crate) fn hierarchies(root: &Path, controller: &str) -> Result<Vec<Hierarchy>, Error> {
    let read = |path| file::text(&root.join(path)).map(Option::unwrap_or_default);
    Ok(visible(&read(CGROUP)?, &read(MOUNTS)?, controller))
}

/// Matches a process's cgroups with the mounts through which they are visible.
///
/// A container may see only a part of a hierarchy. The mount then has a root of its own, and the
/// part of the cgroup's path above that root is invisible. A cgroup outside the process's own
/// cgroup namespace has `..` in its path and is invisible too.
fn visible(cgroups: &str, mounts: &str, controller: &str) -> Vec<Hierarchy> {
    let mounts: Vec<Mount<'_>> = mounts.lines().filter_map(mount).collect();
    let mut dirs = Vec::new();
    for line in cgroups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) =
            (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let has = |list: &str| list.split(',').any(|it| it == controller);
        let is_v2 = controllers.is_empty();
        if !is_v2 && !has(controllers) {
            continue;
        }
        let fits = |mount: &Mount<'_>| match is_v2 {
            true => mount.fs == "cgroup2",
            false => mount.fs == "cgroup" && has(mount.options),
        };
        let visible = mounts.iter().filter(|mount| fits(mount)).find_map(|mount| {
            let cgroup = Path::new(path).strip_prefix(&mount.root).ok()?;
            let leads_out = cgroup.components().any(|part| part == Component::ParentDir);
            (!leads_out).then_some((mount, cgroup))
        });
        if let Some((mount, cgroup)) = visible {
            dirs.push(Hierarchy {
                mount: relative(&mount.point),
                cgroup: cgroup.to_owned(),
                is_v2,
            });
        }
    }
    dirs
}

/// Reads the cpuset of a cgroup, or of its nearest ancestor that has one.
fn nearest_cpuset(root: &Path, hierarchy: &Hierarchy) -> Result<Option<CpuSet>, Error> {
    let mount = root.join(&hierarchy.mount);
    let files: &[_] = if hierarchy.is_v2 { &CPUSET_V2 } else { &CPUSET_V1 };
    for cgroup in hierarchy.cgroup.ancestors() {
        for name in files {
            let cpus = file::list(&mount.join(cgroup).join(name))?;
            if let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) {
                return Ok(Some(cpus));
            }
        }
    }
    Ok(None)
}

struct Mount<'a> {
    /// A mount: the directory `root` of the mounted file system appears at `point`.
    root: PathBuf,
    point: PathBuf,
    fs: &'a str,
    /// The options of the whole file system. For cgroups of version 1 they include the controllers.
    options: &'a str,
}

/// Reads a line of `mountinfo`: `id parent dev root point options [tags] - fs source options`.
fn mount(line: &str) -> Option<Mount<'_>> {
    let (place, kind) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(3);
    let (root, point) = (place.next()?, place.next()?);
    let mut kind = kind.split(' ');
    let (fs, _source, options) = (kind.next()?, kind.next()?, kind.next().unwrap_or_default());
    Some(Mount { root: unescaped(root), point: unescaped(point), fs, options })
}

/// Undoes the octal escapes (`\040` for a space) of `mountinfo`.
fn unescaped(path: &str) -> PathBuf {
    let mut bytes = Vec::with_capacity(path.len());
    let mut rest = path.as_bytes();
    while let [first, after @ ..] = rest {
        let escape = after.get(..3).filter(|_| *first == b'\\').and_then(octal);
        bytes.push(escape.unwrap_or(*first));
        rest = if escape.is_some() { &after[3..] } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

fn octal(digits: &[u8]) -> Option<u8> {
    digits.iter().try_fold(0u8, |value, digit| match digit {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(digit - b'0'),
        _ => None,
    })
}

/// Strips the leading `/`, so that joining the path onto a root does not replace the root.
fn relative(path: &Path) -> PathBuf {
    path.strip_prefix("/").unwrap_or(path).to_owned()
}

#[cfg(test)]
pub(crate) mod tests {
    use std::fs;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    pub(crate) fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn machine(files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().unwrap();
        files.iter().for_each(|(path, text)| write(root.path(), path, text));
        root
    }

    pub(crate) const V2: &str =
        "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";
    const V1: &str =
        "34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset\n";

    #[test]
    fn missing_files_set_no_bound() {
        assert_eq!(cpuset(machine(&[]).path()).unwrap(), None);
        for files in [&[][..], &[("proc/self/status", "Name:\tinit\n")]] {
            assert_eq!(affinity(machine(files).path()).unwrap(), None);
        }
    }

    #[test]
    fn mask_of_thread_precedes_mask_of_process() {
        let of_thread = "Name:\tx\nCpus_allowed:\t4\nCpus_allowed_list:\t2\nMems_allowed:\t1\n";
        let of_process = "Cpus_allowed_list:\t0-7\n";
        let files = [("proc/thread-self/status", of_thread), ("proc/self/status", of_process)];
        let mask = |files| affinity(machine(files).path()).unwrap().unwrap().to_string();
        assert_eq!([mask(&files), mask(&files[1..])], ["2", "0-7"]);
    }

    #[test]
    fn malformed_mask_names_file_line_and_column() {
        let root = machine(&[("proc/thread-self/status", "Name:\tx\nCpus_allowed_list:\t0-?\n")]);
        let error = affinity(root.path()).unwrap_err().to_string();
        let expected = "proc/thread-self/status:2:22: expected a last CPU number, found \"?\"";
        assert!(error.ends_with(expected), "{error}");
    }

    #[test]
    fn nearest_visible_cpuset_of_each_hierarchy_bounds() {
        let v1_and_v2 =
            format!("{V1}31 23 0:40 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
        let container = "40 30 0:26 /docker/abc /sys/fs/my\\040cgroup ro - cgroup2 cgroup rw\n";
        let own = ("a.slice/b.service/cpuset.cpus.effective", "4-5\n");
        let parent = ("a.slice/cpuset.cpus.effective", "0-7\n");
        let top = ("cpuset.cpus.effective", "0-15\n");
        let of_v1 = ("cpuset/jobs/7/cpuset.cpus", "1-3");
        let effective = ("cpuset/jobs/7/cpuset.effective_cpus", "2-3");
        let both = [("cpuset/cpuset.cpus", "0-3"), ("unified/cpuset.cpus.effective", "2-5")];
        let inside = [
            ("../my cgroup/inner/cpuset.cpus.effective", "6"),
            ("../my cgroup/cpuset.cpus.effective", "6-7"),
        ];
        let outside = [("tasks", ""), ("../../elsewhere/cpuset.cpus.effective", "0")];
        let nested = "0::/a.slice/b.service\n";
        let by_name = "9:name=systemd:/\n3:cpuset,cpu:/jobs/7\n0::/\n";
        /// The case, the cgroups of the process, the mounts, the files below `/sys/fs/cgroup`, and
        /// the bound.
        type Case<'a> = (&'a str, &'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);
        let cases: [Case<'_>; 12] = [
            ("no cpuset", nested, V2, &[], "none"),
            ("the top", nested, V2, &[top], "0-15"),
            ("the parent", nested, V2, &[top, parent], "0-7"),
            ("its own", nested, V2, &[top, parent, own], "4-5"),
            ("version 1", by_name, V1, &[of_v1], "1-3"),
            ("version 1, effective", by_name, V1, &[of_v1, effective], "2-3"),
            ("both versions", "3:cpuset:/\n0::/\n", &v1_and_v2, &both, "2-3"),
            ("inside a container", "0::/docker/abc/inner\n", container, &inside, "6"),
            ("a container's top", "0::/docker/abc\n", container, &inside, "6-7"),
            ("another container", "0::/docker/other\n", container, &inside, "none"),
            ("the host", "0::/../host\n", container, &inside, "none"),
            ("outside the mount", "0::/../../elsewhere\n", V2, &outside, "none"),
        ];
        for (case, cgroups, mounts, files, expected) in cases {
            let root = machine(&[("proc/self/cgroup", cgroups), ("proc/self/mountinfo", mounts)]);
            fs::create_dir_all(root.path().join("sys/fs/cgroup")).unwrap();
            files.iter().for_each(|(path, text)| {
                write(root.path(), &format!("sys/fs/cgroup/{path}"), text);
            });
            let cpus = cpuset(root.path()).unwrap();
            assert_eq!(cpus.map_or("none".into(), |cpus| cpus.to_string()), expected, "{case}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_proc_files_never_panic(cgroups in "([0-9]:[a-z,]*:[/a.]*\n|\\PC|\n)*", mounts in "(1 2 3 / /a\\\\[0-9]{0,4} - cgroup2 x y\n|\\PC|\n)*", status in "(Cpus_allowed_list:[-0-9,x]*\n|\\PC|\n)*") {
            visible(&cgroups, &mounts, "cpuset");
            let _ = affinity_in(&status);
        }
    }
}
