//! Posting.

use std::fmt;

use mpscq::Taken;
use sync::Arc;
use sync::atomic::Ordering;

use super::error::PostError;
use super::recycle::{Cache, blank};
use super::shared::Shared;
use super::slot::{Blank, Letters, Slot};

/// Puts items into a [`Mailbox`](super::Mailbox).
///
/// Clone it for each thread that posts: a clone keeps emptied nodes at hand. Threads may share one too; while one
/// of them is at those nodes, others allocate.
///
/// # Guarantees
///
/// - Items of one thread are received in the order in which it posted them, whatever road each took.
/// - An item that was posted is handed to the owner, or dropped when the owner drops the mailbox. One that was
///   refused is in the error.
///
/// # Blocking
///
/// Posting never blocks, and may be done from a work item, under a lock, or by the owner itself. It allocates when
/// no emptied node is at hand, and makes a system call when it wakes the owner; so it is not for signal handlers.
pub struct Poster<T> {
    shared: Arc<Shared<T>>,
    cache: Cache<T>,
}

/// Items gathered by one thread, to be posted with one swap; made by [`Poster::batch`].
///
/// Items that were not posted are dropped with it. As an iterator it gives them back.
pub struct Batch<'p, T> {
    poster: &'p Poster<T>,
    letters: Letters<T>,
    /// Emptied nodes that are left for more items.
    nodes: Taken<Slot<T>>,
}

impl<T> Poster<T> {
    /// Makes a poster; the count of them says so.
    pub(super) fn new(shared: Arc<Shared<T>>) -> Self {
        // Relaxed: whoever makes one holds another one, or is the owner, so the count does not rise from a zero that
        // somebody acts on.
        shared.nr_posters.fetch_add(1, Ordering::Relaxed);
        Self {
            shared,
            cache: Cache::new(),
        }
    }

    /// Posts an item and wakes the owner, if it sleeps.
    ///
    /// # Errors
    ///
    /// [`PostError`] with the item, when the mailbox is closed or full.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::task_work::{Mailbox, PostError};
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// poster.post("hello").unwrap();
    /// assert_eq!(mailbox.try_recv(), Ok("hello"));
    ///
    /// drop(mailbox);
    /// assert_eq!(poster.post("anybody?"), Err(PostError::Closed("anybody?")));
    /// ```
    #[inline]
    pub fn post(&self, item: T) -> Result<(), PostError<T>> {
        self.send(item, true)
    }

    /// Posts an item, and wakes the owner only if it sleeps until so many are there.
    ///
    /// Use it for work that may wait a little, as long as the owner bounds the time:
    /// [`Mailbox::wait_timeout`](super::Mailbox::wait_timeout).
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post).
    #[inline]
    pub fn post_lazy(&self, item: T) -> Result<(), PostError<T>> {
        self.send(item, false)
    }

    /// Starts a batch: items put into it are posted together, with one swap.
    pub fn batch(&self) -> Batch<'_, T> {
        Batch {
            poster: self,
            letters: Letters::new(),
            nodes: Taken::new(),
        }
    }

    /// Says whether the owner takes no more posts. It may close right after the answer.
    pub fn is_closed(&self) -> bool {
        !self.shared.is_open()
    }

    /// Says whether both post to the same mailbox.
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    #[inline(always)]
    fn send(&self, item: T, urgent: bool) -> Result<(), PostError<T>> {
        let shared = &*self.shared;
        if !shared.is_open() {
            return Err(PostError::Closed(item));
        }
        if !shared.room.take() {
            return Err(PostError::Full(item));
        }
        shared
            .inbox
            .push(blank(&self.cache, &shared.free).fill(item, urgent));
        shared.posted(1, urgent);
        Ok(())
    }
}

impl<T> Batch<'_, T> {
    /// Adds an item.
    ///
    /// # Errors
    ///
    /// [`PostError::Full`] with the item. That the mailbox is closed is said when the batch is posted.
    #[inline]
    pub fn push(&mut self, item: T) -> Result<(), PostError<T>> {
        let shared = &*self.poster.shared;
        if !shared.room.take() {
            return Err(PostError::Full(item));
        }
        if self.nodes.is_empty() {
            self.fetch_nodes();
        }
        let blank = self.nodes.next().unwrap_or_else(Blank::new);
        self.letters.push_back(blank.fill(item, false));
        Ok(())
    }

    /// Returns how many items wait to be posted.
    pub fn len(&self) -> usize {
        self.letters.len()
    }

    /// Says whether no item waits to be posted.
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// Posts the items and wakes the owner, if it sleeps. The batch is empty then, and may be filled again.
    ///
    /// # Errors
    ///
    /// [`PostError::Closed`]; the items are still in the batch.
    pub fn post(&mut self) -> Result<(), PostError<()>> {
        self.send(true)
    }

    /// Posts the items, and wakes the owner only if that makes as many as it sleeps for.
    ///
    /// # Errors
    ///
    /// As [`post`](Self::post).
    pub fn post_lazy(&mut self) -> Result<(), PostError<()>> {
        self.send(false)
    }

    fn send(&mut self, urgent: bool) -> Result<(), PostError<()>> {
        let shared = &*self.poster.shared;
        if !shared.is_open() {
            return Err(PostError::Closed(()));
        }
        let nr_items = self.letters.len();
        if let Some(mut first) = self.letters.pop_front() {
            // One urgent letter makes the batch urgent: no sleep is begun or gone on with while it is inside.
            first.set_urgent(urgent);
            let mut letters = Letters::new();
            letters.push_back(first);
            letters.append(std::mem::replace(&mut self.letters, Letters::new()));
            shared.inbox.push_chain(letters);
            shared.posted(nr_items, urgent);
        }
        Ok(())
    }

    #[cold]
    fn fetch_nodes(&mut self) {
        let cached = self.poster.cache.with(std::mem::take).unwrap_or_default();
        self.nodes = if cached.is_empty() {
            self.poster.shared.free.take_all()
        } else {
            cached
        };
    }
}

/// Takes the items back, oldest first.
impl<T> Iterator for Batch<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let (item, blank) = self.letters.pop_front()?.open();
        drop(blank);
        self.poster.shared.room.give(1);
        Some(item)
    }
}

impl<T> Drop for Batch<'_, T> {
    fn drop(&mut self) {
        self.poster.shared.room.give(self.letters.len());
        let nodes = std::mem::take(&mut self.nodes);
        if !nodes.is_empty() {
            // The poster's own nodes were taken by us, or it had none; if it has some again, ours are freed.
            self.poster.cache.with(|cached| {
                if cached.is_empty() {
                    *cached = nodes;
                }
            });
        }
    }
}

impl<T> Clone for Poster<T> {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone())
    }
}

impl<T> Drop for Poster<T> {
    fn drop(&mut self) {
        // ORDER(posters): publish and consume, other end in `Mailbox::is_over`.
        //   here:  last push;                        nr_posters -= 1   Release
        //   owner: nr_posters == 0   Acquire;        the last look into the queue
        // Else the owner could say *closed* with a post inside. In a model the fence of the last post does the work
        // of the release; on a machine where that fence is left out, this does.
        // Test: the_last_poster_tells_the_owner
        if self.shared.nr_posters.fetch_sub(1, Ordering::Release) == 1 {
            self.last_one_gone();
        }
    }
}

impl<T> Poster<T> {
    /// Wakes the owner, which may be waiting for posts that will not come.
    #[cold]
    fn last_one_gone(&self) {
        // As a post that is urgent: the count stands for the push, the owner looks at it after arming.
        if self.shared.owner.wait.claim(1, true) {
            self.shared.owner.bell.ring();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl<T> Poster<T> {
    /// Counts the nodes at hand; loses them.
    pub(super) fn count_cached(&self) -> usize {
        self.cache
            .with(|nodes| std::mem::take(nodes).count())
            .unwrap_or(0)
    }
}

impl<T> fmt::Debug for Poster<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poster")
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Batch<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch")
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}
