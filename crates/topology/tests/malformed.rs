//! Invalid trees: each produces a one-line error that names the file and the fault.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use afterwork_topology::{CpuSet, Error, Topology, save_snapshot};
use proptest::prelude::*;
use tempfile::TempDir;

/// Writes a valid machine of two CPUs with all files that are read, for tests to corrupt.
fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    files().for_each(|(path, text)| write(root.path(), &path, text.as_bytes()));
    root
}

fn files() -> impl Iterator<Item = (String, &'static str)> {
    let of_machine = [
        ("cpu/online", "0-1\n"),
        ("cpu/possible", "0-3\n"),
        ("cpu/isolated", "\n"),
        ("cpu/nohz_full", "(null)\n"),
        ("node/node0/cpulist", "0-1\n"),
        ("../../allowed", "0-1\n"),
    ];
    let of_cpu = |cpu| {
        let files = [
            ("topology/core_cpus_list", "0-1\n"),
            ("topology/physical_package_id", "0\n"),
            ("cache/index0/level", "2\n"),
            ("cache/index0/type", "Unified\n"),
            ("cache/index0/size", "1M\n"),
            ("cache/index0/shared_cpu_list", "0-1\n"),
        ];
        files.map(|(path, text)| (format!("cpu/{cpu}/{path}"), text))
    };
    let of_machine = of_machine.map(|(path, text)| (path.to_owned(), text));
    let all = of_machine.into_iter().chain(["cpu0", "cpu1"].into_iter().flat_map(of_cpu));
    all.map(|(path, text)| (format!("devices/system/{path}"), text))
}

fn write(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Reads a machine that must be invalid. Returns the error message, with relative paths.
fn complaint(root: &Path) -> String {
    let error = Topology::from_sysfs(root).expect_err("this machine makes no sense").to_string();
    assert_eq!(error.lines().count(), 1, "{error}");
    error.replace(&format!("{}/", root.display()), "")
}

fn complaint_about(path: &str, bytes: &[u8]) -> String {
    let root = machine();
    write(root.path(), path, bytes);
    complaint(root.path())
}

#[test]
fn sound_machine_is_sound() {
    let topology = Topology::from_sysfs(machine().path()).unwrap();
    assert_eq!(topology.llcs()[0].size, Some(1 << 20));
    assert!(topology.quirks().is_empty());
}

/// Writes each text of `cases` to its file, and checks the error. A line has file, text and error.
fn assert_complaints(cases: &str) {
    for case in cases.trim().lines() {
        let mut parts = case.trim().split(" | ");
        let [path, text, expected] = [(); 3].map(|()| parts.next().expect(case));
        let complaint = complaint_about(path, text.replace("\\n", "\n").as_bytes());
        assert_eq!(complaint, format!("{path}:{expected}"));
    }
}

#[test]
fn malformed_file_is_named_with_line_and_column() {
    assert_complaints(
        r#"
        devices/system/cpu/online | 0-1,x\n | 1:5: expected a CPU number, found "x"
        devices/system/cpu/online | 0\n1\n | 2:1: expected `,`, `-` or the end, found "1"
        devices/system/cpu/online | 0-99999\n | 1:3: expected a last CPU number from 0 to 16383, found "99999"
        devices/system/cpu/possible | -1\n | 1:1: expected a CPU number, found "-1"
        devices/system/cpu/isolated | no\n | 1:1: expected a CPU number, found "no"
        devices/system/cpu/nohz_full | (nil)\n | 1:1: expected a CPU number, found "(nil)"
        devices/system/cpu/cpu1/topology/core_cpus_list | 0-1-2\n | 1:4: expected `,`, `:` or the end, found "-2"
        devices/system/cpu/cpu1/topology/physical_package_id | zero\n | 1:1: expected a package number, found "zero"
        devices/system/cpu/cpu1/topology/physical_package_id | 0 0\n | 1:3: expected the end, found "0"
        devices/system/cpu/cpu1/cache/index0/level | \n | 2:1: expected a cache level, found the end
        devices/system/cpu/cpu1/cache/index0/level | 16\n | 1:1: expected a cache level from 0 to 15, found "16"
        devices/system/cpu/cpu1/cache/index0/type | Trace\n | 1:1: expected one of Unified, Data, Instruction, found "Trace"
        devices/system/cpu/cpu1/cache/index0/size | 1T\n | 1:2: expected the end, found "T"
        devices/system/cpu/cpu1/cache/index0/shared_cpu_list | 0-1,\n | 2:1: expected a CPU number, found the end
        devices/system/node/node0/cpulist | 0..1\n | 1:2: expected `,`, `-` or the end, found "..1"
        allowed | all\n | 1:1: expected a CPU number, found "all"
        "#,
    );
}

#[test]
fn file_that_is_no_text_or_too_long_to_be_true_is_named() {
    let path = "devices/system/cpu/online";
    let long = vec![b' '; (4 << 20) + 10];
    for (text, expected) in [
        (&b"0-1\xff\n"[..], "1:4: expected text in UTF-8, found byte 0xff"),
        (&long, "1:4194305: expected the end within 4194304 bytes, found more"),
    ] {
        assert_eq!(complaint_about(path, text), format!("{path}:{expected}"));
    }
}

#[test]
fn files_that_contradict_each_other_are_named() {
    assert_complaints(
        r#"
        devices/system/cpu/online | \n |  no CPU is online
        devices/system/cpu/cpu1/topology/core_cpus_list | 0\n |  CPU 1 is not in its own list, which is "0"
        devices/system/cpu/cpu1/cache/index0/shared_cpu_list | \n |  CPU 1 is not in its own list, which is ""
        devices/system/node/node7/cpulist | 1-2\n |  CPU 1 is in another node too
        "#,
    );
}

/// Replaces a file or folder of a valid machine, and returns the error.
fn complaint_with(path: &str, replace: impl FnOnce(&Path)) -> String {
    let root = machine();
    let target = root.path().join(path);
    match target.is_dir() {
        true => fs::remove_dir_all(&target).unwrap(),
        false => fs::remove_file(&target).unwrap(),
    }
    replace(&target);
    complaint(root.path())
}

#[test]
fn missing_file_or_cpu_is_named() {
    let allowed = complaint_about("allowed", b"2-3\n");
    assert_eq!(allowed, "no CPU is both online (0-1) and allowed (2-3)");
    let topology = "devices/system/cpu/cpu1/topology";
    let no_list = "CPU 1 is online and has neither core_cpus_list nor thread_siblings_list";
    let no_file = "there is no such file";
    for (path, expected) in [
        (topology, no_list),
        ("devices/system/cpu/online", no_file),
        ("devices/system/node/node0/cpulist", no_file),
    ] {
        assert_eq!(complaint_with(path, |_| ()), format!("{path}: {expected}"));
    }
}

/// Directories replace files, because permissions do not stop root.
#[test]
fn unreadable_file_or_directory_is_named() {
    let directory: fn(&Path) = |path| fs::create_dir(path).unwrap();
    let plain_file: fn(&Path) = |path| fs::write(path, "").unwrap();
    let loop_of_links: fn(&Path) = |path| symlink(path, path).unwrap();
    for (path, replace) in [
        ("devices/system/cpu/online", directory),
        ("devices/system/cpu/cpu0/topology/physical_package_id", directory),
        ("devices/system/cpu/cpu0/topology", plain_file),
        ("devices/system/cpu/cpu0/cache", plain_file),
        ("devices/system/cpu/cpu0/cache", loop_of_links),
        ("devices/system/node", plain_file),
        ("allowed", loop_of_links),
    ] {
        let complaint = complaint_with(path, replace);
        let is_right = complaint.starts_with(path) && complaint.contains(": cannot be read: ");
        assert!(is_right, "{complaint}");
    }
}

/// Trees that no machine has, but that a container, a driver or an attacker may present.
#[test]
fn odd_tree_ends_in_an_answer_or_in_one_line() {
    let nodes = |nodes: [u32; 2]| nodes.map(|it| format!("../node/node{it}/cpulist"));
    let [far, near] = nodes([u32::MAX, 7]);
    let empty_nodes: String =
        (0..100).map(|node| format!(" ../node/node{node}/cpulist=")).collect();
    // The columns are the defect, the online CPUs, the CPUs with a core of their own, other files
    // with their texts, and a part of the result. Paths begin in the folder of CPUs.
    let trees = format!(
        r#"
        holes | 0,5-6,1030,16383 | 0,5-6,1030,16383 | | 5 of 5 online, 5 cores, 1 caches, 0 nodes
        many possible | 0-1 | 0-1 | possible=0-16383 | 2 of 16384 online, 2 cores, 1 caches, 0 nodes
        many CPUs | 0-127 | 0-127 | | 128 of 128 online, 128 cores, 1 caches, 0 nodes
        one too many | 0-16384 | | | from 0 to 16383
        caches without end | 0-1 | 0-1 | cpu0/cache>. | 2 of 2 online, 2 cores, 1 caches, 0 nodes
        offline siblings | 0-1 | 0-1 | cpu0/topology/core_cpus_list=0-9 | 2 of 2 online, 1 cores, 1 caches, 0 nodes
        siblings in a circle | 0-2 | | cpu0/topology/core_cpus_list=0-1 cpu1/topology/core_cpus_list=1-2 cpu2/topology/core_cpus_list=0,2 | 3 of 3 online, 2 cores, 1 caches, 0 nodes
        a node past all numbers | 0-1 | 0-1 | {far}=0 {near}=1 | 2 of 2 online, 2 cores, 2 caches, 2 nodes
        nodes without CPUs | 0-1 | 0-1 |{empty_nodes} | 2 of 2 online, 2 cores, 1 caches, 100 nodes
        an unknown package and one too far | 0-1 | 0-1 | cpu0/topology/physical_package_id=-1 cpu1/topology/physical_package_id=99999999999 | cpu1/topology/physical_package_id:1:1: expected
        ends of lines from elsewhere | 0-1\r\n | 0-1 | | 2 of 2 online, 2 cores, 1 caches, 0 nodes
        a space that is none | 0\u00a0-1 | 0-1 | | cpu/online:1:3: expected
        "#
    );
    for tree in trees.trim().lines() {
        let parts: Vec<_> = tree.trim().split(" |").map(str::trim).collect();
        let [what, online, cpus, files, expected] = parts[..] else {
            panic!("{tree}");
        };
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let text = text.replace("\\r\\n", "\r\n").replace("\\u00a0", "\u{a0}");
            write(root.path(), &format!("devices/system/cpu/{path}"), text.as_bytes());
        };
        put("online", online);
        for cpu in &cpus.parse::<CpuSet>().unwrap() {
            put(&format!("cpu{cpu}/topology/core_cpus_list"), &cpu.to_string());
        }
        for file in files.split_whitespace() {
            if let Some((path, text)) = file.split_once('=') {
                put(path, text);
            } else {
                let (path, target) = file.split_once('>').expect(file);
                symlink(target, root.path().join("devices/system/cpu").join(path)).unwrap();
            }
        }
        let said = match Topology::from_sysfs(root.path()) {
            Ok(machine) => format!(
                "{} of {} online, {} cores, {} caches, {} nodes",
                machine.online().len(),
                machine.possible().len(),
                machine.cores().len(),
                machine.llcs().len(),
                machine.nodes().len()
            ),
            Err(_) => complaint(root.path()),
        };
        assert!(said.contains(expected), "{what}: {said}");
    }
}

#[test]
fn control_characters_in_a_path_do_not_break_the_line() {
    let error = Topology::from_sysfs(Path::new("/no\nsuch\u{1b}place")).unwrap_err().to_string();
    let expected = "/no\\nsuch\\u{1b}place/devices/system/cpu/online: there is no such file";
    assert_eq!(error, expected);
}

#[test]
fn snapshot_is_not_written_over_another() {
    let (machine, dir) = (machine(), tempfile::tempdir().unwrap());
    save_snapshot(machine.path(), None, dir.path()).unwrap();
    let error = save_snapshot(machine.path(), None, dir.path()).unwrap_err();
    assert!(matches!(&error, Error::Unwritable { path, .. } if path == dir.path()), "{error}");
}

#[test]
fn snapshot_keeps_malformed_files_unchanged() {
    let (machine, dir) = (machine(), tempfile::tempdir().unwrap());
    write(machine.path(), "devices/system/cpu/isolated", b"\xff?");
    save_snapshot(machine.path(), Some(&"1".parse().unwrap()), dir.path()).unwrap();
    let read = |name| fs::read(dir.path().join(name)).unwrap();
    assert_eq!(read("devices/system/cpu/isolated"), b"\xff?");
    assert_eq!(read("allowed"), b"1\n");
}

proptest! {
    // Each case writes a whole tree, so fewer cases are run than the default.
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn arbitrary_bytes_in_any_file_never_panic(
        which in 0..files().count(),
        bytes in prop_oneof![
            prop::collection::vec(any::<u8>(), 0..20),
            "[-0-9,:/KMG a-z\n]{0,12}".prop_map(String::into_bytes),
        ],
    ) {
        let root = machine();
        let (path, _) = files().nth(which).unwrap();
        write(root.path(), &path, &bytes);
        if let Err(error) = Topology::from_sysfs(root.path()) {
            prop_assert_eq!(error.to_string().lines().count(), 1);
        }
    }
}
