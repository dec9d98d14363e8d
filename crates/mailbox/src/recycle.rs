//! Returns emptied blocks to posters, so that steady posting does not allocate.
//!
//! ```text
//! poster's store ──► block with items ──► inbox ──► owner ──► spent (a chain of the owner)
//!      ▲   ▲                                │                    │ a chain at a time
//!      │   └──── closed: left, and read ◄───┘                    ▼
//!      └───────────────── all at once ◄──────────────────── free list, up to a limit
//! ```
//!
//! Allocators are slow if memory is freed on a thread other than the one that allocated it. Here,
//! full blocks return in chains, and a poster takes the whole free list with one swap. A block that
//! its poster left before it was full stays on the poster's list (`block.rs`).
//!
//! Blocks beyond the limits are freed a few at a time: a receipt frees at most one chain, and a
//! post at most one block. A poster remembers up to [`MAX_LEFT`] blocks that it left. It seals
//! further ones, which then belong to the owner, like full ones.

use std::collections::VecDeque;
use std::ptr::NonNull;

use base::internal::wake::lane::Lane;
use mpscq::{Chain, Stack, Taken};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::cell::UnsafeCell;
use sync::{identity, twin};

use super::block::{self, Blank, Block, Kind};
use super::shared::Shared;

/// The number of items whose blocks the owner gathers before it returns them. In measurements,
/// smaller chains access the shared line more often, and with larger ones, posters run out of
/// blocks and allocate.
const CHAIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 32 };

/// The number of blocks that a poster remembers after leaving them. A guess: with fewer, posters
/// that alternate use the free list as soon as the owner is slightly behind. With more, each idle
/// poster keeps more than 8 KiB.
const MAX_LEFT: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// The blocks of a poster: its current block, the blocks that it left, and blocks without items.
pub(super) struct Store<T> {
    /// The block that was pushed last, which is not sealed.
    current: Option<NonNull<Block<T>>>,
    /// The number of items in `current`.
    nr_added: usize,
    /// The blocks that the poster left, at most [`MAX_LEFT`].
    left: VecDeque<NonNull<Block<T>>>,
    spare: Taken<Block<T>>,
}

/// The stores of one poster. The first thread that posts has its own store, which needs no locked
/// instruction. That instruction would wait for the writes of the last post. All other threads
/// share one store under a flag, and allocate while the flag is set.
pub(super) struct Cache<T> {
    /// A: the [`identity`] of the thread that owns `own`, or 0. Set once.
    owner: AtomicU64,
    /// The store of the thread in `owner`.
    own: UnsafeCell<Store<T>>,
    /// A: `true` while a thread uses `common`.
    busy: AtomicBool,
    /// The store of the thread that set `busy`.
    common: UnsafeCell<Store<T>>,
}

pub(super) struct Spent<T> {
    blocks: Chain<Block<T>>,
    /// The number of blocks returned since the free list was last seen empty.
    nr_free: usize,
    /// The maximum number of blocks on the free list.
    keep: usize,
    /// The number of blocks in a chain.
    chain: usize,
}

impl<T> Store<T> {
    const fn new() -> Self {
        Self { current: None, nr_added: 0, left: VecDeque::new(), spare: Taken::new() }
    }

    /// Adds an item to the block that was pushed last, or pushes another block.
    #[inline(always)]
    pub(super) fn post(
        &mut self,
        shared: &Shared<T>,
        lane: Lane,
        item: T,
        kind: Kind,
        eager: bool,
    ) {
        let Some(current) = self.current else {
            return self.post_in_another(shared, lane, item, kind, eager);
        };
        let inbox = &shared.inbox;
        if !inbox.is_newest(lane, current) && !twin::armed("block: add behind others") {
            self.leave();
            return self.post_in_another(shared, lane, item, kind, eager);
        }
        let last = self.nr_added + 1 == inbox.nr_slots();
        // SAFETY: we pushed the block, and it stays in `current` until we abandon it. `nr_added` is
        // its number of items, which is below that of its slots.
        let added = unsafe { block::add(current, self.nr_added, item, eager, last) };
        match added {
            Ok(()) if last => self.current = None,
            Ok(()) => self.nr_added += 1,
            Err((item, blank)) => {
                self.current = None;
                self.push(shared, lane, blank, item, kind, eager);
            }
        }
    }

    #[inline(never)]
    fn post_in_another(
        &mut self,
        shared: &Shared<T>,
        lane: Lane,
        item: T,
        kind: Kind,
        eager: bool,
    ) {
        let blank = self.blank(&shared.free);
        let blank = blank.unwrap_or_else(|| Blank::new(shared.inbox.nr_slots()));
        self.push(shared, lane, blank, item, kind, eager);
    }

    fn push(
        &mut self,
        shared: &Shared<T>,
        lane: Lane,
        blank: Blank<T>,
        item: T,
        kind: Kind,
        eager: bool,
    ) {
        let sealed = shared.inbox.nr_slots() == 1;
        let block = blank.start(item, kind, eager, sealed);
        if !sealed {
            self.current = Some(block);
            self.nr_added = 1;
        }
        shared.inbox.push(lane, block);
    }

    /// Returns a block without items: a closed one of `left`, a spare one, or a free one.
    #[inline]
    pub(super) fn blank(&mut self, free: &Stack<Block<T>>) -> Option<Blank<T>> {
        let blank = self.take_back().or_else(|| {
            self.spare.next().or_else(|| {
                self.spare = free.take_all();
                self.spare.next()
            })
        });
        // Most of the cost of a post is fetching a block from the owner's CPU.
        block::prefetch(self.spare.peek());
        blank
    }

    /// Moves the current block to `left`, or seals it if that list is full.
    fn leave(&mut self) {
        let Some(block) = self.current.take() else {
            return;
        };
        if self.left.len() >= MAX_LEFT {
            // The owner is behind, so it has rarely closed the block already.
            // SAFETY: we pushed the block, and have just removed it from our list.
            drop(unsafe { block::seal(block) });
            return;
        }
        self.left.push_back(block);
    }

    /// Returns the first block of `left` if the owner, which closes them in order, has closed it.
    fn take_back(&mut self) -> Option<Blank<T>> {
        let first = *self.left.front()?;
        // SAFETY: we pushed the block, and `left` contains it until the next line.
        let blank = unsafe { block::take_back(first) }?;
        self.left.pop_front();
        Some(blank)
    }
}

impl<T> Drop for Store<T> {
    fn drop(&mut self) {
        for block in self.current.take().into_iter().chain(self.left.drain(..)) {
            // SAFETY: we pushed the block, and have just removed it from our list.
            drop(unsafe { block::seal(block) });
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl<T> Store<T> {
    /// Counts and drops the available blocks.
    pub(super) fn count_spare(&mut self) -> usize {
        std::mem::take(&mut self.spare).count() + usize::from(self.current.is_some())
    }

    pub(super) fn count_left(&self) -> usize {
        self.left.len()
    }
}

impl<T> Cache<T> {
    pub(super) fn new() -> Self {
        Self {
            owner: AtomicU64::new(0),
            own: UnsafeCell::new(Store::new()),
            busy: AtomicBool::new(false),
            common: UnsafeCell::new(Store::new()),
        }
    }

    /// Calls `body` with a store, or returns `arg` if another thread uses the common one. `body`
    /// must not call this function.
    #[inline(always)]
    pub(super) fn with<A, R>(
        &self,
        arg: A,
        body: impl FnOnce(&mut Store<T>, A) -> R,
    ) -> Result<R, A> {
        let me = identity::mine().get();
        let owner = self.owner.load(Ordering::Relaxed);
        // Relaxed is sufficient: only this thread has ever written its number.
        let is_mine = owner == me || (owner == 0 && self.adopt(me));
        if is_mine {
            // SAFETY: only this thread reaches this line, and not from within `body`.
            return Ok(self.own.with_mut(|store| body(unsafe { &mut *store }, arg)));
        }
        self.with_common(arg, body)
    }

    #[cold]
    fn adopt(&self, me: u64) -> bool {
        self.owner.compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn with_common<A, R>(&self, arg: A, body: impl FnOnce(&mut Store<T>, A) -> R) -> Result<R, A> {
        // ORDER(cache): transfer of the store from one thread to the next, other end below.
        //   one:  last use of `common`;           busy = false   Release
        //   next: busy: false → true   Acquire;   first use of `common`
        // If the last user's store comes first, the swap returns `false`, and its use precedes
        // ours. If our swap comes first, it returns `true`, and we do not use the store.
        // Test: two_threads_may_share_a_poster
        let order = twin::order("cache: relaxed take", Ordering::Acquire);
        if self.busy.swap(true, order) {
            return Err(arg);
        }
        // SAFETY: we set `busy`, so no other thread accesses the store until it is false again.
        let result = self.common.with_mut(|store| body(unsafe { &mut *store }, arg));
        // ORDER(cache): the release end. After a panic in `body`, the store is never used again.
        // Test: two_threads_may_share_a_poster
        let order = twin::order("cache: relaxed leave", Ordering::Release);
        self.busy.store(false, order);
        Ok(result)
    }
}

// SAFETY: a store only holds blocks, which belong to no thread, and items that move to the owner.
unsafe impl<T: Send> Send for Store<T> {}
// SAFETY: only one thread accesses `own`, and only the one that set `busy` accesses `common`.
unsafe impl<T: Send> Sync for Cache<T> {}

impl<T> Spent<T> {
    /// The free list keeps enough blocks of `nr_slots` slots for `keep` items.
    pub(super) fn new(keep: usize, nr_slots: usize) -> Self {
        Self {
            blocks: Chain::new(),
            nr_free: 0,
            keep: keep.div_ceil(nr_slots),
            chain: CHAIN.div_ceil(nr_slots),
        }
    }

    #[inline]
    pub(super) fn push(&mut self, block: Blank<T>, free: &Stack<Block<T>>) {
        if self.keep == 0 {
            return;
        }
        self.blocks.push_back_popped(block);
        if self.blocks.len() >= self.chain {
            self.give_back(free);
        }
    }

    #[inline]
    pub(super) fn give_back(&mut self, free: &Stack<Block<T>>) {
        let blocks = core::mem::take(&mut self.blocks);
        if blocks.is_empty() {
            return;
        }
        if free.is_empty() {
            self.nr_free = 0;
        }
        if self.nr_free + blocks.len() <= self.keep {
            self.nr_free += blocks.len();
            free.push_chain(blocks);
        }
    }
}
