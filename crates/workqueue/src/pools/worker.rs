//! The side of a worker that others can reach, and the items that it has in hand. `serve.rs` has its thread.
//!
//! Items in hand are still pending: they can be cancelled, helped, or taken back by a look at a worker that stays
//! in an item before them. `hand` is the word on which the worker and that look agree.

use std::ptr::{self, NonNull};

use base::internal::wake::Unparker;
use crossbeam_utils::CachePadded;
use sync::{
    atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering},
    thread, time,
};

use crate::{
    item::{
        head::{Head, VTable},
        slab,
    },
    observe::{concurrency::Activity, tally::Tally},
};

/// The most items that a worker ever has in hand; `Params::max_batch` may ask for less.
pub(crate) const MAX_HAND: usize = 64;

/// What a trip to the pool's list brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Taken {
    /// So many items are in hand.
    Items(usize),
    /// No item is to be had, or too many workers are awake.
    Nothing,
}

/// bits 0..32 the next item to run | bits 32..64 how many are in hand
#[derive(Clone, Copy)]
struct Hand(u64);

impl Hand {
    fn new(next: u32, len: u32) -> Self {
        Self(u64::from(len) << 32 | u64::from(next))
    }
    fn next(self) -> u32 {
        self.0 as u32
    }
    fn len(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// The side of a worker that others can reach.
#[derive(Debug)]
pub(crate) struct Worker {
    /// I: its number in the pool.
    pub(crate) number: usize,
    unparker: Unparker,
    /// A: who takes an item from `items` moves this first; refilled by the owner with the pool locked.
    hand: CachePadded<AtomicU64>,
    /// Written by the owner before it publishes `hand`.
    items: [AtomicPtr<Head>; MAX_HAND],
    /// A, written by the owner: runs whose in-flight count the owner's link gets back; wraps.
    nr_done: AtomicU32,
    /// A, written by the owner: what one item takes on average.
    item_ns: AtomicU32,
    /// A, written under the pool lock: a parked worker that finds it set leaves.
    culled: AtomicBool,
    /// A, set under the pool lock: a parked worker that finds it set gives its stack's memory back.
    slims: AtomicBool,
    /// A, written by the owner: it has done so, and run nothing since.
    lean: AtomicBool,
    /// A, written by the owner: its kernel thread, 0 before it runs.
    pub(crate) thread: AtomicU32,
    /// A, written by the owner: the table of the item that it runs, or ran last.
    running: AtomicPtr<VTable>,
    /// A: what it has run and not told its link.
    pub(crate) tally: Tally,
    /// A: set when a look let it run outside its pod.
    pub(crate) strays: AtomicBool,
    /// A, written by the owner: it has been brought home since it last took items.
    returned: AtomicBool,
}

impl Worker {
    pub(crate) fn new(number: usize, unparker: Unparker) -> Self {
        Self {
            number,
            unparker,
            hand: CachePadded::new(AtomicU64::new(0)),
            items: std::array::from_fn(|_| AtomicPtr::new(ptr::null_mut())),
            nr_done: AtomicU32::new(0),
            item_ns: AtomicU32::new(0),
            culled: AtomicBool::new(false),
            slims: AtomicBool::new(false),
            lean: AtomicBool::new(false),
            thread: AtomicU32::new(0),
            running: AtomicPtr::new(ptr::null_mut()),
            tally: Tally::default(),
            strays: AtomicBool::new(false),
            returned: AtomicBool::new(false),
        }
    }

    pub(crate) fn unparker(&self) -> Unparker {
        self.unparker.clone()
    }

    /// Notes that this thread is the worker's; returns `true` if it was not before.
    pub(crate) fn is_this_thread(&self) -> bool {
        self.thread.swap(thread::current().0, Ordering::Relaxed) == 0
    }

    /// Notes that it is home again. The owner alone.
    pub(crate) fn has_returned(&self) {
        self.returned.store(true, Ordering::Relaxed);
    }

    /// Returns `true` once if the worker has come home since it last took items. Called by the owner only.
    pub(crate) fn takes_after_return(&self) -> bool {
        let returned = self.returned.load(Ordering::Relaxed);
        if returned {
            self.returned.store(false, Ordering::Relaxed);
        }
        returned
    }

    /// Returns `true` if a kick has reached it that it has not followed yet.
    pub(crate) fn is_kicked(&self) -> bool {
        self.unparker.is_given()
    }

    pub(crate) fn nr_done(&self) -> u32 {
        // Pairs with the Release in `run_hand`: a run that is counted here happened before.
        self.nr_done.load(Ordering::Acquire)
    }

    pub(crate) fn item_ns(&self) -> u64 {
        u64::from(self.item_ns.load(Ordering::Relaxed))
    }

    /// Makes it leave when it wakes. Call it with the pool locked and the worker off the idle list.
    pub(crate) fn cull(&self) {
        self.culled.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_culled(&self) -> bool {
        self.culled.load(Ordering::Relaxed)
    }

    /// Has it give its stack's memory back when it wakes. Call it with the pool locked and the worker off the idle list.
    pub(crate) fn slim(&self) {
        self.slims.store(true, Ordering::Relaxed);
    }

    /// Gives the memory of this thread's stack back, if that was asked. The owner alone, before it looks for work.
    pub(crate) fn slim_if_asked(&self) {
        let slims = self.slims.load(Ordering::Relaxed);
        if slims {
            self.slims.store(false, Ordering::Relaxed);
            thread::give_stack_back();
        }
        self.lean.store(slims, Ordering::Relaxed);
    }

    /// Returns `true` if it has given that back and run nothing since.
    pub(crate) fn is_lean(&self) -> bool {
        self.lean.load(Ordering::Relaxed)
    }

    /// Puts an item into the hand that the owner fills, with the pool locked.
    pub(crate) fn hold(&self, place: usize, item: NonNull<Head>) {
        self.items[place].store(item.as_ptr(), Ordering::Relaxed);
    }

    /// Shows the hand to others; the owner alone, with the pool locked.
    pub(crate) fn publish(&self, len: usize) {
        // Pairs with the Acquire in `disown`: who finds this hand finds its items.
        self.hand
            .store(Hand::new(0, len as u32).0, Ordering::Release);
    }

    /// Returns the item that it is in and those that it has not started. With the pool locked.
    pub(crate) fn in_hand(&self) -> impl Iterator<Item = *const Head> {
        let hand = Hand(self.hand.load(Ordering::Relaxed));
        self.held(hand.len() as usize)
            .skip((hand.next() as usize).saturating_sub(1))
    }

    /// Returns the first `len` items in its hand. With the pool locked.
    pub(crate) fn held(&self, len: usize) -> impl Iterator<Item = *const Head> {
        let places = self.items[..len].iter();
        places.map(|place| place.load(Ordering::Relaxed).cast_const())
    }

    /// Returns the first item of its batch.
    pub(crate) fn first_held(&self) -> Option<NonNull<Head>> {
        NonNull::new(self.items[0].load(Ordering::Relaxed))
    }

    /// Returns how many items it has in hand that it has not started.
    pub(crate) fn nr_items(&self) -> u32 {
        let hand = Hand(self.hand.load(Ordering::Relaxed));
        hand.len().saturating_sub(hand.next())
    }

    /// Returns how many items it has taken and not started: those in hand, and those that it has found cancelled since it took
    /// them. In this order, so that one that it finds between the two counts twice: it must not be shown as started.
    pub(crate) fn nr_not_started(&self) -> u64 {
        let nr_items = u64::from(self.nr_items());
        nr_items + u64::from(self.tally.nr_not_run())
    }

    /// Returns `true` if it has items in hand that it has not started.
    pub(crate) fn has_items(&self) -> bool {
        self.nr_items() > 0
    }

    /// Returns `true` if it is in an item, or on its way from there to its pool.
    pub(crate) fn is_inside(&self) -> bool {
        let hand = Hand(self.hand.load(Ordering::Relaxed));
        (1..=hand.len()).contains(&hand.next())
    }

    /// Returns the table of the item that it is in, or was last.
    pub(crate) fn running(&self) -> Option<&'static VTable> {
        // SAFETY: null, or a table that is never freed.
        unsafe { self.running.load(Ordering::Relaxed).as_ref() }
    }

    /// Returns what it is at.
    pub(crate) fn activity(&self) -> Activity {
        Activity {
            hand: self.hand.load(Ordering::Relaxed),
            nr_done: self.nr_done.load(Ordering::Relaxed),
        }
    }

    /// Takes the next item out of the hand; the owner alone.
    fn next(&self) -> Option<NonNull<Head>> {
        // Against `disown`, on one word. If ours comes first, the item is ours, and the others' exchange fails and begins
        // behind it. If `disown` comes first, the hand is empty for us.
        let hand = Hand(self.hand.fetch_add(1, Ordering::AcqRel));
        if hand.next() >= hand.len() {
            return None;
        }
        NonNull::new(self.items[hand.next() as usize].load(Ordering::Relaxed))
    }

    /// Takes all items that the owner has not started out of its hand, oldest first. Call it with the pool
    /// locked, so that the hand is not refilled meanwhile.
    pub(crate) fn disown(&self) -> Vec<NonNull<Head>> {
        // Against `next`, on one word. If our exchange comes first, the items from `next` on are ours, and the owner finds its
        // hand empty. If the owner's step comes first, our exchange fails, and we begin behind the item that it took.
        // Acquire pairs with `publish`: the places hold their items.
        let mut from = Hand(self.hand.load(Ordering::Acquire));
        loop {
            if from.next() >= from.len() {
                return Vec::new();
            }
            match self.hand.compare_exchange_weak(
                from.0,
                Hand::new(from.len(), from.len()).0,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => break,
                Err(now) => from = Hand(now),
            }
        }
        (from.next()..from.len())
            .filter_map(|place| NonNull::new(self.items[place as usize].load(Ordering::Relaxed)))
            .collect()
    }

    /// Runs all that is in hand.
    pub(crate) fn run_hand(&self) {
        if self.is_lean() {
            self.lean.store(false, Ordering::Relaxed);
        }
        let start = time::cycles();
        let (mut nr_taken, mut nr_not_run) = (0u64, 0u64);
        let mut first_end = None;
        while let Some(item) = self.next() {
            if first_end.is_none() && nr_taken > nr_not_run {
                first_end = Some(time::cycles());
            }
            // SAFETY: `next` gave this item to us alone, linked, so it is alive.
            let vtable = unsafe { item.as_ref() }.vtable();
            self.running
                .store(ptr::from_ref(vtable).cast_mut(), Ordering::Relaxed);
            // SAFETY: as above; the table was made for it.
            let popped = unsafe { (vtable.run)(item) };
            if !popped.ran() {
                nr_not_run += 1;
                self.tally.add_not_run();
            }
            if popped.counts() {
                let nr_done = self.nr_done.load(Ordering::Relaxed).wrapping_add(1);
                // Pairs with the Acquire in `nr_done`: the run is over for who counts it.
                self.nr_done.store(nr_done, Ordering::Release);
            }
            nr_taken += 1;
        }
        slab::flush();
        // The counter of another CPU may be behind.
        let end = time::cycles();
        let cycles = end.saturating_sub(start);
        let first_cycles = first_end.unwrap_or(end).saturating_sub(start);
        if let Some(each) = cycles.checked_div(nr_taken) {
            self.learn(each.saturating_mul(1000) / time::cycles_per_us());
        }
        self.tally.add(nr_taken as u32, cycles, first_cycles);
    }

    /// Mixes what an item took into the average, an eighth at a time.
    fn learn(&self, item_ns: u64) {
        let before = self.item_ns();
        let mixed = before - before / 8 + item_ns.min(u64::from(u32::MAX)) / 8;
        self.item_ns.store(mixed as u32, Ordering::Relaxed);
    }
}
