//! Sums many files: one thread walks and tells results in order, workers read and hash.
//!
//! ```text
//! Walk ──► sum ──── batches of files ────► workqueue, limited by `max_active`
//!           ▲                                  │  a buffer of this CPU, from `PageBatches`
//!           └──── mailbox ◄──── checksums ─────┘
//! ```
//!
//! - **An item is a batch of files**, so that queueing it costs little beside its work.
//! - **The queue's `max_active` is the only limit.** It is above the number of CPUs: an item that has to wait for the disk
//!   says so by [`workqueue::blocking`], and its pool runs another one meanwhile.
//! - **Buffers stay on their CPU**, and in its cache, from one item to the next; no item makes one.
//! - **Results come home by a mailbox**, whose owner sleeps until half of what is out is back.
//!
//! A path has one holder at a time: the walk gives it to an item, that to the mailbox, that to whoever prints. Nothing is
//! shared that changes, so there is no lock here.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs::{self, File};
use std::io::{self, IoSliceMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use afterwork::percpu::{PageBatches, PerCpu, Qpw};
use afterwork::task_work::Mailbox;
use afterwork::workqueue::{self, MAX_ACTIVE, Workqueue};
use rustix::io::{Errno, ReadWriteFlags, pread, preadv2};
use sha2::{Digest as _, Sha256};

/// What SHA-256 makes of a file.
pub type Digest = [u8; 32];

/// What became of a file.
#[derive(Debug)]
pub struct Summed {
    /// As it will be printed.
    pub path: PathBuf,
    /// Its checksum, or why there is none.
    pub sum: io::Result<Digest>,
}

/// Files of an item.
const BATCH: usize = 8;

/// Items that may run for each CPU. One of them hashes; the others are there for when it waits for a disk.
const PER_CPU: usize = 4;

/// Items that are out for each that may run: the next one is there when a worker comes for it.
const AHEAD: usize = 2;

/// What a read brings at most.
pub const BUFFER_BYTES: usize = 64 * 1024;

/// Pages that move between a CPU and the common reserve at once.
const BUFFERS: usize = 4;

/// Sums all files below `roots`, which are files or directories; `sink` gets what became of each, in their order.
///
/// # Errors
///
/// The queue or the buffers cannot be made, or what `sink` returns.
pub fn sum(
    roots: &[PathBuf],
    mut sink: impl FnMut(Summed) -> io::Result<()>,
) -> Result<(), Box<dyn Error>> {
    let jobs = (PER_CPU * thread::available_parallelism()?.get()).min(MAX_ACTIVE as usize);
    let queue = Workqueue::builder("sum").max_active(jobs as u32).build()?;
    // Nobody owns a CPU here: whoever runs there takes its slot for a moment.
    let each_cpu = PerCpu::builder().qpw(Qpw::EveryOp);
    let buffers = Arc::new(PageBatches::new(each_cpu, BUFFER_BYTES, BUFFERS)?);

    let mut files = Walk::new(roots);
    let mut home = Mailbox::new();
    // Results that came before those that go before them.
    let mut early = BTreeMap::new();
    let (mut nr_begun, mut nr_told, mut nr_out) = (0_u64, 0_u64, 0);
    loop {
        while nr_out < AHEAD * jobs {
            let batch: Vec<Found> = files.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            let (number, poster, buffers) = (nr_begun, home.poster(), buffers.clone());
            queue.spawn_detached(move || {
                let mut buffer = buffers.alloc();
                let of = |(path, refused): Found| Summed {
                    sum: refused.map_or_else(|| sum_of(&path, &mut buffer), Err),
                    path,
                };
                let summed: Vec<Summed> = batch.into_iter().map(of).collect();
                buffers.free(buffer);
                // Refused only when the owner has given up, and then nobody wants it.
                let _ = poster.post_lazy((number, summed));
            });
            nr_begun += 1;
            nr_out += 1;
        }
        if nr_out == 0 {
            return Ok(());
        }
        home.wait(nr_out.div_ceil(2))?;
        for (number, summed) in home.drain(nr_out) {
            nr_out -= 1;
            early.insert(number, summed);
        }
        while let Some(batch) = early.remove(&nr_told) {
            nr_told += 1;
            batch.into_iter().try_for_each(&mut sink)?;
        }
    }
}

/// Sums one file by way of `buffer`.
///
/// # Errors
///
/// What the system says to opening or reading it.
pub fn sum_of(path: &Path, buffer: &mut [u8]) -> io::Result<Digest> {
    let file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut offset = 0;
    loop {
        match read_at(&file, buffer, offset)? {
            0 => return Ok(hasher.finalize().into()),
            count => {
                hasher.update(&buffer[..count]);
                offset += count as u64;
            }
        }
    }
}

/// Reads what is in memory at once; says so before it waits for what is not.
fn read_at(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut into = [IoSliceMut::new(buffer)];
    match preadv2(file, &mut into, offset, ReadWriteFlags::NOWAIT) {
        // Not in memory, or a file system that cannot tell.
        Err(Errno::AGAIN | Errno::OPNOTSUPP) => {
            let read = workqueue::blocking(|| pread(file, &mut *buffer, offset));
            Ok(read?)
        }
        read => Ok(read?),
    }
}

/// A file to be summed, and why it cannot be read, if that is known already.
pub type Found = (PathBuf, Option<io::Error>);

/// The files below the roots in the order of their names' bytes; one directory is read at a time.
///
/// A root is followed wherever it leads; below it links, pipes and devices are left alone.
#[derive(Debug)]
pub struct Walk {
    /// What is left to be looked at, next last: a path and whether it is a directory.
    stack: Vec<(PathBuf, io::Result<bool>)>,
}

impl Walk {
    /// Begins with what the user named.
    #[must_use]
    pub fn new(roots: &[PathBuf]) -> Self {
        let roots = roots.iter().rev();
        Self {
            stack: roots
                .map(|root| (root.clone(), Ok(root.is_dir())))
                .collect(),
        }
    }

    fn enter(&mut self, directory: PathBuf) {
        let entries = fs::read_dir(&directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.stack.push((directory, Err(error))),
        };
        entries.sort_unstable_by_key(|entry| std::cmp::Reverse(entry.file_name()));
        for entry in entries {
            match entry.file_type() {
                Ok(kind) if !kind.is_dir() && !kind.is_file() => {}
                kind => self
                    .stack
                    .push((entry.path(), kind.map(|kind| kind.is_dir()))),
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Found;

    fn next(&mut self) -> Option<Found> {
        loop {
            let (path, is_directory) = self.stack.pop()?;
            match is_directory {
                Ok(true) => self.enter(path),
                Ok(false) => return Some((path, None)),
                Err(error) => return Some((path, Some(error))),
            }
        }
    }
}
