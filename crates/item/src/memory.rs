//! Memory for one-shot items: cheap to allocate on one thread and to free on another.
//!
//! A general allocator takes 160 to 540 ns for a block that one thread allocates and another frees,
//! which is the case for every one-shot item. Here each thread allocates from its own slabs
//! (`slab.rs`), in address order, so that the CPU prefetches the blocks of a batch.
//!
//! For each of three block sizes, a thread keeps the free blocks of one chunk in a word. It also
//! collects the blocks that it frees in another chunk, which may belong to any thread, and returns
//! them with one exchange.
//!
//! The slabs of an exited thread are given to threads that need one. When a manager requests it
//! (`chunks.rs`), the pages of unused chunks are returned to the system after one or two seconds.
//!
//! `crates/mailbox/src/recycle.rs` solves the same problem differently. One thread empties all
//! blocks of a mailbox, so the free blocks form a single list, which any poster takes as a whole.
//! Here any thread may free a block of any other.
//!
//! In a model and under Miri, every block comes from the general allocator, so that Miri detects an
//! item that is used after it was freed. The tests below use the slabs under Miri, too.

use std::alloc::Layout;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

pub use cache::flush;

pub use super::chunks::{attend, begin_scan, due_ns, scan};
use super::slab::SIZES;

/// Returns the class of the smallest blocks that `layout` fits into, if any.
const fn class_of(layout: Layout) -> Option<usize> {
    let mut class = 0;
    while class < SIZES.len() {
        if layout.size() <= SIZES[class] && layout.align() <= ALIGN {
            return Some(class);
        }
        class += 1;
    }
    None
}

/// Returns the class of the blocks for values of type `T`, or `None` if no class fits them. Models
/// and Miri use no classes.
const fn class<T>() -> Option<usize> {
    if cfg!(any(loom, shuttle, miri)) { None } else { class_of(Layout::new::<T>()) }
}

const ALIGN: usize = 64;

/// Moves a value to memory where it stays until [`release`].
#[inline]
pub fn place<T>(value: T) -> NonNull<T> {
    let place: NonNull<T> = match class::<T>() {
        Some(class) => cache::alloc(class).cast(),
        None => NonNull::from(Box::leak(Box::<T>::new_uninit())).cast(),
    };
    // SAFETY: the memory is new, large enough and aligned.
    unsafe { place.write(value) };
    place
}

/// Frees the memory of a value that was dropped or moved out.
///
/// # Safety
///
/// 1. `place` returned `value`, which is no longer used.
pub unsafe fn release<T>(value: NonNull<T>) {
    match class::<T>() {
        // SAFETY: (1): `place` chose the same class.
        Some(class) => unsafe { cache::free(value.cast(), class) },
        // SAFETY: (1): `place` leaked the value from such a box, and its content is not dropped
        // again.
        None => drop(unsafe { Box::from_raw(value.cast::<MaybeUninit<T>>().as_ptr()) }),
    }
}

mod cache {
    use std::cell::{Cell, RefCell};
    use std::ptr::NonNull;

    use super::super::chunks::{self, Chunk, Start};
    use super::super::slab::Taken;

    /// A thread's blocks of one class. Once this is dropped, other threads can use the blocks.
    struct Own {
        class: usize,
        chunk: Cell<Chunk>,
        /// The free blocks that were taken from `chunk`.
        free: Cell<u64>,
        /// The chunk to which `freed` is returned.
        outbox: Cell<Chunk>,
        freed: Cell<u64>,
        slabs: RefCell<Vec<Start>>,
        nth: Cell<usize>,
    }

    sync::thread_local! {
        static LOCAL: [Own; 3] = [Own::new(0), Own::new(1), Own::new(2)]
    }

    #[inline]
    pub fn alloc(class: usize) -> NonNull<u8> {
        LOCAL
            .try_with(|local| local[class].alloc(class))
            // This thread's locals have been destroyed, so it owns a slab for this block only.
            .unwrap_or_else(|_| Own::new(class).alloc(class))
    }

    /// Frees a block. A block of another chunk may be returned later: see [`flush`].
    ///
    /// # Safety
    ///
    /// 1. `block` came from [`alloc`] with this `class`, and is no longer used.
    #[inline]
    pub unsafe fn free(block: NonNull<u8>, class: usize) {
        let (chunk, bit) = Chunk::of(block, class);
        if (LOCAL.try_with(|local| local[class].free(chunk, bit))).is_err() {
            chunk.free(bit);
        }
    }

    /// Returns the collected blocks to their chunks. Workers call it after each batch.
    #[inline]
    pub fn flush() {
        if cfg!(any(loom, shuttle)) {
            return;
        }
        let _ = LOCAL.try_with(|local| local.iter().for_each(Own::flush));
    }

    impl Own {
        const fn new(class: usize) -> Self {
            Self {
                class,
                chunk: Cell::new(Chunk::NONE),
                free: Cell::new(0),
                outbox: Cell::new(Chunk::NONE),
                freed: Cell::new(0),
                slabs: RefCell::new(Vec::new()),
                nth: Cell::new(0),
            }
        }

        #[inline(always)]
        fn alloc(&self, class: usize) -> NonNull<u8> {
            let mut free = self.free.get();
            if free == 0 {
                free = self.refill();
            }
            self.free.set(free & (free - 1));
            // SAFETY: `free` is not zero, and each of its bits represents a block of this chunk.
            unsafe { self.chunk.get().block(free.trailing_zeros(), class) }
        }

        #[inline(always)]
        fn free(&self, chunk: Chunk, bit: u64) {
            if chunk == self.chunk.get() {
                self.free.set(self.free.get() | bit);
            } else if chunk == self.outbox.get() {
                self.freed.set(self.freed.get() | bit);
            } else {
                self.collect(chunk, bit);
            }
        }

        #[inline(never)]
        fn collect(&self, chunk: Chunk, bit: u64) {
            self.flush();
            self.outbox.set(chunk);
            self.freed.set(bit);
        }

        #[inline(always)]
        fn flush(&self) {
            if self.freed.get() != 0 {
                self.outbox.get().free(self.freed.take());
            }
        }

        /// Takes free blocks. Prefers the same chunk, so that few chunks are in use.
        #[inline(never)]
        fn refill(&self) -> u64 {
            self.flush();
            let mut slabs = self.slabs.borrow_mut();
            let again = match self.chunk.get().place() {
                Some((slab, index)) if slab.has_free(index) => slab.take(index),
                _ => None,
            };
            let taken = again.unwrap_or_else(|| self.find(&mut slabs));
            if taken.is_new {
                chunks::grow(self.class);
            }
            let slab = slabs[self.nth.get()];
            self.chunk.set(Chunk::in_slab(slab, taken.index));
            taken.blocks
        }

        fn find(&self, slabs: &mut Vec<Start>) -> Taken {
            let (first, len) = (self.nth.get(), slabs.len());
            for nth in (first..len).chain(0..first) {
                if let Some(taken) = slabs[nth].take_lowest() {
                    self.nth.set(nth);
                    return taken;
                }
            }
            loop {
                self.nth.set(slabs.len());
                slabs.push(chunks::take_slab(self.class));
                if let Some(taken) = slabs[self.nth.get()].take_lowest() {
                    return taken;
                }
            }
        }
    }

    impl Drop for Own {
        fn drop(&mut self) {
            self.flush();
            if self.free.get() != 0 {
                self.chunk.get().free(self.free.take());
            }
            chunks::leave(self.class, self.slabs.take());
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn layouts_fall_into_the_smallest_class_that_holds_them() {
        let class = |size, align| class_of(Layout::from_size_align(size, align).unwrap());
        assert_eq!(class(1, 1), Some(0));
        assert_eq!(class(64, 64), Some(0));
        assert_eq!(class(65, 8), Some(1));
        assert_eq!(class(256, 16), Some(2));
        assert_eq!(class(257, 8), None);
        assert_eq!(class(64, 128), None);
    }

    #[cfg(not(miri))]
    #[test]
    fn a_fork_waits_for_locks_of_slabs_and_scans() {
        use super::super::chunks::{home, scanning};
        // Done in advance: the first slab registers the fork handler, and the first fork would
        // sleep in `init`.
        cache::alloc(0);
        sync::asym::init();
        fork_waits_for(home());
        fork_waits_for(scanning());
    }

    #[cfg(not(miri))]
    fn fork_waits_for<T: Send>(lock: &'static sync::Mutex<T>) {
        use sync::atomic::{AtomicBool, Ordering};
        let is_held = AtomicBool::new(false);
        let forks = sync::thread::current();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let held = lock.lock();
                is_held.store(true, Ordering::Relaxed);
                // Wait until the fork sleeps: for the lock, or for its child if the test fails.
                while sync::thread::doing(forks).is_some_and(|doing| !doing.starts_with("asleep")) {
                    std::thread::yield_now();
                }
                drop(held);
            });
            while !is_held.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            // SAFETY: the child only tries to acquire a lock.
            let code = unsafe { sync::fork::in_child(|| lock.try_lock().is_none().into()) };
            assert_eq!(code, Some(0), "held by a thread that is not there");
        });
    }

    #[test]
    fn blocks_are_allocated_in_address_order() {
        const NR_BLOCKS: usize = if cfg!(miri) { 200 } else { 2000 };
        // Use a new thread, so that other tests free no blocks of its slabs.
        let thread = std::thread::spawn(|| {
            let fill = || (0..NR_BLOCKS).map(|_| cache::alloc(0)).collect::<Vec<_>>();
            let blocks = fill();
            for step in [1, 2, 3] {
                for first in 0..step {
                    for block in blocks.iter().skip(first).step_by(step) {
                        // SAFETY: the block was allocated with this class, and is no longer used.
                        unsafe { cache::free(*block, 0) };
                    }
                }
                let again = fill();
                let nr_back = again.windows(2).filter(|two| two[0] > two[1]).count();
                assert!(nr_back <= 3, "{nr_back} for every {step}th block");
            }
        });
        thread.join().unwrap();
    }

    #[test]
    fn blocks_freed_elsewhere_return_and_never_overlap() {
        /// The number of blocks of one class. It is small under Miri, which is a thousand times
        /// slower, but larger than a chunk.
        const NR_BLOCKS: usize = if cfg!(miri) { 150 } else { 3000 };
        const NR_CLASSES: usize = if cfg!(miri) { 1 } else { 3 };

        struct Block(NonNull<u8>);
        // SAFETY: only the holder of a block uses it.
        unsafe impl Send for Block {}

        for _ in 0..2 {
            let blocks: Vec<Block> = (0..NR_BLOCKS)
                .map(|i| {
                    let block = cache::alloc(i % NR_CLASSES);
                    // SAFETY: the block is new and has at least 64 bytes.
                    unsafe { block.as_ptr().write_bytes(i as u8, SIZES[i % NR_CLASSES]) };
                    Block(block)
                })
                .collect();
            let places = blocks.iter().enumerate();
            let mut sorted: Vec<_> =
                places.map(|(i, block)| (block.0.addr().get(), SIZES[i % NR_CLASSES])).collect();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
            std::thread::spawn(move || {
                for (i, block) in blocks.into_iter().enumerate() {
                    // SAFETY: the block was allocated above with this class, and is no longer used.
                    unsafe {
                        assert_eq!(*block.0.as_ptr(), i as u8);
                        cache::free(block.0, i % NR_CLASSES);
                    }
                }
                cache::flush();
            })
            .join()
            .unwrap();
        }
    }

    #[test]
    fn scan_takes_whole_chunks_and_leaves_used_ones() {
        use super::super::chunks::scan;
        const NR_BLOCKS: usize = if cfg!(miri) { 200 } else { 30_000 };
        // Use a new thread, so that its cache holds no blocks of other tests.
        let thread = std::thread::spawn(|| {
            let fill = || {
                let blocks: Vec<_> = (0..NR_BLOCKS).map(|_| cache::alloc(0)).collect();
                for (i, block) in blocks.iter().enumerate() {
                    // SAFETY: the block is new and has 64 bytes.
                    unsafe { block.cast::<[usize; 8]>().write([i; 8]) };
                }
                blocks
            };
            // Other tests take and free chunks at the same time, so this checks the blocks only.
            for round in 0..if cfg!(miri) { 2 } else { 3 } {
                let blocks = fill();
                // The kept blocks are in few of the chunks, and in more of them in each round.
                let is_kept = |i: usize| i % 1000 < round;
                let (kept, unused): (Vec<_>, Vec<_>) = (0..NR_BLOCKS).partition(|&i| is_kept(i));
                let free = |i: usize| {
                    // SAFETY: the block was allocated above with this class, and is no longer used.
                    unsafe { cache::free(blocks[i], 0) }
                };
                unused.into_iter().for_each(free);
                // The first scan finds that the chunks were used; the second discards them.
                scan();
                scan();
                let again = fill();
                for &i in &kept {
                    // SAFETY: the block is not freed.
                    assert_eq!(unsafe { *blocks[i].cast::<[usize; 8]>().as_ref() }, [i; 8]);
                    assert!(!again.contains(&blocks[i]), "given twice");
                }
                kept.into_iter().for_each(free);
                for block in again {
                    // SAFETY: as above.
                    unsafe { cache::free(block, 0) };
                }
            }
        });
        thread.join().unwrap();
    }
}
