//! The poster's side: posts items, and counts posters.

use base::internal::wake::lane::Lane;
use sync::atomic::Ordering;
use sync::{Arc, twin};

use super::batch::Batch;
use super::block::{Blank, Kind};
use super::error::PostError;
use super::recycle::Cache;
use super::shared::Shared;

/// Posts items to a [`Mailbox`](super::Mailbox).
///
/// Clone it for each thread that posts, because each clone keeps its own blocks. Threads may share
/// a poster, but a thread that finds it in use by another thread has to allocate.
///
/// # Guarantees
///
/// - Items of one thread are received in the order in which it posted them, whichever functions it
///   used.
/// - A posted item is received by the owner, or dropped when the mailbox is dropped. A rejected
///   item is in the error.
///
/// # A full mailbox
///
/// - To get the item back, so that you can drop it or try later, use [`post`](Self::post),
///   [`post_lazy`](Self::post_lazy) or [`batch`](Self::batch).
/// - To wait for capacity, use [`send`](Self::send) in a task, and
///   [`send_blocking`](Self::send_blocking) or [`send_timeout`](Self::send_timeout) in a thread.
///
/// Waiting senders get free capacity first, in the order in which they arrived. While a sender
/// waits, posts are rejected.
///
/// # Blocking
///
/// Posting never blocks. It is allowed in a work item, under a lock, and on the owner itself. It
/// allocates if no emptied block is available, and makes a system call if it wakes the owner, so it
/// must not be used in signal handlers. If there is a [capacity](super::Builder::capacity), it may
/// hold a lock for a few instructions.
pub struct Poster<T> {
    /// Dropped first, because pushed blocks must be sealed before `shared` frees the queue.
    pub(super) cache: Cache<T>,
    pub(super) shared: Arc<Shared<T>>,
    pub(super) lane: Lane,
    /// I: the kind of its items. Posters of wake-ups are not counted, so the mailbox may end while
    /// they exist.
    kind: Kind,
}

impl<T> Poster<T> {
    /// Creates and counts a poster.
    pub(super) fn new(shared: Arc<Shared<T>>, lane: Lane) -> Self {
        // Relaxed is sufficient: the caller has another poster or is the owner, so the count never
        // rises from a zero that the owner acts on.
        shared.nr_posters.fetch_add(1, Ordering::Relaxed);
        Self { shared, cache: Cache::new(), lane, kind: Kind::Item }
    }

    /// Creates a poster of wake-ups, which is not counted.
    pub(super) fn of_wake_ups(shared: Arc<Shared<T>>) -> Self {
        Self { shared, cache: Cache::new(), lane: Lane::Ordinary, kind: Kind::WakeUps }
    }

    /// Posts an item, and wakes the owner if it sleeps. Never waits: if the mailbox is full,
    /// returns the item.
    ///
    /// # Errors
    ///
    /// Returns [`PostError`] with the item. It is `Closed` if the mailbox is closed or dropped, and
    /// `Full` if the capacity is used up or senders wait for capacity.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::{Mailbox, PostError};
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// poster.post("hello").unwrap();
    /// assert_eq!(mailbox.try_recv(), Ok("hello"));
    ///
    /// drop(mailbox);
    /// assert_eq!(poster.post("late"), Err(PostError::Closed("late")));
    /// ```
    #[inline]
    #[doc(alias("try_post", "try_send", "task_work_add"))]
    pub fn post(&self, item: T) -> Result<(), PostError<T>> {
        self.post_as(item, true)
    }

    /// Posts an item that may wait for a short time: wakes the owner only if the item completes the
    /// count for which it sleeps. The owner limits the time with
    /// [`wait_linger`](super::Mailbox::wait_linger) or
    /// [`wait_timeout`](super::Mailbox::wait_timeout).
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`post`](Self::post).
    #[inline]
    #[doc(alias = "IOU_F_TWQ_LAZY_WAKE")]
    pub fn post_lazy(&self, item: T) -> Result<(), PostError<T>> {
        self.post_as(item, false)
    }

    /// Creates a batch, whose items are posted together with one swap.
    pub fn batch(&self) -> Batch<'_, T> {
        Batch::new(self)
    }

    /// Returns a poster to the same mailbox whose items, posted with any function, are *urgent*:
    /// they overtake waiting ordinary items. Use it for few items among many, such as a cancel
    /// among requests, or a heartbeat among data.
    ///
    /// # Guarantees
    ///
    /// - An urgent item is received before all ordinary ones that are in the mailbox, and after
    ///   older urgent ones.
    /// - Ordinary items are not starved: while both are in the mailbox, every tenth receipt is an
    ///   ordinary one.
    /// - Items of one lane are received in the order that the [mailbox](super::Mailbox) guarantees.
    ///   If one thread uses an urgent and an ordinary poster, their items keep no common order.
    /// - Urgent posts end the owner's sleep as other posts do: [`post`](Self::post) at once, and
    ///   [`post_lazy`](Self::post_lazy) if the count is complete.
    /// - A [batch](Self::batch) or a [call](Self::call) is urgent as a whole.
    /// - A capacity bounds the items of both lanes together. Waiting senders are admitted in the
    ///   order of their arrival, each to its own lane. [`Mailbox::close`](super::Mailbox::close)
    ///   and the drop of the mailbox apply to both lanes.
    /// - A poster in the middle of its post blocks only its own lane: the owner continues with the
    ///   other one.
    /// - A clone is also urgent.
    ///
    /// # Cost
    ///
    /// After the first call, the owner checks two queues for each receipt, which takes a few
    /// nanoseconds. In a mailbox on which this is never called, the check adds less than a
    /// nanosecond to each post.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::Mailbox;
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// let urgent = poster.urgent();
    /// poster.post("read").unwrap();
    /// poster.post("write").unwrap();
    /// urgent.post("cancel").unwrap();
    /// assert!(mailbox.drain(3).eq(["cancel", "read", "write"]));
    /// ```
    #[doc(alias("priority", "post_urgent", "post_front"))]
    pub fn urgent(&self) -> Self {
        if !twin::armed("lanes: opened after the post") {
            self.shared.inbox.open_lanes();
        }
        Self::new(self.shared.clone(), Lane::Urgent)
    }

    /// Returns `true` if the items posted by this poster are [urgent](Self::urgent).
    pub fn is_urgent(&self) -> bool {
        self.lane == Lane::Urgent
    }

    /// Returns the maximum number of items in the mailbox, or `None` if the mailbox is unbounded.
    pub fn capacity(&self) -> Option<usize> {
        self.shared.capacity()
    }

    /// Returns the number of items that count toward the capacity of a bounded mailbox, or `None`
    /// if it is unbounded: the items in the mailbox and in batches, but not the wake-ups of local
    /// futures. The number may change before this returns. See also
    /// [`Mailbox::len`](super::Mailbox::len).
    #[doc(alias = "len")]
    pub fn nr_inside(&self) -> Option<usize> {
        self.shared.admission.as_ref().map(|admission| admission.nr_inside())
    }

    /// Closes the mailbox. From now on, posts by all posters are rejected. The owner is woken,
    /// still receives the items in the mailbox, including all that this thread has posted, and then
    /// gets [`Closed`](super::Closed). Senders that wait for capacity get their items back.
    ///
    /// A post by another thread that overlaps this call may be accepted; see
    /// [`Mailbox::close`](super::Mailbox::close).
    ///
    /// # Blocking
    ///
    /// Never blocks. Holds a lock for a few instructions if there is a capacity.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::{Closed, Mailbox, PostError};
    ///
    /// let mut mailbox = Mailbox::new();
    /// let (poster, other) = (mailbox.poster(), mailbox.poster());
    /// poster.post("last").unwrap();
    /// poster.close();
    /// assert_eq!(other.post("late"), Err(PostError::Closed("late")));
    /// assert_eq!(mailbox.recv_blocking(), Ok("last"));
    /// assert_eq!(mailbox.recv_blocking(), Err(Closed));
    /// ```
    pub fn close(&self) {
        self.shared.close_and_wake();
    }

    /// Returns `true` if the mailbox rejects posts. After `false`, it may still be closed at any
    /// time.
    pub fn is_closed(&self) -> bool {
        !self.shared.is_open()
    }

    /// Returns `true` if both posters post to the same mailbox.
    pub fn same_as(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    #[inline(always)]
    fn post_as(&self, item: T, eager: bool) -> Result<(), PostError<T>> {
        let shared = &*self.shared;
        if !shared.is_open() {
            return Err(PostError::Closed(item));
        }
        if !shared.take_capacity() {
            return Err(PostError::Full(item));
        }
        self.push(item, Kind::Item, eager);
        Ok(())
    }

    /// Posts a wake-up, which does not count toward the capacity, even if the mailbox is closed. If
    /// the mailbox was dropped, the wake-up is dropped too.
    pub(super) fn post_wake_up(&self, item: T) {
        self.push(item, Kind::WakeUps, true);
    }

    /// Posts an item for which the mailbox has free capacity.
    #[inline(always)]
    fn push(&self, item: T, kind: Kind, eager: bool) {
        debug_assert_eq!(kind, self.kind, "a block has items of one kind");
        let shared = &*self.shared;
        let lane = self.lane;
        // Captured by reference, these would have to be stored from registers to memory.
        let posted =
            self.cache.with(item, move |store, item| store.post(shared, lane, item, kind, eager));
        if let Err(item) = posted {
            self.post_alone(item, kind, eager);
        }
        shared.posted(1, eager);
        if twin::armed("lanes: opened after the post") {
            shared.inbox.open_lanes();
        }
    }

    /// Posts an item in a block of its own, because another thread uses the poster's blocks.
    #[cold]
    fn post_alone(&self, item: T, kind: Kind, eager: bool) {
        let inbox = &self.shared.inbox;
        let block = Blank::new(inbox.nr_slots()).start(item, kind, eager, true);
        inbox.push(self.lane, block);
    }
}

impl<T> Clone for Poster<T> {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone(), self.lane)
    }
}

impl<T> Drop for Poster<T> {
    fn drop(&mut self) {
        if self.kind == Kind::WakeUps {
            return;
        }
        // ORDER(posters): publish and consume, other end in `Mailbox::is_over`.
        //   here:  last push;                        nr_posters -= 1   Release
        //   owner: nr_posters == 0   Acquire;        the last count of the queue
        // If our decrement comes first, the owner finds every post that we made before it reports
        // *closed*. If its load comes first, it finds a poster and may sleep; then the claim below
        // wakes it. (In a model the fence of the last post already has the effect of the release.)
        // Test: last_poster_notifies_the_owner
        if self.shared.nr_posters.fetch_sub(1, Ordering::Release) == 1 {
            // This is like an eager post: our decrement replaces the push, and the owner reads it
            // after arming.
            self.shared.owner.wake_if_armed();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
impl<T> Poster<T> {
    pub(super) fn count_spare(&self) -> usize {
        self.cache.with((), |store, ()| store.count_spare()).unwrap_or(0)
    }

    pub(super) fn count_left(&self) -> usize {
        self.cache.with((), |store, ()| store.count_left()).unwrap_or(0)
    }
}

base::internal::impl_debug!(Poster[T], this =>
    closed: this.is_closed(),
    urgent: this.is_urgent(),
);
