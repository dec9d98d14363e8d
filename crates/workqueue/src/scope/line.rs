//! The items of one scope that nobody has started, in the order in which they came.
//!
//! Whoever brings an item pushes it onto a stack, without a lock. Whoever takes one does so under a lock, from a list; when
//! that is empty the stack is taken whole and turned round.
//!
//! An owner that finds nothing to take, and has to wait for guests, leaves a mark in the place of an empty stack. Whoever
//! pushes onto the mark is to rouse it.

use std::ptr::{self, NonNull};

use base::internal::panics::{Payload, guarded_in_item};
use mpscq::RawStack;
use sync::{
    Mutex,
    atomic::{AtomicPtr, Ordering},
    twin,
};

use crate::item::slab;

/// Stands first in every item.
#[repr(C)]
pub(super) struct Link {
    /// The item that came before, while it is on the stack; the next one in the list.
    next: AtomicPtr<Link>,
    /// I
    run: unsafe fn(NonNull<Link>) -> Result<(), Payload>,
}

/// A closure that runs once.
#[repr(C)]
struct Item<F> {
    link: Link,
    func: F,
}

/// The items that nobody has started.
#[derive(Debug)]
pub(super) struct Line {
    /// The stack; its top is null, or the mark, when it is empty.
    newest: RawStack<Link>,
    list: Mutex<List>,
    /// I: one item runs at a time.
    in_order: bool,
}

#[derive(Debug)]
struct List {
    first: *mut Link,
    /// Somebody runs an item, where one runs at a time.
    is_busy: bool,
}

// SAFETY: the items are `Send`, by `item`, and whoever takes one alone has it.
unsafe impl Send for List {}

/// What an owner finds that has nothing to take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    /// There is something now.
    Items,
    /// Nothing waits; whoever pushes will say that the owner is to be roused.
    Marked,
    /// An item runs that all others have to wait for.
    Behind,
}

/// An item that has been taken, and must be run.
#[must_use = "it is never run"]
pub(super) struct Started(NonNull<Link>);

/// The mark of an owner that waits.
fn mark() -> *mut Link {
    ptr::without_provenance_mut(align_of::<Link>())
}

/// Makes an item of `func`, which is to be pushed.
pub(super) fn item<F: FnOnce() + Send>(func: F) -> NonNull<Link> {
    let link = Link {
        next: AtomicPtr::new(ptr::null_mut()),
        run: run::<F>,
    };
    slab::place(Item { link, func }).cast()
}

/// # Safety
///
/// 1. `item` was made of an `F`, and the caller alone has it.
unsafe fn run<F: FnOnce()>(item: NonNull<Link>) -> Result<(), Payload> {
    let item = item.cast::<Item<F>>();
    // SAFETY: (1): it is read once.
    let func = unsafe { ptr::read(&raw const (*item.as_ptr()).func) };
    // SAFETY: (1): what is left of it needs no drop but in a model.
    unsafe {
        ptr::drop_in_place(&raw mut (*item.as_ptr()).link);
        slab::give_back(item);
    }
    // FOREIGN(scope-run): an item of a scope, on a guest or the owner; contained.
    guarded_in_item(func)
}

impl Line {
    pub(super) fn new(in_order: bool) -> Self {
        Self {
            newest: RawStack::new(),
            list: Mutex::new(List {
                first: ptr::null_mut(),
                is_busy: false,
            }),
            in_order,
        }
    }

    /// Pushes what `item` made; returns `true` if the owner is to be roused.
    #[inline]
    pub(super) fn push(&self, item: NonNull<Link>) -> bool {
        // SAFETY: no other thread has the item before it is pushed.
        let next = unsafe { &(*item.as_ptr()).next };
        let before = self.newest.push(item.as_ptr(), |before| {
            let is_empty = before == mark();
            let below = if is_empty { ptr::null_mut() } else { before };
            next.store(below, Ordering::Relaxed);
        });
        before == mark() && !twin::armed("line: nobody is roused")
    }

    /// Takes the first item, if one may start.
    pub(super) fn take(&self) -> Option<Started> {
        let mut list = self.list.lock();
        let overtakes = twin::armed("line: an item starts beside another");
        if self.in_order && list.is_busy && !overtakes {
            return None;
        }
        if list.first.is_null() {
            list.first = self.take_stack();
        }
        let item = NonNull::new(list.first)?;
        // SAFETY: an item in the list is there until it has been taken, which the lock's holder alone does.
        list.first = unsafe { item.as_ref() }.next.load(Ordering::Relaxed);
        list.is_busy = true;
        Some(Started(item))
    }

    /// Takes all that was pushed, and returns the oldest. With the list locked.
    fn take_stack(&self) -> *mut Link {
        if self.has_none_pushed() {
            return ptr::null_mut();
        }
        let mut at = self.newest.take_all();
        let mut first = ptr::null_mut();
        while let Some(item) = NonNull::new(at) {
            // SAFETY: what was on the stack is ours, and stays until it is run.
            let next = &unsafe { item.as_ref() }.next;
            at = next.load(Ordering::Relaxed);
            next.store(first, Ordering::Relaxed);
            first = item.as_ptr();
        }
        first
    }

    /// Runs an item that was taken from here; returns what it panicked with.
    pub(super) fn run(&self, started: Started) -> Result<(), Payload> {
        let item = started.0;
        // SAFETY: it was taken, so it is there and ours alone.
        let outcome = unsafe { (item.as_ref().run)(item) };
        if self.in_order {
            self.list.lock().is_busy = false;
        }
        outcome
    }

    /// Says what the owner may wait for, after [`take`](Self::take) gave nothing.
    pub(super) fn rest(&self) -> Rest {
        let list = self.list.lock();
        if self.in_order && list.is_busy {
            return Rest::Behind;
        }
        // Under the lock: whoever takes the stack meanwhile would leave items in the list, and no place for the mark.
        if !list.first.is_null() && !twin::armed("line: a mark beside items") {
            return Rest::Items;
        }
        let (empty, relaxed) = (ptr::null_mut(), Ordering::Relaxed);
        let newest = self.newest.top();
        let is_marked = self.is_marked()
            || newest
                .compare_exchange(empty, mark(), relaxed, relaxed)
                .is_ok();
        if is_marked { Rest::Marked } else { Rest::Items }
    }

    /// Returns `true` if the stack is empty.
    fn has_none_pushed(&self) -> bool {
        let newest = self.newest.top().load(Ordering::Relaxed);
        newest.is_null() || newest == mark()
    }

    /// Returns `true` if the mark is there.
    pub(super) fn is_marked(&self) -> bool {
        self.newest.top().load(Ordering::Relaxed) == mark()
    }

    /// Returns `true` if no item waits. Only where nobody else takes or brings any.
    pub(super) fn is_empty(&self) -> bool {
        self.has_none_pushed() && self.list.lock().first.is_null()
    }
}
