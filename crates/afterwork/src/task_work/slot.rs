//! The node that an item travels in: with a value it is a [`Letter`], without one a [`Blank`].
//!
//! The memory of a node goes round: blank, letter, blank. Whether it holds a value is known by the type of its
//! handle alone, so that the owner, who takes the value out, need not write to the node: it lies in a cache line that
//! the next poster wants back, and a line that is only read comes back sooner.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

use mpscq::{Chain, Link, Linked};

/// A node; reached through its handles only.
#[derive(Debug)]
pub(super) struct Slot<T> {
    link: Link<Slot<T>>,
    value: MaybeUninit<T>,
    urgent: bool,
}

/// A node without a value. Owns the memory.
#[derive(Debug)]
pub(super) struct Blank<T>(NonNull<Slot<T>>);

/// A node with a value.
#[derive(Debug)]
pub(super) struct Letter<T>(Blank<T>);

/// A chain of letters.
#[derive(Debug)]
pub(super) struct Letters<T> {
    // Its own drop would take the nodes for blank and forget the values; ours comes first.
    chain: Chain<Slot<T>>,
}

impl<T> Blank<T> {
    /// Allocates a node.
    pub(super) fn new() -> Self {
        let slot = Slot {
            link: Link::new(),
            value: MaybeUninit::uninit(),
            urgent: false,
        };
        Self(NonNull::from(Box::leak(Box::new(slot))))
    }

    /// Puts a value in.
    #[inline(always)]
    pub(super) fn fill(self, value: T, urgent: bool) -> Letter<T> {
        let slot = self.0.as_ptr();
        // SAFETY: the handle owns the node, so nobody else looks at its value.
        unsafe { (&raw mut (*slot).value).write(MaybeUninit::new(value)) };
        // SAFETY: as above.
        unsafe { (&raw mut (*slot).urgent).write(urgent) };
        Letter(self)
    }
}

impl<T> Letter<T> {
    /// Says whether it was posted to wake the owner.
    #[inline(always)]
    pub(super) fn urgent(&self) -> bool {
        // SAFETY: the handle owns the node; `fill` wrote the field.
        unsafe { (*self.0.0.as_ptr()).urgent }
    }

    /// Marks it.
    pub(super) fn set_urgent(&mut self, urgent: bool) {
        // SAFETY: the handle owns the node.
        unsafe { (*self.0.0.as_ptr()).urgent = urgent };
    }

    /// Takes the value out.
    #[inline(always)]
    pub(super) fn open(self) -> (T, Blank<T>) {
        let blank = self.into_blank();
        // SAFETY: a letter's node holds a value, by `fill`; from here on it is a blank, so it is taken once.
        let value = unsafe { (&raw const (*blank.0.as_ptr()).value).read().assume_init() };
        (value, blank)
    }

    /// Keeps the value in the node; who calls it sees to it that it comes out as a letter again.
    #[inline(always)]
    pub(super) fn into_blank(self) -> Blank<T> {
        let this = ManuallyDrop::new(self);
        Blank(this.0.0)
    }

    /// # Safety
    ///
    /// 1. `blank` came from [`into_blank`](Self::into_blank), with the value in it.
    #[inline(always)]
    pub(super) unsafe fn from_blank(blank: Blank<T>) -> Self {
        Self(blank)
    }
}

impl<T> Letters<T> {
    pub(super) const fn new() -> Self {
        Self {
            chain: Chain::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.chain.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.chain.is_empty()
    }

    #[inline]
    pub(super) fn push_back(&mut self, letter: Letter<T>) {
        self.chain.push_back(letter.into_blank());
    }

    #[inline]
    pub(super) fn pop_front(&mut self) -> Option<Letter<T>> {
        // SAFETY: letters alone come in, by `push_back`, `append` and `from_chain`.
        self.chain
            .pop_front()
            .map(|blank| unsafe { Letter::from_blank(blank) })
    }

    pub(super) fn append(&mut self, other: Self) {
        self.chain.append(other.into_chain());
    }

    /// Gives up the chain; its nodes hold values.
    pub(super) fn into_chain(mut self) -> Chain<Slot<T>> {
        std::mem::take(&mut self.chain)
    }

    /// # Safety
    ///
    /// 1. Each node of the chain holds a value, as in [`Letter::from_blank`].
    pub(super) unsafe fn from_chain(chain: Chain<Slot<T>>) -> Self {
        Self { chain }
    }
}

// SAFETY: 1: the handle owns an allocation that stays where it is. 2: there is one handle. 3: the link is a field,
// reached by pointer arithmetic. 4: it is private and used nowhere else. 5: nothing here panics.
unsafe impl<T> Linked for Slot<T> {
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

// SAFETY: a handle owns its node alone, as a box would.
unsafe impl<T: Send> Send for Blank<T> {}

impl<T> Drop for Blank<T> {
    fn drop(&mut self) {
        // SAFETY: `new` leaked a box, and this is its one owner. The value, if any, is not dropped.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T> Drop for Letter<T> {
    fn drop(&mut self) {
        // SAFETY: a letter's node holds a value, and nobody takes it any more. The field frees the node next, also
        // if the value's own drop panics.
        unsafe { (*self.0.0.as_ptr()).value.assume_init_drop() };
    }
}

impl<T> Drop for Letters<T> {
    fn drop(&mut self) {
        while let Some(letter) = self.pop_front() {
            drop(letter);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::rc::Rc;

    use super::*;

    #[test]
    fn a_value_comes_out_once_or_is_dropped_once() {
        let value = Rc::new(());
        let (same, blank) = Blank::new().fill(value.clone(), true).open();
        assert_eq!(Rc::strong_count(&value), 2);
        drop(blank.fill(same, false));
        assert_eq!(Rc::strong_count(&value), 1);
    }

    #[test]
    fn a_chain_of_letters_drops_what_is_in_them() {
        let value = Rc::new(());
        let mut letters = Letters::new();
        (0..3).for_each(|_| letters.push_back(Blank::new().fill(value.clone(), false)));
        let first = letters.pop_front().unwrap();
        let mut more = Letters::new();
        more.push_back(first);
        more.append(letters);
        assert_eq!(more.len(), 3);
        // SAFETY: the chain came from letters.
        let again = unsafe { Letters::from_chain(more.into_chain()) };
        drop(again);
        assert_eq!(Rc::strong_count(&value), 1);
    }
}
