//! Saves a machine's sysfs, so that it can be read on another machine.

use std::path::Path;
use std::{fs, io};

use crate::cpuset::CpuSet;
use crate::machine::error::Error;
use crate::machine::file;
use crate::machine::sysfs::{
    ALLOWED, CACHE_DIR, CACHE_FILES, CACHE_INDEX, CPU_DIR, CPU_DIR_FILES, CPULIST, NODE_DIR, QUOTA,
    TOPOLOGY_DIR, TOPOLOGY_FILES,
};

/// Copies the files that [`Topology::from_sysfs`](crate::Topology::from_sysfs) needs from `sys` to
/// `dir`, byte by byte. Returns the number of files.
///
/// `dir` is created if it does not exist, and must be empty. If `allowed` is given, the copy allows
/// only these CPUs, such as those of [`current_bounds`](crate::current_bounds). Otherwise it allows
/// the CPUs that `sys` allows; `/sys` itself sets no such bound.
///
/// The files contain only numbers of CPUs, caches and nodes, and neither serial numbers nor names.
///
/// # Blocking
///
/// Reads and writes about twenty files for each CPU.
///
/// # Errors
///
/// If a file cannot be read or written; the error names it. Files that were already written remain.
///
/// # Examples
///
/// ```
/// use std::path::Path;
///
/// use afterwork_topology::{Topology, save_snapshot};
///
/// let dir = tempfile::tempdir()?;
/// save_snapshot(Path::new("/sys"), None, dir.path())?;
/// let copy = Topology::from_sysfs(dir.path())?;
/// assert_eq!(copy, Topology::from_sysfs(Path::new("/sys"))?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn save_snapshot(sys: &Path, allowed: Option<&CpuSet>, dir: &Path) -> Result<usize, Error> {
    make_empty_dir(dir)?;
    let mut copy = Copy { from: sys, to: dir, nr_files: 0 };
    match allowed {
        Some(allowed) => copy.write(Path::new(ALLOWED), format!("{allowed}\n").as_bytes())?,
        None => copy.file(Path::new(ALLOWED))?,
    }
    copy.file(Path::new(QUOTA))?;
    let cpu_dir = Path::new(CPU_DIR);
    copy.files(cpu_dir, &CPU_DIR_FILES)?;
    for (cpu, _) in file::numbered(&sys.join(cpu_dir), "cpu")?.unwrap_or_default() {
        let cpu_dir = cpu_dir.join(format!("cpu{cpu}"));
        copy.files(&cpu_dir.join(TOPOLOGY_DIR), &TOPOLOGY_FILES)?;
        let cache_dir = cpu_dir.join(CACHE_DIR);
        for (index, _) in file::numbered(&sys.join(&cache_dir), CACHE_INDEX)?.unwrap_or_default() {
            copy.files(&cache_dir.join(format!("{CACHE_INDEX}{index}")), &CACHE_FILES)?;
        }
    }
    for (node, _) in file::numbered(&sys.join(NODE_DIR), "node")?.unwrap_or_default() {
        copy.files(&Path::new(NODE_DIR).join(format!("node{node}")), &[CPULIST])?;
    }
    Ok(copy.nr_files)
}

struct Copy<'a> {
    from: &'a Path,
    to: &'a Path,
    nr_files: usize,
}

impl Copy<'_> {
    fn files(&mut self, dir: &Path, names: &[&str]) -> Result<(), Error> {
        names.iter().try_for_each(|name| self.file(&dir.join(name)))
    }

    /// Copies a file, even with invalid text, if it exists.
    fn file(&mut self, path: &Path) -> Result<(), Error> {
        let from = self.from.join(path);
        match fs::read(&from) {
            Ok(bytes) => self.write(path, &bytes),
            Err(error) if file::is_absent(&error) => Ok(()),
            Err(error) => Err(Error::unreadable(&from, error)),
        }
    }

    fn write(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let to = self.to.join(path);
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir).map_err(|error| Error::unwritable(dir, error))?;
        }
        fs::write(&to, bytes).map_err(|error| Error::unwritable(&to, error))?;
        self.nr_files += 1;
        Ok(())
    }
}

/// Creates `dir`, which must be empty: copying over another snapshot would mix two machines.
fn make_empty_dir(dir: &Path) -> Result<(), Error> {
    fs::create_dir_all(dir).map_err(|error| Error::unwritable(dir, error))?;
    let mut entries = fs::read_dir(dir).map_err(|error| Error::unwritable(dir, error))?;
    match entries.next() {
        None => Ok(()),
        Some(_) => Err(Error::unwritable(dir, io::ErrorKind::DirectoryNotEmpty.into())),
    }
}
