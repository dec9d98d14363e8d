//! A device model: blocks that are checksummed, compressed, and appended to one file under one lock.
//!
//! As in a file system that compresses: the computing can be done by many at once, the log has one end. A block's
//! memory is held from its start to its append, so that each item that has started costs memory; and the file is
//! made durable once in so many appends, by whoever made the last of them. A queue is told of that wait alone: those
//! for the lock are short but then, and its sampler finds who sleeps for long.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use afterwork::workqueue;
use top::exit::Stop;

use super::block::fill;

/// Bytes of a block: what file systems compress at a time.
pub const BLOCK: usize = 128 * 1024;

/// Appends from one sync to the next.
const BATCH: usize = 64;

/// The file is started anew at this size, so that a long run does not fill the disk.
const MOST: usize = 64 << 20;

/// The device.
#[derive(Debug)]
pub struct Device {
    dir: PathBuf,
    log: Mutex<Log>,
}

#[derive(Debug)]
struct Log {
    file: File,
    len: usize,
    nr_appends: usize,
    sum: u32,
}

impl Device {
    /// Makes the file, which has no name, in `dir`.
    pub fn open(dir: &Path) -> Result<Self, Stop> {
        let file = tempfile::tempfile_in(dir)
            .map_err(|error| Stop::because("cannot make the file to write to", error))?;
        Ok(Self {
            dir: dir.into(),
            log: Mutex::new(Log {
                file,
                len: 0,
                nr_appends: 0,
                sum: 0,
            }),
        })
    }

    /// Writes block `number`.
    ///
    /// # Errors
    ///
    /// If the file system refuses.
    pub fn write(&self, number: usize) -> Result<(), Stop> {
        let mut block = vec![0; BLOCK];
        fill(&mut block, number);
        let sum = crc32fast::hash(&block);
        let packed = lz4_flex::compress_prepend_size(&block);
        let mut log = self.log.lock().expect("nobody panics under it");
        let appended = log.append(&packed, sum);
        drop(log);
        drop(block);
        appended.map_err(|error| {
            Stop::because(&format!("cannot write to {}", self.dir.display()), error)
        })
    }
}

impl Log {
    fn append(&mut self, bytes: &[u8], sum: u32) -> io::Result<()> {
        if self.len + bytes.len() > MOST {
            self.file.set_len(0)?;
            io::Seek::rewind(&mut self.file)?;
            self.len = 0;
        }
        self.file.write_all(bytes)?;
        self.len += bytes.len();
        self.sum ^= sum;
        self.nr_appends += 1;
        if self.nr_appends.is_multiple_of(BATCH) {
            workqueue::blocking(|| self.file.sync_data())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_shrink_and_all_are_appended() {
        let device = Device::open(&std::env::temp_dir()).unwrap();
        (0..BATCH + 1).for_each(|number| device.write(number).unwrap());
        let log = device.log.into_inner().unwrap();
        assert_eq!(log.nr_appends, BATCH + 1);
        let most = (BATCH + 1) * BLOCK;
        assert!((most / 4..most * 3 / 4).contains(&log.len), "{}", log.len);
        assert_eq!(log.file.metadata().unwrap().len(), log.len as u64);
    }

    #[test]
    fn a_full_disk_is_told_for_each_block() {
        let mut device = Device::open(&std::env::temp_dir()).unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        device.log.get_mut().unwrap().file = full;
        for number in 0..2 {
            let Err(Stop::CouldNotRun(reason)) = device.write(number) else {
                panic!("a full disk takes nothing");
            };
            assert!(reason.contains("No space left on device"), "{reason}");
        }
    }
}
