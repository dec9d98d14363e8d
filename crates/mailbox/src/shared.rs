//! The memory that the owner and the posters share, and the end of either side.
//!
//! # The life of a mailbox
//!
//! | `life` | meaning |
//! |---|---|
//! | `OPEN` | posts are accepted |
//! | `CLOSED` | new posts are rejected; the owner still receives the items in the mailbox |
//! | `DEAD` | the mailbox was dropped |
//!
//! A post reads `life`, pushes, and reads `life` again. The first read rejects posts after `close`.
//! A post that overlaps the owner's end may still push onto a dead queue. Its item would stay there
//! until the last poster is dropped, which is too late for a thread that waits for an answer or for
//! the item's drop. The second read prevents this:
//!
//! ```text
//! owner:  life = DEAD;  fence;  drop the items inside
//! poster: push;         fence;  life = DEAD?  then drop the items inside
//! ```
//!
//! If the poster's fence comes first, the owner finds its item and drops it. If the owner's fence
//! comes first, the poster reads `DEAD` and drops the item. Several threads may do so at the same
//! time, so a lock guards the reader that they use.
//!
//! # Drops that post
//!
//! Dropping an item may post to the same dead queue, for example the wake-up of a local future that
//! waits for the item's reply. If that post dropped items too, n such items would cause n nested
//! calls. The lock therefore also guards a list of the threads that are dropping items. A thread
//! that finds itself in the list returns, and its outer call takes the item next. Other threads do
//! not rely on that call, which may block while it drops an item.
//!
//! # In a child of `fork`
//!
//! A push that another thread of the parent had begun never ends in the child, so the owner does
//! not wait for it. The items behind that push leak.

use std::mem;

use base::internal::admission::{Admission, Ticket};
use base::internal::panics;
use base::internal::wake::lane::Lane;
use base::internal::wake::sleeper::OnTurn;
use base::internal::wake::{Unparker, WakeQ};
use crossbeam_utils::CachePadded;
use mpscq::Stack;
use sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use sync::fork::Process;
use sync::{Backoff, Mutex, identity, twin};

use super::block::{Blank, Block, Kind};
use super::inbox::{Backlog, Inbox, Nothing, Reader};
use super::owner_waker::OwnerWaker;
use super::tally::{Tally, WAKE_UPS};
use super::wait::Wait;

pub(super) const OPEN: u8 = 0;
pub(super) const CLOSED: u8 = 1;
const DEAD: u8 = 2;

pub(super) struct Shared<T> {
    /// The queues. Written by every post.
    pub(super) inbox: Inbox<T>,
    /// The owner's state. Read by every post. Written when it arms or ends, and by posts.
    pub(super) owner: CachePadded<Owner>,
    /// The free blocks. Written by either side, once in many posts.
    pub(super) free: CachePadded<Stack<Block<T>>>,
    /// I: `None` in an unbounded mailbox. It has a cache line for each side.
    pub(super) admission: Option<Box<Admission<Waiting<T>>>>,
    /// A: the number of counted posters.
    pub(super) nr_posters: CachePadded<AtomicUsize>,
    dead: Mutex<Dead<T>>,
    /// I: the process whose threads post. In its child, an unfinished post never ends.
    process: Process,
}

/// An item that waits for capacity in place of its sender. The owner moves it into the queue under
/// the lock of the wait queue, so its sender's next item is behind it.
pub(super) struct Waiting<T> {
    pub(super) item: T,
    lane: Lane,
    /// Wakes its sender. `None` once the mailbox is closed.
    pub(super) on_turn: Option<OnTurn>,
}

struct Dead<T> {
    /// `None` while the owner exists.
    reader: Option<Reader<T>>,
    /// The threads that are dropping items, by their [`identity`].
    dropping: Vec<u64>,
}

pub(super) struct Owner {
    pub(super) wait: Wait,
    /// A: see the top of the file.
    life: AtomicU8,
    pub(super) owner_waker: OwnerWaker,
    /// I: the counts of a mailbox that has a name.
    pub(super) tally: Option<Tally>,
}

impl Owner {
    /// Wakes the owner if it sleeps, like an eager post.
    #[cold]
    pub(super) fn wake_if_armed(&self) {
        if self.wait.claim(1, true) {
            self.wake();
        }
    }

    /// Wakes the owner, whose wake-up the caller has claimed.
    #[cold]
    pub(super) fn wake(&self) {
        if let Some(tally) = &self.tally {
            tally[WAKE_UPS].add(1);
        }
        self.owner_waker.wake();
    }
}

impl<T> Shared<T> {
    pub(super) fn new(
        backlog: Backlog,
        capacity: Option<usize>,
        thread: Unparker,
        tally: Option<Tally>,
    ) -> (Self, Reader<T>) {
        let (inbox, reader) = Inbox::new(backlog);
        let shared = Self {
            inbox,
            owner: CachePadded::new(Owner {
                wait: Wait::new(),
                life: AtomicU8::new(OPEN),
                owner_waker: OwnerWaker::new(thread),
                tally,
            }),
            free: CachePadded::new(Stack::new()),
            admission: capacity.map(|capacity| Box::new(Admission::new(capacity))),
            nr_posters: CachePadded::new(AtomicUsize::new(0)),
            dead: Mutex::new(Dead { reader: None, dropping: Vec::new() }),
            process: Process::this(),
        };
        (shared, reader)
    }

    /// Returns `true`, except in a child of the process that created the mailbox.
    pub(super) fn is_at_home(&self) -> bool {
        self.process.is_this()
    }

    #[inline(always)]
    pub(super) fn is_open(&self) -> bool {
        self.owner.life.load(Ordering::Relaxed) == OPEN
    }

    /// Returns `true` if posts are accepted. Otherwise, the posts that preceded the close are
    /// visible.
    pub(super) fn is_open_for_owner(&self) -> bool {
        // ORDER(close): the acquire end; see `close`.
        // Test: owners_check_for_a_close_needs_its_acquire
        let order = twin::order("close: relaxed check", Ordering::Acquire);
        self.owner.life.load(order) == OPEN
    }

    /// Ends a post that has just pushed `nr_items` items: counts them, and may wake the owner.
    #[inline(always)]
    pub(super) fn posted(&self, nr_items: usize, eager: bool) {
        // The fence in `armed` also orders the push before the load of `life` below.
        if let Some(armed) = self.owner.wait.armed() {
            self.count(armed, nr_items, eager);
        }
        // ORDER(life): store buffering, other end in `orphan`; see the top of the file.
        // If our fence comes first, the owner finds our items and drops them. If the owner's fence
        // comes first, we read DEAD, and drop them.
        // Test: a_post_that_overlaps_the_owners_end_is_dropped
        if self.owner.life.load(Ordering::Relaxed) == DEAD {
            self.drop_items();
        }
    }

    #[cold]
    fn count(&self, armed: i32, nr_items: usize, eager: bool) {
        // While items wait for capacity, no thread can post the items that the owner waits for.
        let is_awaited =
            || self.is_awaited() && !twin::armed("capacity: a lazy post overlooks the waiters");
        let eager = eager || is_awaited();
        if self.owner.wait.claim_armed(armed, nr_items, eager) {
            self.owner.wake();
        }
    }

    /// Takes capacity for one item. Returns `false` if there is none, or if items wait for it.
    #[inline]
    pub(super) fn take_capacity(&self) -> bool {
        self.admission.as_ref().is_none_or(|admission| admission.try_take())
    }

    /// Returns `true` if [`take_capacity`](Self::take_capacity) would succeed now.
    pub(super) fn has_room(&self) -> bool {
        self.admission.as_ref().is_none_or(|admission| admission.is_free())
    }

    /// Returns `true` if items wait for capacity.
    pub(super) fn is_awaited(&self) -> bool {
        self.admission.as_ref().is_some_and(|admission| admission.is_awaited())
    }

    pub(super) fn capacity(&self) -> Option<usize> {
        self.admission.as_ref().map(|admission| admission.capacity())
    }

    #[inline(always)]
    pub(super) fn release(&self, nr_items: usize) {
        if let Some(admission) = &self.admission
            && admission.release(nr_items)
        {
            self.let_in(admission);
        }
    }

    #[cold]
    fn let_in(&self, admission: &Admission<Waiting<T>>) {
        let mut wakeq = WakeQ::new();
        admission.let_in(|first| {
            let block = Blank::new(self.inbox.nr_slots()).start(first.item, Kind::Item, true, true);
            self.inbox.push(first.lane, block);
            if let Some(on_turn) = first.on_turn {
                wakeq.push(on_turn.into_inner());
            }
        });
        if !wakeq.is_empty() {
            self.posted(wakeq.len(), true);
            wakeq.fire();
        }
    }

    /// Makes an item wait for capacity. Returns the item as the error if the mailbox is closed.
    ///
    /// **No owner sleeps while an item waits.** An owner that waits for more items than fit, or for
    /// lazy ones, could sleep forever, because the waiting items cannot be posted. Joining the wait
    /// queue therefore wakes the owner as an eager post does, and an owner that finds `AWAITED` and
    /// any item does not sleep.
    #[cold]
    pub(super) fn wait_for_capacity(
        &self,
        item: T,
        lane: Lane,
        on_turn: OnTurn,
    ) -> Result<Ticket, T> {
        let Some(admission) = &self.admission else {
            return Err(item);
        };
        let on_turn = Some(on_turn);
        let waiting = Waiting { item, lane, on_turn };
        let ticket =
            admission.join(waiting, || self.let_in(admission)).map_err(|waiting| waiting.item)?;
        // AWAITED replaces the push, and the owner's count checks it after arming.
        if !twin::armed("capacity: waiting wakes no owner") {
            self.owner.wake_if_armed();
        }
        Ok(ticket)
    }

    /// Rejects new posts from now on, and wakes the owner. A poster calls this.
    pub(super) fn close_and_wake(&self) {
        self.close();
        // The exchange replaces the push of an eager post, and the owner reads it after arming.
        if !twin::armed("close: wakes no owner") {
            self.owner.wake_if_armed();
        }
    }

    pub(super) fn close(&self) {
        // ORDER(close): publish and consume, other end in `is_open_for_owner`.
        //   here:  posts of this thread;   life = CLOSED  Release
        //   owner: life  Acquire;          the last count of the queue
        // If our exchange comes first, the owner finds our posts before it reports *closed*. If its
        // load comes first, it may sleep; then the claim of a poster wakes it. In a model the fence
        // of the last post already has the effect of the release.
        // Test: poster_that_closes_has_posted_before
        let (release, relaxed) = (Ordering::Release, Ordering::Relaxed);
        let _ = self.owner.life.compare_exchange(OPEN, CLOSED, release, relaxed);
        let mut wakeq = WakeQ::new();
        if let Some(admission) = &self.admission {
            admission.close(|waiting| {
                let on_turn = waiting.on_turn.take();
                on_turn.into_iter().for_each(|it| wakeq.push(it.into_inner()));
            });
        }
        wakeq.fire();
    }

    /// Ends the owner's side. Drops the items, and hands the reader over to overlapping posts.
    pub(super) fn orphan(&self, reader: Reader<T>) {
        // The mailbox is closed first, so that callers that get the error find it closed.
        self.close();
        self.dead.lock().reader = Some(reader);
        // ORDER(life): the other end; see `posted`.
        // Test: a_post_that_overlaps_the_owners_end_is_dropped
        self.owner.life.store(DEAD, Ordering::Relaxed);
        twin::fence("life: no fence in orphan");
        // The link of a poster in mid-push is not visible yet. Completed posts may be behind it.
        let mut backoff = Backoff::new();
        while self.drop_items() && self.is_at_home() {
            backoff.pause();
        }
    }

    /// Drops the items of a dead queue. Returns `true` if it stopped at a poster in mid-push.
    #[cold]
    fn drop_items(&self) -> bool {
        let me = identity::mine().get();
        let mut is_first = true;
        loop {
            let found = {
                let mut dead = self.dead.lock();
                let Dead { reader, dropping } = &mut *dead;
                let Some(reader) = reader else {
                    return false;
                };
                if mem::take(&mut is_first) {
                    if dropping.contains(&me) {
                        return false;
                    }
                    dropping.push(me);
                }
                // SAFETY: the reader was created with the inbox, in `new`.
                let found = unsafe { self.inbox.read(reader, drop) };
                if found.is_err() {
                    dropping.retain(|thread| *thread != me);
                }
                found
            };
            match found {
                // FOREIGN(dead-item): an item's drop, on the owner or on a poster that overlaps its
                // end. A panic is caught.
                Ok((item, _)) => {
                    panics::contain(|| drop(item));
                }
                Err(Nothing::Empty) => return false,
                // That poster reads `life` after its push, and then calls this function itself.
                Err(Nothing::MidPush) => return true,
            }
        }
    }
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // Every poster was dropped and has sealed its blocks, so this also frees the last ones.
        self.drop_items();
        for waiting in self.admission.iter_mut().flat_map(|admission| admission.forgotten()) {
            // FOREIGN(dead-item): the drop of an item whose waiting send was leaked, on the thread
            // that drops the last handle. A panic is caught.
            panics::contain(|| drop(waiting.item));
        }
    }
}
