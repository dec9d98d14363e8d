//! Making a mailbox.

use std::marker::PhantomData;

use super::inbox::Backlog;
use super::mailbox::Mailbox;
use crate::wake::Parker;

/// For how many items emptied blocks are kept for later posts unless said otherwise. A guess: with small items it is
/// what a thread's stack touches anyway. Smaller makes bursts allocate; larger keeps what one burst needed once.
const DEFAULT_KEEP: usize = if cfg!(any(loom, shuttle)) { 1 } else { 1024 };

/// What a [`Mailbox`] is to be like.
///
/// # Examples
///
/// ```
/// use afterwork::task_work::{Mailbox, PostError};
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
    spin_limit: Option<u32>,
    pub(super) name: Option<String>,
    item: PhantomData<fn(T)>,
}

impl<T> Builder<T> {
    pub(super) fn new() -> Self {
        Self {
            capacity: None,
            keep: DEFAULT_KEEP,
            backlog: Backlog::default(),
            spin_limit: None,
            name: None,
            item: PhantomData,
        }
    }

    /// Refuses posts while `items` are inside. Costs a locked instruction a post and one a receipt.
    pub fn capacity(mut self, items: usize) -> Self {
        self.capacity = Some(items);
        self
    }

    /// Keeps emptied blocks for up to `items` later posts (1024); 0 frees each at once.
    ///
    /// Each poster may have as many at hand besides, and up to 64 blocks of 128 bytes that it can add no more to. What is
    /// beyond is freed as the owner empties it, a few blocks at a time.
    pub fn keep(mut self, items: usize) -> Self {
        self.keep = items;
        self
    }

    /// Says how posts are kept; for measurements.
    pub fn backlog(mut self, backlog: Backlog) -> Self {
        self.backlog = backlog;
        self
    }

    /// Bounds how often a waiting thread looks before it sleeps; see [`SpinBudget`](crate::wake::SpinBudget).
    /// 0 sleeps at once.
    pub fn spin_limit(mut self, spin_limit: u32) -> Self {
        self.spin_limit = Some(spin_limit);
        self
    }

    /// Gives it a name, by which `afterwork top` shows what it has received and how often its owner slept and was woken.
    /// Costs the owner a plain store an item, and posters nothing but where they wake.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Makes the mailbox.
    pub fn build(self) -> Mailbox<T> {
        Mailbox::from_builder(&self)
    }

    pub(super) fn parker(&self) -> Parker {
        self.spin_limit
            .map_or_else(Parker::new, Parker::with_spin_limit)
    }
}
