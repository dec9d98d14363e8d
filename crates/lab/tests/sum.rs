//! `afterwork sum` as a user runs it, by both ways of reading.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// FIPS 180-2, appendix B.1, and of nothing at all.
const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

const WAYS: [&str; 2] = ["--read=auto", "--read=plain"];

/// Longer than one read, and not a multiple of it.
const LONG: usize = 3 * 64 * 1024 + 17;

fn sum(root: &Path, way: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_afterwork"))
        .current_dir(root)
        .args(["sum", way])
        .args(args)
        .stdin(Stdio::null())
        .output()
        .expect("the command starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the command speaks UTF-8 here")
}

/// More files than are read at once, of all sizes that matter, with names that need care.
fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("d");
    fs::create_dir_all(directory.join("e")).unwrap();
    let long: Vec<u8> = (0..LONG).map(|index| (index % 251) as u8).collect();
    for (name, length) in [
        ("empty", 0),
        ("one", 1),
        ("exact", 64 * 1024),
        ("long", LONG),
    ] {
        fs::write(directory.join(name), &long[..length]).unwrap();
    }
    for name in [
        &b"new\nline"[..],
        b"back\\slash",
        b"return\r",
        b"\xff\xfe not UTF-8",
        b" ",
    ] {
        fs::write(directory.join(OsStr::from_bytes(name)), name).unwrap();
    }
    for number in 0..300 {
        fs::write(directory.join(format!("e/{number}")), &long[..number * 7]).unwrap();
    }
    root
}

#[test]
fn known_checksums_are_right() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("abc"), "abc").unwrap();
    fs::write(root.path().join("nothing"), "").unwrap();
    for way in WAYS {
        let output = sum(root.path(), way, &["nothing", "abc", "-"]);
        let wanted = format!("{OF_NOTHING}  nothing\n{OF_ABC}  abc\n{OF_NOTHING}  -\n");
        assert_eq!(text(&output.stdout), wanted, "{way}");
        assert_eq!(output.status.code(), Some(0));
        assert!(output.stderr.is_empty());
    }
}

#[test]
fn standard_input_is_read_without_arguments() {
    for way in WAYS {
        let mut child = Command::new(env!("CARGO_BIN_EXE_afterwork"))
            .args(["sum", way])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let mut input = child.stdin.take().unwrap();
        input.write_all(b"a").unwrap();
        input.write_all(b"bc").unwrap();
        drop(input);
        let output = child.wait_with_output().unwrap();
        assert_eq!(text(&output.stdout), format!("{OF_ABC}  -\n"), "{way}");
    }
}

/// Byte for byte; where there is no sha256sum the two ways are compared with each other alone.
#[test]
fn a_tree_has_the_lines_of_sha256sum() {
    let root = tree();
    let [ring, plain] = WAYS.map(|way| sum(root.path(), way, &["d"]).stdout);
    assert_eq!(ring, plain);
    assert_eq!(ring.iter().filter(|&&byte| byte == b'\n').count(), 309);
    // Sorted by bytes, directory by directory, as find and sort do it for these names.
    let theirs = Command::new("sh")
        .current_dir(root.path())
        .env("LC_ALL", "C")
        .args([
            "-c",
            "find d -type f -print0 | sort -z | xargs -0 sha256sum",
        ])
        .output();
    match theirs {
        Ok(theirs) if theirs.status.success() => {
            let sorted = |bytes: &[u8]| {
                let mut lines: Vec<Vec<u8>> = bytes
                    .split(|&byte| byte == b'\n')
                    .map(<[u8]>::to_vec)
                    .collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&ring), sorted(&theirs.stdout));
        }
        _ => afterwork_lab::talk::say("not compared: there is no sha256sum"),
    }
}

#[test]
fn what_was_printed_checks() {
    let root = tree();
    let list = sum(root.path(), "--read=auto", &["d"]).stdout;
    fs::write(root.path().join("list"), &list).unwrap();
    for way in WAYS {
        let output = sum(root.path(), way, &["--check", "list"]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(
            out.lines().filter(|line| line.ends_with(": OK")).count(),
            309
        );
        let quiet = sum(root.path(), way, &["--check", "--quiet", "list"]);
        assert!(quiet.stdout.is_empty() && quiet.stderr.is_empty());
    }
}

#[test]
fn what_is_wrong_is_named_and_the_rest_is_done() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("abc"), "abc").unwrap();
    for way in WAYS {
        let output = sum(root.path(), way, &["gone", "abc", "nul\u{1}"]);
        assert_eq!(output.status.code(), Some(1), "{way}");
        assert_eq!(text(&output.stdout), format!("{OF_ABC}  abc\n"));
        assert_eq!(
            text(&output.stderr),
            "afterwork sum: gone: No such file or directory\n\
             afterwork sum: nul\u{1}: No such file or directory\n"
        );
    }
}

#[test]
fn a_list_is_judged_as_sha256sum_does() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("abc"), "abc").unwrap();
    fs::write(
        root.path().join("list"),
        format!("{OF_ABC}  abc\n{OF_NOTHING}  abc\nrubbish\n{OF_ABC}  gone\n"),
    )
    .unwrap();
    for way in WAYS {
        let output = sum(root.path(), way, &["--check", "--warn", "list"]);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            text(&output.stdout),
            "abc: OK\nabc: FAILED\ngone: FAILED open or read\n"
        );
        assert_eq!(
            text(&output.stderr),
            "afterwork sum: list: 3: improperly formatted SHA256 checksum line\n\
             afterwork sum: gone: No such file or directory\n\
             afterwork sum: WARNING: 1 line is improperly formatted\n\
             afterwork sum: WARNING: 1 listed file could not be read\n\
             afterwork sum: WARNING: 1 computed checksum did NOT match\n"
        );
        let status = sum(root.path(), way, &["--check", "--status", "list"]);
        assert_eq!((status.status.code(), status.stdout.len()), (Some(1), 0));
    }
}

#[test]
fn missing_files_and_rubbish_count_as_asked() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("abc"), "abc").unwrap();
    let list = format!("{OF_ABC}  abc\n{OF_ABC}  gone\nrubbish\n");
    fs::write(root.path().join("list"), list).unwrap();
    fs::write(root.path().join("only-gone"), format!("{OF_ABC}  gone\n")).unwrap();
    fs::write(root.path().join("none"), "rubbish\n").unwrap();
    let code = |args: &[&str]| sum(root.path(), "--read=auto", args).status.code();
    assert_eq!(code(&["--check", "--ignore-missing", "list"]), Some(0));
    assert_eq!(
        code(&["--check", "--ignore-missing", "--strict", "list"]),
        Some(1)
    );
    assert_eq!(code(&["--check", "--ignore-missing", "only-gone"]), Some(1));
    assert_eq!(code(&["--check", "none"]), Some(1));
    assert_eq!(code(&["--check", "nosuch"]), Some(1));
    assert_eq!(code(&["--quiet", "list"]), Some(2), "only with --check");
    assert_eq!(code(&["--jobs", "0", "list"]), Some(2));
}

#[test]
fn records_are_one_a_line() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("a b"), "abc").unwrap();
    let output = sum(root.path(), "--read=auto", &["--json", "a b", "gone"]);
    assert_eq!(
        text(&output.stdout),
        format!(
            "{{\"path\":\"a b\",\"sha256\":\"{OF_ABC}\"}}\n\
             {{\"path\":\"gone\",\"error\":\"No such file or directory\"}}\n"
        )
    );
    assert_eq!(output.status.code(), Some(1));
    let zero = sum(root.path(), "--read=auto", &["--zero", "a b"]);
    assert_eq!(text(&zero.stdout), format!("{OF_ABC}  a b\0"));
}
