//! Joins that read through one buffer pool, which thrashes if too many joins run at once. The
//! blocks of a few joins fit into the pool, so each block is read once. The blocks of many joins do
//! not fit, so each is read [`NR_OUTER`] times. Only a limit for the whole program helps, because a
//! pool that starts more work while CPUs are idle starts even more joins.

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

/// The bytes of a block, which are so many that the throughput of the device is the limit.
pub const BLOCK: usize = 64 * 1024;

/// The number of inner blocks of a join. [`NR_OUTER`] is the number of passes over them.
pub const NR_INNER: usize = 8;
pub const NR_OUTER: usize = 4;

/// The capacity of the pool. It holds the blocks of 32 joins, so those of 16 fit even if half of
/// the pool holds blocks of finished joins.
const NR_KEPT: NonZeroUsize = NonZeroUsize::new(32 * NR_INNER).expect("not zero");

/// The joins whose blocks the file contains. Later ones reuse blocks that the pool has evicted.
const NR_JOINS: usize = 512;

const ALIGN: usize = 4096;

pub struct Table {
    file: File,
    nr_joins: usize,
}

pub struct BufferPool {
    table: Arc<Table>,
    kept: Mutex<LruCache<usize, Arc<Block>>>,
}

struct Block {
    room: Vec<u8>,
    start: usize,
}

impl Table {
    pub fn create(dir: &Path) -> Result<Self, Stop> {
        Self::with_joins(dir, NR_JOINS).map_err(Stop::because("cannot make the file to read from"))
    }

    fn with_joins(dir: &Path, nr_joins: usize) -> io::Result<Self> {
        let mut file = tempfile::tempfile_in(dir)?;
        let mut block = vec![0; BLOCK];
        for number in 0..nr_joins * NR_INNER {
            fill(&mut block, number);
            file.write_all(&block)?;
        }
        file.sync_all()?;
        // Without support for direct I/O, the ratio only shows the cost of copying.
        let _ = fcntl_setfl(&file, OFlags::DIRECT);
        Ok(Self { file, nr_joins })
    }
}

impl BufferPool {
    pub fn new(table: Arc<Table>) -> Self {
        Self { table, kept: Mutex::new(LruCache::new(NR_KEPT)) }
    }

    pub fn join(&self, number: usize) -> Result<(), Stop> {
        let first = number % self.table.nr_joins * NR_INNER;
        for outer in 0..NR_OUTER {
            for inner in first..first + NR_INNER {
                let block = self.block(inner)?;
                // The checksum takes the place of a comparison of rows.
                let mut rows = crc32fast::Hasher::new_with_initial(outer as u32);
                rows.update(block.bytes());
                std::hint::black_box(rows.finalize());
            }
        }
        Ok(())
    }

    fn block(&self, number: usize) -> Result<Arc<Block>, Stop> {
        let kept = || self.kept.lock().expect("no thread panics under it");
        if let Some(block) = kept().get(&number) {
            return Ok(block.clone());
        }
        let mut block = Block::new();
        let offset = (number * BLOCK) as u64;
        workqueue::blocking(|| self.table.file.read_exact_at(block.bytes_mut(), offset))
            .map_err(Stop::because("cannot read the file of blocks"))?;
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

    fn kept(pool: &BufferPool, number: usize) -> Vec<bool> {
        let kept = pool.kept.lock().unwrap();
        let blocks = number * NR_INNER..(number + 1) * NR_INNER;
        blocks.map(|block| kept.contains(&block)).collect()
    }

    #[test]
    fn block_has_the_written_content() {
        let pool = pool(1);
        let mut expected = vec![0; BLOCK];
        fill(&mut expected, 5);
        assert_eq!(pool.block(5).unwrap().bytes(), expected);
        assert_eq!(pool.block(5).unwrap().bytes(), expected);
    }

    #[test]
    fn least_recently_used_block_is_evicted() {
        let nr_joins = NR_KEPT.get() / NR_INNER + 1;
        let pool = pool(nr_joins);
        (0..nr_joins).for_each(|number| pool.join(number).unwrap());
        assert_eq!(kept(&pool, 0), [false; NR_INNER]);
        assert_eq!(kept(&pool, 1), [true; NR_INNER]);
        assert_eq!(kept(&pool, nr_joins - 1), [true; NR_INNER]);
    }
}
