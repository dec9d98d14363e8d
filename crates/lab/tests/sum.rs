//! The example `sum`: what it says of files, beside what `sha256sum` says.

#[path = "../examples/sum/sums.rs"]
mod sums;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use sums::{Summed, Walk, sum};
use tempfile::TempDir;

/// FIPS 180-2, appendix B.1, and of nothing at all.
const OF_ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const OF_NOTHING: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Longer than one read, and not a multiple of it.
const LONG: usize = 3 * sums::BUFFER_BYTES + 17;

fn hex(digest: &sums::Digest) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn all(roots: &[PathBuf]) -> Vec<Summed> {
    let mut all = Vec::new();
    let ended = sum(roots, |summed| {
        all.push(summed);
        Ok(())
    });
    ended.expect("the queue is made, and the sink takes all");
    all
}

/// More files than are out at once, of all sizes that matter, with names that need care.
fn tree() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("d");
    fs::create_dir_all(directory.join("e")).unwrap();
    let long: Vec<u8> = (0..LONG).map(|index| (index % 251) as u8).collect();
    let exact = sums::BUFFER_BYTES;
    for (name, length) in [("empty", 0), ("one", 1), ("exact", exact), ("long", LONG)] {
        fs::write(directory.join(name), &long[..length]).unwrap();
    }
    for name in [&b"\xff\xfe not UTF-8"[..], b" ", b"a b"] {
        fs::write(directory.join(OsStr::from_bytes(name)), name).unwrap();
    }
    for number in 0..300 {
        fs::write(directory.join(format!("e/{number}")), &long[..number * 7]).unwrap();
    }
    root
}

#[test]
fn known_checksums_are_right_and_come_in_order() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::write(at("abc"), "abc").unwrap();
    fs::write(at("nothing"), "").unwrap();
    let told: Vec<(PathBuf, String)> = all(&[at("nothing"), at("abc")])
        .into_iter()
        .map(|Summed { path, sum }| (path, hex(&sum.unwrap())))
        .collect();
    let wanted = [
        (at("nothing"), OF_NOTHING.into()),
        (at("abc"), OF_ABC.into()),
    ];
    assert_eq!(told, wanted);
}

/// Where there is no sha256sum only the order is compared.
#[test]
fn a_tree_has_the_checksums_of_sha256sum_in_the_order_of_the_walk() {
    let root = tree();
    let roots = [root.path().join("d")];
    let told = all(&roots);
    let paths: Vec<&Path> = told.iter().map(|summed| summed.path.as_path()).collect();
    let walked: Vec<PathBuf> = Walk::new(&roots).map(|(path, _)| path).collect();
    assert_eq!(paths, walked);
    assert_eq!(paths.len(), 307);
    let theirs = Command::new("sh")
        .current_dir(root.path())
        .args(["-c", "find \"$PWD/d\" -type f -print0 | xargs -0 sha256sum"])
        .output();
    match theirs {
        Ok(theirs) if theirs.status.success() => {
            let theirs: BTreeMap<&[u8], &[u8]> = theirs
                .stdout
                .split(|&byte| byte == b'\n')
                .filter_map(|line| Some((line.get(66..)?, &line[..64])))
                .collect();
            assert_eq!(theirs.len(), told.len());
            for Summed { path, sum } in &told {
                let digest = hex(sum.as_ref().unwrap());
                let name = path.as_os_str().as_bytes();
                assert_eq!(theirs[name], digest.as_bytes(), "{}", path.display());
            }
        }
        _ => top::talk::say("not compared: there is no sha256sum"),
    }
}

#[test]
fn what_cannot_be_read_is_told_in_its_place_and_the_rest_is_done() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    fs::write(at("abc"), "abc").unwrap();
    let [gone, abc, nul] = &all(&[at("gone"), at("abc"), at("nul\0")])[..] else {
        panic!("three were named");
    };
    let kind = |summed: &Summed| summed.sum.as_ref().map_err(io::Error::kind).copied();
    assert_eq!(kind(gone), Err(io::ErrorKind::NotFound));
    assert_eq!(kind(abc).map(|digest| hex(&digest)), Ok(OF_ABC.into()));
    assert_eq!(kind(nul), Err(io::ErrorKind::InvalidInput));
}

#[test]
fn a_sink_that_has_enough_ends_it() {
    let root = tree();
    let mut nr_told = 0;
    let ended = sum(&[root.path().into()], |_| {
        nr_told += 1;
        Err(io::ErrorKind::BrokenPipe.into())
    });
    assert!(ended.is_err());
    assert_eq!(nr_told, 1);
}

#[test]
fn files_come_in_the_order_of_their_names_and_links_are_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for directory in ["b", "b/x", "empty"] {
        fs::create_dir(at(directory)).unwrap();
    }
    for file in ["c", "b/z", "b/x/1", "a"] {
        fs::write(at(file), file).unwrap();
    }
    symlink(at("a"), at("b/link")).unwrap();
    symlink(root.path(), at("loop")).unwrap();
    let walk = Walk::new(&[root.path().into(), at("nosuch")]);
    let found: Vec<PathBuf> = walk.map(|(path, _)| path).collect();
    assert_eq!(found, ["a", "b/x/1", "b/z", "c", "nosuch"].map(at));
}
