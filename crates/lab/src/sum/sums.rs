//! Summing files in one of the ways there are.

use std::io;
use std::path::Path;

use afterwork::workqueue::Workqueue;

use super::args::Read;
use super::pipeline::{self, Sink};
use super::plain;
use super::walk::{Found, Walk};
use crate::exit::Stop;

/// Sums files on a workqueue of its own, so many at once.
#[derive(Debug)]
pub struct Sums {
    queue: Workqueue,
    jobs: u32,
    read: Read,
}

impl Sums {
    /// Makes the queue.
    ///
    /// # Errors
    ///
    /// [`Stop::CouldNotRun`] when it cannot be made.
    pub fn new(read: Read, jobs: u32) -> Result<Self, Stop> {
        let queue = Workqueue::builder("sum").max_active(jobs).build();
        let queue = queue.map_err(|error| Stop::because("cannot make a workqueue", error))?;
        Ok(Self { queue, jobs, read })
    }

    /// Sums files; `sink` gets what became of each, in their order.
    ///
    /// # Errors
    ///
    /// [`Stop::CouldNotRun`] when there is no io_uring and it was asked for, and what `sink` returns.
    pub fn each(
        &self,
        wanted: &mut dyn Iterator<Item = Found>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Stop> {
        let files = match self.read {
            Read::Plain => None,
            Read::Auto => pipeline::files().ok(),
            Read::Uring => Some(
                pipeline::files()
                    .map_err(|error| Stop::because("no io_uring to read files by", error))?,
            ),
        };
        match files {
            Some(files) => pipeline::sum(files, &self.queue, wanted, sink),
            None => plain::sum(self.jobs as usize, &self.queue, wanted, sink),
        }
    }

    /// Sums all files below a directory.
    ///
    /// # Errors
    ///
    /// As [`each`](Self::each).
    pub fn tree(&self, root: &Path, sink: &mut Sink<'_>) -> Result<(), Stop> {
        self.each(&mut Walk::new(&[root.into()]), sink)
    }
}

/// Says why files cannot be read by io_uring here, if they cannot.
///
/// # Errors
///
/// What the system says.
pub fn try_uring() -> io::Result<()> {
    pipeline::files().map(drop)
}
