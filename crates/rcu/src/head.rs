//! The entry of a callback in its list: a list link, and one function or a bag of closures.

use std::ptr;

use sync::twin;

use super::bag::{Bag, Deferred};

/// The list entry of a callback, with the function to run. Embed it in the value to be reclaimed;
/// see [`call_c`](super::raw::call_c).
#[derive(Debug)]
#[doc(hidden)]
#[repr(C)]
pub struct Head {
    pub(super) next: *mut Head,
    /// The function to call, or `None` if this is the head of a [`Bag`].
    pub(super) function: Option<Function>,
}

// Programs that were written for the kernel or liburcu reserve two words.
const _: () = assert!(size_of::<Head>() == 16);

/// A C function that is called with a user's head.
pub(super) type Function = unsafe extern "C-unwind" fn(*mut Head);

/// A callback that must be run once.
pub(super) enum Callback<'a> {
    Closure(&'a mut Deferred),
    Own(*mut Head, Function),
}

// SAFETY: no code reads a head until it is queued, and then only its list accesses it.
unsafe impl Send for Head {}
// SAFETY: no method takes a shared reference.
unsafe impl Sync for Head {}

impl Head {
    pub const fn new() -> Self {
        Self { next: ptr::null_mut(), function: None }
    }

    /// Passes each callback of `head` to `run`. The last callback may free the head.
    ///
    /// # Safety
    ///
    /// 1. `head` and its callbacks were queued, popped from the list, closed, and this is called
    ///    once.
    pub(super) unsafe fn each(head: *mut Head, mut run: impl FnMut(Callback<'_>)) {
        // SAFETY: (1): the head is alive until it is run.
        match unsafe { (*head).function } {
            Some(function) => run(Callback::Own(head, function)),
            // SAFETY: (1), and the head of a bag is its first field.
            None => unsafe { Bag::run(head.cast(), |closure| run(Callback::Closure(closure))) },
        }
    }
}

impl Default for Head {
    fn default() -> Self {
        Self::new()
    }
}

/// Heads in the order in which they were queued. As an iterator, it yields each head once.
pub(super) struct Chain {
    first: *mut Head,
    last: *mut Head,
}

// SAFETY: the chain owns its heads, and their callbacks were `Send`.
unsafe impl Send for Chain {}

impl Chain {
    pub(super) const fn new() -> Self {
        Self { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    /// Creates a chain from a list, newest head first, and closes each head.
    ///
    /// # Safety
    ///
    /// 1. `newest` is null or starts a list of queued heads that the caller owns.
    pub(super) unsafe fn from_newest(newest: *mut Head) -> Self {
        let mut chain = Self { first: ptr::null_mut(), last: newest };
        let mut next = newest;
        while !next.is_null() {
            // SAFETY: (1).
            let older = unsafe { (*next).next };
            // SAFETY: (1).
            unsafe { (*next).next = chain.first };
            // SAFETY: (1).
            let function = unsafe { (*next).function };
            if function.is_none() && !twin::armed("rcu: a bag is left open") {
                // SAFETY: (1), and a head without a function is the first field of a bag.
                unsafe { &*next.cast::<Bag>() }.close();
            }
            chain.first = next;
            next = older;
        }
        chain
    }

    /// # Safety
    ///
    /// 1. `first` came from `into_first` and is used only once.
    pub(super) unsafe fn from_first(first: *mut Head) -> Self {
        // `last` is only used by `append`.
        Self { first, last: first }
    }

    pub(super) fn into_first(self) -> *mut Head {
        self.first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    pub(super) fn append(&mut self, other: Chain) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            // SAFETY: a chain owns its heads.
            unsafe { (*self.last).next = other.first };
            self.last = other.last;
        }
    }
}

impl Iterator for Chain {
    type Item = *mut Head;

    fn next(&mut self) -> Option<*mut Head> {
        let head = self.first;
        if head.is_null() {
            return None;
        }
        // SAFETY: a chain owns its heads until it has yielded them.
        self.first = unsafe { (*head).next };
        Some(head)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn chains_run_from_the_oldest_to_the_newest() {
        // A head without a function would be the head of a bag.
        unsafe extern "C-unwind" fn nothing(_: *mut Head) {}
        let head = |_| Head { function: Some(nothing), ..Head::new() };
        let mut heads: Vec<Head> = (0..5).map(head).collect();
        let places: Vec<*mut Head> = heads.iter_mut().map(ptr::from_mut).collect();
        let list = |places: &[*mut Head]| {
            let mut newest = ptr::null_mut();
            for &place in places {
                // SAFETY: the pointer points into `heads`, which no other code uses.
                unsafe { (*place).next = newest };
                newest = place;
            }
            // SAFETY: the heads were linked above.
            unsafe { Chain::from_newest(newest) }
        };
        let mut chain = Chain::new();
        chain.append(list(&places[..2]));
        chain.append(list(&[]));
        chain.append(list(&places[2..]));
        assert_eq!(chain.collect::<Vec<_>>(), places);
    }
}
