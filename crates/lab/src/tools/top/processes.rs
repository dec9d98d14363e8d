//! Which processes may be looked at.

use std::io;
use std::path::{Path, PathBuf};

use afterwork::page::{MAX_NAMES, name_of, pid_of};

use super::look::{Look, NoLook, Watched};

/// A page that was found, and what became of looking at it.
#[derive(Debug)]
pub struct Found {
    /// The number in its name.
    pub pid: u32,
    /// What it shows, or why not.
    pub look: Result<Look, NoLook>,
}

/// Looks at every page in `directory`, by number.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn find(directory: &Path) -> io::Result<Vec<Found>> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let page = name.to_str().and_then(|name| Some((pid_of(name)?, name)));
        pages.extend(page.map(|(pid, name)| (pid, directory.join(name))));
    }
    pages.sort_unstable();
    let found = pages.into_iter().map(|(pid, path)| Found {
        pid,
        look: Watched::open(&path).and_then(|mut watched| watched.look()),
    });
    Ok(found.collect())
}

/// Returns where the page of a process lies: by the first of its names by which it shows itself, if it does.
pub fn page_of(directory: &Path, pid: u32) -> PathBuf {
    let mut paths = (0..MAX_NAMES).map(|nth| directory.join(name_of(pid, nth)));
    let is_its_own = |path: &PathBuf| Watched::open(path).is_ok_and(|watched| watched.is_live());
    let own = paths.clone().find(is_its_own);
    own.or_else(|| paths.next()).expect("a process has a name")
}
