//! Which processes may be looked at.

use std::io;
use std::path::{Path, PathBuf};

use afterwork::page::NAME_PREFIX;

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
    let mut pids = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix(NAME_PREFIX));
        pids.extend(number.and_then(|number| number.parse::<u32>().ok()));
    }
    pids.sort_unstable();
    let found = pids.into_iter().map(|pid| Found {
        pid,
        look: Watched::open(&page_of(directory, pid)).and_then(|mut watched| watched.look()),
    });
    Ok(found.collect())
}

/// Returns where the page of a process lies.
pub fn page_of(directory: &Path, pid: u32) -> PathBuf {
    directory.join(format!("{NAME_PREFIX}{pid}"))
}
