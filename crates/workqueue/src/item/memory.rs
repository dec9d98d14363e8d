//! Memory for one-shot items: cheap to allocate on one thread and to free on another.
//!
//! A general allocator takes 160 to 540 ns for a block that one thread allocates and another frees,
//! as happens for every one-shot item. Here each thread has a *cache*: blocks of three sizes, cut
//! from chunks that record their owner. A block freed by its own thread goes to a plain list. A
//! block freed by another thread is collected with others of the same cache. The whole chain is
//! then returned by one compare-exchange on the cache's `returned` list, which the owner takes as a
//! whole when it runs out of blocks.
//!
//! A cache outlives its thread: the next new thread inherits it with all its blocks. A chunk whose
//! blocks are all unused is returned to the system after one or two seconds, on the initiative of a
//! manager (`chunks.rs`).
//!
//! The lists are those of `mpscq`, where they are modeled. `crates/mailbox/src/recycle.rs` uses
//! them to solve the same problem in another way: one thread empties all blocks of a mailbox, so
//! the free blocks are one list from which any poster takes all. Here any thread may free a block
//! of any other, so the block's address identifies its owner.
//!
//! In a model and under Miri, every block comes from the general allocator, so that Miri detects an
//! item that is used after it was freed. The tests below use the caches under Miri, too.
//!
//! # `Biased`
//!
//! A value that its owner uses without a locked instruction, and that one other thread can use
//! while the owner does not.
//!
//! The owner sets a flag while it uses the value. The other thread, the *scanner*, first requests
//! the value and executes a barrier that also orders the owner's accesses. It takes the value only
//! if the owner is not using it and has not used it since:
//!
//! ```text
//! owner:   busy = true;    light;  read ask, and withdraw it;    use the value;  busy = false
//! scanner: ask = ASKED;    heavy;  busy?  if not, ASKED → TAKEN; use the value;  ask = ASKED
//! ```
//!
//! | `ask` | meaning | transitions |
//! |---|---|---|
//! | `FREE` | the value is not requested | scanner → `ASKED` |
//! | `ASKED` | the scanner requests the value | scanner → `TAKEN`; owner or returner → `FREE` |
//! | `TAKEN` | the scanner uses the value (a few instructions) | scanner → `ASKED` |
//!
//! The owner and the scanner must never use the value at the same time. Both leave `ASKED` by a
//! read-modify-write, so one of them comes first. If it is the owner, it continues and the scanner
//! gives up. If it is the scanner, the owner waits for those few instructions. A *returner* is a
//! thread that returns blocks to the owner.
//!
//! A request can stay pending for hours. The thread that withdraws it is the first to use the value
//! since, and notifies the scanner.

use std::{alloc::Layout, mem::MaybeUninit, ptr::NonNull};

use crossbeam_utils::CachePadded;
use sync::{
    Backoff, asym,
    atomic::{AtomicBool, AtomicU32, Ordering},
    cell::UnsafeCell,
    twin,
};

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
    /// 1. As for `cache::free`.
    pub(crate) unsafe fn free(block: NonNull<u8>, class: usize) {
        // SAFETY: (1): it came from `alloc` with the same class.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout(class)) };
    }

    pub(crate) fn flush() {}

    pub(crate) fn attend(_: &Unparker, _: bool) {}

    pub(crate) fn due_ns() -> Option<u64> {
        None
    }

    pub(crate) fn begin_scan(_: u64) -> bool {
        false
    }

    pub(crate) fn scan() {}
}

#[cfg(not(any(loom, shuttle, miri)))]
use cache as backend;
#[cfg(any(loom, shuttle, miri))]
use general as backend;

#[cfg(not(any(loom, shuttle, miri)))]
pub(crate) use super::chunks::{attend, begin_scan, due_ns, scan};
pub(crate) use backend::flush;
use backend::{alloc, free};
#[cfg(any(loom, shuttle, miri))]
pub(crate) use general::{attend, begin_scan, due_ns, scan};

/// Moves a value to memory where it stays until [`release`].
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
pub(crate) unsafe fn release<T>(value: NonNull<T>) {
    match class_of(Layout::new::<T>()) {
        // SAFETY: (1): `place` chose the same class.
        Some(class) => unsafe { free(value.cast(), class) },
        // SAFETY: (1): `place` leaked it from such a box; its content is not dropped again.
        None => drop(unsafe { Box::from_raw(value.cast::<MaybeUninit<T>>().as_ptr()) }),
    }
}

/// The block caches of threads.
#[cfg(not(any(loom, shuttle)))]
#[cfg_attr(miri, allow(dead_code))]
pub(super) mod cache {
    use std::{
        cell::{Cell, RefCell},
        mem,
        ptr::{self, NonNull},
    };

    use crossbeam_utils::CachePadded;
    use mpscq::{Chain, Link, Linked, Stack, Taken};
    use sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
        fork::{self, Handler},
    };

    use super::{
        super::chunks::{self, Chunk},
        Biased, SIZES,
    };

    /// The number of blocks that a thread collects for another thread's cache before it returns
    /// them.
    const OUTBOX: usize = 32;

    /// A free block. Its first word is its list link.
    #[repr(transparent)]
    pub(in crate::item) struct Free(Link<Free>);

    /// Ownership of a free block. Dropping it does not free the memory.
    pub(in crate::item) struct Block(pub(in crate::item) NonNull<Free>);

    // SAFETY: a free block is not tied to a thread.
    unsafe impl Send for Block {}

    // SAFETY: 1: blocks neither move nor are freed. 2: a handle is created only for a block that is
    // not used, and a list creates another handle for one receiver. 3: the link is the whole block.
    // 4: its user has finished with it. 5: they are casts.
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

    /// The block cache of one thread.
    pub(in crate::item) struct Cache {
        /// A: blocks that other threads returned, per class.
        returned: [CachePadded<Stack<Free>>; SIZES.len()],
        /// Used by the owning thread, and by the scanner while that thread does not use it.
        own: Biased<[Own; SIZES.len()]>,
        /// A: set if the local blocks have run out since the last scan, so that all are in use.
        has_run_out: AtomicBool,
    }

    struct Own {
        free: Taken<Free>,
        /// The part of the newest chunk that was never allocated.
        fresh: *mut u8,
        nr_fresh: usize,
    }

    // SAFETY: memory is not tied to a thread.
    unsafe impl Send for Own {}

    /// Blocks to return to another thread's cache, last one first. In the order in which they were
    /// freed, each costs that thread a third more: 4.0 ns instead of 3.0, measured with blocks of
    /// 128 bytes in rounds of a thousand.
    struct Outbox {
        owner: &'static Cache,
        class: usize,
        blocks: Chain<Free>,
    }

    /// This thread's cache, which is released when the thread exits.
    struct Local {
        cache: Cell<Option<&'static Cache>>,
        outbox: RefCell<Option<Outbox>>,
    }

    sync::thread_local! {
        static LOCAL: Local = Local { cache: Cell::new(None), outbox: RefCell::new(None) }
    }

    /// Caches of exited threads.
    pub(crate) static ORPHANS: Mutex<Vec<&'static Cache>> = Mutex::new(Vec::new());

    /// In a child of `fork`, the caches of threads that do not exist there are not reused.
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

    /// Allocates a block.
    #[inline]
    pub(crate) fn alloc(class: usize) -> NonNull<u8> {
        LOCAL
            .try_with(|local| local.cache().alloc(class))
            // This thread's locals were destroyed: borrow a cache for this one block.
            .unwrap_or_else(|_| {
                let cache = inherit();
                let block = cache.alloc(class);
                ORPHANS.lock().push(cache);
                block
            })
    }

    /// Frees a block. A block of another thread may be returned later: see [`flush`].
    ///
    /// # Safety
    ///
    /// 1. `block` came from [`alloc`] with this `class`, and is not used any more.
    #[inline]
    pub(crate) unsafe fn free(block: NonNull<u8>, class: usize) {
        let block = block.cast::<Free>();
        // SAFETY: (1).
        let owner = unsafe { (*Chunk::of(block)).owner };
        let kept = LOCAL.try_with(|local| match local.cache.get() {
            Some(cache) if ptr::eq(cache, owner) => {
                cache.with(|own| own[class].free.put_back(Block(block)))
            }
            _ => local.post(owner, class, Block(block)),
        });
        if kept.is_err() {
            send_alone(owner, class, Block(block));
        }
    }

    /// Returns a block from a thread whose locals were destroyed.
    #[cold]
    #[inline(never)]
    fn send_alone(owner: &'static Cache, class: usize, block: Block) {
        let mut alone = Chain::new();
        alone.push_front(block);
        owner.take_home(class, alone);
    }

    /// Returns the collected blocks to their caches. Workers call it after each batch.
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
            self.owner.take_home(self.class, self.blocks);
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
        let cache = Box::leak(Box::new(Cache {
            returned: Default::default(),
            own: Biased::new(std::array::from_fn(nothing)),
            has_run_out: AtomicBool::new(false),
        }));
        chunks::add(cache);
        cache
    }

    impl Cache {
        /// Allocates a block. Only for the thread that owns the cache.
        #[inline]
        fn alloc(&'static self, class: usize) -> NonNull<u8> {
            self.with(|own| {
                let own = &mut own[class];
                match own.free.next() {
                    Some(Block(block)) => block.cast(),
                    None => self.refill(own, class),
                }
            })
        }

        /// Allocates a block if no local block is left. Separate, so that the common case is a few
        /// instructions in its caller.
        #[inline(never)]
        fn refill(&'static self, own: &mut Own, class: usize) -> NonNull<u8> {
            own.free = self.take_returned(class);
            match own.free.next() {
                Some(Block(block)) => block.cast(),
                None => self.fresh(own, class),
            }
        }

        /// Uses the thread's own blocks. Only for the thread that owns the cache.
        #[inline(always)]
        fn with<R>(&'static self, body: impl FnOnce(&mut [Own; SIZES.len()]) -> R) -> R {
            // SAFETY: 1: only this thread owns the cache, which passes between threads through the
            // lock of `ORPHANS`. The functions passed here do not call this function again. 2: they
            // do not panic; if memory runs out, the process ends.
            unsafe { self.own.with(|own| self.answer(own), body) }
        }

        /// Gives up the local blocks if they are not needed.
        #[cold]
        fn answer(&self, own: &mut [Own; SIZES.len()]) {
            let lists = own.iter_mut().map(|own| mem::take(&mut own.free));
            let is_needed = self.has_run_out.load(Ordering::Relaxed);
            chunks::used((!is_needed).then_some(lists));
        }

        #[inline]
        fn take_returned(&self, class: usize) -> Taken<Free> {
            self.has_run_out.store(true, Ordering::Relaxed);
            self.returned[class].take_all()
        }

        /// Receives blocks that another thread returns.
        #[inline]
        pub(in crate::item) fn take_home(&self, class: usize, blocks: Chain<Free>) {
            self.returned[class].push_chain(blocks);
            if self.own.note_brought() {
                chunks::used(None::<[Taken<Free>; 0]>);
            }
        }

        /// Puts blocks back after a scan that did not need them.
        pub(in crate::item) fn put_back(&self, class: usize, blocks: Chain<Free>) {
            self.returned[class].push_chain(blocks);
        }

        /// Requests unused blocks; returns `false` if all blocks are in use. For the scanner.
        pub(in crate::item) fn ask(&self) -> bool {
            let asks = !self.has_run_out.swap(false, Ordering::Relaxed);
            if asks {
                self.own.ask();
            }
            asks
        }

        /// Takes the unused blocks. For the scanner, after [`ask`](Self::ask) and a barrier.
        pub(in crate::item) fn take_unused(&self, lists: &mut Vec<Taken<Free>>) {
            lists.extend(self.returned.iter().map(|returned| returned.take_all()));
            self.own.try_take(|own| {
                lists.extend(own.iter_mut().map(|own| mem::take(&mut own.free)));
            });
        }

        fn fresh(&'static self, own: &mut Own, class: usize) -> NonNull<u8> {
            if own.nr_fresh == 0 {
                let chunk = chunks::take(self, class);
                // SAFETY: the header occupies the first block, and a chunk has many blocks.
                own.fresh = unsafe { chunk.as_ptr().add(SIZES[class]) };
                own.nr_fresh = Chunk::nr_blocks(class);
            }
            own.nr_fresh -= 1;
            let block = own.fresh;
            // SAFETY: `nr_fresh` blocks are left from `fresh` on.
            own.fresh = unsafe { block.add(SIZES[class]) };
            NonNull::new(block).expect("inside a chunk")
        }
    }
}

const FREE: u32 = 0;
const ASKED: u32 = 1;
const TAKEN: u32 = 2;

/// A value that belongs to one thread.
#[cfg_attr(any(shuttle, miri), allow(dead_code))]
#[derive(Debug)]
pub(crate) struct Biased<T> {
    /// A: one of the above. Rarely written, so that reads of all threads are cheap.
    ask: CachePadded<AtomicU32>,
    /// A: set while the owner uses the value. Written by the owner.
    is_busy: AtomicBool,
    /// Used by the owner while `is_busy`, and by the scanner while `TAKEN`.
    value: UnsafeCell<T>,
}

// SAFETY: one thread at a time uses the value, and publishes its writes through `is_busy` or `ask`.
unsafe impl<T: Send> Sync for Biased<T> {}

#[cfg_attr(any(shuttle, miri), allow(dead_code))]
impl<T> Biased<T> {
    /// Wraps `value`, which is not requested.
    pub(crate) fn new(value: T) -> Self {
        Self {
            ask: CachePadded::new(AtomicU32::new(FREE)),
            is_busy: AtomicBool::new(false),
            value: UnsafeCell::new(value),
        }
    }

    /// Uses the value as its owner. If the scanner requested the value, calls `asked` first.
    ///
    /// # Safety
    ///
    /// 1. The caller is the only owner, and is not inside another call of this function.
    /// 2. Neither function unwinds.
    #[inline(always)]
    pub(crate) unsafe fn with<R>(
        &self,
        asked: impl FnOnce(&mut T),
        body: impl FnOnce(&mut T) -> R,
    ) -> R {
        self.is_busy.store(true, Ordering::Relaxed);
        // ORDER(biased): store buffering through the asymmetric barrier, other end in `try_take`.
        //   owner:   busy = true;    light;   read ask
        //   scanner: ask = ASKED;    heavy;   read busy
        // If our light barrier comes first, the scanner reads that we are busy, and gives up. If
        // the heavy barrier comes first, we read ASKED or a later value.
        // Test: owner_and_scanner_never_use_the_data_together
        asym::light();
        // ORDER(biased-back): the acquire end; see `try_take`. If the scanner's release comes
        // first, we read its writes. If our load comes first, the scanner finds that we are busy or
        // that its request was withdrawn.
        // Test: writes_of_the_scanner_are_seen
        let order = twin::order("biased: relaxed read of the request", Ordering::Acquire);
        if self.ask.load(order) != FREE {
            // SAFETY: (1), (2), and we are busy.
            unsafe { self.answer(asked) };
        }
        // SAFETY: (1), and the scanner does not use the value: its request was withdrawn, or it
        // gives up because we are busy.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        // ORDER(biased-use): message passing, other end in `try_take`.
        //   owner:   use the value;         busy = false   Release
        //   scanner: read busy   Acquire;   use the value
        // If our store comes first, the scanner sees our writes. If its load comes first, it gives
        // up.
        // Test: writes_of_the_owner_are_seen
        let order = twin::order("biased: relaxed leave", Ordering::Release);
        self.is_busy.store(false, order);
        result
    }

    /// The part of [`with`](Self::with) for a value that the scanner requested or uses.
    ///
    /// # Safety
    ///
    /// 1. As [`with`](Self::with), which the caller is executing.
    #[cold]
    #[inline(never)]
    unsafe fn answer(&self, asked: impl FnOnce(&mut T)) {
        if self.takes_back() {
            // SAFETY: (1), and the scanner does not use the value: its request was withdrawn.
            self.value.with_mut(|value| asked(unsafe { &mut *value }));
        }
    }

    /// Called after a block was returned. Returns `true` if the scanner requested the value; the
    /// caller then notifies the scanner.
    #[inline(always)]
    pub(crate) fn note_brought(&self) -> bool {
        // ORDER(biased-bring): store buffering through the asymmetric barrier, other end in
        // `chunks::scan`.
        //   returner: push a block on the list;   light;   read ask
        //   scanner:  ask = ASKED;                heavy;   take the list
        // If our light barrier comes first, the scanner takes our block. If the heavy barrier comes
        // first, we read ASKED and notify the scanner.
        // Test: remote_addition_is_taken_or_notified
        if !twin::armed("biased: adds without a barrier") {
            asym::light();
        }
        let ask = self.ask.load(Ordering::Relaxed);
        // While the scanner uses the value, it may already have taken the list.
        let overlooks = ask == TAKEN && twin::armed("biased: adds without notifying");
        ask != FREE && !overlooks && self.takes_back()
    }

    /// Withdraws the request; returns `true` on success. Waits while the scanner uses the value.
    #[cold]
    fn takes_back(&self) -> bool {
        let mut backoff = Backoff::new();
        loop {
            // ORDER(biased-back): the acquire end, as in `with`. The scanner leaves ASKED by an
            // exchange of the same word. If ours comes first, the scanner's fails. If the scanner's
            // comes first, ours fails, and we wait for its next store.
            // Test: writes_of_the_scanner_are_seen
            let order = twin::order("biased: relaxed read of the request", Ordering::Acquire);
            match self.ask.compare_exchange(ASKED, FREE, order, order) {
                Ok(_) => return true,
                Err(FREE) => return false,
                Err(_) => backoff.pause(),
            }
        }
    }

    /// Requests the value. Only for the scanner.
    pub(crate) fn ask(&self) {
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let _ = self.ask.compare_exchange(FREE, ASKED, order.0, order.1);
    }

    /// Uses the value, unless the owner uses it or has used it since the request. Only for the
    /// scanner, after [`ask`](Self::ask) and a heavy barrier. The request stays pending.
    pub(crate) fn try_take<R>(&self, body: impl FnOnce(&mut T) -> R) -> Option<R> {
        // ORDER(biased): the other end; see `with`.
        //
        // ORDER(biased-use): the acquire end; see `with`.
        // Test: writes_of_the_owner_are_seen
        let order = twin::order("biased: relaxed scan", Ordering::Acquire);
        if self.is_busy.load(order) && !twin::armed("biased: overlooks the owner") {
            return None;
        }
        // This exchange and the one in `takes_back` use the same word; see there.
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.ask.compare_exchange(ASKED, TAKEN, order.0, order.1);
        if taken.is_err() && !twin::armed("biased: overlooks a recall") {
            return None;
        }
        // SAFETY: the owner was not using the value when it could already see our request. If it
        // has come since, it waits.
        let result = self.value.with_mut(|value| body(unsafe { &mut *value }));
        // ORDER(biased-back): message passing, other ends in `with` and `takes_back`.
        //   scanner: use the value;          ask = ASKED   Release
        //   owner:   read ask   Acquire;     use the value
        // If our store comes first, the owner sees all our writes. If its load comes first, it
        // reads TAKEN, and waits.
        // Test: writes_of_the_scanner_are_seen
        let order = twin::order("biased: relaxed return", Ordering::Release);
        self.ask.store(ASKED, order);
        Some(result)
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
    fn fork_waits_for_threads_that_take_a_cache() {
        use super::cache::ORPHANS;
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
    fn blocks_freed_elsewhere_return_and_never_overlap() {
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
    fn scan_takes_whole_chunks_and_leaves_used_ones() {
        use super::super::chunks::scan_now;
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
                scan_now();
                scan_now();
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
