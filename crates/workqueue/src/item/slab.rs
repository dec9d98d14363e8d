//! Memory for one-shot items: cheap to allocate on one thread and to free on another.
//!
//! A general allocator takes 160 to 540 ns for a block that one thread allocates and another frees,
//! as happens for every one-shot item. Here each thread has a *cache*: blocks of three sizes, cut
//! from chunks that record their owner. A block freed by its own thread goes to a plain list. A
//! block freed by another thread is collected with others of the same cache. The whole chain is
//! then returned by one compare-exchange on the cache's `returned` list, which the owner takes as a
//! whole when it runs out of blocks.
//!
//! A cache outlives its thread: the next new thread inherits it with all its blocks (`cache.rs`). A
//! chunk whose blocks are all unused is returned to the system after one or two seconds, on the
//! initiative of a manager (`chunks.rs`).
//!
//! The lists are those of `mpscq`, where they are modeled. `task_work/recycle.rs` uses them to
//! solve the same problem in another way: one thread empties all blocks of a mailbox, so the free
//! blocks are one list from which any poster takes all. Here any thread may free a block of any
//! other, so the block's address identifies its owner.
//!
//! In a model and under Miri, every block comes from the general allocator, so that Miri detects an
//! item that is used after it was freed. The tests below use the caches under Miri, too.

use std::{alloc::Layout, mem::MaybeUninit, ptr::NonNull};

/// Returns the smallest class of blocks that `layout` fits into, if any.
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

/// Block sizes. The first is a cache line: it holds a header and a closure of two words.
pub(super) const SIZES: [usize; 3] = [64, 128, 256];
/// The alignment of every block.
const ALIGN: usize = 64;

#[cfg(any(loom, shuttle, miri))]
mod general {
    use super::*;
    use base::internal::wake::Unparker;

    fn layout(class: usize) -> Layout {
        Layout::from_size_align(SIZES[class], ALIGN).expect("a constant layout")
    }

    pub(crate) fn alloc(class: usize) -> NonNull<u8> {
        // SAFETY: the layout is not of size zero.
        let block = unsafe { std::alloc::alloc(layout(class)) };
        NonNull::new(block).unwrap_or_else(|| std::alloc::handle_alloc_error(layout(class)))
    }

    /// # Safety
    ///
    /// 1. As the `free` of `cache.rs`.
    pub(crate) unsafe fn free(block: NonNull<u8>, class: usize) {
        // SAFETY: (1): it came from `alloc` with the same class.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout(class)) };
    }

    pub(crate) fn flush() {}

    pub(crate) fn attend(_: &Unparker, _: bool) {}

    pub(crate) fn due_ns() -> Option<u64> {
        None
    }

    pub(crate) fn begin_look(_: u64) -> bool {
        false
    }

    pub(crate) fn look() {}
}

#[cfg(not(any(loom, shuttle, miri)))]
use super::cache as backend;
#[cfg(any(loom, shuttle, miri))]
use general as backend;

#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) use super::chunks::{attend, begin_look, due_ns, look};
pub(crate) use backend::flush;
use backend::{alloc, free};
#[cfg(any(loom, shuttle, miri))]
pub(crate) use general::{attend, begin_look, due_ns, look};

/// Moves a value to memory where it stays until [`give_back`].
#[inline]
pub(crate) fn place<T>(value: T) -> NonNull<T> {
    let layout = Layout::new::<T>();
    let place: NonNull<T> = match class_of(layout) {
        Some(class) => alloc(class).cast(),
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
/// 1. `place` returned `value`, which is not used any more.
pub(crate) unsafe fn give_back<T>(value: NonNull<T>) {
    match class_of(Layout::new::<T>()) {
        // SAFETY: (1): `place` chose the same class.
        Some(class) => unsafe { free(value.cast(), class) },
        // SAFETY: (1): `place` leaked it from such a box; its content is not dropped again.
        None => drop(unsafe { Box::from_raw(value.cast::<MaybeUninit<T>>().as_ptr()) }),
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{super::cache, *};

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
    fn a_fork_waits_for_whoever_takes_a_cache() {
        use crate::item::cache::ORPHANS;
        use sync::atomic::Ordering;
        // The first cache registers the fork handler, and the first fork sleeps for this.
        alloc(0);
        sync::asym::init();
        static IS_HELD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        let forks = sync::thread::current();
        let holder = std::thread::spawn(move || {
            let orphans = ORPHANS.lock();
            IS_HELD.store(true, Ordering::Relaxed);
            // Wait until the fork sleeps: for the lock, or for its child if the test fails.
            while sync::thread::doing(forks).is_some_and(|doing| !doing.starts_with("asleep")) {
                std::thread::yield_now();
            }
            drop(orphans);
        });
        while !IS_HELD.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        // SAFETY: the child only tries to acquire a lock.
        let code = unsafe { sync::fork::in_child(|| ORPHANS.try_lock().is_none().into()) };
        assert_eq!(code, Some(0), "held by a thread that is not there");
        holder.join().unwrap();
    }

    #[test]
    fn blocks_freed_elsewhere_come_home_and_never_overlap() {
        /// Few blocks of one class under Miri, which is a thousand times slower, but more than a
        /// chunk.
        const NR_BLOCKS: usize = if cfg!(miri) { 150 } else { 3000 };
        const NR_CLASSES: usize = if cfg!(miri) { 1 } else { 3 };

        struct Block(NonNull<u8>);
        // SAFETY: only the holder of a block uses it.
        unsafe impl Send for Block {}

        for _ in 0..2 {
            let blocks: Vec<Block> = (0..NR_BLOCKS)
                .map(|i| {
                    let block = cache::alloc(i % NR_CLASSES);
                    // SAFETY: a fresh block of at least 64 bytes is ours.
                    unsafe { block.as_ptr().write_bytes(i as u8, SIZES[i % NR_CLASSES]) };
                    Block(block)
                })
                .collect();
            let places = blocks.iter().enumerate();
            let mut sorted: Vec<_> = places
                .map(|(i, block)| (block.0.addr().get(), SIZES[i % NR_CLASSES]))
                .collect();
            sorted.sort_unstable();
            assert!(sorted.windows(2).all(|two| two[0].0 + two[0].1 <= two[1].0));
            std::thread::spawn(move || {
                for (i, block) in blocks.into_iter().enumerate() {
                    // SAFETY: allocated above with this class, and not used any more.
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
    fn a_look_takes_whole_chunks_and_leaves_what_is_in_use() {
        use super::super::chunks::look_now;
        const NR_BLOCKS: usize = if cfg!(miri) { 200 } else { 30_000 };
        // A new thread, so that its cache holds no blocks of other tests.
        let thread = std::thread::spawn(|| {
            let fill = || {
                let blocks: Vec<_> = (0..NR_BLOCKS).map(|_| cache::alloc(0)).collect();
                for (i, block) in blocks.iter().enumerate() {
                    // SAFETY: a fresh block of 64 bytes is ours.
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
                    // SAFETY: allocated above with this class, and not used any more.
                    unsafe { cache::free(blocks[i], 0) }
                };
                unused.into_iter().for_each(free);
                // The first scan finds that blocks ran out; the second takes them.
                look_now();
                look_now();
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
