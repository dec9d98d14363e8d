//! The queue of a mailbox: a FIFO, or for comparison the LIFO list that it replaces.
//!
//! Both hold blocks of items (`block.rs`). In the LIFO list each block holds one item.

use std::ptr::NonNull;

use crossbeam_utils::CachePadded;
use mpscq::{Chain, Linked, Pop, RawCursor, RawQueue, Stack};

use super::block::{self, Blank, Block, State};

/// The queue in which posts wait for the owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Backlog {
    /// The wait-free queue of blocks: one locked instruction a post.
    #[default]
    Fifo,
    /// A lock-free list: a compare-exchange loop a post; the owner takes all items at once and reverses them. Kept to
    /// measure against. Order and guarantees are the same.
    Lifo,
}

/// The posters' side.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    /// I: which of the two queues is in use.
    backlog: Backlog,
    /// I: how many items a block holds.
    nr_slots: usize,
    fifo: CachePadded<RawQueue<Block<T>>>,
    lifo: CachePadded<Stack<Block<T>>>,
}

/// The owner's side.
#[derive(Debug)]
pub(super) struct Reader<T> {
    fifo: RawCursor<Block<T>>,
    /// The block that is being read: the oldest in the queue, or just popped from it.
    block: Option<NonNull<Block<T>>>,
    /// `true` once `block` is no longer in the queue.
    popped: bool,
    /// How many items of `block` were taken.
    at: usize,
    /// The state of `block` when it was last loaded.
    seen: State,
    /// Blocks that were taken from the LIFO list and reversed.
    reversed: Chain<Block<T>>,
    /// Blocks that [`Inbox::count`] has counted; older than `reversed`.
    counted: Chain<Block<T>>,
    /// How many of `counted` are urgent.
    nr_urgent: usize,
}

/// What a read found.
pub(super) enum Found<T> {
    Item(T),
    Empty,
    MidPush,
}

/// What a count found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Count {
    /// As many items as wanted, or an urgent one.
    Enough,
    /// So many items, and no more are inside.
    Only(usize),
    /// Too few, and a producer in mid-push hides how many more there are.
    MidPush,
}

impl<T> Inbox<T> {
    /// Makes both sides.
    pub(super) fn new(backlog: Backlog) -> (Self, Reader<T>) {
        let inbox = Self {
            backlog,
            nr_slots: match backlog {
                Backlog::Fifo => block::nr_slots::<T>(),
                Backlog::Lifo => 1,
            },
            fifo: CachePadded::new(RawQueue::new()),
            lifo: CachePadded::new(Stack::new()),
        };
        let reader = Reader {
            fifo: RawCursor::new(),
            block: None,
            popped: false,
            at: 0,
            seen: State::default(),
            reversed: Chain::new(),
            counted: Chain::new(),
            nr_urgent: 0,
        };
        (inbox, reader)
    }

    /// Returns how many items a block holds.
    #[inline(always)]
    pub(super) fn nr_slots(&self) -> usize {
        self.nr_slots
    }

    /// Returns `true` if nothing was pushed after `block`, which was pushed.
    #[inline(always)]
    pub(super) fn is_newest(&self, block: NonNull<Block<T>>) -> bool {
        self.fifo.is_newest(block)
    }

    /// Appends a block that was [started](Blank::start).
    #[inline(always)]
    pub(super) fn push(&self, block: NonNull<Block<T>>) {
        match self.backlog {
            Backlog::Fifo => {
                // SAFETY: 1, 2: `start` gave up the handle, and nobody else knows the block. 3: `self` lives in the
                // allocation that owner and posters share, and is freed after the last of them.
                unsafe { self.fifo.push(block) };
            }
            Backlog::Lifo => {
                // SAFETY: as above.
                self.lifo.push(unsafe { Block::from_raw(block) });
            }
        }
    }

    /// Appends the blocks of a chain, in its order.
    pub(super) fn push_chain(&self, mut blocks: Chain<Block<T>>) {
        match self.backlog {
            Backlog::Fifo => {
                if let Some((first, last, _)) = blocks.into_raw_parts() {
                    // SAFETY: 1: a chain's links lead from its first item to its last. 2: it gave up owning them; the
                    // rest as in `push`.
                    unsafe { self.fifo.push_chain(first, last) };
                }
            }
            Backlog::Lifo => {
                blocks.reverse();
                self.lifo.push_chain(blocks);
            }
        }
    }

    /// Takes the oldest item. Blocks that are found empty go to `emptied`.
    ///
    /// # Safety
    ///
    /// 1. `reader` was made with this inbox.
    #[inline(always)]
    pub(super) unsafe fn read(
        &self,
        reader: &mut Reader<T>,
        mut emptied: impl FnMut(Blank<T>),
    ) -> Found<T> {
        if self.backlog == Backlog::Lifo {
            return self.read_list(reader, emptied);
        }
        while reader.at >= reader.seen.nr_items() {
            // SAFETY: (1).
            if let Some(nothing) = unsafe { self.go_on(reader, &mut emptied) } {
                return nothing;
            }
        }
        let block = reader.block.expect("something was seen in it");
        // SAFETY: the state that was seen counts the slot, and `at` passes each once.
        let item = unsafe { block::take(block, reader.at) };
        reader.at += 1;
        Found::Item(item)
    }

    /// Loads the reader's block again, and goes on to the next block if all of its items were taken. Returns `None` if the
    /// reader has made progress, else what was found.
    ///
    /// # Safety
    ///
    /// 1. As [`read`](Self::read).
    #[inline]
    unsafe fn go_on(
        &self,
        reader: &mut Reader<T>,
        emptied: &mut impl FnMut(Blank<T>),
    ) -> Option<Found<T>> {
        let block = match reader.block {
            Some(block) => block,
            // SAFETY: 1: (1). 2: there is one reader, borrowed by `&mut`, and it moves between threads by what
            // orders their use of it.
            None => match unsafe { self.fifo.peek(&mut reader.fifo) } {
                Pop::Item(block) => *reader.block.insert(block),
                Pop::Empty => return Some(Found::Empty),
                Pop::MidPush => return Some(Found::MidPush),
            },
        };
        // SAFETY: the owner forgets a block when it sets `reader.block` to `None`.
        let state = unsafe { block::load(block) };
        if state.nr_items() > reader.at {
            reader.seen = state;
            return None;
        }
        if !reader.popped {
            // Its poster may add to it while it is the newest.
            if !state.is_sealed() {
                // SAFETY: `peek` returned it.
                match unsafe { self.fifo.after(block) } {
                    Pop::Item(_) => {}
                    Pop::Empty => return Some(Found::Empty),
                    Pop::MidPush => return Some(Found::MidPush),
                }
            }
            // SAFETY: as for `peek`.
            match unsafe { self.fifo.pop(&mut reader.fifo) } {
                Pop::Item(_) => reader.popped = true,
                _ => return Some(Found::MidPush),
            }
        }
        let mut blank = None;
        if state.is_sealed() {
            // SAFETY: both sides forget it here; its items were taken.
            blank = Some(unsafe { Blank::from_raw(block) });
        // SAFETY: 1: forgotten below. 2: `at` items were taken, which is all of `state`, and it was popped.
        } else if !unsafe { block::close(block, state) } {
            // Its poster has added an item, or sealed the block: load it again.
            return None;
        }
        (reader.block, reader.popped) = (None, false);
        (reader.at, reader.seen) = (0, State::default());
        blank.into_iter().for_each(emptied);
        None
    }

    #[inline]
    fn read_list(&self, reader: &mut Reader<T>, mut emptied: impl FnMut(Blank<T>)) -> Found<T> {
        let blank = if let Some(blank) = reader.counted.pop_front() {
            reader.nr_urgent -= usize::from(is_urgent(&blank));
            blank
        } else {
            let Some(blank) = self.take_reversed(reader) else {
                return Found::Empty;
            };
            blank
        };
        let block = blank.into_raw();
        // SAFETY: a block of the list holds one item, by `push`, and comes out of it once.
        let item = unsafe { block::take(block, 0) };
        // SAFETY: it was sealed before it was pushed.
        emptied(unsafe { Blank::from_raw(block) });
        Found::Item(item)
    }

    #[inline]
    fn take_reversed(&self, reader: &mut Reader<T>) -> Option<Blank<T>> {
        if reader.reversed.is_empty() {
            reader.reversed = self.lifo.take_all_fifo();
        }
        reader.reversed.pop_front()
    }

    /// Counts the items inside, up to `wanted` or to an urgent one.
    ///
    /// # Safety
    ///
    /// 1. As [`read`](Self::read).
    #[inline]
    pub(super) unsafe fn count(&self, reader: &mut Reader<T>, wanted: usize) -> Count {
        if self.backlog == Backlog::Lifo {
            return self.count_list(reader, wanted);
        }
        // SAFETY: (1).
        unsafe { self.walk(reader, |nr_items, urgent| nr_items >= wanted || urgent) }
    }

    /// Returns how many items are inside, without those behind a producer in mid-push.
    ///
    /// # Safety
    ///
    /// 1. As [`read`](Self::read).
    pub(super) unsafe fn len(&self, reader: &mut Reader<T>) -> usize {
        if self.backlog == Backlog::Lifo {
            while self.count_one(reader) {}
            return reader.counted.len();
        }
        let mut len = 0;
        let note = |nr_items, _| {
            len = nr_items;
            false
        };
        // SAFETY: (1).
        let _ = unsafe { self.walk(reader, note) };
        len
    }

    /// Counts the items inside, block by block, until `is_enough`. That is asked with the number so far, and whether there is an
    /// urgent one in the block.
    ///
    /// # Safety
    ///
    /// 1. As [`read`](Self::read).
    #[inline]
    unsafe fn walk(
        &self,
        reader: &mut Reader<T>,
        mut is_enough: impl FnMut(usize, bool) -> bool,
    ) -> Count {
        let (mut nr_items, mut at) = (0, reader.at);
        let mut next = match reader.block {
            Some(block) => Pop::Item(block),
            // SAFETY: as in `go_on`.
            None => unsafe { self.fifo.peek(&mut reader.fifo) },
        };
        let mut popped = reader.popped;
        loop {
            let block = match next {
                Pop::Item(block) => block,
                Pop::Empty => return Count::Only(nr_items),
                Pop::MidPush => return Count::MidPush,
            };
            // SAFETY: the reader stands at it, or it is in the queue, behind that.
            let state = unsafe { block::load(block) };
            nr_items += state.nr_items() - at;
            if is_enough(nr_items, state.has_urgent_from(at)) {
                return Count::Enough;
            }
            next = if popped {
                // SAFETY: as in `go_on`.
                unsafe { self.fifo.peek(&mut reader.fifo) }
            } else {
                // SAFETY: it is in the queue, and was returned by `peek` or `after`.
                unsafe { self.fifo.after(block) }
            };
            (popped, at) = (false, 0);
        }
    }

    fn count_list(&self, reader: &mut Reader<T>, wanted: usize) -> Count {
        while reader.counted.len() < wanted && reader.nr_urgent == 0 {
            if !self.count_one(reader) {
                return Count::Only(reader.counted.len());
            }
        }
        Count::Enough
    }

    /// Moves the next block of the list to those that were counted. Returns `false` if there is none.
    fn count_one(&self, reader: &mut Reader<T>) -> bool {
        let Some(blank) = self.take_reversed(reader) else {
            return false;
        };
        reader.nr_urgent += usize::from(is_urgent(&blank));
        reader.counted.push_back(blank);
        true
    }
}

/// Returns `true` if the first item of the block is urgent.
fn is_urgent<T>(blank: &Blank<T>) -> bool {
    blank.state().has_urgent_from(0)
}

impl<T> Drop for Reader<T> {
    fn drop(&mut self) {
        debug_assert!(
            self.reversed.is_empty() && self.counted.is_empty(),
            "the items would be forgotten"
        );
    }
}

// SAFETY: items move from poster to owner, and nothing else crosses.
unsafe impl<T: Send> Send for Inbox<T> {}
// SAFETY: as above: to share the inbox is to be able to push, which moves values.
unsafe impl<T: Send> Sync for Inbox<T> {}
// SAFETY: the reader stands for the items that it can reach.
unsafe impl<T: Send> Send for Reader<T> {}
