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
    /// Where it lies.
    pub path: PathBuf,
    /// What it shows, or why not.
    pub look: Result<Look, NoLook>,
}

/// So many pages are open at a time.
const AT_ONCE: usize = 256;

/// Looks at every page in `directory`, by number. All are asked before any is waited for, so that those which do not answer
/// cost the time of one.
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
    let mut found = Vec::new();
    for pages in pages.chunks(AT_ONCE) {
        let asked: Vec<_> = pages
            .iter()
            .map(|(pid, path)| {
                let opened = Watched::open(path);
                (*pid, path, opened.and_then(|mut it| Ok((it.ask()?, it))))
            })
            .collect();
        found.extend(asked.into_iter().map(|(pid, path, asked)| Found {
            pid,
            path: path.clone(),
            look: asked.and_then(|(asked, mut watched)| watched.answer(&asked)),
        }));
    }
    Ok(found)
}

/// Removes the pages of processes that have ended, and returns their paths.
///
/// A page goes when its name is one of ours, it is this user's, no process here has its number with its start time, and
/// nobody holds it locked: one of another container's is never removed.
///
/// # Errors
///
/// When the directory cannot be read.
pub fn prune(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let stale = find(directory)?
        .into_iter()
        .filter_map(|found| match found.look {
            Err(NoLook::Stale(_)) => Some(found.path),
            _ => None,
        });
    // Between the look and now another process of that number may have replaced it: look at each once more.
    let is_stale = |path: &PathBuf| {
        let look = Watched::open(path).and_then(|mut watched| watched.look());
        matches!(look, Err(NoLook::Stale(_)))
    };
    Ok(stale
        .filter(is_stale)
        .filter(|path| std::fs::remove_file(path).is_ok())
        .collect())
}

/// Returns where the page of a process lies: by the first of its names by which it shows itself, if it does.
pub fn page_of(directory: &Path, pid: u32) -> PathBuf {
    let mut paths = (0..MAX_NAMES).map(|nth| directory.join(name_of(pid, nth)));
    let is_its_own = |path: &PathBuf| Watched::open(path).is_ok_and(|watched| watched.is_live());
    let own = paths.clone().find(is_its_own);
    own.or_else(|| paths.next()).expect("a process has a name")
}
