//! Sums many files: one thread walks and tells results in order, workers read and hash.
//!
//! Files go to a workqueue in batches; the queue's `max_active` limits how many batches are under way, and nothing else
//! has to. A batch borrows a reader, a ring with its buffers, from the cache of the CPU that it runs on, and leaves it
//! there for the next one. Its results come home by a mailbox, whose owner sleeps until half of what is out is back.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afterwork::percpu::{PerCpu, Qpw};
use afterwork::task_work::{Closed, Mailbox};
use afterwork::workqueue::Workqueue;

use super::args::Read;
use super::line::Digest;
use super::order::InOrder;
use super::plain;
use super::reader::{BATCH, Reader};
use super::walk::{Found, Walk};
use crate::exit::Stop;

/// What became of a file.
#[derive(Debug)]
pub struct Summed {
    /// As it will be printed.
    pub path: PathBuf,
    /// Its checksum, or why there is none.
    pub sum: io::Result<Digest>,
}

/// Takes results in order.
pub type Sink<'a> = dyn FnMut(Summed) -> Result<(), Stop> + 'a;

/// Batches that are out for each that may run: the next one is there when a worker comes for it.
const AHEAD: usize = 4;

/// Readers that wait on each CPU for the next batch there.
type Readers = PerCpu<Vec<Reader>>;

/// Sums files on a workqueue of its own.
#[derive(Debug)]
pub struct Sums {
    queue: Workqueue,
    jobs: usize,
    /// `None` where files are read by plain calls.
    readers: Option<Arc<Readers>>,
}

impl Sums {
    /// Makes the queue; `jobs` batches run at once at most.
    ///
    /// # Errors
    ///
    /// [`Stop::CouldNotRun`] when it cannot be made, and when there is no io_uring and it was asked for.
    pub fn new(read: Read, jobs: u32) -> Result<Self, Stop> {
        let queue = Workqueue::builder("sum").max_active(jobs).build();
        let queue = queue.map_err(|error| Stop::because("cannot make a workqueue", error))?;
        let readers = match read {
            Read::Plain => None,
            Read::Auto => try_uring().ok().map(|()| readers()).transpose()?,
            Read::Uring => {
                try_uring()
                    .map_err(|error| Stop::because("no io_uring to read files by", error))?;
                Some(readers()?)
            }
        };
        Ok(Self {
            queue,
            jobs: jobs as usize,
            readers,
        })
    }

    /// Sums files; `sink` gets what became of each, in their order.
    ///
    /// # Errors
    ///
    /// What `sink` returns.
    pub fn each(
        &self,
        wanted: &mut dyn Iterator<Item = Found>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Stop> {
        let mut home = Mailbox::new();
        let mut done = InOrder::new();
        let (mut nr_begun, mut nr_out) = (0, 0);
        loop {
            while nr_out < self.jobs * AHEAD {
                let batch: Vec<Found> = wanted.take(BATCH).collect();
                if batch.is_empty() {
                    break;
                }
                let (number, poster) = (nr_begun, home.poster());
                let readers = self.readers.clone();
                self.queue.spawn_detached(move || {
                    let summed = sum_batch(readers.as_deref(), batch);
                    // Refused only when the owner has given up, and then nobody wants it.
                    let _ = poster.post_lazy((number, summed));
                });
                nr_begun += 1;
                nr_out += 1;
            }
            if nr_out == 0 {
                return Ok(());
            }
            home.wait(nr_out.div_ceil(2)).map_err(|Closed| gone())?;
            for (number, summed) in home.drain(nr_out) {
                nr_out -= 1;
                done.put(number, summed);
            }
            while let Some(batch) = done.take() {
                batch.into_iter().try_for_each(&mut *sink)?;
            }
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
    Reader::new().map(drop)
}

fn readers() -> Result<Arc<Readers>, Stop> {
    // Nobody owns a CPU here: whoever runs there takes its slot for a moment.
    let readers = PerCpu::builder().qpw(Qpw::EveryOp).build(|_cpu| Vec::new());
    readers
        .map(Arc::new)
        .map_err(|error| Stop::because("cannot make a cache for each CPU", error))
}

/// Sums a batch by a reader of this CPU's cache; by plain calls where there is none to be had.
fn sum_batch(readers: Option<&Readers>, batch: Vec<Found>) -> Vec<Summed> {
    let sums = readers.and_then(|readers| {
        let cached = readers.with_current(Vec::pop);
        let mut reader = cached.map_or_else(Reader::new, Ok).ok()?;
        let sums = reader.sum(&batch).ok()?;
        readers.with_current(|cache| cache.push(reader));
        Some(sums)
    });
    let sums = sums.unwrap_or_else(|| batch.iter().map(plain_sum).collect());
    let paths = batch.into_iter().map(|found| found.path);
    paths
        .zip(sums)
        .map(|(path, sum)| Summed { path, sum })
        .collect()
}

fn plain_sum(found: &Found) -> io::Result<Digest> {
    found
        .refusal()
        .map_or_else(|| plain::sum_here(&found.path), Err)
}

fn gone() -> Stop {
    Stop::CouldNotRun("the items that sum files ended without a result".into())
}
