//! The pending items of one scope, in the order in which they were spawned.
//!
//! Threads push items onto a stack without a lock, and take items from a list under a lock. A
//! thread that finds the list empty takes the whole stack and reverses it.
//!
//! An owner that finds no item, and must wait for guests, replaces the empty stack with a mark. A
//! push that replaces the mark must wake the owner.

use std::ptr::{self, NonNull};

use base::internal::panics::{Payload, guarded_in_item};
use item::internal::memory;
use mpscq::RawStack;
use sync::atomic::{AtomicPtr, Ordering};
use sync::{Mutex, twin};

#[repr(C)]
pub(super) struct Link {
    /// The previously pushed item, while this one is on the stack; in the list, the next item.
    next: AtomicPtr<Link>,
    /// I
    run: unsafe fn(NonNull<Link>) -> Result<(), Payload>,
}

#[repr(C)]
struct Item<F> {
    link: Link,
    func: F,
}

pub(super) struct PendingItems {
    /// The stack; if it is empty, its top is null or the mark.
    newest: RawStack<Link>,
    list: Mutex<List>,
    /// I: set if one item runs at a time.
    in_order: bool,
}

struct List {
    first: *mut Link,
    /// Set while an item runs, if `in_order`.
    is_busy: bool,
}

// SAFETY: the items are `Send` (`item` requires it), and the thread that takes one owns it.
unsafe impl Send for List {}

/// The state that an owner finds after `take` returned nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// An item may be available now.
    Items,
    /// No item is pending, and the mark is set: the next push reports that it must wake the owner.
    Marked,
    /// The other items must wait until the executing one completes.
    Behind,
}

#[must_use = "it is never run"]
pub(super) struct Started(NonNull<Link>);

fn mark() -> *mut Link {
    ptr::without_provenance_mut(align_of::<Link>())
}

pub(super) fn item<F: FnOnce() + Send>(func: F) -> NonNull<Link> {
    let link = Link { next: AtomicPtr::new(ptr::null_mut()), run: run::<F> };
    memory::place(Item { link, func }).cast()
}

/// # Safety
///
/// 1. `item` was created from an `F`, and only the caller has it.
unsafe fn run<F: FnOnce()>(item: NonNull<Link>) -> Result<(), Payload> {
    let item = item.cast::<Item<F>>();
    // SAFETY: (1): the closure is read once, and `item` is no longer used as an `Item`.
    let func = unsafe { ptr::read(&raw const (*item.as_ptr()).func) };
    // SAFETY: (1): only the link is dropped (a model needs that), because `func` was moved out.
    unsafe {
        ptr::drop_in_place(&raw mut (*item.as_ptr()).link);
        memory::release(item);
    }
    // FOREIGN(scope-run): an item of a scope, on a guest or the owner; a panic is contained.
    guarded_in_item(func)
}

impl PendingItems {
    pub(super) fn new(in_order: bool) -> Self {
        Self {
            newest: RawStack::new(),
            list: Mutex::new(List { first: ptr::null_mut(), is_busy: false }),
            in_order,
        }
    }

    /// Pushes `item`; returns `true` if the caller must wake the owner.
    #[inline]
    pub(super) fn push(&self, item: NonNull<Link>) -> bool {
        // SAFETY: no other thread has the item before it is pushed.
        let next = unsafe { &(*item.as_ptr()).next };
        let before = self.newest.push(item.as_ptr(), |before| {
            let is_empty = before == mark();
            let below = if is_empty { ptr::null_mut() } else { before };
            next.store(below, Ordering::Relaxed);
        });
        before == mark() && !twin::armed("scope: the owner is not woken")
    }

    pub(super) fn take(&self) -> Option<Started> {
        let mut list = self.list.lock();
        let overtakes = twin::armed("scope: items overlap");
        if self.in_order && list.is_busy && !overtakes {
            return None;
        }
        if list.first.is_null() {
            list.first = self.take_stack();
        }
        let item = NonNull::new(list.first)?;
        // SAFETY: an item is valid until it is taken from the list, which needs the lock.
        list.first = unsafe { item.as_ref() }.next.load(Ordering::Relaxed);
        list.is_busy = true;
        Some(Started(item))
    }

    /// Takes the whole stack, reverses it, and returns the oldest item. The list is locked.
    fn take_stack(&self) -> *mut Link {
        if self.has_none_pushed() {
            return ptr::null_mut();
        }
        let mut at = self.newest.take_all();
        let mut first = ptr::null_mut();
        while let Some(item) = NonNull::new(at) {
            // SAFETY: we took the items off the stack, and they are valid until they are run.
            let next = &unsafe { item.as_ref() }.next;
            at = next.load(Ordering::Relaxed);
            next.store(first, Ordering::Relaxed);
            first = item.as_ptr();
        }
        first
    }

    /// Runs an item that was taken from this list; returns its panic.
    pub(super) fn run(&self, started: Started) -> Result<(), Payload> {
        let item = started.0;
        // SAFETY: the item was taken, so it is valid and only this thread has it.
        let outcome = unsafe { (item.as_ref().run)(item) };
        if self.in_order {
            self.list.lock().is_busy = false;
        }
        outcome
    }

    /// Returns the event that the owner may wait for, after [`take`](Self::take) returned nothing.
    pub(super) fn rest(&self) -> Rest {
        let list = self.list.lock();
        if self.in_order && list.is_busy {
            return Rest::Behind;
        }
        // This is checked under the lock, because a thread that takes the stack now would leave
        // items in the list, and the mark needs an empty list.
        if !list.first.is_null() && !twin::armed("scope: a mark next to items") {
            return Rest::Items;
        }
        let (empty, relaxed) = (ptr::null_mut(), Ordering::Relaxed);
        let newest = self.newest.top();
        let is_marked =
            self.is_marked() || newest.compare_exchange(empty, mark(), relaxed, relaxed).is_ok();
        if is_marked { Rest::Marked } else { Rest::Items }
    }

    fn has_none_pushed(&self) -> bool {
        let newest = self.newest.top().load(Ordering::Relaxed);
        newest.is_null() || newest == mark()
    }

    pub(super) fn is_marked(&self) -> bool {
        self.newest.top().load(Ordering::Relaxed) == mark()
    }

    /// Returns `true` if no item is pending. No other thread may take or push items.
    pub(super) fn is_empty(&self) -> bool {
        self.has_none_pushed() && self.list.lock().first.is_null()
    }
}
