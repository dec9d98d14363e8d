//! Processes that see little of their machine: no sysfs, no procfs, missing or contradictory files.
//!
//! Each case is a separate process that hides files in its own mount namespace.

use std::ffi::CString;

use crate::*;

fn mount(source: &str, target: &str, kind: &str, flags: libc::c_ulong) -> io::Result<()> {
    let [source, target, kind] = [source, target, kind].map(|text| CString::new(text).unwrap());
    let (source, target, kind) = (source.as_ptr(), target.as_ptr(), kind.as_ptr());
    // SAFETY: the strings outlive the call.
    match unsafe { libc::mount(source, target, kind, flags, ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn unshare_mounts() -> io::Result<()> {
    // SAFETY: the call takes a number.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(io::Error::last_os_error());
    }
    mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE)
}

/// Returns `true` if files can be hidden here. Otherwise prints that the test is skipped.
fn may_hide() -> bool {
    let (status, output) = in_child(|| unshare_mounts().unwrap());
    if !status.success() {
        eprintln!("skipped: cannot create a mount namespace: {output}");
    }
    status.success()
}

/// Uses everything in a process that `hide` has changed. Returns the library's lines on stderr.
fn lines_without(hide: impl FnOnce() -> io::Result<()>) -> Vec<String> {
    let output = succeeds_in_child(|| {
        unshare_mounts().unwrap();
        hide().unwrap();
        use_everything();
        let allowed = sync::cpu::affinity().unwrap();
        assert_eq!(*Registry::global().unwrap().topology().allowed(), allowed);
    });
    let lines = output.lines().filter(|line| line.starts_with("afterwork: "));
    lines.map(str::to_owned).collect()
}

const CPU: &str = "/sys/devices/system/cpu";
const NODE: &str = "/sys/devices/system/node";

fn hide(directory: &str) -> io::Result<()> {
    mount("none", directory, "tmpfs", 0)
}

/// Replaces `file` with a file that contains `spoilt`.
fn spoil(file: &str, spoilt: &[u8]) -> io::Result<()> {
    let other = std::env::temp_dir().join(format!("aw-spoilt-{}", std::process::id()));
    fs::write(&other, spoilt)?;
    let mounted = mount(other.to_str().unwrap(), file, "", libc::MS_BIND);
    fs::remove_file(&other)?;
    mounted
}

#[test]
fn everything_works_without_sysfs_and_one_line_reports_it() {
    let _alone = alone();
    if !may_hide() {
        return;
    }
    let missing = format!("{CPU}/online: there is no such file");
    let whole: [&[&str]; 3] = [&["/sys"], &["/sys", "/proc"], &[CPU]];
    for hidden in whole {
        let lines = lines_without(|| hidden.iter().try_for_each(|it| hide(it)));
        assert_eq!(lines.len(), 1, "{hidden:?} {lines:?}");
        assert!(lines[0].contains(&missing), "{hidden:?} {lines:?}");
    }
    // If only procfs is hidden, the library finds all that it needs, and prints nothing.
    assert_eq!(lines_without(|| hide("/proc")), [""; 0]);
}

#[test]
fn everything_works_with_parts_of_sysfs() {
    let _alone = alone();
    if !may_hide() {
        return;
    }
    let of_cpu = |name: &str| format!("{CPU}/cpu0/{name}");
    for hidden in [of_cpu("topology"), of_cpu("cache"), of_cpu(""), NODE.into()] {
        if Path::new(&hidden).exists() {
            let lines = lines_without(|| hide(&hidden));
            assert!(lines.len() <= 1, "{hidden} {lines:?}");
        }
    }
    let files = [
        format!("{CPU}/online"),
        format!("{CPU}/possible"),
        format!("{CPU}/isolated"),
        format!("{NODE}/node0/cpulist"),
        of_cpu("topology/core_cpus_list"),
        of_cpu("topology/physical_package_id"),
        of_cpu("cache/index0/level"),
        of_cpu("cache/index0/type"),
        of_cpu("cache/index0/shared_cpu_list"),
        "/proc/self/cgroup".into(),
        "/proc/self/mountinfo".into(),
        "/proc/self/status".into(),
    ];
    for file in files.iter().filter(|file| Path::new(file).exists()) {
        for spoilt in [b"\xff\n".as_slice(), b"", b"1000\n", b"no list\n"] {
            let lines = lines_without(|| spoil(file, spoilt));
            assert!(lines.len() <= 1, "{file} {spoilt:?} {lines:?}");
        }
    }
}

#[test]
fn a_program_sets_the_topology_before_the_first_use() {
    const TEST: &str = "sandbox::a_program_sets_the_topology_before_the_first_use";
    match mode().as_deref() {
        Some("sets") => {
            let last = sync::cpu::affinity().unwrap().last().unwrap();
            let machine = || Topology::flat(&[last].into_iter().collect()).unwrap();
            Registry::set_global_topology(machine()).unwrap();
            let refused = Registry::set_global_topology(machine()).unwrap_err();
            assert_eq!(*refused.0, machine());
            assert_eq!(*Registry::global().unwrap().topology(), machine());
            Registry::global().unwrap().refresh_topology();
            assert_eq!(*Registry::global().unwrap().topology(), machine());
            let slots = PerCpu::builder().build(|cpu| cpu).unwrap();
            assert_eq!(slots.with_current(|cpu| *cpu), last);
        }
        Some(_) => {
            let detected = Registry::global().unwrap().topology();
            assert!(Registry::set_global_topology((*detected).clone()).is_err());
        }
        None => {
            for mode in ["sets", "detects"] {
                let ended = this_test(TEST, mode).output().unwrap();
                assert!(ended.status.success(), "{ended:?}");
            }
        }
    }
}
