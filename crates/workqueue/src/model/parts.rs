//! Parts that have models of their own: the injector, the gate, the capacity, and slabs.

use std::ops::Deref;
use std::ptr::NonNull;

use item::internal::cleanups::{Cleanup, Left, Reapers};
use item::internal::head::{Head, State, VTable};
use item::internal::list::{Color, Injector, set_fresh_next};
use item::internal::slab::{Slab, Taken, Wanted};
use limit::internal::active::{Closed, Gate, Holds, Phase};
use limit::internal::capacity::Capacity;
use limit::internal::queue_core::QueueCore;
use sync::atomic::Ordering;
use sync::cell::UnsafeCell;
use sync::unmodelled::Arc;

/// Numbered items in an injector.
pub struct Injected {
    injector: Injector,
}

/// An item of [`Injected`].
#[repr(C)]
struct Numbered {
    head: Head,
    from: usize,
    /// A number written before the push. A model checks that the taking thread sees it.
    number: UnsafeCell<usize>,
}

const INERT: &VTable = &VTable::plain(
    |_| unreachable!("never run"),
    |_, _| unreachable!("never cancelled"),
    |_| unreachable!("never run"),
    || "inert",
    |_| unreachable!("freed by the model"),
);

/// An item that has been pushed.
#[derive(Clone, Copy)]
pub struct Pushed(NonNull<Head>);

// SAFETY: the fields of an item are atomic, or checked by the model.
unsafe impl Send for Pushed {}
// SAFETY: as above.
unsafe impl Sync for Pushed {}

impl Pushed {
    /// Frees an item that has been taken; returns its producer and its number.
    pub fn open(self) -> (usize, usize) {
        // SAFETY: created by `make`, and taken from the injector, which hands each item to one
        // thread.
        let item = unsafe { Box::from_raw(self.0.as_ptr().cast::<Numbered>()) };
        // SAFETY: this thread owns the item; loom checks that.
        let number = item.number.with(|place| unsafe { *place });
        (item.from, number)
    }
}

impl Default for Injected {
    fn default() -> Self {
        Self { injector: Injector::new(false) }
    }
}

impl Injected {
    /// Pushes an item; returns `true` if the injector was empty.
    pub fn push(&self, from: usize, number: usize) -> (Pushed, bool) {
        let item = Self::make(from, number);
        (item, self.push_made(item))
    }

    /// Creates an item, for `push_made`.
    pub fn make(from: usize, number: usize) -> Pushed {
        let item = Box::leak(Box::new(Numbered {
            head: Head::new(INERT, State::IDLE, std::ptr::null_mut()),
            from,
            number: UnsafeCell::new(0),
        }));
        // SAFETY: the item is exclusive to this thread until it is pushed.
        item.number.with_mut(|place| unsafe { *place = number });
        Pushed(NonNull::from(item).cast())
    }

    /// Pushes an item created by `make`; returns `true` if the injector was empty.
    pub fn push_made(&self, item: Pushed) -> bool {
        self.injector.push(item.0)
    }

    /// Pushes the items `0..len` of the producer `from` as one chain.
    pub fn push_chain(&self, from: usize, len: usize) {
        let items: Vec<_> = (0..len).map(|number| Self::make(from, number).0).collect();
        for two in items.windows(2) {
            set_fresh_next(two[1], two[0].as_ptr());
        }
        self.injector.push_chain(items[len - 1], items[0]);
    }

    /// Takes an item back if it is the newest.
    pub fn take_back(&self, item: Pushed) -> Option<Pushed> {
        self.injector.take_back(item.0).then_some(item)
    }

    /// Takes all items, oldest first.
    pub fn take(&self) -> Vec<Pushed> {
        let mut list = self.injector.take(|_| Color::default());
        std::iter::from_fn(|| list.pop_front()).map(Pushed).collect()
    }
}

/// The seats of a single queue, for threads of one node.
#[derive(Clone)]
pub struct Gates {
    gate: Arc<Gate<usize>>,
    core: Arc<QueueCore>,
    node: usize,
}

/// A flush of the helpers.
pub struct HelpersFlush(Closed<usize>, Phase);

impl Gates {
    /// Creates `max` seats, for which pwqs can wait.
    pub fn new(max: u32) -> Self {
        Self::of(Gate::new(max, 1, &[], 0))
    }

    /// Creates seats as [`new`](Self::new) does, for two nodes that have seat caches.
    pub fn with_stocks(max: u32) -> Self {
        Self::of(Gate::new(max, 1, &[1, 1], 2))
    }

    fn of(gate: Gate<usize>) -> Self {
        Self { gate: Arc::new(gate), core: Arc::new(QueueCore::new("gates", None)), node: 0 }
    }

    /// Returns the same seats, for threads of `node`.
    pub fn at(&self, node: usize) -> Self {
        Self { node, ..self.clone() }
    }

    /// Returns the same seats, for use by one queue of a group; 0 `shares` are the default.
    pub fn of_queue(&self, shares: u32) -> Self {
        let core = QueueCore::new("queue", None);
        core.shares.store(shares, Ordering::Relaxed);
        Self { core: Arc::new(core), ..self.clone() }
    }

    /// Acquires a seat, or adds pwq `slot` to the wait queue, in which queues take turns.
    pub fn enter_in_turn(&self, slot: usize) -> bool {
        self.gate.enter_in_turn(&self.core, || slot)
    }

    /// Acquires a seat if one is free.
    pub fn try_enter(&self) -> bool {
        self.gate.try_enter(self.node)
    }

    /// Acquires a seat, or adds pwq `slot` to the wait queue.
    pub fn enter_or_queue(&self, slot: usize) -> bool {
        self.gate.enter_or_queue(self.node, || slot)
    }

    /// Releases a seat; returns the pwq that it is transferred to.
    pub fn leave(&self) -> Option<usize> {
        Gate::leave(&self.gate, &self.core, self.node, Holds::Seat).waiter
    }

    /// Releases a seat that no pwq waits for; returns `true` if a drain must be notified.
    pub fn leave_last(&self) -> bool {
        let left = Gate::leave(&self.gate, &self.core, self.node, Holds::Seat);
        left.settled.is_some()
    }

    /// Starts helping. Returns `None` if no seat is free.
    pub fn help(&self) -> Option<Holds> {
        self.gate.try_help(self.node, false)
    }

    /// Ends helping. Returns `true` if a flush must be notified.
    pub fn end_help(&self, holds: Holds) -> bool {
        let left = Gate::leave(&self.gate, &self.core, self.node, holds);
        left.settled.is_some()
    }

    /// Starts a flush, which waits for the current helpers.
    pub fn flush(&self) -> HelpersFlush {
        let gate = Gate::closed(self.gate.clone());
        let phase = gate.phase();
        HelpersFlush(gate, phase)
    }
}

impl Deref for Gates {
    type Target = Gate<usize>;

    fn deref(&self) -> &Gate<usize> {
        &self.gate
    }
}

impl HelpersFlush {
    /// Returns `true` if all these helpers have ended; otherwise the last one notifies the waiters.
    pub fn has_ended(&self) -> bool {
        self.0.has_helped(self.1)
    }
}

/// Reapers that run each cleanup immediately.
struct AtOnce;

impl Reapers for AtOnce {
    fn leave(&self, left: Vec<Left>) {
        left.into_iter().for_each(|one| Box::new(one).run());
    }
}

/// Creates the capacity of a single queue.
pub fn permits(capacity: usize) -> Capacity {
    Capacity::new(capacity, Arc::new(AtOnce))
}

/// The only chunk of a model's slab.
const CHUNK: usize = 1;

/// A slab with one chunk of two blocks: its lower and its upper half.
pub struct Blocks {
    slab: Slab,
    wanted: Wanted,
    /// The contents of each block: `true` if it may have a page.
    contents: [UnsafeCell<bool>; 2],
}

// SAFETY: only the thread that owns a block uses its contents; the model checks this.
unsafe impl Sync for Blocks {}

impl Blocks {
    /// Creates a slab whose blocks have pages, and have not been used since the last scan.
    pub fn new(are_free: bool) -> Self {
        let blocks = Self {
            slab: Slab::new(0),
            wanted: Wanted::new(),
            contents: [false, false].map(UnsafeCell::new),
        };
        assert_eq!(blocks.alloc_lowest(), [true; 2]);
        if are_free {
            (0..2).for_each(|nth| assert!(!blocks.free(nth)));
        }
        blocks.slab.scan(|_| unreachable!("used"));
        blocks
    }

    fn write(&self, nth: usize, has_page: bool) {
        // SAFETY: the caller owns the block.
        self.contents[nth].with_mut(|content| unsafe { *content = has_page });
    }

    /// Allocates the blocks that the owner finds, and uses them.
    pub fn alloc(&self) -> [bool; 2] {
        let again = self.slab.has_free(CHUNK).then(|| self.slab.take(CHUNK));
        self.found(again.flatten().or_else(|| self.slab.take_lowest()))
    }

    /// Does the same as [`alloc`](Self::alloc) when the owner last used a different chunk.
    pub fn alloc_lowest(&self) -> [bool; 2] {
        self.found(self.slab.take_lowest())
    }

    fn found(&self, taken: Option<Taken>) -> [bool; 2] {
        let blocks = taken.map_or(0, |taken| taken.blocks);
        let has = [blocks as u32, (blocks >> 32) as u32].map(|half| half != 0);
        (0..2).filter(|nth| has[*nth]).for_each(|nth| self.write(nth, true));
        has
    }

    /// Uses and frees one block; returns `true` if a scan must be scheduled.
    pub fn free(&self, nth: usize) -> bool {
        self.write(nth, true);
        let half = u64::from(u32::MAX) << (32 * nth);
        self.slab.free(CHUNK, half) && self.wanted.is_set()
    }

    /// Discards the chunk if it is free; returns `true` if it was free.
    pub fn scan(&self) -> bool {
        self.wanted.begin();
        let discard = |_| (0..2).for_each(|nth| self.write(nth, false));
        self.slab.scan(discard).nr_discarded == 1
    }

    /// Scans twice, while no other thread uses the slab; returns `true` if no page is left.
    pub fn return_pages(&self) -> bool {
        self.scan();
        self.scan();
        // SAFETY: no other thread uses the slab.
        let has_page = |content: &UnsafeCell<bool>| content.with(|content| unsafe { *content });
        !self.contents.iter().any(has_page)
    }
}
