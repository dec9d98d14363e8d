//! The builder of mailboxes.

use std::marker::PhantomData;

use base::internal::admission::MAX_CAPACITY;

use super::inbox::Backlog;
use super::mailbox::Mailbox;

/// The default of [`Builder::keep`]. A guess: with small items, about as much memory as the stack
/// of a thread uses. With a smaller value, bursts allocate. With a larger one, the mailbox keeps
/// memory that only a single burst needed.
const DEFAULT_KEEP: usize = if cfg!(any(loom, shuttle)) { 1 } else { 1024 };

/// The default of [`Builder::spin_limit`]. The rounds take about as much CPU time as the owner's
/// sleep and wake-up cost the two threads (measured on two CPUs: 2 µs and 3.5 µs; a round takes 0.3
/// µs). With a larger value, an owner whose items arrive every 10 µs keeps a CPU busy to save a few
/// µs per item. With a smaller one, each item that arrives after a few µs costs a sleep.
const DEFAULT_SPIN_LIMIT: u32 = 16;

/// Builds a [`Mailbox`]; created by [`Mailbox::builder`].
///
/// # Examples
///
/// ```
/// use afterwork::mailbox::{Mailbox, PostError};
///
/// let mut mailbox = Mailbox::builder().capacity(1).build();
/// let poster = mailbox.poster();
/// poster.post(1).unwrap();
/// assert_eq!(poster.post(2), Err(PostError::Full(2)));
/// assert_eq!(mailbox.try_recv(), Ok(1));
/// poster.post(2).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Builder<T> {
    pub(super) capacity: Option<usize>,
    pub(super) keep: usize,
    pub(super) backlog: Backlog,
    pub(super) spin_limit: u32,
    pub(super) name: Option<String>,
    item: PhantomData<fn(T)>,
}

impl<T> Builder<T> {
    pub(super) fn new() -> Self {
        Self {
            capacity: None,
            keep: DEFAULT_KEEP,
            backlog: Backlog::default(),
            spin_limit: DEFAULT_SPIN_LIMIT,
            name: None,
            item: PhantomData,
        }
    }

    /// Bounds the mailbox. While `items` items are in the mailbox, posts are rejected and sends
    /// wait. By default, a mailbox is unbounded.
    ///
    /// Wake-ups of a [`LocalSet`](super::LocalSet) do not count toward the capacity: the mailbox
    /// holds at most one for each future.
    ///
    /// A bound costs one locked instruction for each post and one for each receipt. If senders wait
    /// for capacity, a receipt also acquires a lock, moves an item into the mailbox, and wakes its
    /// sender. [`Poster`](super::Poster) documents the order of senders.
    pub fn capacity(mut self, items: usize) -> Self {
        self.capacity = Some(items);
        self
    }

    /// Keeps emptied blocks for up to `items` later posts. The default is 1024. Further blocks are
    /// freed as the owner empties them, a few at a time. With 0, each block is freed at once.
    ///
    /// Each poster may also keep blocks for the same number of items, and up to 64 blocks of 128
    /// bytes to which it can add no more items.
    pub fn keep(mut self, items: usize) -> Self {
        self.keep = items;
        self
    }

    /// Sets the queue in which posts wait.
    #[cfg(feature = "baselines")]
    #[doc(hidden)]
    pub fn backlog(mut self, backlog: Backlog) -> Self {
        self.backlog = backlog;
        self
    }

    /// Sets the maximum number of rounds for which a waiting owner spins before it sleeps. The
    /// default is 16, which takes about 5 µs. With 0, the owner sleeps at once.
    ///
    /// This trades CPU time for latency. Sleeping and being woken costs the owner and the poster
    /// together about 5 µs of CPU time, and delays the item by the time of a wake-up. By default no
    /// wait spins for longer than that. With a larger limit, an owner whose items are further apart
    /// receives them at once, but keeps a CPU busy. After a spin without success, one wait in 64
    /// spins up to the limit, and the others do not spin.
    pub fn spin_limit(mut self, spin_limit: u32) -> Self {
        self.spin_limit = spin_limit;
        self
    }

    /// Names the mailbox. `afterwork top` then shows how many items it has received, and how often
    /// its owner has slept and was woken. This costs the owner a plain store for each item, and a
    /// poster an addition for each wake-up.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Creates the mailbox. Never blocks, but allocates.
    ///
    /// # Panics
    ///
    /// Panics if the capacity is 0 or above 2³¹ - 1.
    pub fn build(self) -> Mailbox<T> {
        if let Some(capacity) = self.capacity {
            assert!(
                (1..=MAX_CAPACITY).contains(&capacity),
                "the capacity of a mailbox is {capacity}: it must be from 1 to {MAX_CAPACITY}"
            );
        }
        Mailbox::from_builder(&self)
    }
}
