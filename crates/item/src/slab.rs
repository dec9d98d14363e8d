//! Slabs: memory for items, with one bit per free block.
//!
//! A *block* is the memory of one item. A *chunk* is 64 blocks of one size. A *slab* is a megabyte
//! of chunks. Its header takes the place of the first chunk, and has one word per chunk, with a bit
//! for each free block. The bit of a block can therefore be computed from its address.
//!
//! One thread at a time, the *owner*, allocates from a slab. Any thread, a *freer*, may free a
//! block. The *scanner* returns the pages of unused chunks to the system.
//!
//! ```text
//! freer:   free[c] |= blocks;  if no bit was set: ready |= c;  if all are set: notify the scanner
//! owner:   ready &= !c;        blocks = swap(free[c], 0);      serves them in address order
//! scanner: if all are set: swap(free[c], 0);  discard pages;   frees them, like a freer
//! ```
//!
//! | bit | set | cleared |
//! |---|---|---|
//! | `free`, of a block | by the thread that has the block | by the owner or the scanner |
//! | `ready`, of a chunk | by the freer that finds no free block | by the owner, before it takes |
//! | `used`, of a chunk | by the owner when it takes | by the scanner |
//! | `dirty`, of a chunk | by the owner when it takes | by the scanner if it has all blocks |
//!
//! A thread that clears the bit of a block owns the block until it sets the bit again.
//! Two threads must never have the same block. A chunk with a free block must not lose its bit in
//! `ready`, because the owner does not check other chunks. A spurious bit costs one exchange.
//!
//! # Scans
//!
//! A scan discards a chunk that is free and that the owner has not used since the previous scan.
//! Otherwise the owner would soon get new pages in place of the old ones. A freed chunk therefore
//! waits for a scan, and the freer of its last block schedules one if none is due ([`Wanted`]).

use std::array;
use std::ops::Range;

use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::twin;

/// Block sizes. The first is a cache line: it holds a header and a closure of two words.
pub(crate) const SIZES: [usize; 3] = [64, 128, 256];

/// The size and alignment of a slab. They are equal, so that masking a block's address yields the
/// header. The header occupies one page of the slab. The size is a guess. In a model, a slab has
/// one chunk behind the header.
pub(crate) const SLAB: usize = if cfg!(any(loom, shuttle)) {
    8 << 10
} else if cfg!(miri) {
    64 << 10
} else {
    1 << 20
};
const NR_CHUNKS: usize = SLAB / chunk_size(0);
const NR_WORDS: usize = NR_CHUNKS.div_ceil(64);
/// The word of a chunk whose blocks are all free.
const FULL: u64 = u64::MAX;

const _: () = assert!(size_of::<Slab>() <= chunk_size(0));

/// Returns the size of a chunk. It is at least a page of 4 KiB, because only whole pages can be
/// returned.
pub(crate) const fn chunk_size(class: usize) -> usize {
    64 * SIZES[class]
}

/// The header of a slab.
#[repr(C)]
pub struct Slab {
    /// I: the size class of the blocks.
    pub(crate) class: usize,
    /// A: a bit for each chunk that may have free blocks.
    ready: [AtomicU64; NR_WORDS],
    /// A: a bit for each chunk from which the owner has taken blocks since the last scan.
    used: [AtomicU64; NR_WORDS],
    /// A: a bit for each chunk that may have pages.
    dirty: [AtomicU64; NR_WORDS],
    /// A: a bit for each free block of each chunk.
    free: [AtomicU64; NR_CHUNKS],
}

/// The blocks that the owner took from a chunk.
pub struct Taken {
    pub index: usize,
    pub blocks: u64,
    pub(crate) is_new: bool,
}

#[derive(Debug, Default)]
pub struct Scanned {
    pub(crate) is_used: bool,
    pub nr_discarded: usize,
}

impl Slab {
    pub fn new(class: usize) -> Self {
        let chunks = 1..NR_CHUNKS >> class;
        let none = || array::from_fn(|_| AtomicU64::new(0));
        let word = |nth| (64 * nth..64 * nth + 64).filter(|chunk| chunks.contains(chunk));
        let ready = |nth| word(nth).fold(0, |bits, chunk| bits | bit(chunk));
        let free = |chunk| if chunks.contains(&chunk) { FULL } else { 0 };
        Self {
            class,
            ready: array::from_fn(|nth| AtomicU64::new(ready(nth))),
            used: none(),
            dirty: none(),
            free: array::from_fn(|chunk| AtomicU64::new(free(chunk))),
        }
    }

    /// Takes the free blocks of the lowest chunk that has some. Only the owner may call this
    /// function.
    pub fn take_lowest(&self) -> Option<Taken> {
        for (nth, ready) in self.ready.iter().enumerate() {
            while let lowest @ ..64 = ready.load(Ordering::Relaxed).trailing_zeros() {
                let index = 64 * nth + lowest as usize;
                // ORDER(chunk-ready): the first half; see `take`.
                let is_late = twin::armed("chunk: clears the ready bit late");
                if !is_late {
                    ready.fetch_and(!bit(index), Ordering::Relaxed);
                }
                let taken = self.take(index);
                if is_late {
                    ready.fetch_and(!bit(index), Ordering::Relaxed);
                }
                if taken.is_some() {
                    return taken;
                }
            }
        }
        None
    }

    /// Takes the free blocks of a chunk. Only the owner may call this function.
    pub fn take(&self, index: usize) -> Option<Taken> {
        // ORDER(chunk-free): message passing, other end in `free`.
        //   freer: use the block;          free |= block   Release
        //   owner: swap free   Acquire;    use the block
        // If the freer's update comes first, we get the block, and see its writes. If our swap
        // comes first, the freer finds no free block.
        // Test: freed_blocks_are_seen_and_found
        //
        // ORDER(chunk-ready): message passing, other end in `free`.
        //   owner: clear the ready bit;    swap free        Release
        //   freer: free |= block Acquire;  read the ready bit, and set it
        // If our swap comes first, the freer finds the ready bit cleared, and sets it again. If the
        // freer's update comes first, we get the block.
        // Test: freed_blocks_are_seen_and_found
        let order = twin::order("chunk: relaxed take", Ordering::AcqRel);
        let blocks = self.free[index].swap(0, order);
        if blocks == 0 {
            return None;
        }
        let (nth, bit) = (index / 64, bit(index));
        // The scanner clears both bits before it frees the chunk, so this load reads the scanner's
        // value if the scanner discarded the pages.
        let is_new = self.used[nth].load(Ordering::Relaxed) & bit == 0 && {
            self.used[nth].fetch_or(bit, Ordering::Relaxed);
            self.dirty[nth].fetch_or(bit, Ordering::Relaxed) & bit == 0
        };
        Some(Taken { index, blocks, is_new })
    }

    /// Returns `true` if [`take`](Self::take) would find a block at this moment.
    pub fn has_free(&self, index: usize) -> bool {
        self.free[index].load(Ordering::Relaxed) != 0
    }

    /// Frees blocks of a chunk. Returns `true` if all blocks of the chunk are free now; the caller
    /// then reads [`Wanted`].
    pub fn free(&self, index: usize, blocks: u64) -> bool {
        // ORDER(chunk-free): the release end; see `take`.
        //
        // ORDER(chunk-ready): the acquire end; see `take`.
        // Test: freed_blocks_are_seen_and_found
        let order = twin::order("chunk: relaxed free", Ordering::AcqRel);
        let before = self.free[index].fetch_or(blocks, order);
        debug_assert_eq!(before & blocks, 0, "a block was freed twice");
        let (ready, bit) = (&self.ready[index / 64], bit(index));
        if before == 0 && ready.load(Ordering::Relaxed) & bit == 0 {
            ready.fetch_or(bit, Ordering::Relaxed);
        }
        before | blocks == FULL
    }

    /// Calls `discard` for each range of chunks that are free, and that have not been used since
    /// the last scan. No thread uses these chunks until `discard` returns. Only the scanner may
    /// call this function.
    pub fn scan(&self, discard: impl Fn(Range<usize>)) -> Scanned {
        let mut scanned = Scanned::default();
        let idle: [u64; NR_WORDS] = array::from_fn(|nth| {
            let used = self.used[nth].swap(0, Ordering::Relaxed);
            scanned.is_used |= used != 0;
            self.dirty[nth].load(Ordering::Relaxed) & !used
        });
        let mut run = 0..0;
        for index in 0..=NR_CHUNKS {
            let is_idle = |word: &u64| word & bit(index) != 0;
            if idle.get(index / 64).is_some_and(is_idle) && self.claim(index) {
                run.end = index + 1;
                continue;
            }
            if !run.is_empty() {
                discard(run.clone());
                scanned.nr_discarded += run.len();
            }
            for chunk in run {
                let clean = || self.dirty[chunk / 64].fetch_and(!bit(chunk), Ordering::Relaxed);
                let is_late = twin::armed("chunk: is clean after its return");
                if !is_late {
                    clean();
                }
                self.free(chunk, FULL);
                if is_late {
                    clean();
                }
            }
            run = index + 1..index + 1;
        }
        scanned
    }

    fn claim(&self, index: usize) -> bool {
        let free = &self.free[index];
        if twin::armed("chunk: claims blocks in use") {
            return free.swap(0, Ordering::AcqRel) != 0;
        }
        // ORDER(chunk-free): an acquire end, as in `take`.
        // Test: scanner_has_the_chunks_that_it_discards
        let order = twin::order("chunk: relaxed claim", Ordering::Acquire);
        (free.compare_exchange(FULL, 0, order, Ordering::Relaxed)).is_ok()
    }
}

const fn bit(chunk: usize) -> u64 {
    1 << (chunk % 64)
}

/// Set if the freer of the last block of a chunk must schedule a scan.
pub struct Wanted(AtomicBool);

impl Wanted {
    sync::const_unless_model! {
        pub fn new() -> Self {
            Self(AtomicBool::new(false))
        }
    }

    pub fn set(&self, is_wanted: bool) {
        self.0.store(is_wanted, Ordering::Relaxed);
    }

    /// Returns `true` if the caller, which has freed the last block of a chunk, must schedule a
    /// scan.
    pub fn is_set(&self) -> bool {
        // ORDER(chunk-full): store buffering, other end in `begin`.
        //   freer:   free = FULL;      fence;   read wanted
        //   scanner: wanted = true;    fence;   read free
        // If our fence comes first, the scanner finds the free chunk. If its fence comes first, we
        // read that a scan is wanted, or another freer has scheduled one.
        // Test: freed_chunk_is_scanned_or_notified
        twin::fence("chunk: notifies without a fence");
        self.0.load(Ordering::Relaxed)
    }

    pub fn begin(&self) {
        self.set(true);
        // ORDER(chunk-full): the other end; see `is_set`.
        twin::fence("chunk: scans without a fence");
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn scan_discards_free_chunks_after_a_pause() {
        let slab = Slab::new(1);
        let scan = || {
            let discarded = RefCell::new(Vec::new());
            let scanned = slab.scan(|chunks| discarded.borrow_mut().push(chunks));
            let discarded = discarded.into_inner();
            assert_eq!(scanned.nr_discarded, discarded.iter().map(Range::len).sum());
            (scanned.is_used, discarded)
        };
        assert_eq!(scan(), (false, vec![]), "no chunk has pages");
        let taken: [Taken; 5] = array::from_fn(|_| slab.take_lowest().unwrap());
        for (taken, index) in taken.iter().zip(1..) {
            assert_eq!((taken.index, taken.blocks, taken.is_new), (index, FULL, true));
            // One block of the third chunk stays in use.
            let is_full = slab.free(index, FULL << u32::from(index == 3));
            assert_eq!(is_full, index != 3);
        }
        assert_eq!(scan(), (true, vec![]), "the chunks were used");
        assert_eq!(scan(), (false, vec![1..3, 4..6]));
        assert_eq!(scan(), (false, vec![]), "the pages were returned");
        assert!(slab.free(3, 1));
        let third = 3..4;
        assert_eq!(scan(), (false, vec![third]));
        let again = slab.take_lowest().unwrap();
        assert_eq!((again.index, again.blocks, again.is_new), (1, FULL, true));
    }
}
