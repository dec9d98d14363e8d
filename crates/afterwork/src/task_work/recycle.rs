//! Where emptied blocks go, so that steady posting allocates nothing.
//!
//! ```text
//! poster's store ──► block with items ──► inbox ──► owner ──► spent (a chain of the owner's)
//!      ▲   ▲                                │                    │ a chain at a time
//!      │   └──── closed: left, and read ◄───┘                    ▼
//!      └───────────────── all at once ◄──────────────────── free list, up to a limit
//! ```
//!
//! An allocator makes a memory block dear that is freed on another thread than it was made on: it has to travel
//! home. Here the full ones travel in chains, at one compare-exchange each, and home is a list that the next poster
//! empties with one swap; the others the owner leaves where their poster finds them (`block.rs`).
//!
//! What is too much is freed as it comes, a chain at most by one receipt, a block by one post: a poster remembers
//! [`MAX_LEFT`] blocks that it left, and seals the next one, which is the owner's then as a full one is. So what posters
//! that take turns piled up while the owner was away is not theirs to keep, nor to free all at once.

use std::ptr::NonNull;

use mpscq::{Chain, Stack, Taken};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::cell::UnsafeCell;
use sync::{identity, twin};

use super::block::{self, Blank, Block};
use super::inbox::Inbox;

/// How many items' blocks the owner gathers before it gives them back. Measured with 32 as the knee: fewer touch
/// the shared line more often, more let the posters run dry and allocate. Small in a model, to be common.
const CHAIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 32 };

/// How many blocks that it left a poster remembers; the owner gets the others. A guess: fewer make posters that take
/// turns go by the free list while the owner is a little behind, more are kept by posters that are idle, 8 KiB each.
const MAX_LEFT: usize = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

/// What a poster has at hand: the block that it adds to, blocks that it left, blocks without items.
#[derive(Debug)]
pub(super) struct Store<T> {
    /// Pushed by us, not sealed, and perhaps still the newest.
    current: Option<NonNull<Block<T>>>,
    /// How many items are in it.
    nr_added: usize,
    /// First and last of the blocks that we left for another one, in that order; linked by `aside`.
    left: Option<Left<T>>,
    nr_left: usize,
    spare: Taken<Block<T>>,
}

/// The ends of a list of blocks.
#[derive(Debug)]
struct Left<T> {
    first: NonNull<Block<T>>,
    last: NonNull<Block<T>>,
}

/// The stores of one poster.
///
/// Two of them, for a locked instruction is dear here: it waits until the last post's writes are out, and those
/// wait for a cache line that the owner had. The first thread that posts has a store of its own; all others share one
/// under a flag, and do without while it is up.
#[derive(Debug)]
pub(super) struct Cache<T> {
    /// A: the [`identity`] of the thread that `own` belongs to, or 0. Set once.
    owner: AtomicU64,
    /// Reached by the thread in `owner`.
    own: UnsafeCell<Store<T>>,
    /// A: whether a thread is at `common`.
    busy: AtomicBool,
    /// Reached by whoever set `busy`.
    common: UnsafeCell<Store<T>>,
}

/// The owner's end: blocks that have been emptied.
#[derive(Debug)]
pub(super) struct Spent<T> {
    blocks: Chain<Block<T>>,
    /// How many were given back since the free list was last seen empty.
    nr_free: usize,
    /// How many the free list may hold; the rest is freed.
    keep: usize,
    /// How many make a chain.
    chain: usize,
}

impl<T> Store<T> {
    const fn new() -> Self {
        Self {
            current: None,
            nr_added: 0,
            left: None,
            nr_left: 0,
            spare: Taken::new(),
        }
    }

    /// Adds an item to the block that we pushed last, or pushes another one.
    #[inline(always)]
    pub(super) fn post(&mut self, inbox: &Inbox<T>, free: &Stack<Block<T>>, item: T, urgent: bool) {
        let Some(current) = self.current else {
            return self.post_in_another(inbox, free, item, urgent);
        };
        if !inbox.is_newest(current) && !twin::armed("block: add behind others") {
            self.leave();
            return self.post_in_another(inbox, free, item, urgent);
        }
        let last = self.nr_added + 1 == inbox.nr_slots();
        // SAFETY: we pushed it, and it is in `current` until we forget it; `nr_added` says how many items are in it,
        // and it was sealed with its last.
        let added = unsafe { block::add(current, self.nr_added, item, urgent, last) };
        match added {
            Ok(()) => self.added(last),
            Err((item, blank)) => {
                self.current = None;
                self.push(inbox, blank, item, urgent);
            }
        }
    }

    #[inline(always)]
    fn added(&mut self, last: bool) {
        if last {
            self.current = None;
        } else {
            self.nr_added += 1;
        }
    }

    fn post_in_another(&mut self, inbox: &Inbox<T>, free: &Stack<Block<T>>, item: T, urgent: bool) {
        let blank = self
            .blank(free)
            .unwrap_or_else(|| Blank::new(inbox.nr_slots()));
        self.push(inbox, blank, item, urgent);
    }

    fn push(&mut self, inbox: &Inbox<T>, blank: Blank<T>, item: T, urgent: bool) {
        let sealed = inbox.nr_slots() == 1;
        let block = blank.start(item, urgent, sealed);
        if !sealed {
            self.current = Some(block);
            self.nr_added = 1;
        }
        inbox.push(block);
    }

    /// Takes a block without items: one that we left, one at hand, or one of the free list.
    #[inline]
    pub(super) fn blank(&mut self, free: &Stack<Block<T>>) -> Option<Blank<T>> {
        let blank = self.take_back().or_else(|| {
            self.spare.next().or_else(|| {
                self.spare = free.take_all();
                self.spare.next()
            })
        });
        // The owner has read the next one, too: what takes a post's time is to get its lines back.
        block::prefetch(self.spare.peek());
        blank
    }

    /// Puts the current block behind the ones that we left, or forgets it if these are enough.
    fn leave(&mut self) {
        let Some(block) = self.current.take() else {
            return;
        };
        if self.nr_left >= MAX_LEFT {
            // The owner is behind, so hardly ever is it ours to free.
            // SAFETY: we pushed it, and just forgot it.
            drop(unsafe { block::seal(block) });
            return;
        }
        self.nr_left += 1;
        match &mut self.left {
            None => {
                self.left = Some(Left {
                    first: block,
                    last: block,
                })
            }
            Some(left) => {
                // SAFETY: the poster has not forgotten it, and `aside` is the poster's.
                unsafe { (*left.last.as_ptr()).aside = Some(block) };
                left.last = block;
            }
        }
    }

    /// Takes the first block that we left, if the owner has closed it: that of the others is not closed before.
    fn take_back(&mut self) -> Option<Blank<T>> {
        let first = self.left.as_ref()?.first;
        // SAFETY: we pushed it, and `left` remembers it until `forget_first`.
        let blank = unsafe { block::take_back(first) }?;
        self.forget_first();
        Some(blank)
    }

    fn forget_first(&mut self) {
        self.left = self.left.take().and_then(|Left { first, last }| {
            if first == last {
                return None;
            }
            // SAFETY: the poster's own, or just given back to it.
            let next = unsafe { (*first.as_ptr()).aside };
            next.map(|first| Left { first, last })
        });
        self.nr_left -= 1;
    }
}

impl<T> Drop for Store<T> {
    fn drop(&mut self) {
        if let Some(current) = self.current.take() {
            // SAFETY: we pushed it, and just forgot it.
            drop(unsafe { block::seal(current) });
        }
        while let Some(left) = &self.left {
            let first = left.first;
            self.forget_first();
            // SAFETY: we pushed it, and just forgot it.
            drop(unsafe { block::seal(first) });
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl<T> Store<T> {
    /// Counts the blocks at hand; loses them.
    pub(super) fn count_spare(&mut self) -> usize {
        std::mem::take(&mut self.spare).count() + usize::from(self.current.is_some())
    }

    /// Counts the blocks left for others.
    pub(super) fn count_left(&self) -> usize {
        self.nr_left
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

    /// Runs `body` on a store, or gives `arg` back if there is none for this thread at the moment.
    ///
    /// `body` must not come back here.
    #[inline(always)]
    pub(super) fn with<A, R>(
        &self,
        arg: A,
        body: impl FnOnce(&mut Store<T>, A) -> R,
    ) -> Result<R, A> {
        let me = identity::mine().get();
        let owner = self.owner.load(Ordering::Relaxed);
        // Relaxed: who reads its own number here wrote it, and no other thread ever has that number.
        let is_mine = owner == me || (owner == 0 && self.adopt(me));
        if is_mine {
            // SAFETY: this thread alone gets here, and not from within `body`.
            return Ok(self.own.with_mut(|store| body(unsafe { &mut *store }, arg)));
        }
        self.with_common(arg, body)
    }

    #[cold]
    fn adopt(&self, me: u64) -> bool {
        self.owner
            .compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    fn with_common<A, R>(&self, arg: A, body: impl FnOnce(&mut Store<T>, A) -> R) -> Result<R, A> {
        // ORDER(cache): hand-over of the store from thread to thread, other end below.
        //   one:  last use of `common`;           busy = false   Release
        //   next: busy: false → true   Acquire;   first use of `common`
        // Test: two_threads_may_share_a_poster, cache_needs_its_acquire
        let order = twin::order("cache: relaxed take", Ordering::Acquire);
        if self.busy.swap(true, order) {
            return Err(arg);
        }
        // SAFETY: `busy` was false and is true by us, so nobody else reaches the store until it is false again.
        let result = self
            .common
            .with_mut(|store| body(unsafe { &mut *store }, arg));
        // ORDER(cache): the release end; a panic in `body` would leave the store unused for ever, not torn.
        // Test: two_threads_may_share_a_poster, cache_needs_its_release
        let order = twin::order("cache: relaxed leave", Ordering::Release);
        self.busy.store(false, order);
        Ok(result)
    }
}

// SAFETY: a store stands for blocks, which belong to no thread, and for items that move to the owner.
unsafe impl<T: Send> Send for Store<T> {}
// SAFETY: `own` is reached by one thread, `common` under `busy`.
unsafe impl<T: Send> Sync for Cache<T> {}

impl<T> Spent<T> {
    /// Makes an end that leaves blocks of so many slots on the free list, for up to `keep` items.
    pub(super) fn new(keep: usize, nr_slots: usize) -> Self {
        Self {
            blocks: Chain::new(),
            nr_free: 0,
            keep: keep.div_ceil(nr_slots),
            chain: CHAIN.div_ceil(nr_slots),
        }
    }

    /// Takes a block whose items are gone.
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

    /// Puts the gathered blocks onto the free list.
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
