//! Joins over one buffer pool, which thrash when too many run at once.
//!
//! A database joins two tables in nested loops: for each of some outer blocks it goes over all inner blocks of the
//! join. Blocks are read from a file, past the kernel's page cache, into a pool of fixed size that all joins share and
//! that forgets the block which was used longest ago. An item is one join, and none needs a block of another.
//!
//! What few joins need fits: each block is read once, and is there for the next outer blocks. What many joins need
//! does not: by the time that one comes back to a block it is forgotten, and is read again, once for each outer block.
//! The reads keep the device busy and the CPUs idle. Whoever starts work where CPUs are idle, as a pool of a workqueue
//! does and as schedulers of batch jobs did when the word thrashing was made for it, now starts more joins. Nothing
//! in the machine says that fewer would be better; only a limit of the program does, and only if it is meant for
//! all of the program, as the pool of blocks is.
//!
//! So the load's ratio has two ends. The reads of a join at worst are [`NR_OUTER`] times those at best; and where reads
//! cost nothing, on a file system in memory, little is left of it.

use std::fs::File;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use afterwork::workqueue;
use lru::LruCache;
use rustix::fs::{OFlags, fcntl_setfl};
use top::exit::Stop;

/// Bytes of a block. Larger than a database's page, so that the device's bytes a second count and not its calls.
pub const BLOCK: usize = 64 * 1024;

/// Inner blocks of a join, and how often it goes over them.
pub const NR_INNER: usize = 8;
/// See [`NR_INNER`].
pub const NR_OUTER: usize = 4;

/// Blocks of the pool: those of 32 joins, so 16 find theirs even when the other half is what nobody needs any more.
const NR_KEPT: NonZeroUsize = NonZeroUsize::new(32 * NR_INNER).expect("not zero");

/// Joins whose blocks the file has; those after them begin anew. So many lie between that nothing is left in the pool.
const NR_JOINS: usize = 512;

/// What a device wants the memory to be aligned to that it reads into.
const ALIGN: usize = 4096;

/// The file of all blocks.
#[derive(Debug)]
pub struct Table {
    file: File,
    nr_joins: usize,
}

/// The blocks in memory.
#[derive(Debug)]
pub struct BufferPool {
    table: Arc<Table>,
    kept: Mutex<LruCache<usize, Arc<Block>>>,
}

/// Memory of a block, at a place that devices take.
#[derive(Debug)]
struct Block {
    room: Vec<u8>,
    start: usize,
}

impl Table {
    /// Writes the file, which has no name, in `dir`.
    pub fn create(dir: &Path) -> Result<Self, Stop> {
        Self::with_joins(dir, NR_JOINS)
            .map_err(|error| Stop::because("cannot make the file to read from", error))
    }

    fn with_joins(dir: &Path, nr_joins: usize) -> io::Result<Self> {
        let mut file = tempfile::tempfile_in(dir)?;
        let mut block = vec![0; BLOCK];
        for number in 0..nr_joins * NR_INNER {
            fill(&mut block, number);
            file.write_all(&block)?;
        }
        file.sync_all()?;
        // Some file systems have no way past the page cache. Then reading again costs a copy, and the ratio shows it.
        let _ = fcntl_setfl(&file, OFlags::DIRECT);
        Ok(Self { file, nr_joins })
    }
}

impl BufferPool {
    /// Makes an empty pool.
    #[must_use]
    pub fn new(table: Arc<Table>) -> Self {
        Self {
            table,
            kept: Mutex::new(LruCache::new(NR_KEPT)),
        }
    }

    /// Runs join `number`.
    ///
    /// # Errors
    ///
    /// If the file cannot be read.
    pub fn join(&self, number: usize) -> Result<(), Stop> {
        let first = number % self.table.nr_joins * NR_INNER;
        for outer in 0..NR_OUTER {
            for inner in first..first + NR_INNER {
                let block = self.block(inner)?;
                // The rows of the two blocks that match, as far as a device is concerned.
                let mut rows = crc32fast::Hasher::new_with_initial(outer as u32);
                rows.update(block.bytes());
                std::hint::black_box(rows.finalize());
            }
        }
        Ok(())
    }

    /// Returns block `number`, reading it if it is not kept.
    fn block(&self, number: usize) -> Result<Arc<Block>, Stop> {
        let kept = || self.kept.lock().expect("nobody panics under it");
        if let Some(block) = kept().get(&number) {
            return Ok(block.clone());
        }
        let mut block = Block::new();
        let offset = (number * BLOCK) as u64;
        workqueue::blocking(|| self.table.file.read_exact_at(block.bytes_mut(), offset))
            .map_err(|error| Stop::because("cannot read the file of blocks", error))?;
        let block = Arc::new(block);
        let forgotten = kept().push(number, block.clone());
        drop(forgotten);
        Ok(block)
    }
}

impl Block {
    fn new() -> Self {
        let room = vec![0; BLOCK + ALIGN];
        let start = room.as_ptr().align_offset(ALIGN);
        Self { room, start }
    }

    fn bytes(&self) -> &[u8] {
        &self.room[self.start..self.start + BLOCK]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.start..self.start + BLOCK]
    }
}

/// Fills a block with bytes that follow from its number.
fn fill(block: &mut [u8], number: usize) {
    fastrand::Rng::with_seed(number as u64).fill(block);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(nr_joins: usize) -> BufferPool {
        let table = Table::with_joins(&std::env::temp_dir(), nr_joins).unwrap();
        BufferPool::new(Arc::new(table))
    }

    /// Says which blocks of join `number` are kept.
    fn kept(pool: &BufferPool, number: usize) -> Vec<bool> {
        let kept = pool.kept.lock().unwrap();
        let blocks = number * NR_INNER..(number + 1) * NR_INNER;
        blocks.map(|block| kept.contains(&block)).collect()
    }

    #[test]
    fn a_block_is_what_was_written() {
        let pool = pool(1);
        let mut expected = vec![0; BLOCK];
        fill(&mut expected, 5);
        assert_eq!(pool.block(5).unwrap().bytes(), expected);
        assert_eq!(pool.block(5).unwrap().bytes(), expected);
    }

    #[test]
    fn what_was_used_longest_ago_is_forgotten() {
        let nr_joins = NR_KEPT.get() / NR_INNER + 1;
        let pool = pool(nr_joins);
        (0..nr_joins).for_each(|number| pool.join(number).unwrap());
        assert_eq!(kept(&pool, 0), [false; NR_INNER]);
        assert_eq!(kept(&pool, 1), [true; NR_INNER]);
        assert_eq!(kept(&pool, nr_joins - 1), [true; NR_INNER]);
    }
}
