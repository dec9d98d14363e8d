//! Sums many files: one thread walks and tells results in order, workers read and hash.
//!
//! Files go to a workqueue in batches; the queue's `max_active` limits how many batches are under way, and nothing else
//! has to. A pool runs as many as it has CPUs, and another one for each that says that it waits for a disk. A batch borrows
//! a reader, which is a ring, and buffers from the CPU that it runs on, and leaves them there for the next one. Its results
//! come home by a mailbox, whose owner sleeps until half of what is out is back.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afterwork::percpu::{BuildError, FreeList, PageBatches, PerCpu, Qpw};
use afterwork::task_work::{Closed, Mailbox};
use afterwork::workqueue::{MAX_ACTIVE, Workqueue};

use super::BUFFER_BYTES;
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
const AHEAD: u32 = 2;

/// Batches that may run for each CPU. One of them hashes; the others are there for when it waits for a disk.
const DEEP: u32 = 4;

/// Readers that wait on each CPU for the next batch there.
const NR_READERS: usize = DEEP as usize;

/// What batches leave to the next ones.
#[derive(Debug)]
struct Spare {
    buffers: PageBatches,
    /// `None` where files are read by plain calls.
    readers: Option<FreeList<Reader>>,
}

/// Sums files on a workqueue of its own.
#[derive(Debug)]
pub struct Sums {
    queue: Workqueue,
    /// Batches that may be out.
    most_out: usize,
    spare: Arc<Spare>,
}

impl Sums {
    /// Makes the queue. `jobs` batches run at once at most; without a number as many as there are CPUs, and more while
    /// some wait for a disk.
    ///
    /// # Errors
    ///
    /// [`Stop::CouldNotRun`] when it cannot be made, and when there is no io_uring and it was asked for.
    pub fn new(read: Read, jobs: Option<u32>) -> Result<Self, Stop> {
        let jobs = jobs.map_or_else(|| Ok::<_, Stop>(DEEP * allowed_cpus()?), Ok)?;
        let jobs = jobs.min(MAX_ACTIVE);
        let queue = Workqueue::builder("sum").max_active(jobs).build();
        let queue = queue.map_err(|error| Stop::because("cannot make a workqueue", error))?;
        let by_uring = match read {
            Read::Plain => false,
            Read::Auto => try_uring().is_ok(),
            Read::Uring => {
                try_uring()
                    .map_err(|error| Stop::because("no io_uring to read files by", error))?;
                true
            }
        };
        let spare = Spare::new(by_uring)
            .map_err(|error| Stop::because("cannot make a cache for each CPU", error))?;
        Ok(Self {
            queue,
            most_out: (AHEAD * jobs) as usize,
            spare: Arc::new(spare),
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
            while nr_out < self.most_out {
                let batch: Vec<Found> = wanted.take(BATCH).collect();
                if batch.is_empty() {
                    break;
                }
                let (number, poster) = (nr_begun, home.poster());
                let spare = self.spare.clone();
                self.queue.spawn_detached(move || {
                    let summed = spare.sum(batch);
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

fn allowed_cpus() -> Result<u32, Stop> {
    let allowed = sync::cpu::affinity();
    let allowed = allowed.map_err(|error| Stop::because("cannot tell the allowed CPUs", error))?;
    Ok(allowed.len() as u32)
}

impl Spare {
    fn new(by_uring: bool) -> Result<Self, BuildError> {
        // Nobody owns a CPU here: whoever runs there takes its slot for a moment.
        let each_cpu = || PerCpu::builder().qpw(Qpw::EveryOp);
        let readers = by_uring.then(|| FreeList::new(each_cpu(), NR_READERS));
        Ok(Self {
            buffers: PageBatches::new(each_cpu(), BUFFER_BYTES, BATCH)?,
            readers: readers.transpose()?,
        })
    }

    /// Sums a batch by a reader of this CPU; by plain calls where there is none to be had.
    fn sum(&self, batch: Vec<Found>) -> Vec<Summed> {
        let sums = self.readers.as_ref().and_then(|readers| {
            let mut reader = readers.pop().map_or_else(Reader::new, Ok).ok()?;
            let sums = reader.sum(&batch, &self.buffers).ok()?;
            // Dropped where there are enough.
            let _ = readers.push(reader);
            Some(sums)
        });
        let sums = sums.unwrap_or_else(|| self.sum_plainly(&batch));
        let paths = batch.into_iter().map(|found| found.path);
        paths
            .zip(sums)
            .map(|(path, sum)| Summed { path, sum })
            .collect()
    }

    fn sum_plainly(&self, batch: &[Found]) -> Vec<io::Result<Digest>> {
        let mut buffer = self.buffers.alloc();
        let mut sum = |found: &Found| match found.refusal() {
            Some(error) => Err(error),
            None => plain::sum_of(&found.path, &mut buffer),
        };
        let sums = batch.iter().map(&mut sum).collect();
        self.buffers.free(buffer);
        sums
    }
}

fn gone() -> Stop {
    Stop::CouldNotRun("the items that sum files ended without a result".into())
}
