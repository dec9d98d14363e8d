//! Finds the processes that can be shown.

use std::io;
use std::path::{Path, PathBuf};

use afterwork::page::{MAX_NAMES, name_of, pid_of};

use super::snapshot::{NoSnapshot, Snapshot, Watched};

/// A page that was found, and the result of reading it.
#[derive(Debug)]
pub struct Found {
    /// The PID in the page's name.
    pub pid: u32,
    pub path: PathBuf,
    /// The contents of the page, or the reason why there are none.
    pub snapshot: Result<Snapshot, NoSnapshot>,
}

/// The maximum number of pages that are open at the same time.
const AT_ONCE: usize = 256;

/// Reads every page in `directory`, in the order of the PIDs. Asks all processes before the first
/// wait, so that any number of processes that do not answer cost a single timeout.
pub fn find(directory: &Path) -> io::Result<Vec<Found>> {
    let mut pages = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        let page = name.to_str().and_then(|name| Some((pid_of(name)?, name)));
        pages.extend(page.map(|(pid, name)| (pid, directory.join(name))));
    }
    pages.sort_unstable();
    let mut found = Vec::new();
    for pages in pages.chunks(AT_ONCE) {
        let ask =
            |(_, path): &(_, PathBuf)| Watched::open(path).and_then(|mut it| Ok((it.ask()?, it)));
        let asked: Vec<_> = pages.iter().map(ask).collect();
        for ((pid, path), asked) in pages.iter().zip(asked) {
            let snapshot = asked.and_then(|(asked, mut watched)| watched.answer(&asked));
            found.push(Found { pid: *pid, path: path.clone(), snapshot });
        }
    }
    Ok(found)
}

/// Removes the pages of processes that have exited, and returns their paths.
///
/// A page is removed if it has the name of a page and belongs to this user, if no process here has
/// its PID and its start time, and if it is not locked. A page of another container is therefore
/// never removed. Returns an error if the directory cannot be read.
pub fn prune(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let stale = find(directory)?.into_iter().filter_map(|found| match found.snapshot {
        Err(NoSnapshot::Stale(_)) => Some(found.path),
        _ => None,
    });
    // In the meantime, another process with the same PID may have replaced a page, so this reads
    // each page once more.
    let is_stale = |path: &PathBuf| {
        let snapshot = Watched::open(path).and_then(|mut watched| watched.snapshot());
        matches!(snapshot, Err(NoSnapshot::Stale(_)))
    };
    Ok(stale.filter(is_stale).filter(|path| std::fs::remove_file(path).is_ok()).collect())
}

/// Returns the path of a process's page: the first of its names at which there is a live page. If
/// there is none, this is the first name.
pub fn page_of(directory: &Path, pid: u32) -> PathBuf {
    let mut paths = (0..MAX_NAMES).map(|nth| directory.join(name_of(pid, nth)));
    let is_its_own = |path: &PathBuf| Watched::open(path).is_ok_and(|watched| watched.is_live());
    let own = paths.clone().find(is_its_own);
    own.or_else(|| paths.next()).expect("a process has a name")
}
