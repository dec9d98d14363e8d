//! Posts several items at once.

use std::collections::VecDeque;
use std::ptr::NonNull;

use base::internal::panics;
use mpscq::{Chain, Linked};

use super::block::{self, Blank, Block};
use super::error::PostError;
use super::poster::Poster;

/// The items that one thread gathers and posts with one swap; created by [`Poster::batch`].
///
/// Items that were not posted are dropped with the batch. If such a drop panics, the panic is
/// caught. As an iterator, a batch returns its items.
pub struct Batch<'p, T> {
    poster: &'p Poster<T>,
    /// The sealed blocks, older than `open`.
    full: Chain<Block<T>>,
    /// The block that is being filled.
    open: Option<NonNull<Block<T>>>,
    nr_open: usize,
    nr_packed: usize,
    /// The items that the iterator has taken out of the blocks. While this is not empty, the batch
    /// has no blocks.
    back: VecDeque<T>,
}

impl<'p, T> Batch<'p, T> {
    pub(super) fn new(poster: &'p Poster<T>) -> Self {
        Self {
            poster,
            full: Chain::new(),
            open: None,
            nr_open: 0,
            nr_packed: 0,
            back: VecDeque::new(),
        }
    }

    /// Adds an item and reserves capacity for it.
    ///
    /// # Errors
    ///
    /// Returns [`PostError::Full`] with the item, if there is no capacity or if other items wait
    /// for it. A closed mailbox is reported later, by [`post`](Self::post).
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), PostError<T>> {
        if !self.poster.shared.take_capacity() {
            return Err(PostError::Full(item));
        }
        if !self.back.is_empty() {
            self.pack_again();
        }
        self.pack(item);
        Ok(())
    }

    /// Returns the number of items that have not been posted yet.
    pub fn len(&self) -> usize {
        self.nr_packed + self.back.len()
    }

    /// Returns `true` if the batch contains no item.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Posts the items, and wakes the owner if it sleeps. The batch is then empty and may be filled
    /// again.
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one swap, and a system call if it wakes the owner.
    ///
    /// # Errors
    ///
    /// Returns [`PostError::Closed`], with the items still in the batch.
    pub fn post(&mut self) -> Result<(), PostError<()>> {
        self.send(true)
    }

    /// Posts the items, and wakes the owner only if they complete the count for which it sleeps.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`post`](Self::post).
    pub fn post_lazy(&mut self) -> Result<(), PostError<()>> {
        self.send(false)
    }

    fn send(&mut self, eager: bool) -> Result<(), PostError<()>> {
        let shared = &*self.poster.shared;
        if !shared.is_open() {
            return Err(PostError::Closed(()));
        }
        if !self.back.is_empty() {
            self.pack_again();
        }
        self.seal();
        let nr_items = std::mem::take(&mut self.nr_packed);
        let mut blocks = std::mem::take(&mut self.full);
        if blocks.is_empty() {
            return Ok(());
        }
        if eager {
            // The owner does not sleep while an eager item is in the mailbox. The last item of each
            // block keeps the owner awake until it has received the whole batch.
            blocks = blocks.inspect(Blank::mark_eager).collect();
        }
        shared.inbox.push_chain(self.poster.lane, blocks);
        shared.posted(nr_items, eager);
        Ok(())
    }

    #[inline]
    fn pack(&mut self, item: T) {
        let block = match self.open {
            Some(block) => block,
            None => *self.open.insert(Block::into_raw(self.fetch_block())),
        };
        // SAFETY: we own the open block, which is sealed when it is full.
        unsafe { block::put(block, self.nr_open, item) };
        self.nr_open += 1;
        self.nr_packed += 1;
        if self.nr_open == self.poster.shared.inbox.nr_slots() {
            self.seal();
        }
    }

    fn seal(&mut self) {
        if let Some(block) = self.open.take() {
            // SAFETY: we own the open block, and `pack` filled its first `nr_open` slots.
            unsafe { block::seal_filled(block, self.nr_open) };
            self.nr_open = 0;
            // SAFETY: the block came from `into_raw`, in `pack`, and is in no list.
            unsafe { self.full.push_back_raw(block) };
        }
    }

    #[cold]
    fn fetch_block(&self) -> Blank<T> {
        let shared = &*self.poster.shared;
        let blank = self.poster.cache.with((), |store, ()| store.blank(&shared.free));
        blank.ok().flatten().unwrap_or_else(|| Blank::new(shared.inbox.nr_slots()))
    }

    #[cold]
    fn unpack(&mut self) {
        self.seal();
        while let Some(blank) = self.full.pop_front() {
            let nr_items = blank.state().nr_items();
            let block = Block::into_raw(blank);
            for at in 0..nr_items {
                // SAFETY: we own the block, and its state counts the slot.
                self.back.push_back(unsafe { block::take(block, at) });
            }
            // SAFETY: we own the block, and its items were taken.
            drop(unsafe { Block::from_raw(block) });
        }
        self.nr_packed = 0;
    }

    #[cold]
    fn pack_again(&mut self) {
        for item in std::mem::take(&mut self.back) {
            self.pack(item);
        }
    }
}

impl<T> Iterator for Batch<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.back.is_empty() {
            self.unpack();
        }
        let item = self.back.pop_front()?;
        self.poster.shared.release(1);
        Some(item)
    }
}

impl<T> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        self.for_each(|item| {
            // FOREIGN(batch-item): an item's drop, on the poster. A panic is caught.
            panics::contain(|| drop(item));
        });
    }
}

// SAFETY: a batch consists of items and a reference to a poster, and threads may share a poster.
unsafe impl<T: Send> Send for Batch<'_, T> {}
