//! The queues of a mailbox, which hold blocks of items (`block.rs`): a FIFO, or for comparison a
//! LIFO list with one item in each block, and another FIFO for urgent items.
//!
//! # Lanes
//!
//! The *ordinary* lane is the FIFO or the list. The *urgent* lane is a separate FIFO, so that the
//! owner need not walk over the items that are overtaken. A poster always posts in the same lane.
//! The first urgent poster opens the lane: it sets `LANES` before it posts. From then on the owner
//! checks both lanes for each receipt, and takes the item of the lane whose turn it is
//! (`crates/base/src/wake/lane.rs`).
//!
//! Two things must never happen:
//!
//! - *The owner sleeps while an urgent item waits.* The owner counts both lanes after it has armed,
//!   and a poster whose item the count missed sees the arming, as in `wait.rs`. `LANES` is set
//!   before the push, and read after the owner's fence (twins `lanes: opened after the post`,
//!   `lanes: one is counted`).
//! - *One lane hides the other.* A poster in mid-push blocks only its own lane. The owner reports
//!   *empty* only if both lanes are empty, and sleeps only if no poster is in mid-push in either
//!   lane (twin `lanes: a mid-push is passed over`).

use std::ptr::NonNull;

use base::internal::wake::lane::{Lane, Turns};
use crossbeam_utils::CachePadded;
use mpscq::{Chain, Linked, Pop, RawCursor, RawQueue, Stack};
use sync::atomic::{AtomicU8, Ordering};
use sync::twin;

use super::block::{self, Blank, Block, State};

/// The queue in which posts wait for the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
#[doc(hidden)]
pub enum Backlog {
    /// The wait-free queue of blocks. It costs one locked instruction per post.
    #[default]
    Fifo,
    /// A lock-free list, as a baseline. It costs one compare-exchange loop per post, and the owner
    /// takes all items at once and reverses them. The order and the guarantees are the same.
    Lifo,
}

/// The posters' side.
pub(super) struct Inbox<T> {
    /// I: the queue that is in use for ordinary items.
    backlog: Backlog,
    /// A: 0 for a single FIFO, otherwise a combination of [`LIST`] and [`LANES`].
    looks: AtomicU8,
    /// I: the number of items that a block can hold.
    nr_slots: usize,
    fifo: CachePadded<RawQueue<Block<T>>>,
    aside: CachePadded<Aside<T>>,
}

/// A bit of `Inbox::looks`: the ordinary lane is a list.
const LIST: u8 = 1;
/// A bit of `Inbox::looks`: there is or was an urgent poster.
const LANES: u8 = 2;

/// The queues that most mailboxes do not use.
struct Aside<T> {
    lifo: Stack<Block<T>>,
    urgent: RawQueue<Block<T>>,
}

/// The owner's side.
pub(super) struct Reader<T> {
    fifo: Place<T>,
    urgent: Place<T>,
    turns: Turns,
    /// The blocks of the LIFO list, oldest first.
    reversed: Chain<Block<T>>,
    /// The blocks that [`Inbox::count`] has counted. They are older than `reversed`.
    counted: Chain<Block<T>>,
    /// The number of eager blocks in `counted`.
    nr_eager: usize,
}

/// The owner's position in a FIFO.
struct Place<T> {
    cursor: RawCursor<Block<T>>,
    /// The block that is being read. It is the oldest in the queue, or was just popped from it.
    block: Option<NonNull<Block<T>>>,
    /// `true` once `block` was popped.
    popped: bool,
    /// The number of items of `block` that were taken.
    at: usize,
    /// The state of `block` when it was last loaded.
    seen: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Nothing {
    Empty,
    MidPush,
}

impl<T> Inbox<T> {
    pub(super) fn new(backlog: Backlog) -> (Self, Reader<T>) {
        let (nr_slots, looks) = match backlog {
            Backlog::Fifo => (block::nr_slots::<T>(), 0),
            Backlog::Lifo => (1, LIST),
        };
        let inbox = Self {
            backlog,
            looks: AtomicU8::new(looks),
            nr_slots,
            fifo: CachePadded::new(RawQueue::new()),
            aside: CachePadded::new(Aside { lifo: Stack::new(), urgent: RawQueue::new() }),
        };
        let reader = Reader {
            fifo: Place::new(),
            urgent: Place::new(),
            turns: Turns::default(),
            reversed: Chain::new(),
            counted: Chain::new(),
            nr_eager: 0,
        };
        (inbox, reader)
    }

    #[inline(always)]
    fn is_list(&self) -> bool {
        cfg!(feature = "baselines") && self.backlog == Backlog::Lifo
    }

    #[inline(always)]
    pub(super) fn nr_slots(&self) -> usize {
        self.nr_slots
    }

    /// Makes the owner check both lanes from now on, before a post in the urgent lane.
    pub(super) fn open_lanes(&self) {
        // Relaxed is sufficient, because the pushes that follow publish it; see the top of the
        // file.
        self.looks.fetch_or(LANES, Ordering::Relaxed);
    }

    #[inline(always)]
    fn queue(&self, lane: Lane) -> &RawQueue<Block<T>> {
        match lane {
            Lane::Ordinary => &self.fifo,
            Lane::Urgent => &self.aside.urgent,
        }
    }

    /// Returns `true` if nothing was pushed after `block`, which was pushed in `lane`.
    #[inline(always)]
    pub(super) fn is_newest(&self, lane: Lane, block: NonNull<Block<T>>) -> bool {
        self.queue(lane).is_newest(block)
    }

    /// Appends a block that was [started](Blank::start).
    #[inline(always)]
    pub(super) fn push(&self, lane: Lane, block: NonNull<Block<T>>) {
        if self.is_list() && lane == Lane::Ordinary {
            // SAFETY: `start` gave up the handle, and no other thread knows the block.
            self.aside.lifo.push(unsafe { Block::from_raw(block) });
            return;
        }
        // SAFETY: (1), (2): as above. (3): `self` is in the allocation that owner and posters
        // share, and is freed after the last of them.
        unsafe { self.queue(lane).push(block) };
    }

    /// Appends the blocks of a chain, in its order.
    pub(super) fn push_chain(&self, lane: Lane, mut blocks: Chain<Block<T>>) {
        if self.is_list() && lane == Lane::Ordinary {
            blocks.reverse();
            self.aside.lifo.push_chain(blocks);
        } else if let Some((first, last, _)) = blocks.into_raw_parts() {
            // SAFETY: (1): a chain's links lead from its first item to its last. (2): the chain no
            // longer owns them. The rest is as in `push`.
            unsafe { self.queue(lane).push_chain(first, last) };
        }
    }

    /// Takes the oldest item of the lane whose turn it is. Also returns `true` if it counts toward
    /// the capacity. Passes empty blocks to `emptied`.
    ///
    /// # Safety
    ///
    /// 1. `reader` was created with this inbox.
    #[inline(always)]
    pub(super) unsafe fn read(
        &self,
        reader: &mut Reader<T>,
        mut emptied: impl FnMut(Blank<T>),
    ) -> Result<(T, bool), Nothing> {
        if self.looks.load(Ordering::Relaxed) != 0 {
            // SAFETY: (1).
            return unsafe { self.read_in_turn(reader, emptied) };
        }
        // SAFETY: (1).
        unsafe { reader.fifo.find(&self.fifo, &mut emptied) }?;
        Ok(reader.fifo.take())
    }

    /// # Safety
    ///
    /// 1. The same as [`read`](Self::read).
    #[inline(never)]
    unsafe fn read_in_turn(
        &self,
        reader: &mut Reader<T>,
        mut emptied: impl FnMut(Blank<T>),
    ) -> Result<(T, bool), Nothing> {
        let urgent = if self.has_lanes() {
            // SAFETY: (1).
            unsafe { reader.urgent.find(&self.aside.urgent, &mut emptied) }
        } else {
            Err(Nothing::Empty)
        };
        let ordinary = match self.backlog {
            // SAFETY: (1).
            Backlog::Fifo => unsafe { reader.fifo.find(&self.fifo, &mut emptied) },
            Backlog::Lifo => self.find_in_list(reader),
        };
        if let (Err(urgent), Err(ordinary)) = (urgent, ordinary) {
            return Err(urgent.or(ordinary));
        }
        match (reader.turns.take(urgent.is_ok(), ordinary.is_ok()), self.backlog) {
            (Lane::Urgent, _) => Ok(reader.urgent.take()),
            (Lane::Ordinary, Backlog::Fifo) => Ok(reader.fifo.take()),
            (Lane::Ordinary, Backlog::Lifo) => Ok(Self::take_from_list(reader, emptied)),
        }
    }

    fn has_lanes(&self) -> bool {
        self.looks.load(Ordering::Relaxed) & LANES != 0
    }

    fn find_in_list(&self, reader: &mut Reader<T>) -> Result<(), Nothing> {
        if reader.counted.is_empty() && !self.reverse(reader) {
            return Err(Nothing::Empty);
        }
        Ok(())
    }

    fn take_from_list(reader: &mut Reader<T>, mut emptied: impl FnMut(Blank<T>)) -> (T, bool) {
        let blank = reader.counted.pop_front().inspect(|blank| {
            reader.nr_eager -= usize::from(is_eager(blank));
        });
        let blank = blank.or_else(|| reader.reversed.pop_front());
        let blank = blank.expect("one was found");
        let takes_capacity = blank.state().takes_capacity();
        let block = Block::into_raw(blank);
        // SAFETY: a block of the list holds one item, as `push` ensures, and is popped once.
        let item = unsafe { block::take(block, 0) };
        // SAFETY: the block was sealed before it was pushed, so its poster does not use it.
        emptied(unsafe { Block::from_raw(block) });
        (item, takes_capacity)
    }

    #[inline]
    fn reverse(&self, reader: &mut Reader<T>) -> bool {
        if reader.reversed.is_empty() {
            reader.reversed = self.aside.lifo.take_all_fifo();
        }
        !reader.reversed.is_empty()
    }

    /// Counts the items, up to `wanted` or to an eager one. If there are too few, returns their
    /// number, and `true` if a producer in mid-push hides further ones.
    ///
    /// # Safety
    ///
    /// 1. The same as [`read`](Self::read).
    #[inline]
    pub(super) unsafe fn count(
        &self,
        reader: &mut Reader<T>,
        wanted: usize,
    ) -> Option<(usize, bool)> {
        // SAFETY: (1).
        unsafe { self.walk(reader, |nr_items, eager| nr_items >= wanted || eager) }
    }

    /// Returns the number of items in the mailbox, excluding those behind a producer in mid-push.
    ///
    /// # Safety
    ///
    /// 1. The same as [`read`](Self::read).
    pub(super) unsafe fn len(&self, reader: &mut Reader<T>) -> usize {
        let mut len = 0;
        let note = |nr_items, _| {
            len = nr_items;
            false
        };
        // SAFETY: (1).
        let _ = unsafe { self.walk(reader, note) };
        len
    }

    /// Counts the items of both lanes, block by block, until `is_enough` returns `true`. Its
    /// arguments are the current count, and `true` if the block has an eager item. Otherwise
    /// returns the same as [`count`](Self::count).
    ///
    /// # Safety
    ///
    /// 1. The same as [`read`](Self::read).
    #[inline]
    unsafe fn walk(
        &self,
        reader: &mut Reader<T>,
        mut is_enough: impl FnMut(usize, bool) -> bool,
    ) -> Option<(usize, bool)> {
        let mut urgent = (0, false);
        if self.has_lanes() && !twin::armed("lanes: one is counted") {
            // SAFETY: (1).
            urgent = unsafe { reader.urgent.walk(&self.aside.urgent, 0, &mut is_enough) }?;
        }
        let (nr_items, mid_push) = match self.backlog {
            // SAFETY: (1).
            Backlog::Fifo => unsafe { reader.fifo.walk(&self.fifo, urgent.0, is_enough) },
            Backlog::Lifo => self.walk_list(reader, urgent.0, is_enough),
        }?;
        let passes_over = twin::armed("lanes: a mid-push is passed over");
        Some((nr_items, mid_push || urgent.1 && !passes_over))
    }

    fn walk_list(
        &self,
        reader: &mut Reader<T>,
        before: usize,
        mut is_enough: impl FnMut(usize, bool) -> bool,
    ) -> Option<(usize, bool)> {
        loop {
            let nr_items = before + reader.counted.len();
            if is_enough(nr_items, reader.nr_eager > 0) {
                return None;
            }
            if !self.reverse(reader) {
                return Some((nr_items, false));
            }
            let blank = reader.reversed.pop_front().expect("one was found");
            reader.nr_eager += usize::from(is_eager(&blank));
            reader.counted.push_back(blank);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl<T> Inbox<T> {
    /// Leaves the FIFO of a lane in the state that it has between the two steps of a push. Its
    /// single item was never received, and never will be.
    pub(super) fn hold_up(&self, lane: Lane) {
        // SAFETY: the cursor is discarded. It takes the pointer with which the reader's cursor
        // begins, so the reader finds a newest item but no oldest one, as after the first step of a
        // push.
        let found = unsafe { self.queue(lane).peek(&mut RawCursor::new()) };
        assert!(matches!(found, Pop::Item(_)), "a post has ended");
    }
}

impl Nothing {
    fn or(self, other: Self) -> Self {
        match self {
            Self::Empty => other,
            Self::MidPush => self,
        }
    }
}

impl<T> Place<T> {
    const fn new() -> Self {
        Self { cursor: RawCursor::new(), block: None, popped: false, at: 0, seen: State::NONE }
    }

    /// Finds the oldest item, for [`take`](Self::take).
    ///
    /// # Safety
    ///
    /// 1. `self` was created with `queue`, and is in a reader.
    #[inline(always)]
    unsafe fn find(
        &mut self,
        queue: &RawQueue<Block<T>>,
        emptied: &mut impl FnMut(Blank<T>),
    ) -> Result<(), Nothing> {
        while self.at >= self.seen.nr_items() {
            // SAFETY: (1).
            unsafe { self.go_on(queue, emptied) }?;
        }
        Ok(())
    }

    /// Takes the item that was found. Also returns `true` if it counts toward the capacity.
    #[inline(always)]
    fn take(&mut self) -> (T, bool) {
        assert!(self.at < self.seen.nr_items(), "an item was found");
        let block = self.block.expect("an item was seen in it");
        // SAFETY: the state that was seen counts the slot, and `at` never returns to a slot.
        let item = unsafe { block::take(block, self.at) };
        self.at += 1;
        (item, self.seen.takes_capacity())
    }

    /// Loads the block's state again. If all of its items were taken, moves to the next block.
    /// Fails if neither makes progress.
    ///
    /// # Safety
    ///
    /// 1. The same as [`find`](Self::find).
    #[inline]
    unsafe fn go_on(
        &mut self,
        queue: &RawQueue<Block<T>>,
        emptied: &mut impl FnMut(Blank<T>),
    ) -> Result<(), Nothing> {
        let block = match self.block {
            Some(block) => block,
            // SAFETY: (1) of this function is (1) of the call. (2): there is one reader, borrowed
            // by `&mut`, and threads that transfer it to each other synchronize its use.
            None => match unsafe { queue.peek(&mut self.cursor) } {
                Pop::Item(block) => *self.block.insert(block),
                Pop::Empty => return Err(Nothing::Empty),
                Pop::MidPush => return Err(Nothing::MidPush),
            },
        };
        // SAFETY: the owner uses a block until it sets `self.block` to `None`.
        let state = unsafe { block::load(block) };
        if state.nr_items() > self.at {
            self.seen = state;
            return Ok(());
        }
        if !self.popped {
            if !state.is_sealed() {
                // SAFETY: `peek` returned the block.
                match unsafe { queue.after(block) } {
                    Pop::Item(_) => {}
                    Pop::Empty => return Err(Nothing::Empty),
                    Pop::MidPush => return Err(Nothing::MidPush),
                }
            }
            // SAFETY: as for `peek`.
            match unsafe { queue.pop(&mut self.cursor) } {
                Pop::Item(_) => self.popped = true,
                _ => return Err(Nothing::MidPush),
            }
        }
        let mut blank = None;
        if state.is_sealed() {
            // SAFETY: neither side uses the block after this, and its items were taken.
            blank = Some(unsafe { Block::from_raw(block) });
        // SAFETY: (1): the block is not used below. (2): `at` items were taken, which is all of
        // `state`, and the block was popped.
        } else if !unsafe { block::close(block, state) } {
            // The block's poster has added an item or sealed the block.
            return Ok(());
        }
        (self.block, self.popped) = (None, false);
        (self.at, self.seen) = (0, State::NONE);
        blank.into_iter().for_each(emptied);
        Ok(())
    }

    /// Counts the items, starting at `before`, as [`Inbox::walk`] does.
    ///
    /// # Safety
    ///
    /// 1. The same as [`find`](Self::find).
    #[inline]
    unsafe fn walk(
        &mut self,
        queue: &RawQueue<Block<T>>,
        before: usize,
        mut is_enough: impl FnMut(usize, bool) -> bool,
    ) -> Option<(usize, bool)> {
        let (mut nr_items, mut at) = (before, self.at);
        let mut next = match self.block {
            Some(block) => Pop::Item(block),
            // SAFETY: as in `go_on`.
            None => unsafe { queue.peek(&mut self.cursor) },
        };
        let mut popped = self.popped;
        loop {
            let Pop::Item(block) = next else {
                return Some((nr_items, next == Pop::MidPush));
            };
            // SAFETY: the block is the reader's block, or is in the queue behind it.
            let state = unsafe { block::load(block) };
            nr_items += state.nr_items() - at;
            if is_enough(nr_items, state.has_eager_from(at)) {
                return None;
            }
            next = if popped {
                // SAFETY: as in `go_on`.
                unsafe { queue.peek(&mut self.cursor) }
            } else {
                // SAFETY: the block is in the queue, and was returned by `peek` or `after`.
                unsafe { queue.after(block) }
            };
            (popped, at) = (false, 0);
        }
    }
}

fn is_eager<T>(blank: &Blank<T>) -> bool {
    blank.state().has_eager_from(0)
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        debug_assert!(self.reversed.is_empty() && self.counted.is_empty(), "the items would leak");
    }
}

// SAFETY: only items, which are `Send`, move from posters to the owner.
unsafe impl<T: Send> Send for Inbox<T> {}
// SAFETY: as above. Sharing the inbox only permits pushes, which move values.
unsafe impl<T: Send> Sync for Inbox<T> {}
// SAFETY: the reader only gives access to items, which are `Send`.
unsafe impl<T: Send> Send for Reader<T> {}
