//! Memory for one-shot items: cheap to get here and to give back on another thread.
//!
//! A general allocator takes 160 to 540 ns for a block that is allocated on one thread and freed on another,
//! which is what every one-shot item does. Here each thread has a *cache*: blocks of three sizes, cut from chunks
//! that know whose they are. A block freed by its own thread goes back to a plain list. One freed elsewhere is
//! gathered with others for the same cache, and a whole chain goes home by one compare-exchange onto the cache's
//! `returned` list, which its thread takes whole when it runs dry.
//!
//! A cache outlives its thread: the next new thread inherits it, with all its blocks. Chunks are never given
//! back to the system, so a program keeps the memory of the most one-shot items that it ever had at once.
//!
//! The lists are those of `mpscq`, where they are modelled. So are those of `task_work/recycle.rs`, which has the other
//! answer to the same price: there all blocks of a mailbox are emptied by one thread, and home is one list of which any
//! poster takes all. Here anybody frees what anybody made, so home is the thread, and the block's address tells it.
//!
//! In a model every block comes from the general allocator. So it does under Miri, which then sees an item that is used
//! after it was freed; the tests below use the caches there, too.

use std::{alloc::Layout, mem::MaybeUninit, ptr::NonNull};

/// Returns the class of blocks that `layout` fits into, if any.
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
const SIZES: [usize; 3] = [64, 128, 256];
/// Every block is aligned to this.
const ALIGN: usize = 64;

#[cfg(any(loom, shuttle, miri))]
mod general {
    use super::*;

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
    /// 1. As of the real one.
    pub(crate) unsafe fn free(block: NonNull<u8>, class: usize) {
        // SAFETY: (1): it came from `alloc` with the same class.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout(class)) };
    }

    pub(crate) fn flush() {}
}

#[cfg(not(any(loom, shuttle)))]
#[cfg_attr(miri, allow(dead_code))]
mod cached {
    use super::*;
    use crossbeam_utils::CachePadded;
    use mpscq::{Chain, Link, Linked, Stack, Taken};
    use std::{
        cell::{Cell, RefCell, UnsafeCell},
        ptr,
    };
    use sync::{
        Mutex,
        fork::{self, Handler},
    };

    /// Chunks are as large as they are aligned, so that a block's chunk is found by masking.
    const CHUNK: usize = 32 * 1024;
    /// How many blocks are gathered for another thread before they go home.
    const OUTBOX: usize = 32;

    /// A free block. It hangs in lists by its first word.
    #[repr(transparent)]
    struct Free(Link<Free>);

    /// The right to a free block. The memory stays when it is dropped.
    struct Block(NonNull<Free>);

    // SAFETY: 1: blocks neither move nor are freed. 2: whoever makes a handle says that nobody uses the block, and a list
    // makes another of it for one taker. 3: the link is all of it. 4: its user has gone. 5: they are casts.
    unsafe impl Linked for Free {
        type Handle = Block;

        fn into_raw(block: Block) -> NonNull<Self> {
            block.0
        }
        unsafe fn from_raw(block: NonNull<Self>) -> Block {
            Block(block)
        }
        unsafe fn link(block: NonNull<Self>) -> NonNull<Link<Self>> {
            block.cast()
        }
    }

    /// What stands at the start of each chunk, in the place of a first block.
    #[repr(C)]
    struct Chunk {
        owner: &'static Cache,
    }

    /// One thread's blocks.
    pub(crate) struct Cache {
        /// A: blocks that other threads gave back, per class.
        returned: [CachePadded<Stack<Free>>; SIZES.len()],
        /// What only the thread that has the cache touches.
        own: UnsafeCell<[Own; SIZES.len()]>,
    }

    // SAFETY: `returned` is atomic, and `own` is touched only by the one thread whose `LOCAL` has the cache;
    // caches pass from thread to thread through the lock of `ORPHANS`.
    unsafe impl Sync for Cache {}
    // SAFETY: as above.
    unsafe impl Send for Cache {}

    struct Own {
        free: Taken<Free>,
        /// The part of the newest chunk that was never handed out.
        fresh: *mut u8,
        nr_fresh: usize,
    }

    /// Blocks on their way home, the last one first. Taken in the order in which they went they cost their thread a third
    /// more: 4.0 ns instead of 3.0 for each, measured with blocks of 128 bytes in rounds of a thousand.
    struct Outbox {
        owner: &'static Cache,
        class: usize,
        blocks: Chain<Free>,
    }

    /// This thread's cache; given up when the thread ends.
    struct Local {
        cache: Cell<Option<&'static Cache>>,
        outbox: RefCell<Option<Outbox>>,
    }

    sync::thread_local! {
        static LOCAL: Local = Local { cache: Cell::new(None), outbox: RefCell::new(None) }
    }

    /// Caches whose threads have ended.
    pub(crate) static ORPHANS: Mutex<Vec<&'static Cache>> = Mutex::new(Vec::new());

    /// Caches of threads that are not in a child stay with them.
    static HANDLER: Handler = Handler {
        settle: || (),
        before: |held| held.lock(&ORPHANS),
        child: || (),
    };

    impl Drop for Local {
        fn drop(&mut self) {
            self.send_home();
            if let Some(cache) = self.cache.take() {
                ORPHANS.lock().push(cache);
            }
        }
    }

    /// Returns an unused block.
    #[inline]
    pub(crate) fn alloc(class: usize) -> NonNull<u8> {
        LOCAL
            .try_with(|local| local.cache().alloc(class))
            // This thread's locals are gone: it borrows a cache for this one block.
            .unwrap_or_else(|_| {
                let cache = inherit();
                let block = cache.alloc(class);
                ORPHANS.lock().push(cache);
                block
            })
    }

    /// Gives a block back, perhaps after a while: see [`flush`].
    ///
    /// # Safety
    ///
    /// 1. `block` came from [`alloc`] with this `class`, and nobody uses it any more.
    #[inline]
    pub(crate) unsafe fn free(block: NonNull<u8>, class: usize) {
        let chunk = block.as_ptr().map_addr(|addr| addr & !(CHUNK - 1));
        // SAFETY: (1): `fill` cut the block from a chunk that is aligned to its size and starts with this
        // header; chunks are never freed.
        let owner = unsafe { (*chunk.cast::<Chunk>()).owner };
        let block = block.cast::<Free>();
        let kept = LOCAL.try_with(|local| match local.cache.get() {
            Some(cache) if ptr::eq(cache, owner) => {
                // SAFETY: this thread has the cache.
                let own = unsafe { &mut (*cache.own.get())[class] };
                own.free.put_back(Block(block));
            }
            _ => local.post(owner, class, Block(block)),
        });
        if kept.is_err() {
            owner.returned[class].push(Block(block));
        }
    }

    /// Sends home what this thread still gathers. Workers call it after each batch.
    #[inline]
    pub(crate) fn flush() {
        let _ = LOCAL.try_with(Local::send_home);
    }

    impl Local {
        #[inline]
        fn cache(&self) -> &'static Cache {
            self.cache.get().unwrap_or_else(|| {
                let cache = inherit();
                self.cache.set(Some(cache));
                cache
            })
        }

        fn post(&self, owner: &'static Cache, class: usize, block: Block) {
            let mut outbox = self.outbox.borrow_mut();
            match &mut *outbox {
                Some(gathered)
                    if ptr::eq(gathered.owner, owner)
                        && gathered.class == class
                        && gathered.blocks.len() < OUTBOX =>
                {
                    gathered.blocks.push_front(block);
                }
                other => {
                    let mut blocks = Chain::new();
                    blocks.push_front(block);
                    let new = Outbox {
                        owner,
                        class,
                        blocks,
                    };
                    if let Some(full) = other.replace(new) {
                        full.send_home();
                    }
                }
            }
        }

        #[inline]
        fn send_home(&self) {
            if let Some(outbox) = self.outbox.borrow_mut().take() {
                outbox.send_home();
            }
        }
    }

    impl Outbox {
        #[inline]
        fn send_home(self) {
            self.owner.returned[self.class].push_chain(self.blocks);
        }
    }

    #[cold]
    fn inherit() -> &'static Cache {
        fork::register(&HANDLER);
        if let Some(cache) = ORPHANS.lock().pop() {
            return cache;
        }
        let nothing = |_| Own {
            free: Taken::new(),
            fresh: ptr::null_mut(),
            nr_fresh: 0,
        };
        Box::leak(Box::new(Cache {
            returned: Default::default(),
            own: UnsafeCell::new(std::array::from_fn(nothing)),
        }))
    }

    impl Cache {
        /// Takes a block. Only for the thread that has the cache.
        #[inline]
        fn alloc(&'static self, class: usize) -> NonNull<u8> {
            // SAFETY: this thread alone has the cache, and no reference into `own` outlives a function here.
            let own = unsafe { &mut (*self.own.get())[class] };
            if own.free.is_empty() {
                own.free = self.returned[class].take_all();
            }
            match own.free.next() {
                Some(Block(block)) => block.cast(),
                None => self.fresh(own, class),
            }
        }

        fn fresh(&'static self, own: &mut Own, class: usize) -> NonNull<u8> {
            if own.nr_fresh == 0 {
                self.fill(own, class);
            }
            own.nr_fresh -= 1;
            let block = own.fresh;
            // SAFETY: `fill` made room for `nr_fresh` blocks from `fresh` on.
            own.fresh = unsafe { block.add(SIZES[class]) };
            NonNull::new(block).expect("inside a chunk")
        }

        #[cold]
        fn fill(&'static self, own: &mut Own, class: usize) {
            let layout = Layout::from_size_align(CHUNK, CHUNK).expect("a constant layout");
            // SAFETY: the layout is not of size zero.
            let chunk = unsafe { std::alloc::alloc(layout) };
            if chunk.is_null() {
                std::alloc::handle_alloc_error(layout);
            }
            // SAFETY: the chunk is ours, large enough and aligned for its header.
            unsafe { chunk.cast::<Chunk>().write(Chunk { owner: self }) };
            // SAFETY: the header's place is one block, and a chunk has many.
            own.fresh = unsafe { chunk.add(SIZES[class]) };
            own.nr_fresh = CHUNK / SIZES[class] - 1;
        }
    }
}

#[cfg(not(any(loom, shuttle, miri)))]
use cached as backend;
#[cfg(any(loom, shuttle, miri))]
use general as backend;

pub(crate) use backend::flush;
use backend::{alloc, free};

/// Moves a value to where it stays until it is given back.
#[inline]
pub(crate) fn place<T>(value: T) -> NonNull<T> {
    let layout = Layout::new::<T>();
    let place: NonNull<T> = match class_of(layout) {
        Some(class) => alloc(class).cast(),
        None => NonNull::from(Box::leak(Box::<T>::new_uninit())).cast(),
    };
    // SAFETY: the place is new, large enough and aligned.
    unsafe { place.write(value) };
    place
}

/// Gives the memory of a value back whose content has been dropped or moved out.
///
/// # Safety
///
/// 1. `place` made it, and nobody uses it any more.
pub(crate) unsafe fn give_back<T>(value: NonNull<T>) {
    match class_of(Layout::new::<T>()) {
        // SAFETY: (1): `place` chose the same class.
        Some(class) => unsafe { free(value.cast(), class) },
        // SAFETY: (1): `place` leaked it from such a box; what is in it is not dropped again.
        None => drop(unsafe { Box::from_raw(value.cast::<MaybeUninit<T>>().as_ptr()) }),
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
    fn a_fork_waits_for_whoever_takes_a_cache() {
        use backend::ORPHANS;
        use sync::atomic::Ordering;
        // With the first cache there is somebody to see to it; and a fork sleeps for this, the first time.
        alloc(0);
        sync::asym::init();
        static IS_HELD: std::sync::atomic::AtomicBool = std::sync::atomic::AtomicBool::new(false);
        let forks = sync::thread::current();
        let holder = std::thread::spawn(move || {
            let orphans = ORPHANS.lock();
            IS_HELD.store(true, Ordering::Relaxed);
            // Until it waits: for the lock, or else for its child.
            while sync::thread::doing(forks).is_some_and(|doing| !doing.starts_with("asleep")) {
                std::thread::yield_now();
            }
            drop(orphans);
        });
        while !IS_HELD.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        // SAFETY: the child looks at a lock.
        let code = unsafe { sync::fork::in_child(|| ORPHANS.try_lock().is_none().into()) };
        assert_eq!(code, Some(0), "held by a thread that is not there");
        holder.join().unwrap();
    }

    #[test]
    fn blocks_freed_elsewhere_come_home_and_never_overlap() {
        /// Few of one class under Miri, which takes a thousand times as long, but more than a chunk has.
        const NR_BLOCKS: usize = if cfg!(miri) { 550 } else { 3000 };
        const NR_CLASSES: usize = if cfg!(miri) { 1 } else { 3 };

        struct Block(NonNull<u8>);
        // SAFETY: a block is its holder's alone.
        unsafe impl Send for Block {}

        for _ in 0..2 {
            let blocks: Vec<Block> = (0..NR_BLOCKS)
                .map(|i| {
                    let block = cached::alloc(i % NR_CLASSES);
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
                    // SAFETY: allocated above with this class, and used no more.
                    unsafe {
                        assert_eq!(*block.0.as_ptr(), i as u8);
                        cached::free(block.0, i % NR_CLASSES);
                    }
                }
                cached::flush();
            })
            .join()
            .unwrap();
        }
    }
}
