//! A tree of files to be summed, gone when it is dropped.

use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise, syncfs};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use tempfile::TempDir;

/// Files of one directory.
const PER_DIRECTORY: usize = 100;

/// From the smallest file to the largest, in powers of ten around the mean.
const DECADES: f64 = 3.0;

/// Files below one directory.
#[derive(Debug)]
pub struct Tree {
    root: TempDir,
    /// All of them, in the order in which they were made.
    pub files: Vec<PathBuf>,
    /// Their lengths together.
    pub bytes: u64,
}

impl Tree {
    /// Makes a tree with sizes spread evenly over three powers of ten; the same for the same seed.
    ///
    /// # Errors
    ///
    /// What the system says: there may be no room.
    pub fn make(nr_files: usize, mean_bytes: usize, seed: u64) -> io::Result<Self> {
        let mut random = fastrand::Rng::with_seed(seed);
        let root = tempfile::Builder::new()
            .prefix("afterwork-sum-")
            .tempdir()?;
        let largest = largest(mean_bytes);
        let noise: Vec<u8> = std::iter::repeat_with(|| random.u8(..))
            .take(2 * largest)
            .collect();
        let mut tree = Self {
            root,
            files: Vec::with_capacity(nr_files),
            bytes: 0,
        };
        for number in 0..nr_files {
            let directory = tree
                .root
                .path()
                .join(format!("{:04}", number / PER_DIRECTORY));
            if number % PER_DIRECTORY == 0 {
                fs::create_dir(&directory)?;
            }
            let length = (largest as f64 / 10_f64.powf(random.f64() * DECADES)) as usize;
            let start = random.usize(..largest);
            let path = directory.join(format!("{:02}", number % PER_DIRECTORY));
            fs::write(&path, &noise[start..start + length])?;
            tree.files.push(path);
            tree.bytes += length as u64;
        }
        Ok(tree)
    }

    /// Has the contents of all files dropped from the page cache, and says whether they are gone; what the directories
    /// and inodes say stays in memory.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn drop_pages(&self) -> io::Result<bool> {
        // Only what is on its disk can be dropped.
        syncfs(File::open(self.root())?)?;
        for path in &self.files {
            drop_pages(&File::open(path)?)?;
        }
        let Some(last) = self.files.last() else {
            return Ok(false);
        };
        let last = File::open(last)?;
        let is_gone = matches!(read_without_waiting(&last), Err(Errno::AGAIN));
        // The look may have begun to read it.
        drop_pages(&last)?;
        Ok(is_gone)
    }

    /// The directory that holds it.
    #[must_use]
    pub fn root(&self) -> &Path {
        self.root.path()
    }
}

fn drop_pages(file: &File) -> io::Result<()> {
    Ok(fadvise(file, 0, None, Advice::DontNeed)?)
}

fn read_without_waiting(file: &File) -> rustix::io::Result<usize> {
    let mut byte = [0];
    let mut into = [IoSliceMut::new(&mut byte)];
    preadv2(file, &mut into, 0, ReadWriteFlags::NOWAIT)
}

/// The largest size whose powers of ten below it have this mean.
fn largest(mean: usize) -> usize {
    let below = 1.0 - 10_f64.powf(-DECADES);
    (mean as f64 * DECADES * std::f64::consts::LN_10 / below) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_about_the_mean_that_was_asked_for_and_is_gone_in_the_end() {
        let tree = Tree::make(400, 1000, 7).unwrap();
        let mean = tree.bytes / 400;
        assert!((700..1400).contains(&mean), "{mean}");
        let lengths = tree
            .files
            .iter()
            .map(|path| fs::metadata(path).unwrap().len());
        assert_eq!(lengths.sum::<u64>(), tree.bytes);
        let root = tree.root().to_owned();
        drop(tree);
        assert!(!root.exists());
    }
}
