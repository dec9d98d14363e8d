//! The owner's side: receiving, and sleeping until there is enough to receive.

use std::fmt;
use std::time::Duration;

use sync::Arc;
use sync::atomic::Ordering;
use sync::{hint, thread, time, twin};

use super::bell::Sleep;
use super::builder::Builder;
use super::error::{Closed, TryRecvError};
use super::inbox::{Count, Found, Reader};
use super::poster::Poster;
use super::recycle::Spent;
use super::shared::Shared;
use super::tally::{RECEIVED, SLEEPS, tally};
use crate::wake::Parker;

/// How often a wait gives its CPU away for a poster in mid-push before it sleeps a little between looks. A guess: the
/// poster needs two instructions, so it was preempted if this many turns of others did not let it go on.
const NR_YIELDS: u32 = 32;

/// How long that little is, in microseconds: of the order of a wake-up. Larger delays the items behind that poster,
/// smaller burns the CPU it may need.
const MID_PUSH_NAP_US: u64 = 50;

/// Two looks in vain are at least so far apart, in nanoseconds: a few transfers of a cache line. An owner that
/// polls faster takes the line that posters are writing for each item that it gets, and slows all of them down. Measured:
/// less brings that back, more delays items without being faster. None in a model, whose clock stands still.
const LOOK_GAP_NS: u64 = if cfg!(any(loom, shuttle)) { 0 } else { 500 };

/// A queue of items that one owner receives, with a bell that wakes it once there is enough to do.
///
/// Any thread posts by a [`Poster`]. The owner takes what is there with [`try_recv`](Self::try_recv) or
/// [`drain`](Self::drain), and sleeps in one of the ways on [the module's page](super).
///
/// # Guarantees
///
/// - First in, first out: for each poster, and for posts of which one ended before the other began.
/// - One wake-up at most for each time the owner goes to sleep; none while it is awake.
/// - Dropping it drops what is inside, refuses later posts with their items, and blocks nobody. A panic of such a drop
///   ends there.
///
/// It grows with what is posted, unless it is built with a [capacity](Builder::capacity). Emptied blocks are kept for
/// later posts, up to a [limit](Builder::keep).
///
/// # Examples
///
/// ```
/// use afterwork::task_work::Mailbox;
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
/// // Ends when the worker's poster is gone and everything is received.
/// while mailbox.wait(1).is_ok() {
///     sum += mailbox.drain(16).sum::<i32>();
/// }
/// assert_eq!(sum, 99 * 100 / 2);
/// worker.join().unwrap();
/// ```
pub struct Mailbox<T> {
    shared: Arc<Shared<T>>,
    /// `None` once the owner has ended.
    reader: Option<Reader<T>>,
    spent: Spent<T>,
    /// When a look was last in vain.
    last_vain_ns: u64,
    parker: Parker,
}

/// Receives items up to a bound; made by [`Mailbox::drain`].
#[derive(Debug)]
pub struct Drain<'m, T> {
    mailbox: &'m mut Mailbox<T>,
    left: usize,
}

/// What a look at the inbox found, for somebody who wants so many items.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    /// As many as wanted, or an urgent one, or the last ones before the end.
    Enough,
    /// So many, which are fewer, and no more are inside.
    Short(usize),
    /// Fewer, and a producer in mid-push hides how many more.
    MidPush,
    /// None, and none will come.
    Over,
}

/// How getting ready to sleep went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PrepareSleep {
    /// The bell will ring: sleep.
    Sleep,
    /// Enough is there: receive.
    Ready,
    /// Come back in a moment.
    Retry,
    /// None will come.
    Closed,
}

impl<T> Mailbox<T> {
    /// Makes a mailbox without a bound, for an owner of any kind.
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// Starts to make a mailbox that is not like all others.
    pub fn builder() -> Builder<T> {
        Builder::new()
    }

    pub(super) fn from_builder(builder: &Builder<T>) -> Self {
        let parker = builder.parker();
        let tally = builder.name.as_deref().map(tally);
        let (shared, reader) =
            Shared::new(builder.backlog, builder.capacity, parker.unparker(), tally);
        let spent = Spent::new(builder.keep, shared.inbox.nr_slots());
        Self {
            shared: Arc::new(shared),
            reader: Some(reader),
            spent,
            last_vain_ns: 0,
            parker,
        }
    }

    /// Makes a poster. More are made by cloning it.
    pub fn poster(&self) -> Poster<T> {
        Poster::new(self.shared.clone())
    }

    /// Returns how many items may be inside, if that is bounded.
    pub fn capacity(&self) -> Option<usize> {
        self.shared.room.capacity()
    }

    /// Receives the oldest item, if it is there.
    ///
    /// # Blocking
    ///
    /// Never. If it finds nothing for the second time within half a microsecond, it spins for the rest of that: whoever
    /// polls in a tight loop would take the cache line that posters are writing.
    ///
    /// # Errors
    ///
    /// Why there is none: see [`TryRecvError`].
    #[inline]
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        match self.read() {
            Found::Item(item) => Ok(item),
            nothing => self.nothing(&nothing),
        }
    }

    /// Receives at most `max` items; the rest stays, in order.
    ///
    /// It ends when it finds nothing to receive. Bound it if the owner has other things to do: while posters keep
    /// posting, it would not come back to them.
    ///
    /// # Blocking
    ///
    /// As [`try_recv`](Self::try_recv).
    #[inline]
    pub fn drain(&mut self, max: usize) -> Drain<'_, T> {
        Drain {
            mailbox: self,
            left: max,
        }
    }

    /// Returns `true` if nothing is inside, not even a post that is under way.
    pub fn is_empty(&mut self) -> bool {
        matches!(self.look(1), Look::Short(_) | Look::Over)
    }

    /// Sleeps until `count` items are there, or one that was posted to wake the owner; 0 counts as 1.
    ///
    /// Items that were not received last time count. Lazy posts alone may never make up the count: with those, use
    /// [`wait_timeout`](Self::wait_timeout).
    ///
    /// # Blocking
    ///
    /// Until then. It spins a little first, if that has paid off. Woken by the poster whose post makes the count
    /// full, by an urgent one, or by the last poster that is dropped. While a post is between its two steps, this
    /// gives the CPU away rather than sleep.
    ///
    /// # Errors
    ///
    /// [`Closed`] when nothing is inside and nothing will come.
    pub fn wait(&mut self, count: usize) -> Result<(), Closed> {
        let mut nr_held = 0;
        loop {
            match self.prepare_sleep(count, Sleep::Thread) {
                PrepareSleep::Ready => return Ok(()),
                PrepareSleep::Closed => return Err(Closed),
                PrepareSleep::Sleep => self.parker.park(),
                PrepareSleep::Retry => self.let_others_run(&mut nr_held),
            }
        }
    }

    /// Waits as [`wait`](Self::wait) does, for at most `timeout`; returns `true` if it came true.
    ///
    /// What is there may be received in any case.
    ///
    /// # Blocking
    ///
    /// At most `timeout` (and what the system adds); in a model it never times out.
    ///
    /// # Errors
    ///
    /// As `wait`.
    ///
    /// # Examples
    ///
    /// Up to 32 items at once, none later than a millisecond:
    ///
    /// ```
    /// use afterwork::task_work::Mailbox;
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
        // The clock is read once it matters: what is there already costs no look at it.
        let mut start_ns = None;
        let limit_ns = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        let mut nr_held = 0;
        loop {
            match self.prepare_sleep(count, Sleep::Thread) {
                PrepareSleep::Ready => return Ok(true),
                PrepareSleep::Closed => return Err(Closed),
                prepared => {
                    let now_ns = time::now_ns();
                    let passed_ns = now_ns - *start_ns.get_or_insert(now_ns);
                    let left_ns = limit_ns.saturating_sub(passed_ns);
                    if left_ns == 0 {
                        self.get_up();
                        return Ok(false);
                    }
                    if prepared == PrepareSleep::Retry {
                        self.let_others_run(&mut nr_held);
                    } else if !self.parker.park_timeout(Duration::from_nanos(left_ns)) {
                        self.get_up();
                    }
                }
            }
        }
    }

    /// Takes no new posts from here on; what is inside may still be received.
    ///
    /// A post that overlaps this call may be refused or taken, and then land after the owner was told [`Closed`]: it is
    /// received if the owner looks again, else dropped with the mailbox. Who must see every item that was taken
    /// receives until the last poster is gone, without closing. Drop the mailbox to drop what is inside too.
    pub fn close(&self) {
        self.shared.close();
    }

    /// Gets ready to sleep until `count` items are there: the look, the arming, and the look after it.
    pub(super) fn prepare_sleep(&mut self, count: usize, sleep: Sleep<'_>) -> PrepareSleep {
        let count = count.max(1);
        loop {
            let nr_inside = match self.look(count) {
                Look::Enough => return PrepareSleep::Ready,
                Look::Over => return PrepareSleep::Closed,
                Look::MidPush => return PrepareSleep::Retry,
                Look::Short(nr_inside) => nr_inside,
            };
            // Whoever posts while we sleep may need them.
            self.spent.give_back(&self.shared.free);
            self.shared.owner.bell.set_sleep(sleep);
            self.shared.owner.wait.arm(count - nr_inside);
            if twin::armed("wait: no look after arming") {
                return PrepareSleep::Sleep;
            }
            // What is found now was posted by somebody who may have counted, or may not have.
            if self.look(count) == Look::Short(nr_inside) {
                if let Some(tally) = &self.shared.owner.tally {
                    tally[SLEEPS].add_alone();
                }
                return PrepareSleep::Sleep;
            }
            self.get_up();
        }
    }

    /// Takes the wish to be woken back.
    pub(super) fn get_up(&self) -> bool {
        self.shared.owner.wait.disarm()
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn shared(&self) -> &Shared<T> {
        &self.shared
    }

    /// Counts what is inside, up to `count`.
    fn look(&mut self, count: usize) -> Look {
        // Before the count: an end that is seen first has nothing after it.
        let over = self.is_over();
        let reader = self.reader.as_mut().expect("taken by the drop alone");
        // SAFETY: the reader was made with this inbox, in `from_builder`.
        match unsafe { self.shared.inbox.count(reader, count) } {
            Count::Enough => Look::Enough,
            Count::MidPush => Look::MidPush,
            Count::Only(nr_inside) if !over => Look::Short(nr_inside),
            Count::Only(0) => Look::Over,
            Count::Only(_) => Look::Enough,
        }
    }

    /// Returns `true` if no post will come that has not been pushed yet.
    fn is_over(&self) -> bool {
        // ORDER(posters): the acquire end; see the drop of a `Poster`.
        // Test: the_last_poster_tells_the_owner, the_owners_look_at_the_posters_needs_its_acquire
        let order = twin::order("posters: relaxed look", Ordering::Acquire);
        !self.shared.is_open() || self.shared.nr_posters.load(order) == 0
    }

    #[inline(always)]
    fn read(&mut self) -> Found<T> {
        let (shared, spent) = (&*self.shared, &mut self.spent);
        let reader = self.reader.as_mut().expect("taken by the drop alone");
        let emptied = |block| spent.push(block, &shared.free);
        // SAFETY: the reader was made with this inbox, in `from_builder`.
        let found = unsafe { shared.inbox.read(reader, emptied) };
        if matches!(found, Found::Item(_)) {
            shared.room.give(1);
            if let Some(tally) = &shared.owner.tally {
                tally[RECEIVED].add_alone();
            }
        }
        found
    }

    #[cold]
    fn nothing(&mut self, found: &Found<T>) -> Result<T, TryRecvError> {
        if matches!(found, Found::MidPush) {
            return Err(TryRecvError::MidPush);
        }
        if !self.is_over() {
            self.leave_alone();
            return Err(TryRecvError::Empty);
        }
        // The end may have come after the read, and a post before the end.
        match self.read() {
            Found::Item(item) => Ok(item),
            Found::Empty => Err(TryRecvError::Closed),
            Found::MidPush => Err(TryRecvError::MidPush),
        }
    }

    /// Sees to it that looks in vain are [`LOOK_GAP_NS`] apart.
    fn leave_alone(&mut self) {
        let mut now_ns = time::now_ns();
        while LOOK_GAP_NS.saturating_sub(now_ns.wrapping_sub(self.last_vain_ns)) > 0 {
            hint::spin_loop();
            now_ns = time::now_ns();
        }
        self.last_vain_ns = now_ns;
    }

    #[cold]
    fn let_others_run(&self, nr_held: &mut u32) {
        *nr_held += 1;
        if *nr_held <= NR_YIELDS {
            thread::yield_now();
        } else {
            thread::sleep(Duration::from_micros(MID_PUSH_NAP_US));
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
    /// Gives the CPU away while a post is between its two steps.
    fn drop(&mut self) {
        if let Some(reader) = self.reader.take() {
            self.shared.orphan(reader);
        }
    }
}

impl<T> Iterator for Drain<'_, T> {
    type Item = T;

    #[inline]
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

impl<T> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mailbox")
            .field("open", &self.shared.is_open())
            .field("posters", &self.shared.nr_posters.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}
