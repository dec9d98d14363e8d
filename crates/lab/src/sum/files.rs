//! Files read by an io_uring ring, safe to use: one of the two places of the lab with unsafe code.
//!
//! A file is opened straight into a numbered slot of the ring and has no file descriptor. A submission entry holds
//! raw pointers to a path or a buffer, so submitting one is unsafe; here both are given up for the time of the
//! request and come back with its end. What is still with the kernel when the ring is dropped is leaked; a path need
//! not be, for the kernel copies it when the request is submitted.
//!
//! Miri knows no io_uring; the tests below read real files.
#![allow(unsafe_code)]

use std::ffi::CString;
use std::fmt;
use std::io;

use afterwork::percpu::Page;
use io_uring::types::{self, DestinationSlot};
use io_uring::{IoUring, cqueue, opcode, squeue};

/// Bits of `user_data` that tell the kind; the slot stands above.
const KIND_BITS: u32 = 2;
/// `errno` of a request whose link was broken by the one before it.
const ECANCELED: i32 = 125;
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Open = 0,
    Read = 1,
    Close = 2,
}

/// A ring with slots for open files.
pub struct Files {
    ring: IoUring,
    slots: Vec<Slot>,
}

/// What the kernel may be at with one slot.
#[derive(Debug, Default)]
struct Slot {
    path: Option<CString>,
    buffer: Option<Lent>,
    /// Why the file could not be opened; told with the end of the read that was linked to it.
    refused: Option<i32>,
}

/// A buffer that was lent to the kernel: from `Box::into_raw`; only the kernel touches what it points to.
#[derive(Debug)]
struct Lent(*mut [u8]);

// SAFETY: it stands for the box that it came from, which any thread may have; nothing is read through it here.
unsafe impl Send for Lent {}

/// What the ring tells.
#[derive(Debug)]
pub enum Event {
    /// A read of this slot ended, with so many bytes at the front of the buffer.
    Read(usize, io::Result<usize>, Page),
    /// A slot is empty.
    Closed,
}

impl Files {
    /// Makes a ring with so many slots.
    ///
    /// # Errors
    ///
    /// What the system says: there may be no io_uring, none for this process, or one without slots.
    pub fn new(nr_slots: usize) -> io::Result<Self> {
        // Opening and reading are two entries.
        let entries = (2 * nr_slots).next_power_of_two();
        // Not `single_issuer`: whichever thread has the ring submits.
        let ring = IoUring::builder()
            .setup_coop_taskrun()
            .build(entries as u32)?;
        ring.submitter().register_files_sparse(nr_slots as u32)?;
        let slots = std::iter::repeat_with(Slot::default).take(nr_slots);
        Ok(Self {
            ring,
            slots: slots.collect(),
        })
    }

    /// Opens a file into an empty slot, and reads its beginning.
    ///
    /// # Errors
    ///
    /// What the system says to the submission. That there is no such file comes as the result of the read.
    ///
    /// # Panics
    ///
    /// When the slot has a request.
    pub fn open(&mut self, slot: usize, path: CString, buffer: Page) -> io::Result<()> {
        let place = &mut self.slots[slot];
        assert!(place.path.is_none(), "one request at a time");
        let path = place.path.insert(path);
        let destination = DestinationSlot::try_from_slot_target(slot as u32)
            .map_err(|number| io::Error::other(format!("no slot {number}")))?;
        let entry = opcode::OpenAt::new(types::Fd(AT_FDCWD), path.as_ptr())
            .file_index(Some(destination))
            .build()
            .flags(squeue::Flags::IO_LINK);
        let open = entry.user_data(tag(slot, Kind::Open));
        let read = self.read_entry(slot, 0, buffer);
        // SAFETY: the path stays in its slot until the request has completed, and is touched by nobody: `open` refuses
        // another one. The buffer: as of `read`.
        unsafe { self.push(&[open, read]) }
    }

    /// Reads on from `offset`.
    ///
    /// # Errors
    ///
    /// What the system says to the submission.
    ///
    /// # Panics
    ///
    /// When the slot has a read under way.
    pub fn read(&mut self, slot: usize, offset: u64, buffer: Page) -> io::Result<()> {
        let entry = self.read_entry(slot, offset, buffer);
        // SAFETY: the buffer was given up by `Box::into_raw` and is freed by nobody but `completed`, when the kernel has
        // ended the request; before that, `read_entry` refuses another one.
        unsafe { self.push(&[entry]) }
    }

    /// Gives a buffer up to the request that fills it.
    fn read_entry(&mut self, slot: usize, offset: u64, buffer: Page) -> squeue::Entry {
        let place = &mut self.slots[slot];
        assert!(place.buffer.is_none(), "one read at a time");
        let length = buffer.len() as u32;
        let Lent(buffer) = place.buffer.insert(Lent(Box::into_raw(buffer)));
        opcode::Read::new(types::Fixed(slot as u32), buffer.cast(), length)
            .offset(offset)
            .build()
            .user_data(tag(slot, Kind::Read))
    }

    /// Empties a slot.
    ///
    /// # Errors
    ///
    /// What the system says to the submission.
    pub fn close(&mut self, slot: usize) -> io::Result<()> {
        let entry = opcode::Close::new(types::Fixed(slot as u32)).build();
        // SAFETY: the entry names a slot of the ring and no memory.
        unsafe { self.push(&[entry.user_data(tag(slot, Kind::Close))]) }
    }

    /// Hands new requests to the kernel, and with `sleep` waits until one of all has ended.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn submit(&mut self, sleep: bool) -> io::Result<()> {
        match self.ring.submit_and_wait(usize::from(sleep)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            submitted => submitted.map(|_| ()),
        }
    }

    /// Returns something that happened, if anything did.
    pub fn event(&mut self) -> Option<Event> {
        loop {
            let completion = self.ring.completion().next()?;
            if let Some(event) = self.completed(&completion) {
                return Some(event);
            }
        }
    }

    fn completed(&mut self, completion: &cqueue::Entry) -> Option<Event> {
        let slot = (completion.user_data() >> KIND_BITS) as usize;
        let kind = completion.user_data() & ((1 << KIND_BITS) - 1);
        let place = &mut self.slots[slot];
        let result = completion.result();
        if kind == Kind::Open as u64 {
            place.path = None;
            place.refused = (result < 0).then_some(-result);
            return None;
        }
        if kind == Kind::Close as u64 {
            return Some(Event::Closed);
        }
        let Lent(buffer) = place.buffer.take().expect("a read has a buffer");
        // SAFETY: it came from `Box::into_raw` in `read`; the request that used it has completed, and it was taken out
        // of its slot, so this happens once.
        let buffer = unsafe { Box::from_raw(buffer) };
        let result = usize::try_from(result).map_err(|_| {
            let errno = match place.refused.take() {
                Some(refused) if -result == ECANCELED => refused,
                _ => -result,
            };
            io::Error::from_raw_os_error(errno)
        });
        Some(Event::Read(slot, result, buffer))
    }

    /// Appends entries that are submitted together, for a link ends with its submission; when there is no room, those
    /// before them are submitted.
    ///
    /// # Safety
    ///
    /// 1. Memory that an entry names stays valid, and is touched by nobody else, until the request has completed.
    unsafe fn push(&mut self, entries: &[squeue::Entry]) -> io::Result<()> {
        loop {
            // SAFETY: by the caller's 1.
            if unsafe { self.ring.submission().push_multiple(entries) }.is_ok() {
                return Ok(());
            }
            self.ring.submit()?;
        }
    }
}

/// `AT_FDCWD`: relative paths begin at the current directory.
const AT_FDCWD: i32 = -100;

fn tag(slot: usize, kind: Kind) -> u64 {
    (slot as u64) << KIND_BITS | kind as u64
}

impl fmt::Debug for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Files")
            .field("slots", &self.slots)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::ffi::OsStringExt;
    use std::path::Path;

    use super::*;

    fn files(nr_slots: usize) -> Option<Files> {
        Files::new(nr_slots)
            .map_err(|error| crate::talk::say(format_args!("not tested, no io_uring: {error}")))
            .ok()
    }

    fn name(path: &Path) -> CString {
        CString::new(path.as_os_str().to_owned().into_vec()).unwrap()
    }

    fn next(files: &mut Files) -> Event {
        loop {
            if let Some(event) = files.event() {
                return event;
            }
            files.submit(true).unwrap();
        }
    }

    #[test]
    fn a_file_is_read_in_pieces_to_its_end() {
        let Some(mut files) = files(1) else { return };
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        fs::write(&path, "abcdef").unwrap();
        files.open(0, name(&path), vec![0; 4].into()).unwrap();
        let mut offset = 0;
        let mut seen = Vec::new();
        loop {
            let Event::Read(0, result, buffer) = next(&mut files) else {
                panic!("not a read");
            };
            let count = result.unwrap();
            if count == 0 {
                break;
            }
            seen.extend_from_slice(&buffer[..count]);
            offset += count as u64;
            files.read(0, offset, buffer).unwrap();
        }
        assert_eq!(seen, b"abcdef");
        files.close(0).unwrap();
        assert!(matches!(next(&mut files), Event::Closed));
    }

    #[test]
    fn why_a_file_cannot_be_opened_is_told_with_the_buffer() {
        let Some(mut files) = files(2) else { return };
        let root = tempfile::tempdir().unwrap();
        let gone = name(&root.path().join("gone"));
        files.open(1, gone, vec![7; 4].into()).unwrap();
        let Event::Read(1, Err(error), buffer) = next(&mut files) else {
            panic!("read what is not there");
        };
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert_eq!(*buffer, [7; 4]);

        files.open(1, name(root.path()), buffer).unwrap();
        let Event::Read(1, Err(error), _) = next(&mut files) else {
            panic!("read a directory");
        };
        assert_eq!(error.kind(), io::ErrorKind::IsADirectory);
    }

    #[test]
    fn more_files_than_the_ring_has_entries_are_read() {
        const SLOTS: usize = 3;
        const ROUNDS: usize = 50;
        let Some(mut files) = files(SLOTS) else {
            return;
        };
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("file");
        fs::write(&path, "x").unwrap();
        for _ in 0..ROUNDS {
            for slot in 0..SLOTS {
                files.open(slot, name(&path), vec![0; 4].into()).unwrap();
            }
            let mut open = SLOTS;
            while open > 0 {
                match next(&mut files) {
                    Event::Read(slot, result, _) => {
                        assert_eq!(result.unwrap(), 1);
                        files.close(slot).unwrap();
                    }
                    Event::Closed => open -= 1,
                }
            }
        }
    }
}
