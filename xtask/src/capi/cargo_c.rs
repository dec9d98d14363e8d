//! What cargo-c installs, held against what `install.rs` does.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{PACKAGE, cargo, examples};
use crate::report::{Failure, data};
use crate::workspace::Workspace;

/// The Cargo within the oldest cargo-c that serves, as its minor version: that of our `rust-version`.
const OLDEST: u32 = 89;

/// What cargo-c cannot install, or knows nothing of.
const PLAIN_ALONE: &[&str] = &[
    "lib/afterwork/",
    "lib/cmake/",
    "lib/pkgconfig/afterwork-urcu.pc",
    // Of former runs.
    "examples/",
];

/// Installs by cargo-c beside `plain`, what is installed there, and compares; runs an example from it. Where there is no
/// cargo-c it says so and is good.
pub fn agrees(workspace: &Workspace, plain: &Path) -> Result<bool, Failure> {
    if !is_there(workspace) {
        data("capi: left out: there is no cargo-c, or one that is too old for this workspace\n");
        return Ok(true);
    }
    let builds = workspace.metadata(false)?.target_directory.join("cargo-c");
    let prefix = builds.join("installed");
    let _ = fs::remove_dir_all(&prefix);
    let (builds, to) = (builds.to_string_lossy(), prefix.to_string_lossy());
    #[rustfmt::skip]
    let install = [
        "cinstall", "--release", "-p", PACKAGE, "--target-dir", &builds,
        "--prefix", &to, "--libdir", "lib", "--includedir", "include",
    ];
    if !cargo(workspace, &install)? {
        return Ok(false);
    }
    let mut theirs = files(&prefix)?;
    // Its name with the whole version, which the one with the first part leads to: here that is the file.
    theirs.retain(|name, _| !name.starts_with("lib/libafterwork.so.0."));
    let mut ours = files(plain)?;
    ours.retain(|name, _| !PLAIN_ALONE.iter().any(|of| name.starts_with(of)));
    let names = |of: &BTreeMap<String, PathBuf>| of.keys().cloned().collect::<Vec<_>>();
    if names(&ours) != names(&theirs) {
        let (ours, theirs) = (names(&ours), names(&theirs));
        return Err(Failure::new(format!(
            "installed: {ours:?}; by cargo-c: {theirs:?}"
        )));
    }
    for (name, path) in ours.iter().filter(|(name, _)| name.ends_with(".h")) {
        if read(path)? != read(&theirs[name])? {
            return Err(Failure::new(format!("{name} is another one by cargo-c")));
        }
    }
    examples::run_one(workspace, &prefix)?;
    data(&format!(
        "capi: cargo-c installs the same {} files\n",
        ours.len()
    ));
    Ok(true)
}

/// Returns `true` if there is a cargo-c that can read our manifests: "cargo-c 0.10.16+cargo-0.91.0".
fn is_there(workspace: &Workspace) -> bool {
    let mut asked = workspace.command("cargo");
    let Ok(said) = asked.args(["cinstall", "--version"]).output() else {
        return false;
    };
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let minor = said.split_once("+cargo-0.").map_or("", |(_, rest)| rest);
    let digits = minor.split('.').next().unwrap_or_default().trim();
    digits.parse().is_ok_and(|minor: u32| minor >= OLDEST)
}

/// Returns the files below `folder` by their names within it.
fn files(folder: &Path) -> Result<BTreeMap<String, PathBuf>, Failure> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(at) = folders.pop() {
        let failed = |error| Failure::new(format!("{}: {error}", at.display()));
        for entry in fs::read_dir(&at).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder).unwrap_or(&path);
                found.insert(name.to_string_lossy().into_owned(), path);
            }
        }
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}
