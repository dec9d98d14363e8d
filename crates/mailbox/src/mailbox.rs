//! The owner's side: receives items, and sleeps until there are enough of them.

use std::time::Duration;

use base::internal::wake::Parker;
use base::internal::wake::lane::Lane;
use sync::atomic::Ordering;
use sync::{Arc, hint, thread, time, twin};

use super::builder::Builder;
use super::error::{Closed, TryRecvError};
use super::inbox::{Nothing, Reader};
use super::owner_waker::Sleep;
use super::poster::Poster;
use super::recycle::Spent;
use super::shared::Shared;
use super::tally::{RECEIVED, SLEEPS, tally};

/// The number of times that a wait yields its CPU to a poster in mid-push before it sleeps between
/// checks. This is a guess: the poster needs two instructions, so after this many yields it must
/// have been preempted.
const NR_YIELDS: u32 = 32;

/// The length of that sleep in microseconds: about as long as a wake-up. A longer sleep delays the
/// items behind that poster. A shorter one uses the CPU that the poster may need.
const MID_PUSH_SLEEP_US: u64 = 50;

/// The minimum time in nanoseconds between two polls that find nothing: the time of a few transfers
/// of a cache line. An owner that polls faster takes the line that posters write, and slows all of
/// them down. In measurements, a larger value delays items without a gain. The clock of a model
/// does not advance.
const POLL_GAP_NS: u64 = if cfg!(any(loom, shuttle)) { 0 } else { 500 };

/// A queue of items for one owner, which is woken once there are enough items.
///
/// Any thread posts through a [`Poster`]. The owner receives with [`try_recv`](Self::try_recv) or
/// [`drain`](Self::drain), and sleeps in one of the ways that [the module page](super) lists.
///
/// # Guarantees
///
/// - Items of one poster are received in the order in which they were posted. The same holds for
///   the items of two posts if one ended before the other began. [Urgent](Poster::urgent) items
///   overtake ordinary ones.
/// - The owner is woken at most once each time it goes to sleep, and never while it is awake.
/// - Dropping the mailbox drops the items in it. If such a drop panics, the panic is caught. Later
///   posts are rejected, with the item in the error.
///
/// A mailbox grows with the posted items, unless it is built with a [capacity](Builder::capacity),
/// with which posts are rejected or wait for capacity. Emptied blocks are kept for later posts, up
/// to a [limit](Builder::keep).
///
/// # Examples
///
/// ```
/// use afterwork::mailbox::Mailbox;
///
/// let mut mailbox = Mailbox::new();
/// let poster = mailbox.poster();
/// let worker = std::thread::spawn(move || {
///     for number in 0..100 {
///         poster.post(number).unwrap();
///     }
/// });
///
/// let mut sum = 0;
/// // Ends when the worker's poster was dropped and every item was received.
/// while mailbox.wait(1).is_ok() {
///     sum += mailbox.drain(16).sum::<i32>();
/// }
/// assert_eq!(sum, 99 * 100 / 2);
/// worker.join().unwrap();
/// ```
#[doc(alias("kfifo", "task_work"))]
pub struct Mailbox<T> {
    pub(super) shared: Arc<Shared<T>>,
    /// `None` once the mailbox is being dropped.
    reader: Option<Reader<T>>,
    spent: Spent<T>,
    /// The time at which a poll last found nothing.
    last_empty_ns: u64,
    parker: Parker,
}

/// An iterator that receives items up to a bound; created by [`Mailbox::drain`].
#[derive(Debug)]
pub struct Drain<'m, T> {
    mailbox: &'m mut Mailbox<T>,
    left: usize,
}

/// An iterator that receives items while a budget lasts; created by [`Mailbox::drain_while`].
#[must_use = "an iterator does nothing until it is asked"]
pub struct DrainWhile<'m, T, B> {
    drain: Drain<'m, T>,
    budget: B,
}

/// The owner's next action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PrepareSleep {
    /// Sleep: a wake-up will follow.
    Sleep,
    /// Receive: there are enough items.
    Ready,
    /// Try again in a moment: a poster is in mid-push.
    Retry,
    /// End: no more items will arrive.
    Closed,
}

impl<T> Mailbox<T> {
    /// Creates an unbounded mailbox.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Returns a builder, for a mailbox with a bound, a name or other settings.
    pub fn builder() -> Builder<T> {
        Builder::new()
    }

    pub(super) fn from_builder(builder: &Builder<T>) -> Self {
        let parker = Parker::with_spin_limit(builder.spin_limit);
        let tally = builder.name.as_deref().map(tally);
        let (shared, reader) =
            Shared::new(builder.backlog, builder.capacity, parker.unparker(), tally);
        let spent = Spent::new(builder.keep, shared.inbox.nr_slots());
        Self { shared: Arc::new(shared), reader: Some(reader), spent, last_empty_ns: 0, parker }
    }

    /// Creates a poster. Clone it to get more posters.
    pub fn poster(&self) -> Poster<T> {
        Poster::new(self.shared.clone(), Lane::Ordinary)
    }

    /// Returns the maximum number of items in the mailbox, or `None` if the mailbox is unbounded.
    pub fn capacity(&self) -> Option<usize> {
        self.shared.capacity()
    }

    /// Receives the oldest item, if there is one.
    ///
    /// # Blocking
    ///
    /// Never sleeps. If a call finds nothing, and another such call was less than half a
    /// microsecond ago, it spins for the rest of that time. An owner that polls in a tight loop
    /// therefore leaves the cache line to its posters.
    ///
    /// # Errors
    ///
    /// Returns [`TryRecvError`], with the reason why there is no item.
    #[inline(always)]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.read() {
            Ok(item) => Ok(item),
            Err(nothing) => self.nothing(nothing),
        }
    }

    /// Returns an iterator that receives at most `max` items, and ends when it finds nothing to
    /// receive. The remaining items stay in the mailbox, in order. The bound allows the owner to do
    /// other work while posters keep posting.
    ///
    /// # Blocking
    ///
    /// The same as [`try_recv`](Self::try_recv).
    #[inline]
    #[doc(alias = "task_work_run")]
    pub fn drain(&mut self, max: usize) -> Drain<'_, T> {
        Drain { mailbox: self, left: max }
    }

    /// Returns an iterator that receives items until `budget`, which it calls before each receipt,
    /// returns `false`, or until there is nothing to receive. The remaining items stay in the
    /// mailbox, in order.
    ///
    /// # Blocking
    ///
    /// The same as [`try_recv`](Self::try_recv).
    ///
    /// # Panics
    ///
    /// Panics if `budget` panics. All items that were not received stay in the mailbox.
    ///
    /// # Examples
    ///
    /// Receive as many items as fit into a millisecond:
    ///
    /// ```
    /// use afterwork::mailbox::Mailbox;
    /// use std::time::{Duration, Instant};
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// (0..10).for_each(|number| poster.post(number).unwrap());
    /// let end = Instant::now() + Duration::from_millis(1);
    /// let nr_received = mailbox.drain_while(|| Instant::now() < end).count();
    /// assert_eq!(mailbox.len(), 10 - nr_received);
    /// ```
    pub fn drain_while<B: FnMut() -> bool>(&mut self, budget: B) -> DrainWhile<'_, T, B> {
        DrainWhile { drain: self.drain(usize::MAX), budget }
    }

    /// Returns the number of items in the mailbox, without items behind a poster in the middle of
    /// its post, items in a [`Batch`](super::Batch), or items that wait for capacity. Posters may
    /// have added further items before it returns.
    ///
    /// # Blocking
    ///
    /// Never blocks. Walks over all blocks, with a load for each dozen small items. For a bounded
    /// mailbox, [`Poster::nr_inside`] is a cheaper way to read the used capacity.
    pub fn len(&mut self) -> usize {
        let reader = self.reader.as_mut().expect("only the drop takes it");
        // SAFETY: the reader was created with this inbox.
        unsafe { self.shared.inbox.len(reader) }
    }

    /// Returns `true` if no item is in the mailbox and no post is in progress.
    pub fn is_empty(&mut self) -> bool {
        matches!(self.count_inside(1), Ok(_) | Err(PrepareSleep::Closed))
    }

    /// Sleeps until the mailbox contains `count` items or an eager one. A `count` of 0 counts as 1.
    ///
    /// Items that are already in the mailbox are included. Lazy posts alone may never reach the
    /// count. If posters post lazily, use [`wait_timeout`](Self::wait_timeout) or
    /// [`wait_linger`](Self::wait_linger). A count above the capacity is reduced to it, and any
    /// item is enough while a sender waits for capacity.
    ///
    /// # Blocking
    ///
    /// Blocks until then. Spins first, if spinning was useful before. The owner is woken by the
    /// post that completes the count, by an eager post, or by the drop of the last poster. While a
    /// poster is in the middle of its post, this yields the CPU instead of sleeping.
    ///
    /// # Errors
    ///
    /// Returns [`Closed`] if no item is in the mailbox and none will arrive.
    pub fn wait(&mut self, count: usize) -> Result<(), Closed> {
        self.wait_within(count, None).map(|_| ())
    }

    /// Waits as [`wait`](Self::wait) does, for at most `timeout`. Returns `false` if the timeout
    /// expired. In either case, the items in the mailbox can be received.
    ///
    /// # Blocking
    ///
    /// Blocks for at most `timeout`, plus the system's delay. In a model it never times out.
    ///
    /// # Errors
    ///
    /// Returns the same errors as `wait`.
    ///
    /// # Examples
    ///
    /// Receive 32 items at once, or those that have arrived after a millisecond. This is for an
    /// owner that then has other work. Other owners should use [`wait_linger`](Self::wait_linger),
    /// which does not wake them if there is no item.
    ///
    /// ```
    /// use afterwork::mailbox::Mailbox;
    /// use std::time::Duration;
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// poster.post_lazy(1).unwrap();
    ///
    /// let full = mailbox.wait_timeout(32, Duration::from_millis(1)).unwrap();
    /// assert!(!full, "one is not 32");
    /// assert_eq!(mailbox.drain(32).count(), 1);
    /// ```
    pub fn wait_timeout(&mut self, count: usize, timeout: Duration) -> Result<bool, Closed> {
        self.wait_within(count, Some(timeout))
    }

    fn wait_within(&mut self, count: usize, timeout: Option<Duration>) -> Result<bool, Closed> {
        // The clock is read only if there are too few items.
        let mut end_ns = None;
        let mut nr_held = 0;
        loop {
            let prepared = self.prepare_sleep(count, Sleep::Thread);
            match prepared {
                PrepareSleep::Ready => return Ok(true),
                PrepareSleep::Closed => return Err(Closed),
                PrepareSleep::Sleep | PrepareSleep::Retry => {}
            }
            let left = timeout.map(|timeout| {
                let end_ns = *end_ns.get_or_insert_with(|| time::ns_after(timeout));
                Duration::from_nanos(end_ns.saturating_sub(time::now_ns()))
            });
            match left {
                Some(Duration::ZERO) => {
                    self.cancel_sleep();
                    return Ok(false);
                }
                _ if prepared == PrepareSleep::Retry => self.let_others_run(&mut nr_held),
                None => self.parker.park(),
                Some(left) => {
                    if !self.parker.park_timeout(left) {
                        self.cancel_sleep();
                    }
                }
            }
        }
    }

    /// Sleeps until the mailbox contains `min` items or an eager one. Then gathers for at most
    /// `within`, until the mailbox contains `up_to` items. Returns `false` if that time expired.
    ///
    /// The first sleep has no timer, so an owner without items is never woken. Items that may wait
    /// for others should be posted lazily.
    ///
    /// The time starts when the owner finds the first `min` items. An eager item ends the second
    /// sleep at once. A `min` of 0 counts as 1. If `up_to` is not larger than `min`, this is
    /// equivalent to [`wait`](Self::wait).
    ///
    /// # Blocking
    ///
    /// Blocks until then. The gathered items cause at most two wake-ups: one for the first item,
    /// and one when the count is complete or the time has expired. Eager posts and [`Poster::call`]
    /// end the gathering at once; [`Poster::post_lazy`] and [`Poster::call_lazy`] do not.
    ///
    /// # Errors
    ///
    /// Returns the same errors as [`wait`](Self::wait).
    ///
    /// # Examples
    ///
    /// Receive up to 32 items at once, each at most a millisecond after it was posted, without
    /// wake-ups while there are no items:
    ///
    /// ```
    /// use afterwork::mailbox::Mailbox;
    /// use std::time::Duration;
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// let producer = std::thread::spawn(move || {
    ///     (0..100).for_each(|number| poster.post_lazy(number).unwrap());
    /// });
    /// let mut sum = 0;
    /// while mailbox.wait_linger(1, 32, Duration::from_millis(1)).is_ok() {
    ///     sum += mailbox.drain(32).sum::<i32>();
    /// }
    /// assert_eq!(sum, 4950);
    /// # producer.join().unwrap();
    /// ```
    pub fn wait_linger(
        &mut self,
        min: usize,
        up_to: usize,
        within: Duration,
    ) -> Result<bool, Closed> {
        self.wait(min)?;
        self.wait_timeout(up_to, within)
    }

    /// Receives the oldest item. Sleeps while there is no item.
    ///
    /// # Blocking
    ///
    /// Blocks until there is an item, like [`wait`](Self::wait) with a count of 1. Tasks use
    /// [`recv`](Self::recv).
    ///
    /// # Errors
    ///
    /// Returns [`Closed`] if the mailbox is empty and no more items will arrive.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::{Closed, Mailbox};
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// std::thread::spawn(move || poster.post("hello").unwrap());
    /// assert_eq!(mailbox.recv_blocking(), Ok("hello"));
    /// assert_eq!(mailbox.recv_blocking(), Err(Closed)); // the last poster was dropped
    /// ```
    pub fn recv_blocking(&mut self) -> Result<T, Closed> {
        loop {
            match self.read() {
                Ok(item) => return Ok(item),
                Err(_) => self.wait(1)?,
            }
        }
    }

    /// Receives the oldest item as [`recv_blocking`](Self::recv_blocking) does, within `timeout`.
    ///
    /// # Blocking
    ///
    /// Blocks for at most `timeout`, plus the system's delay. In a model it never times out.
    ///
    /// # Errors
    ///
    /// Returns [`TryRecvError`], with the reason why there was no item when the timeout expired.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::mailbox::{Mailbox, TryRecvError};
    /// use std::time::Duration;
    ///
    /// let mut mailbox = Mailbox::new();
    /// let poster = mailbox.poster();
    /// let moment = Duration::from_millis(1);
    /// assert_eq!(mailbox.recv_timeout(moment), Err(TryRecvError::Empty));
    /// poster.post(1).unwrap();
    /// assert_eq!(mailbox.recv_timeout(moment), Ok(1));
    /// ```
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, TryRecvError> {
        if let Ok(item) = self.read() {
            return Ok(item);
        }
        self.wait_timeout(1, timeout)?;
        self.try_recv()
    }

    /// Rejects new posts from now on. The items in the mailbox may still be received. Senders that
    /// wait for capacity get their items back.
    ///
    /// A post that overlaps this call may be rejected or accepted. If it is accepted, its item may
    /// arrive after the owner has received [`Closed`]. The item is then received by a later call,
    /// or dropped with the mailbox. To receive every accepted item, an owner should receive until
    /// the last poster is dropped. Posters close the mailbox with [`Poster::close`]. Never blocks.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Prepares a sleep until the mailbox contains `count` items: counts, arms, and counts again.
    pub(super) fn prepare_sleep(&mut self, count: usize, sleep: Sleep<'_>) -> PrepareSleep {
        let capacity = self.shared.capacity();
        let count = count.min(capacity.unwrap_or(usize::MAX)).max(1);
        loop {
            let nr_inside = match self.count_inside(count) {
                Ok(nr_inside) => nr_inside,
                Err(prepared) => return prepared,
            };
            // Posters may need the emptied blocks while we sleep.
            self.spent.give_back(&self.shared.free);
            self.shared.owner.owner_waker.set_sleep(sleep);
            self.shared.owner.wait.arm(count - nr_inside);
            if twin::armed("wait: no check after arming") {
                return PrepareSleep::Sleep;
            }
            // If the second count finds a new item, its poster may or may not have counted it, so
            // we arm again.
            if self.count_inside(count) == Ok(nr_inside) {
                if let Some(tally) = &self.shared.owner.tally {
                    tally[SLEEPS].add_alone();
                }
                return PrepareSleep::Sleep;
            }
            self.cancel_sleep();
        }
    }

    /// Withdraws the request to be woken. Returns `true` if no poster has claimed it.
    pub(super) fn cancel_sleep(&self) -> bool {
        self.shared.owner.wait.disarm()
    }

    /// Counts the items in the mailbox. Returns their number if the owner must wait for more, and
    /// otherwise the owner's next action as the error.
    fn count_inside(&mut self, count: usize) -> Result<usize, PrepareSleep> {
        // This is read first: the count is final only if no post can arrive after it.
        let over = self.is_over();
        let reader = self.reader.as_mut().expect("only the drop takes it");
        // SAFETY: the reader was created with this inbox.
        match unsafe { self.shared.inbox.count(reader, count) } {
            None => Err(PrepareSleep::Ready),
            Some((_, true)) if self.shared.is_at_home() => Err(PrepareSleep::Retry),
            // In a child of `fork`, that push never ends.
            Some((_, true)) => match self.len() {
                0 => Err(PrepareSleep::Closed),
                _ => Err(PrepareSleep::Ready),
            },
            Some((0, false)) if over => Err(PrepareSleep::Closed),
            // The last items are enough, and so is any item while senders wait for capacity.
            Some((1.., false)) if over || self.shared.is_awaited() => Err(PrepareSleep::Ready),
            Some((nr_inside, false)) => Ok(nr_inside),
        }
    }

    /// Returns `true` if all posts have been pushed, and no more can arrive.
    fn is_over(&self) -> bool {
        if !self.shared.is_open_for_owner() {
            return true;
        }
        // ORDER(posters): the acquire end; see the drop of a `Poster`.
        // Test: last_poster_notifies_the_owner
        let order = twin::order("posters: relaxed read", Ordering::Acquire);
        self.shared.nr_posters.load(order) == 0
    }

    #[inline(always)]
    fn read(&mut self) -> Result<T, Nothing> {
        let (shared, spent) = (&*self.shared, &mut self.spent);
        let reader = self.reader.as_mut().expect("only the drop takes it");
        let emptied = |block| spent.push(block, &shared.free);
        // SAFETY: the reader was created with this inbox.
        let found = unsafe { shared.inbox.read(reader, emptied) };
        found.map(|(item, takes_capacity)| {
            if shared.admission.is_some() && takes_capacity {
                shared.release(1);
            }
            if let Some(tally) = &shared.owner.tally {
                tally[RECEIVED].add_alone();
            }
            item
        })
    }

    #[cold]
    fn nothing(&mut self, found: Nothing) -> Result<T, TryRecvError> {
        if found == Nothing::MidPush {
            return Err(self.mid_push());
        }
        if !self.is_over() {
            self.space_polls();
            return Err(TryRecvError::Empty);
        }
        // A last post may have arrived between the caller's read and the end.
        match self.read() {
            Ok(item) => Ok(item),
            Err(Nothing::Empty) => Err(TryRecvError::Closed),
            Err(Nothing::MidPush) => Err(self.mid_push()),
        }
    }

    /// Returns the error for a poster in mid-push. In a child of `fork` that push never ends.
    fn mid_push(&self) -> TryRecvError {
        match self.shared.is_at_home() {
            true => TryRecvError::MidPush,
            false => TryRecvError::Closed,
        }
    }

    /// Spins until [`POLL_GAP_NS`] have passed since a poll last found nothing.
    fn space_polls(&mut self) {
        let mut now_ns = time::now_ns();
        while POLL_GAP_NS.saturating_sub(now_ns.wrapping_sub(self.last_empty_ns)) > 0 {
            hint::spin_loop();
            now_ns = time::now_ns();
        }
        self.last_empty_ns = now_ns;
    }

    #[cold]
    fn let_others_run(&self, nr_held: &mut u32) {
        *nr_held += 1;
        if *nr_held <= NR_YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(MID_PUSH_SLEEP_US));
        }
    }
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for Mailbox<T> {
    /// # Blocking
    ///
    /// Yields the CPU while a poster is in the middle of a post. In a child of `fork`, where that
    /// post never ends, does not wait, and leaks the items behind it.
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.shared.orphan(reader);
        }
    }
}

impl<T> Iterator for Drain<'_, T> {
    type Item = T;

    #[inline(always)]
    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        let item = self.mailbox.try_recv().ok();
        if item.is_none() {
            self.left = 0;
        }
        item
    }
}

impl<T> std::iter::FusedIterator for Drain<'_, T> {}

impl<T, B: FnMut() -> bool> Iterator for DrainWhile<'_, T, B> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        // FOREIGN(drain-budget): the owner's closure, on the owner, to which a panic propagates.
        // All items stay in the mailbox.
        if self.drain.left > 0 && !(self.budget)() {
            self.drain.left = 0;
        }
        self.drain.next()
    }
}

impl<T, B: FnMut() -> bool> std::iter::FusedIterator for DrainWhile<'_, T, B> {}

base::internal::impl_debug!(Mailbox[T], this =>
    open: this.shared.is_open(),
    posters: this.shared.nr_posters.load(Ordering::Relaxed),
);
