//! From what the user named to the files below it, one at a time.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;

/// A file to be summed, or a directory that could not be read.
#[derive(Debug)]
pub struct Found {
    /// As it will be printed.
    pub path: PathBuf,
    /// Why there is nothing to be read.
    pub error: Option<io::Error>,
}

impl Found {
    /// Why it cannot be read, if that is known already.
    pub fn refusal(&self) -> Option<io::Error> {
        let error = self.error.as_ref()?;
        let number = error.raw_os_error().map(io::Error::from_raw_os_error);
        Some(number.unwrap_or_else(|| io::Error::other(error.to_string())))
    }
}

/// Walks the trees in the order of their names' bytes; reads one directory at a time.
#[derive(Debug)]
pub struct Walk {
    /// What is left to be looked at, next last.
    stack: Vec<Step>,
}

#[derive(Debug)]
enum Step {
    /// Named by the user: a directory is entered, whatever else is read.
    Root(PathBuf),
    Directory(PathBuf),
    File(PathBuf),
    Failed(PathBuf, io::Error),
}

impl Walk {
    /// Begins with what the user named.
    pub fn new(roots: &[OsString]) -> Self {
        let stack = roots.iter().rev().map(|root| Step::Root(root.into()));
        Self {
            stack: stack.collect(),
        }
    }

    fn enter(&mut self, directory: PathBuf) {
        match steps(&directory) {
            Ok(steps) => self.stack.extend(steps.into_iter().rev()),
            Err(error) => self.stack.push(Step::Failed(directory, error)),
        }
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            match self.stack.pop()? {
                Step::Root(path) if path.as_os_str() != "-" && path.is_dir() => self.enter(path),
                Step::Directory(path) => self.enter(path),
                Step::Root(path) | Step::File(path) => return Some(Found { path, error: None }),
                Step::Failed(path, error) => {
                    return Some(Found {
                        path,
                        error: Some(error),
                    });
                }
            }
        }
    }
}

/// What stands in a directory, sorted. Neither links nor sockets, pipes and devices are followed.
fn steps(directory: &PathBuf) -> io::Result<Vec<Step>> {
    let mut entries = fs::read_dir(directory)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_unstable_by_key(fs::DirEntry::file_name);
    let steps = entries.into_iter().filter_map(|entry| {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => Some(Step::Directory(path)),
            Ok(kind) if kind.is_file() => Some(Step::File(path)),
            Ok(_) => None,
            Err(error) => Some(Step::Failed(path, error)),
        }
    });
    Ok(steps.collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

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
        let walk = Walk::new(&[root.path().into(), at("nosuch").into()]);
        let found: Vec<PathBuf> = walk.map(|found| found.path).collect();
        assert_eq!(found, ["a", "b/x/1", "b/z", "c", "nosuch"].map(at));
    }

    #[test]
    fn a_directory_that_cannot_be_read_is_told_in_its_place() {
        let root = tempfile::tempdir().unwrap();
        let gone = root.path().join("gone");
        let mut walk = Walk {
            stack: vec![Step::File("after".into()), Step::Directory(gone.clone())],
        };
        let found = walk.next().unwrap();
        assert_eq!(found.path, gone);
        assert_eq!(found.error.unwrap().kind(), io::ErrorKind::NotFound);
        assert_eq!(walk.next().unwrap().path, PathBuf::from("after"));
    }
}
