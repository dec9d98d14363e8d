//! Sums many files at once: one thread reads them all, workers hash what it read.
//!
//! Each file that is being read has a slot, with two buffers at most: one that a worker hashes while the kernel fills
//! the other. The state of its checksum travels with the buffer to the worker and back, so that it is in one place at
//! a time and needs no lock. A file has ended when a read brings nothing and its checksum is at home.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use afterwork::task_work::{Mailbox, Poster};
use afterwork::workqueue::Workqueue;
use sha2::{Digest as _, Sha256};

use super::files::{Buffer, Event, Files};
use super::line::Digest;
use super::order::InOrder;
use super::walk::Found;
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

/// What a read brings at most. Handing it over costs about a microsecond, hashing it some forty.
pub const BUFFER_BYTES: usize = 64 * 1024;

/// Files that are read at once: enough for workers to have something while one thread waits for a disk, few enough
/// for their buffers, two each, to stay in a cache of 2 MiB.
const SLOTS: usize = 16;

/// Task work taken at once, before the loop looks at its completions.
const DRAIN: usize = 64;

/// A buffer that was hashed, with its checksum so far.
struct Hashed {
    slot: usize,
    hasher: Sha256,
    buffer: Buffer,
}

/// A file that is being read.
struct Flight {
    number: u64,
    path: PathBuf,
    /// At home, or with a worker.
    hasher: Option<Sha256>,
    /// Read, and to be hashed next.
    filled: Option<(Buffer, usize)>,
    offset: u64,
    is_reading: bool,
    /// How reading ended, once it has.
    end: Option<io::Result<()>>,
}

struct Pipeline<'a> {
    files: Files,
    home: Mailbox<Hashed>,
    poster: Poster<Hashed>,
    queue: &'a Workqueue,
    slots: Vec<Option<Flight>>,
    /// Slots without a file; one whose file has ended is empty when its close has ended, too.
    empty: Vec<usize>,
    spare: Vec<Buffer>,
    nr_hashing: usize,
    nr_begun: u64,
    done: InOrder<Summed>,
}

/// Sums what `wanted` brings, on workers of `queue`.
///
/// # Errors
///
/// [`Stop::CouldNotRun`] when the ring fails, and what `sink` returns.
pub fn sum(
    files: Files,
    queue: &Workqueue,
    wanted: &mut dyn Iterator<Item = Found>,
    sink: &mut Sink<'_>,
) -> Result<(), Stop> {
    let home = Mailbox::new();
    let mut pipeline = Pipeline {
        files,
        poster: home.poster(),
        home,
        queue,
        slots: std::iter::repeat_with(|| None).take(SLOTS).collect(),
        empty: (0..SLOTS).collect(),
        spare: Vec::new(),
        nr_hashing: 0,
        nr_begun: 0,
        done: InOrder::new(),
    };
    pipeline.run(wanted, sink)
}

/// Makes the ring that [`sum`] needs.
///
/// # Errors
///
/// What the system says: there may be no io_uring.
pub fn files() -> io::Result<Files> {
    Files::new(SLOTS)
}

impl Pipeline<'_> {
    fn run(
        &mut self,
        wanted: &mut dyn Iterator<Item = Found>,
        sink: &mut Sink<'_>,
    ) -> Result<(), Stop> {
        let failed = |error| Stop::because("the ring of reads failed", error);
        self.files.watch(&self.home).map_err(failed)?;
        let mut is_more = true;
        loop {
            while is_more && !self.empty.is_empty() {
                match wanted.next() {
                    Some(found) => self.begin(found).map_err(failed)?,
                    None => is_more = false,
                }
            }
            while let Some(summed) = self.done.take() {
                sink(summed)?;
            }
            if self.empty.len() == SLOTS && !is_more {
                return Ok(());
            }
            self.turn().map_err(failed)?;
        }
    }

    /// Waits until something has happened, and goes on with it.
    fn turn(&mut self) -> io::Result<()> {
        // With nothing at the workers nothing can come from there, and completions alone end the sleep.
        let may_sleep = self.nr_hashing == 0 || self.home.arm(self.wake_at())?;
        self.files.submit(may_sleep)?;
        self.home.disarm();
        while let Some(event) = self.files.event() {
            match event {
                Event::Read(slot, result, buffer) => self.was_read(slot, result, buffer)?,
                Event::Closed(slot) => self.empty.push(slot),
                Event::Bell { over: true } => self.files.watch(&self.home)?,
                Event::Bell { over: false } => {}
            }
        }
        // What is left after so many makes the next arming fail, so that the loop comes back at once.
        let came_home: Vec<Hashed> = self.home.drain(DRAIN).collect();
        for hashed in came_home {
            self.nr_hashing -= 1;
            self.spare.push(hashed.buffer);
            let flight = self.slots[hashed.slot].as_mut().expect("hashed for a file");
            flight.hasher = Some(hashed.hasher);
            self.go_on(hashed.slot)?;
        }
        Ok(())
    }

    /// How many hashed buffers are worth a wake-up: while the workers have as many again, they do not run dry.
    fn wake_at(&self) -> usize {
        (self.nr_hashing / 2).max(1)
    }

    fn begin(&mut self, found: Found) -> io::Result<()> {
        let number = self.nr_begun;
        self.nr_begun += 1;
        let path = match (found.error, name(&found.path)) {
            (None, Ok(path)) => path,
            (Some(error), _) | (None, Err(error)) => {
                let (path, sum) = (found.path, Err(error));
                self.done.put(number, Summed { path, sum });
                return Ok(());
            }
        };
        let slot = self.empty.pop().expect("the caller has looked");
        self.slots[slot] = Some(Flight {
            number,
            path: found.path,
            hasher: Some(Sha256::new()),
            filled: None,
            offset: 0,
            is_reading: true,
            end: None,
        });
        let buffer = self.buffer();
        self.files.open(slot, path, buffer)
    }

    fn was_read(
        &mut self,
        slot: usize,
        result: io::Result<usize>,
        buffer: Buffer,
    ) -> io::Result<()> {
        let flight = self.slots[slot].as_mut().expect("read for a file");
        flight.is_reading = false;
        match result {
            Ok(count @ 1..) => {
                flight.offset += count as u64;
                flight.filled = Some((buffer, count));
            }
            result => {
                flight.end = Some(result.map(drop));
                self.spare.push(buffer);
            }
        }
        self.go_on(slot)
    }

    /// Hashes what was read, reads what is left, or ends the file.
    fn go_on(&mut self, slot: usize) -> io::Result<()> {
        let flight = self.slots[slot].as_mut().expect("a file goes on");
        if flight.filled.is_some()
            && let Some(hasher) = flight.hasher.take()
        {
            let (buffer, count) = flight.filled.take().expect("looked at just now");
            self.hash(slot, hasher, buffer, count);
        }
        let flight = self.slots[slot].as_mut().expect("a file goes on");
        if flight.end.is_none() && !flight.is_reading && flight.filled.is_none() {
            flight.is_reading = true;
            let offset = flight.offset;
            let buffer = self.buffer();
            return self.files.read(slot, offset, buffer);
        }
        if flight.end.is_none() || flight.filled.is_some() || flight.hasher.is_none() {
            return Ok(());
        }
        let flight = self.slots[slot].take().expect("a file ends");
        let (end, hasher) = flight.end.zip(flight.hasher).expect("looked at just now");
        let sum = end.map(|()| hasher.finalize().into());
        self.done.put(
            flight.number,
            Summed {
                path: flight.path,
                sum,
            },
        );
        self.files.close(slot)
    }

    fn hash(&mut self, slot: usize, mut hasher: Sha256, buffer: Buffer, count: usize) {
        self.nr_hashing += 1;
        let home = self.poster.clone();
        self.queue.spawn_detached(move || {
            hasher.update(&buffer[..count]);
            let hashed = Hashed {
                slot,
                hasher,
                buffer,
            };
            // Refused only when the owner has given up, and then nobody wants it.
            let _ = home.post_lazy(hashed);
        });
    }

    fn buffer(&mut self) -> Buffer {
        self.spare
            .pop()
            .unwrap_or_else(|| vec![0; BUFFER_BYTES].into())
    }
}

/// The path as the system takes it.
fn name(path: &Path) -> io::Result<CString> {
    let path = if path.as_os_str() == "-" {
        Path::new("/dev/stdin")
    } else {
        path
    };
    Ok(CString::new(path.as_os_str().as_bytes())?)
}
