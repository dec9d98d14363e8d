//! Reads and hashes some files at once, by an io_uring ring of its own.
//!
//! All files of a batch are opened and their beginnings read by one system call; then their next pieces by another one,
//! and so on until each has ended. What was read is hashed on the CPU that read it, while it is in that CPU's cache, and two
//! files at a time (`hash.rs`).
//! On a cold disk all reads of a batch are under way together, and its worker tells its pool that it waits.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use afterwork::percpu::{Page, PageBatches};
use afterwork::workqueue;

use super::files::{Event, Files};
use super::hash::{self, Hasher};
use super::line::Digest;
use super::walk::Found;

/// Files of a batch: their buffers together take half a megabyte, which the cache of a core holds.
pub const BATCH: usize = 8;

/// A ring. Lent from one batch to the next.
#[derive(Debug)]
pub struct Reader {
    files: Files,
}

/// A file that is being read.
#[derive(Default)]
struct Flight {
    hasher: Hasher,
    offset: u64,
}

/// What a read brought.
struct Piece {
    slot: usize,
    count: usize,
    buffer: Page,
}

impl Reader {
    /// Makes one.
    ///
    /// # Errors
    ///
    /// What the system says: there may be no io_uring, or no more of its memory for this user.
    pub fn new() -> io::Result<Self> {
        let files = Files::new(BATCH)?;
        Ok(Self { files })
    }

    /// Sums the files of a batch, [`BATCH`] at most, by way of `buffers`; results in their order.
    ///
    /// # Errors
    ///
    /// The ring failed, and is not to be used again. What is wrong with a file is its result.
    pub fn sum(
        &mut self,
        batch: &[Found],
        buffers: &PageBatches,
    ) -> io::Result<Vec<io::Result<Digest>>> {
        let mut sums: Vec<Option<io::Result<Digest>>> = Vec::new();
        let mut flights: Vec<Flight> = Vec::new();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut nr_open = 0;
        for (slot, found) in batch.iter().enumerate() {
            let refused = found.refusal();
            let opened = refused.map_or_else(|| name(&found.path), Err);
            flights.push(Flight::default());
            sums.push(match opened {
                Ok(path) => {
                    self.files.open(slot, path, buffers.alloc())?;
                    nr_open += 1;
                    None
                }
                Err(error) => Some(Err(error)),
            });
        }
        while nr_open > 0 {
            self.files.submit(false)?;
            let mut next = self.files.event();
            if next.is_none() {
                // Nothing of it is in memory. Another batch has the CPU meanwhile.
                workqueue::blocking(|| self.files.submit(true))?;
                next = self.files.event();
            }
            while let Some(event) = next {
                match event {
                    Event::Read(slot, Ok(count @ 1..), buffer) => pieces.push(Piece {
                        slot,
                        count,
                        buffer,
                    }),
                    Event::Read(slot, ended, buffer) => {
                        buffers.free(buffer);
                        let hasher = std::mem::take(&mut flights[slot].hasher);
                        sums[slot] = Some(ended.map(|_| hasher.finish()));
                        self.files.close(slot)?;
                    }
                    Event::Closed => nr_open -= 1,
                }
                next = self.files.event();
            }
            hash_all(&mut pieces, &mut flights);
            for Piece { slot, buffer, .. } in pieces.drain(..) {
                self.files.read(slot, flights[slot].offset, buffer)?;
            }
        }
        let sums = sums.into_iter();
        Ok(sums.map(|sum| sum.expect("every file has ended")).collect())
    }
}

/// Hashes each piece into its flight, those of like lengths side by side.
fn hash_all(pieces: &mut [Piece], flights: &mut [Flight]) {
    pieces.sort_unstable_by_key(|piece| piece.count);
    for pair in pieces.chunks(2) {
        match pair {
            [one, other] => {
                let of_two = flights.get_disjoint_mut([one.slot, other.slot]);
                let [ours, theirs] = of_two.expect("a slot has one read under way");
                hash::update_both(
                    (&mut ours.hasher, &one.buffer[..one.count]),
                    (&mut theirs.hasher, &other.buffer[..other.count]),
                );
            }
            alone => alone
                .iter()
                .for_each(|it| flights[it.slot].hasher.update(&it.buffer[..it.count])),
        }
    }
    for piece in pieces {
        flights[piece.slot].offset += piece.count as u64;
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
