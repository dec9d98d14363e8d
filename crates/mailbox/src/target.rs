//! The state that a local future's wakers, its wake-up in the mailbox and its handle share.
//!
//! # The word
//!
//! | bit | means | set by | cleared by |
//! |---|---|---|---|
//! | `POSTED` | a wake-up is posted, or about to be | a waker, a canceller | owner, before a poll |
//! | `CANCELLED` | the future is dropped instead of polled | a canceller | never |
//! | `ENDED` | the future has ended; a closure has started | the owner | never |
//!
//! ```text
//! wake:  the future's condition;       set POSTED;
//!        neither POSTED nor ENDED was set?  then post the wake-up
//! owner: receives the wake-up;         clear POSTED;
//!        CANCELLED?  then drop the future, otherwise poll it
//! ```
//!
//! # Properties, and their proofs
//!
//! **No wake is lost.** All transitions are read-modify-writes on one word, so they have one order.
//! A wake that finds `POSTED` clear posts. A wake that finds it set precedes the owner's next
//! clear, so the poll after that clear sees everything written before the wake (twins `local:
//! relaxed wake`, `local: relaxed clear`). If the owner cleared the bit after the poll, a wake in
//! between would post nothing, and the poll would not have seen it (twin `local: cleared after the
//! poll`).
//!
//! **The mailbox holds at most one wake-up for each future**, because only the owner's clear
//! permits the next one. Wake-ups therefore do not count toward the capacity (`block::Kind`), so a
//! wake neither waits nor fails.
//!
//! **Cancelling is a wake.** A closure that may be cancelled sets `ENDED` when it starts, and
//! checks `CANCELLED` in the same transition. Either its owner sees the cancel, or the canceller
//! sees that it was too late (twin `local: a start overlooks the cancel`).
//!
//! **Wakers do not keep the mailbox open.** They post through a poster that is not counted.
//! Wake-ups after the end are dropped. In a child of `fork`, wakers do nothing.

use std::task::{Wake, Waker};

use base::internal::panics;
use sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use sync::fork::Process;
use sync::thread::{self, ThreadId};
use sync::twin;
use sync::unmodelled::Arc;

use super::mailbox::Mailbox;
use super::poster::Poster;

pub(super) const POSTED: u32 = 1;
const CANCELLED: u32 = 1 << 1;
const ENDED: u32 = 1 << 2;

/// The wake-up of a future in a [`LocalSet`](super::LocalSet).
///
/// The owner passes it to [`LocalSet::poll`](super::LocalSet::poll). If it is dropped instead, the
/// future gets no more wake-ups: it is never polled again, and is dropped with its set.
#[must_use = "its future waits for it"]
pub struct Woken(pub(super) Arc<dyn Wakes>);

/// A [`Target`], independent of the item type of its mailbox.
pub(super) trait Wakes: Send + Sync {
    fn mark(&self) -> &Mark;
    /// Returns `true` if the future had not ended.
    fn cancel(self: Arc<Self>) -> bool;
    /// Returns `true` on the only thread that can run the future.
    fn is_here(&self) -> bool;
}

pub(super) struct Mark {
    /// A: see the top of the file.
    word: AtomicU32,
    /// The future's place in the set. Used only by the set's thread.
    pub(super) place: AtomicUsize,
}

/// The state shared by all futures of one set.
pub(super) struct Post<T> {
    pub(super) poster: Poster<T>,
    /// A: the kernel's ID of the set's thread, or 0 until it is known.
    owner: AtomicU32,
    process: Process,
    /// I: creates wakers. All wakers of a worker have the same table.
    pub(super) waker: fn(Arc<Target<T>>) -> Waker,
}

pub(super) struct Target<T> {
    pub(super) mark: Mark,
    post: Arc<Post<T>>,
}

impl Mark {
    fn new(word: u32) -> Self {
        Self { word: AtomicU32::new(word), place: AtomicUsize::new(usize::MAX) }
    }

    /// Records the receipt of a wake-up. Returns `true` if the future must be dropped.
    pub(super) fn receive(&self) -> bool {
        // ORDER(local): the other end; see `Target::wake_with`.
        // Test: a_wake_that_finds_another_is_seen_by_its_poll
        let order = twin::order("local: relaxed clear", Ordering::Acquire);
        self.word.fetch_and(!POSTED, order) & CANCELLED != 0
    }

    /// Returns `true` if the work was cancelled. It may be cancelled at any time.
    pub(super) fn is_cancelled(&self) -> bool {
        self.word.load(Ordering::Relaxed) & CANCELLED != 0
    }

    /// Records the end of a future or the start of a closure. Returns `true` if it was cancelled.
    pub(super) fn end(&self) -> bool {
        if twin::armed("local: a start overlooks the cancel") {
            let before = self.word.load(Ordering::Relaxed);
            self.word.fetch_or(ENDED, Ordering::Relaxed);
            return before & CANCELLED != 0;
        }
        // Relaxed is sufficient, because the transition itself decides, and guards no memory.
        self.word.fetch_or(ENDED, Ordering::Relaxed) & CANCELLED != 0
    }
}

impl<T: From<Woken> + Send + 'static> Post<T> {
    pub(super) fn new(mailbox: &Mailbox<T>) -> Self {
        Self {
            poster: Poster::of_wake_ups(mailbox.shared.clone()),
            owner: AtomicU32::new(0),
            process: Process::this(),
            waker: Waker::from,
        }
    }
}

impl<T> Post<T> {
    /// Binds the set to this thread.
    pub(super) fn settle(&self) {
        self.owner.store(thread::current().0, Ordering::Relaxed);
    }

    /// Returns `true` on the set's thread, but never in a model, where threads have no IDs.
    pub(super) fn is_owner(&self) -> bool {
        let owner = ThreadId(self.owner.load(Ordering::Relaxed));
        owner != ThreadId(0) && owner == thread::current()
    }

    /// Returns `true`, except in a child of the process that created the set.
    pub(super) fn is_at_home(&self) -> bool {
        self.process.is_this()
    }
}

impl<T> Target<T> {
    pub(super) fn new(post: &Arc<Post<T>>, word: u32) -> Arc<Self> {
        Arc::new(Self { mark: Mark::new(word), post: post.clone() })
    }
}

impl<T: From<Woken> + Send + 'static> Target<T> {
    /// Sets `bits`, and posts the wake-up if none is in the mailbox. Returns the previous word.
    pub(super) fn wake_with(self: &Arc<Self>, bits: u32) -> u32 {
        if !self.post.is_at_home() {
            return ENDED;
        }
        // ORDER(local): publish and consume, other end in `Mark::receive`.
        //   here:  the future's condition;      word |= POSTED  Release
        //   owner: word &= !POSTED  Acquire;   polls
        // If our transition comes first and finds POSTED, the owner's next transition reads ours or
        // a later one, and its poll sees our writes. If the owner's transition comes first, we find
        // POSTED clear, and post.
        // Test: a_wake_that_finds_another_is_seen_by_its_poll
        let order = twin::order("local: relaxed wake", Ordering::Release);
        let before = self.mark.word.fetch_or(bits | POSTED, order);
        if before & (POSTED | ENDED) == 0 {
            self.post();
        }
        before
    }

    pub(super) fn post(self: &Arc<Self>) {
        let woken = Woken(self.clone());
        // FOREIGN(woken-into): a user's conversion, on the waking thread. A panic is caught.
        match panics::guarded(|| T::from(woken)) {
            Ok(item) => self.post.poster.post_wake_up(item),
            Err(payload) => {
                // The next wake tries again.
                self.mark.word.fetch_and(!POSTED, Ordering::Relaxed);
                panics::discard(payload);
            }
        }
    }
}

impl<T: From<Woken> + Send + 'static> Wakes for Target<T> {
    fn mark(&self) -> &Mark {
        &self.mark
    }

    fn cancel(self: Arc<Self>) -> bool {
        self.wake_with(CANCELLED) & ENDED == 0
    }

    fn is_here(&self) -> bool {
        self.post.is_owner()
    }
}

impl<T: From<Woken> + Send + 'static> Wake for Target<T> {
    fn wake(self: Arc<Self>) {
        self.wake_with(0);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_with(0);
    }
}
