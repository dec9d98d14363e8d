//! The ways that people sum a tree today.

use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use top::exit::Stop;

use super::sums::{BUFFER_BYTES, Digest, Walk, sum_of};

/// As `--peers` and tables spell them.
pub const NAMES: [&str; 4] = [RAYON, RAYON_LIST, RAYON_MANY, XARGS];
/// Walks the tree itself, as ours does.
pub const RAYON: &str = "rayon";
/// Is given the files.
pub const RAYON_LIST: &str = "rayon+list";
/// As [`RAYON`], with more threads than ours reads files at once.
pub const RAYON_MANY: &str = "rayon+threads";
/// See [`NAMES`].
pub const XARGS: &str = "xargs";

/// Files that xargs gives to one sha256sum: enough that starting it costs little, few enough to keep all CPUs busy.
const PER_PROCESS: usize = 100;

/// Walks a tree and sums its files, each by plain calls into a buffer of its thread; results in the order of the walk.
pub fn rayon(root: &Path, threads: usize) -> Result<Vec<Digest>, Stop> {
    let found = Walk::new(&[root.into()]).map(|(path, _)| path);
    let sums: io::Result<Vec<(usize, Digest)>> = pool(threads)?.install(|| {
        // Whichever thread wants a file takes the next step of the walk: nobody waits for its end.
        let found = found.enumerate().par_bridge();
        let summed = found.map_init(buffer, |buffer, (number, path)| {
            Ok((number, sum_of(&path, buffer)?))
        });
        summed.collect()
    });
    let mut sums = sums.map_err(unreadable)?;
    sums.sort_unstable_by_key(|&(number, _)| number);
    Ok(sums.into_iter().map(|(_, sum)| sum).collect())
}

/// Sums files that are known, in their order.
pub fn rayon_list(files: &[PathBuf], threads: usize) -> Result<Vec<Digest>, Stop> {
    let sums: io::Result<Vec<Digest>> = pool(threads)?.install(|| {
        let files = files.par_iter();
        files
            .map_init(buffer, |buffer, path| sum_of(path, buffer))
            .collect()
    });
    sums.map_err(unreadable)
}

fn pool(threads: usize) -> Result<ThreadPool, Stop> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    pool.map_err(|error| Stop::because("cannot make a rayon pool", error))
}

fn buffer() -> Vec<u8> {
    vec![0; BUFFER_BYTES]
}

fn unreadable(error: io::Error) -> Stop {
    Stop::because("a file of the tree cannot be read", error)
}

/// Returns `true` if `xargs` and `sha256sum` are there.
#[must_use]
pub fn has_xargs() -> bool {
    ["xargs", "sha256sum"].iter().all(|program| {
        let mut command = Command::new(program);
        command
            .arg("--version")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    })
}

/// Runs `xargs -P sha256sum` over all files and returns how many lines it printed.
pub fn xargs(files: &[PathBuf], processes: usize) -> Result<usize, Stop> {
    let failed = |error: &dyn std::fmt::Display| Stop::because("xargs sha256sum failed", error);
    let mut child = Command::new("xargs")
        .args([
            "-0",
            "-P",
            &processes.to_string(),
            "-n",
            &PER_PROCESS.to_string(),
            "sha256sum",
        ])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| failed(&error))?;
    let mut input = child.stdin.take().expect("piped");
    let mut names = Vec::new();
    for file in files {
        names.extend_from_slice(file.as_os_str().as_bytes());
        names.push(0);
    }
    // Beside the reading below: neither pipe may fill up while nobody reads the other.
    let writer = std::thread::spawn(move || input.write_all(&names));
    let output = child.wait_with_output().map_err(|error| failed(&error))?;
    let written = writer.join().expect("writing does not panic");
    written.map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    Ok(output.stdout.iter().filter(|&&byte| byte == b'\n').count())
}
