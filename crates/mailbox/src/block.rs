//! A block: adjacent items of one poster, and one word that determines which side may use which
//! part of the block.
//!
//! ```text
//!  ┌──────┬───────┬──────────┬────────┬────────┬────────┬───
//!  │ link │ state │ nr_slots │ slot 0 │ slot 1 │ slot 2 │ …
//!  └──────┴───────┴──────────┴────────┴────────┴────────┴───
//!  ◄───────────────── two cache lines ─────────────────────►
//! ```
//!
//! Moving a cache line from CPU to CPU costs more than all the instructions of a post. The lines of
//! a block hold several items.
//!
//! # The life of a block
//!
//! A poster stores its first item and pushes the block onto the queue. While the block is the
//! newest in the queue, the same poster adds items to it. The owner reads the block at the head.
//! When it has read all items of a block that is not the newest, it closes the block.
//!
//! The fields of `state` are:
//!
//! - The number of items, which counts the slots that hold or held an item. The poster adds to it.
//! - `SEALED`: the poster no longer uses the block. It sets the flag with its last addition, or
//!   when it abandons the block.
//! - `CLOSED`: the owner no longer uses the block. It sets the flag once it has read every item,
//!   with a compare-exchange that fails if the poster has changed `state` since.
//!
//! The side that sets the second flag owns the block: an owner that finds `SEALED` moves the block
//! to the free list, and a poster that finds `CLOSED` uses the block again.
//!
//! # What must never happen
//!
//! - *An item is lost*, because the poster adds to a block that the owner no longer reads. Both
//!   sides change the same word. If the addition comes first, the closing fails, because the owner
//!   has not read that item. If the closing comes first, the poster finds `CLOSED`, takes its item
//!   out of the slot, which no other thread has used, and starts another block.
//! - *Two items of one poster, or of two posts that do not overlap, change their order.* A poster
//!   adds only to a block that is still the newest after its post has begun. A block that is pushed
//!   behind it later therefore belongs to a post that overlaps this one.
//! - *The owner spins.* The owner closes only a block that has another one behind it, and an
//!   addition begins with a check that its block is the newest. The compare-exchange therefore
//!   fails at most once because of an addition, and once because of `SEALED`.

use std::alloc::{self, Layout};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use mpscq::{Link, Linked};
use sync::atomic::{AtomicU64, Ordering};
use sync::cell::UnsafeCell;
use sync::{hint, twin};

/// The size of a block in bytes: two cache lines, which most machines fetch together. In
/// measurements, one line holds too few items. Four are no faster, and waste memory when several
/// posters alternate.
const BLOCK_BYTES: usize = 128;

/// The alignment of a block, so that two blocks share no cache line. It has no effect in a model.
const BLOCK_ALIGN: usize = 64;

/// The number of slots of a block in a model, so that a third item needs another block.
const MODEL_SLOTS: usize = 2;

type Cell<T> = UnsafeCell<MaybeUninit<T>>;

/// A block. It is accessed only through raw pointers, because the poster and the owner use
/// different parts of it at the same time.
#[repr(C)]
pub(super) struct Block<T> {
    link: Link<Block<T>>,
    /// A: see the top of the file.
    state: AtomicU64,
    nr_slots: usize,
    /// A slot belongs to the poster until the state counts it, and then to the owner.
    slots: [Cell<T>; 0],
}

/// bits 0..6: number of items | bit 6: `SEALED` | bit 7: `CLOSED` | bit 8: `WAKES` | bits 9..64:
/// eager items
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct State(u64);

impl State {
    pub(super) const NONE: Self = Self(0);

    const ONE: u64 = 1;
    const NR: u64 = 0x3f;
    const SEALED: u64 = 1 << 6;
    const CLOSED: u64 = 1 << 7;
    const WAKES: u64 = 1 << 8;
    const EAGER_SHIFT: u32 = 9;
    /// The maximum number of slots, which is the number of bits for eager items.
    const MAX_SLOTS: usize = 55;

    /// Returns the addition to the state for the item in slot `at`.
    fn item(at: usize, eager: bool, last: bool) -> u64 {
        let seal = if last { Self::SEALED } else { 0 };
        Self::ONE | seal | (u64::from(eager) << (Self::EAGER_SHIFT as usize + at))
    }

    #[inline(always)]
    pub(super) fn nr_items(self) -> usize {
        (self.0 & Self::NR) as usize
    }

    #[inline(always)]
    pub(super) fn is_sealed(self) -> bool {
        self.0 & Self::SEALED != 0
    }

    /// Returns `true` if the items count toward the capacity of a bounded mailbox.
    #[inline(always)]
    pub(super) fn takes_capacity(self) -> bool {
        self.0 & Self::WAKES == 0
    }

    fn is_closed(self) -> bool {
        self.0 & Self::CLOSED != 0
    }

    /// Returns `true` if slot `at` or a later one holds an eager item.
    #[inline(always)]
    pub(super) fn has_eager_from(self, at: usize) -> bool {
        (self.0 >> Self::EAGER_SHIFT) >> at != 0
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Posted items, which count toward the capacity.
    Item,
    /// The wake-ups of local futures, which do not.
    WakeUps,
}

impl Kind {
    #[inline(always)]
    fn bits(self) -> u64 {
        match self {
            Self::Item => 0,
            Self::WakeUps => State::WAKES,
        }
    }
}

pub(super) const fn nr_slots<T>() -> usize {
    if cfg!(any(loom, shuttle)) {
        return MODEL_SLOTS;
    }
    let size = if size_of::<T>() == 0 { 1 } else { size_of::<T>() };
    let fit = (BLOCK_BYTES - std::mem::offset_of!(Block<u64>, slots)) / size;
    match fit {
        0 => 1,
        1..=State::MAX_SLOTS => fit,
        _ => State::MAX_SLOTS,
    }
}

/// A block without items, owned by one side.
pub(super) struct Blank<T>(NonNull<Block<T>>);

impl<T> Blank<T> {
    pub(super) fn new(nr_slots: usize) -> Self {
        let layout = layout::<T>(nr_slots);
        // SAFETY: the size is not zero, because a block has a head.
        let block = unsafe { alloc::alloc(layout) }.cast::<Block<T>>();
        let Some(block) = NonNull::new(block) else {
            alloc::handle_alloc_error(layout);
        };
        let head = Block { link: Link::new(), state: AtomicU64::new(0), nr_slots, slots: [] };
        // SAFETY: the memory was just allocated, and is large and aligned enough for the head.
        unsafe { block.write(head) };
        for at in 0..nr_slots {
            // SAFETY: `at` is below the number of slots allocated.
            let slot = unsafe { slot(block, at) };
            // SAFETY: as above, and no other thread can reach the block.
            unsafe { slot.write(UnsafeCell::new(MaybeUninit::uninit())) };
        }
        Self(block)
    }

    /// Stores `item` in the first slot. If `last` is `true`, no other item will be added.
    #[inline(always)]
    pub(super) fn start(self, item: T, kind: Kind, eager: bool, last: bool) -> NonNull<Block<T>> {
        let block = Block::into_raw(self);
        // SAFETY: the handle owned the block, so no other thread uses it, and every block has a
        // slot.
        unsafe { put(block, 0, item) };
        // SAFETY: as above. Relaxed is sufficient, because the push publishes the state.
        unsafe { state(block) }.store(kind.bits() | State::item(0, eager, last), Ordering::Relaxed);
        block
    }

    pub(super) fn state(&self) -> State {
        // SAFETY: the handle owns the block, and the thread that transferred the handle to this one
        // also published the state.
        unsafe { load(self.0) }
    }

    /// Marks the last item of a [sealed](seal_filled) block as eager, so that the block stays eager
    /// until it is empty.
    pub(super) fn mark_eager(&self) {
        let last = self.state().nr_items() - 1;
        // SAFETY: the handle owns the block.
        let state = unsafe { state(self.0) };
        // Relaxed is sufficient, because the push publishes the state.
        state.fetch_or(1 << (State::EAGER_SHIFT as usize + last), Ordering::Relaxed);
    }
}

/// Prefetches the lines of a block for writing.
#[inline]
pub(super) fn prefetch<T>(block: *const Block<T>) {
    for line in 0..BLOCK_BYTES / BLOCK_ALIGN {
        hint::prefetch_write(block.cast::<u8>().wrapping_add(line * BLOCK_ALIGN));
    }
}

/// Counts the items of a block that no other thread can reach, and seals it.
///
/// # Safety
///
/// 1. The caller owns `block`, and has filled its first `nr_items` slots.
pub(super) unsafe fn seal_filled<T>(block: NonNull<Block<T>>, nr_items: usize) {
    let filled = (nr_items as u64 * State::ONE) | State::SEALED;
    // SAFETY: (1). Relaxed is sufficient, because the push publishes the state.
    unsafe { state(block) }.store(filled, Ordering::Relaxed);
}

/// Adds an item to a block that was pushed. If the owner has closed the block, returns the item and
/// the block, which the caller then owns.
///
/// # Safety
///
/// 1. The caller is the poster that pushed `block`, and has not abandoned it. It has added `at`
///    items, which is less than the number of slots.
#[inline(always)]
pub(super) unsafe fn add<T>(
    block: NonNull<Block<T>>,
    at: usize,
    item: T,
    eager: bool,
    last: bool,
) -> Result<(), (T, Blank<T>)> {
    // SAFETY: (1): the state does not count the slot yet, so it belongs to the poster.
    unsafe { put(block, at, item) };
    // ORDER(block-add): message passing from poster to owner, other end in `load`.
    //   add:  the item in its slot;     state += 1   Release
    //   load: state   Acquire;          takes items out of the slots
    // If our addition comes first, the owner's load counts the item and finds it complete. If the
    // load comes first, the owner does not read the slot.
    // Test: an_added_item_is_whole
    //
    // ORDER(block-close): the acquire end; see `close`. If the closing comes first, we find CLOSED
    // below, and the owner's reads of the block precede our next writes.
    // Test: block_is_reused
    let order = if twin::armed("block: add without release") {
        Ordering::Acquire
    } else if twin::armed("block: add without acquire") {
        Ordering::Release
    } else {
        Ordering::AcqRel
    };
    // SAFETY: (1): the block exists until neither side uses it.
    let before = unsafe { state(block) }.fetch_add(State::item(at, eager, last), order);
    if !State(before).is_closed() || twin::armed("block: add to a closed block") {
        return Ok(());
    }
    // SAFETY: the owner closed the block before the state counted this slot, so the slot still
    // belongs to the poster.
    let item = unsafe { take(block, at) };
    // SAFETY: the owner has read all items, and neither side uses the block any more.
    Err((item, unsafe { Block::from_raw(block) }))
}

/// Returns a block to its poster if the owner has closed it.
///
/// # Safety
///
/// 1. The caller is the poster that pushed `block`, and has not abandoned it. If the result is
///    `Some`, the caller does not use the old pointer any more.
pub(super) unsafe fn take_back<T>(block: NonNull<Block<T>>) -> Option<Blank<T>> {
    // ORDER(block-close): the acquire end; see `close`. If our load comes first, the poster keeps
    // the block in its list and tries again later.
    // Test: block_is_reused
    let order = twin::order("block: relaxed take back", Ordering::Acquire);
    // SAFETY: (1): the block exists until neither side uses it.
    let state = State(unsafe { state(block) }.load(order));
    // SAFETY: if the block is closed, the owner no longer uses it.
    state.is_closed().then(|| unsafe { Block::from_raw(block) })
}

/// Abandons a block. Returns the block if the owner no longer uses it.
///
/// # Safety
///
/// 1. The same as [`take_back`].
pub(super) unsafe fn seal<T>(block: NonNull<Block<T>>) -> Option<Blank<T>> {
    // ORDER(block-close): the acquire end; see `close`. If CLOSED comes first, we find it and own
    // the block, after the owner's reads. It is also the release end for `load`: if our SEALED
    // comes first, the owner transfers the block to its next user after our accesses.
    //
    // SAFETY: (1): the block exists until neither side uses it.
    let before = unsafe { state(block) }.fetch_or(State::SEALED, Ordering::AcqRel);
    // SAFETY: if the block is closed, the owner no longer uses it.
    State(before).is_closed().then(|| unsafe { Block::from_raw(block) })
}

/// # Safety
///
/// 1. The caller is the owner of the mailbox, and has not closed or freed `block`.
#[inline(always)]
pub(super) unsafe fn load<T>(block: NonNull<Block<T>>) -> State {
    // ORDER(block-add): the acquire end; see `add`. It also acquires the poster's SEALED.
    // Test: an_added_item_is_whole
    let order = twin::order("block: relaxed peek", Ordering::Acquire);
    // SAFETY: (1): the block exists until neither side uses it.
    State(unsafe { state(block) }.load(order))
}

/// Closes a block that is no longer the newest. Returns `false` if its state is no longer `seen`.
///
/// # Safety
///
/// 1. The same as [`load`]. If the result is `true`, the caller does not use the block any more.
/// 2. Every item that `seen` counts was taken, and the block was popped from the queue.
pub(super) unsafe fn close<T>(block: NonNull<Block<T>>, seen: State) -> bool {
    // ORDER(block-close): message passing from owner to poster, other ends in `add`, `take_back`
    // and `seal`.
    //   close: takes items, reads the link;    state |= CLOSED   Release
    //   next:  state   Acquire;                writes items and link again
    // If our exchange comes first, the poster finds CLOSED, and its next writes follow our reads.
    // If an addition or SEALED comes first, our exchange fails, and the owner loads the state
    // again.
    // Test: block_is_reused
    let order = twin::order("block: relaxed close", Ordering::Release);
    let seen = seen.0;
    // SAFETY: (1).
    let state = unsafe { state(block) };
    state.compare_exchange(seen, seen | State::CLOSED, order, Ordering::Relaxed).is_ok()
}

/// # Safety
///
/// 1. The slot belongs to the caller, and holds an item that was not taken before.
#[inline(always)]
pub(super) unsafe fn take<T>(block: NonNull<Block<T>>, at: usize) -> T {
    // SAFETY: (1): the slot exists.
    let slot = unsafe { slot(block, at) };
    // SAFETY: (1).
    let item = unsafe { (*slot).with(|slot| slot.read()) };
    // SAFETY: (1).
    unsafe { item.assume_init() }
}

/// # Safety
///
/// 1. The slot exists, and belongs to the caller.
#[inline(always)]
pub(super) unsafe fn put<T>(block: NonNull<Block<T>>, at: usize, item: T) {
    // SAFETY: (1).
    let slot = unsafe { slot(block, at) };
    // SAFETY: (1).
    unsafe { (*slot).with_mut(|slot| slot.write(MaybeUninit::new(item))) };
}

/// # Safety
///
/// 1. The block exists, and has more than `at` slots.
#[inline(always)]
unsafe fn slot<T>(block: NonNull<Block<T>>, at: usize) -> *mut Cell<T> {
    // SAFETY: (1): the slot is inside the block.
    let slots = unsafe { &raw mut (*block.as_ptr()).slots };
    // SAFETY: (1): `layout` reserves space for the slots after the head.
    unsafe { slots.cast::<Cell<T>>().add(at) }
}

/// # Safety
///
/// 1. The block exists as long as the borrow.
#[inline(always)]
unsafe fn state<'a, T>(block: NonNull<Block<T>>) -> &'a AtomicU64 {
    // SAFETY: (1): accessed only by shared reference.
    unsafe { &(*block.as_ptr()).state }
}

fn layout<T>(nr_slots: usize) -> Layout {
    let slots = Layout::array::<Cell<T>>(nr_slots).expect("a few slots fit into memory");
    let (layout, at) =
        Layout::new::<Block<T>>().extend(slots).expect("a few slots fit into memory");
    debug_assert_eq!(at, std::mem::offset_of!(Block<T>, slots));
    let align = if nr_slots > 1 { BLOCK_ALIGN } else { 1 };
    layout.align_to(align).expect("a power of two").pad_to_align()
}

// SAFETY: (1): the handle owns an allocation that does not move. (2): there is only one handle.
// (3): the link is a field, whose address is computed without a reference to the block. (4): it is
// private and used only here. (5): nothing here panics.
unsafe impl<T> Linked for Block<T> {
    type Handle = Blank<T>;

    #[inline(always)]
    fn into_raw(handle: Blank<T>) -> NonNull<Self> {
        ManuallyDrop::new(handle).0
    }

    #[inline(always)]
    unsafe fn from_raw(item: NonNull<Self>) -> Blank<T> {
        Blank(item)
    }

    #[inline(always)]
    unsafe fn link(item: NonNull<Self>) -> NonNull<Link<Self>> {
        // SAFETY: (1) keeps the allocation alive, so the field's address is inside it.
        unsafe { NonNull::new_unchecked(&raw mut (*item.as_ptr()).link) }
    }
}

// SAFETY: a handle owns its block exclusively, like a box.
unsafe impl<T: Send> Send for Blank<T> {}

impl<T> Drop for Blank<T> {
    fn drop(&mut self) {
        let block = self.0.as_ptr();
        // SAFETY: the handle owns the block.
        let nr_slots = unsafe { (*block).nr_slots };
        for at in 0..nr_slots {
            // SAFETY: as above.
            let slot = unsafe { slot(self.0, at) };
            // SAFETY: `new` initialized the slot. An item in it, if any, is not dropped.
            unsafe { slot.drop_in_place() };
        }
        // SAFETY: `new` initialized the block, and this is the only owner.
        unsafe { block.drop_in_place() };
        // SAFETY: `new` allocated the block with this layout.
        unsafe { alloc::dealloc(block.cast(), layout::<T>(nr_slots)) };
    }
}
