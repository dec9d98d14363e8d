//! Where emptied nodes go, so that steady posting allocates nothing.
//!
//! ```text
//! poster's cache ──► node with a value ──► inbox ──► owner ──► spent (a chain of the owner's)
//!      ▲                                                          │ a chain at a time
//!      └───────────── all at once ◄────────── free list ◄─────────┘
//! ```
//!
//! An allocator makes a memory block dear that is freed on another thread than it was made on: it has to travel
//! home. Here it travels in chains, at one compare-exchange each, and home is a list that the next poster empties
//! with one swap.

use mpscq::{Chain, Stack, Taken};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::cell::UnsafeCell;
use sync::{identity, twin};

use super::slot::{Blank, Slot};

/// How many spent nodes the owner gathers before it gives them back. Measured with chains of 32 as the knee: fewer
/// touch the shared line more often, more let the posters run dry and allocate. Small in a model, to be common.
const CHAIN: usize = if cfg!(any(loom, shuttle)) { 1 } else { 32 };

/// Nodes that a poster took home: a few at hand without touching what others write.
///
/// Two stores of them, for a locked instruction is dear here: it waits until the last post's writes are out, and those
/// wait for a cache line that the owner had. The first thread that posts has a store of its own; all others share one
/// under a flag, and do without while it is up.
#[derive(Debug)]
pub(super) struct Cache<T> {
    /// A: the [`identity`] of the thread that `own` belongs to, or 0. Set once.
    owner: AtomicU64,
    /// Reached by the thread in `owner`.
    own: UnsafeCell<Taken<Slot<T>>>,
    /// A: whether a thread is at `common`.
    busy: AtomicBool,
    /// Reached by whoever set `busy`.
    common: UnsafeCell<Taken<Slot<T>>>,
}

/// The owner's end: nodes that have been emptied.
#[derive(Debug)]
pub(super) struct Spent<T> {
    nodes: Chain<Slot<T>>,
    /// How many were given back since the free list was last seen empty.
    nr_free: usize,
    /// How many the free list may hold; the rest is freed.
    keep: usize,
}

/// Returns a node from `cache` or `free`, or allocates one.
#[inline]
pub(super) fn blank<T>(cache: &Cache<T>, free: &Stack<Slot<T>>) -> Blank<T> {
    cache
        .with(|nodes| take(nodes, free))
        .flatten()
        .unwrap_or_else(Blank::new)
}

/// Takes a node from the home supply, or fetches another supply.
#[inline]
fn take<T>(nodes: &mut Taken<Slot<T>>, free: &Stack<Slot<T>>) -> Option<Blank<T>> {
    nodes.next().or_else(|| {
        *nodes = free.take_all();
        nodes.next()
    })
}

impl<T> Cache<T> {
    pub(super) fn new() -> Self {
        Self {
            owner: AtomicU64::new(0),
            own: UnsafeCell::new(Taken::new()),
            busy: AtomicBool::new(false),
            common: UnsafeCell::new(Taken::new()),
        }
    }

    /// Runs `body` on a store of nodes, unless there is none for this thread at the moment.
    ///
    /// `body` must not come back here.
    #[inline(always)]
    pub(super) fn with<R>(&self, body: impl FnOnce(&mut Taken<Slot<T>>) -> R) -> Option<R> {
        let me = identity::mine().get();
        let owner = self.owner.load(Ordering::Relaxed);
        // Relaxed: who reads its own number here wrote it, and no other thread ever has that number.
        let is_mine = owner == me || (owner == 0 && self.adopt(me));
        if is_mine {
            // SAFETY: this thread alone gets here, and not from within `body`.
            return Some(self.own.with_mut(|nodes| body(unsafe { &mut *nodes })));
        }
        self.with_common(body)
    }

    #[cold]
    fn adopt(&self, me: u64) -> bool {
        self.owner
            .compare_exchange(0, me, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    fn with_common<R>(&self, body: impl FnOnce(&mut Taken<Slot<T>>) -> R) -> Option<R> {
        // ORDER(cache): hand-over of the nodes from thread to thread, other end below.
        //   one:  last use of `common`;           busy = false   Release
        //   next: busy: false → true   Acquire;   first use of `common`
        // Test: two_threads_may_share_a_poster, cache_needs_its_acquire
        let order = if twin::armed("cache: relaxed take") {
            Ordering::Relaxed
        } else {
            Ordering::Acquire
        };
        if self.busy.swap(true, order) {
            return None;
        }
        // SAFETY: `busy` was false and is true by us, so nobody else reaches the nodes until it is false again.
        let result = self.common.with_mut(|nodes| body(unsafe { &mut *nodes }));
        // ORDER(cache): the release end; a panic in `body` would leave the nodes unused for ever, not torn.
        // Test: two_threads_may_share_a_poster, cache_needs_its_release
        let order = if twin::armed("cache: relaxed leave") {
            Ordering::Relaxed
        } else {
            Ordering::Release
        };
        self.busy.store(false, order);
        Some(result)
    }
}

// SAFETY: `own` is reached by one thread, `common` under `busy`; nodes there hold no value.
unsafe impl<T: Send> Sync for Cache<T> {}

impl<T> Spent<T> {
    /// Makes an end that leaves up to `keep` nodes on the free list.
    pub(super) fn new(keep: usize) -> Self {
        Self {
            nodes: Chain::new(),
            nr_free: 0,
            keep,
        }
    }

    /// Takes a node whose value is gone.
    #[inline]
    pub(super) fn push(&mut self, node: Blank<T>, free: &Stack<Slot<T>>) {
        if self.keep == 0 {
            return;
        }
        self.nodes.push_back_popped(node);
        if self.nodes.len() >= CHAIN {
            self.give_back(free);
        }
    }

    /// Puts the gathered nodes onto the free list.
    pub(super) fn give_back(&mut self, free: &Stack<Slot<T>>) {
        let nodes = core::mem::take(&mut self.nodes);
        if nodes.is_empty() {
            return;
        }
        if free.is_empty() {
            self.nr_free = 0;
        }
        if self.nr_free + nodes.len() <= self.keep {
            self.nr_free += nodes.len();
            free.push_chain(nodes);
        }
    }
}
