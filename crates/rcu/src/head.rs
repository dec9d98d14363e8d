//! The entry of a callback in its list: a list link, and one function or a bag of closures.

use std::{mem, ptr};

use sync::twin;

use super::bag::{Bag, Deferred};

/// The list entry of a callback, with the function to run. Embed it in the value to be reclaimed;
/// see [`call_head`](super::call_head).
///
/// # Examples
///
/// ```
/// use afterwork::rcu::{self, Head};
///
/// #[repr(C)]
/// struct Node {
///     head: Head,
///     value: u32,
/// }
/// let node = Box::into_raw(Box::new(Node { head: Head::new(), value: 7 }));
/// // SAFETY: the head is the node's first field, and the node is not used any more.
/// unsafe {
///     rcu::call_head(node.cast(), |head| drop(Box::from_raw(head.cast::<Node>())));
/// }
/// rcu::barrier();
/// ```
#[derive(Debug)]
#[doc(hidden)]
#[repr(C)]
pub struct Head {
    /// The next head in the list. Its lowest bit, [`OF_C`], indicates the kind of `function`.
    next: *mut Head,
    /// A [`Function`] without its kind, or null if this is the head of a [`Bag`].
    function: *const (),
}

/// A bit of `Head::next` that is free because of alignment. It is set if the function of this head,
/// not of the next one, is a C function.
const OF_C: usize = 1;

// A head has two words, as in the kernel and liburcu, because programs that were written for those
// reserve no more space.
const _: () = assert!(size_of::<Head>() == 16 && align_of::<Head>() > OF_C);

/// A C function that is called with a user's head.
pub(super) type FunctionOfC = unsafe extern "C-unwind" fn(*mut Head);

/// A function that is called with a user's head.
#[derive(Clone, Copy, Debug)]
pub(super) enum Function {
    /// A Rust function.
    Rust(unsafe fn(*mut Head)),
    /// A C function.
    C(FunctionOfC),
}

/// A callback that must be run once.
pub(super) enum Callback {
    /// A closure from a bag.
    Closure(Deferred),
    /// A user's head.
    Own(*mut Head, Function),
}

// SAFETY: no code reads a head until it is queued, and then only its list accesses it.
unsafe impl Send for Head {}
// SAFETY: no method takes a shared reference.
unsafe impl Sync for Head {}

impl Head {
    /// Creates a head that is in no list.
    pub const fn new() -> Self {
        Self::of(nothing as unsafe fn(*mut Self) as *const ())
    }

    pub(super) const fn of_bag() -> Self {
        Self::of(ptr::null())
    }

    const fn of(function: *const ()) -> Self {
        Self { next: ptr::null_mut(), function }
    }

    /// Creates a head that is in no list, with the function to call.
    pub(super) fn with_function(function: Function) -> Self {
        match function {
            Function::Rust(run) => Self::of(run as *const ()),
            Function::C(run) => {
                Self { next: ptr::without_provenance_mut(OF_C), function: run as *const () }
            }
        }
    }

    pub(super) fn set_next(&mut self, next: *mut Head) {
        let kind = self.next.addr() & OF_C;
        self.next = next.map_addr(|addr| addr | kind);
    }

    fn next(&self) -> *mut Head {
        self.next.map_addr(|addr| addr & !OF_C)
    }

    /// Returns the function to call, or `None` if this is the head of a bag.
    fn function(&self) -> Option<Function> {
        if self.function.is_null() {
            return None;
        }
        Some(if self.next.addr() & OF_C == 0 {
            // SAFETY: the pointer was stored by `new` or `with_function`, which keep the bit clear.
            Function::Rust(unsafe {
                mem::transmute::<*const (), unsafe fn(*mut Head)>(self.function)
            })
        } else {
            // SAFETY: the pointer was stored by `with_function`, which sets the bit.
            let run = unsafe {
                mem::transmute::<*const (), unsafe extern "C-unwind" fn(*mut Head)>(self.function)
            };
            Function::C(run)
        })
    }

    /// Closes `head` if it belongs to a bag: the bag accepts no closure after this.
    ///
    /// # Safety
    ///
    /// 1. `head` was queued and popped from its list, and has not been run.
    unsafe fn close(head: *mut Head) {
        // SAFETY: (1): the head is alive until it is run.
        if unsafe { (*head).function() }.is_none() && !twin::armed("rcu: a bag is left open") {
            // SAFETY: the head of a bag is its first field, and it is alive as above.
            unsafe { &*head.cast::<Bag>() }.close();
        }
    }

    /// Passes each callback of `head` to `run`. The last callback may free the head.
    ///
    /// # Safety
    ///
    /// 1. `head` and its callbacks were queued, popped from the list, closed, and this is called
    ///    once.
    pub(super) unsafe fn each(head: *mut Head, mut run: impl FnMut(Callback)) {
        // SAFETY: (1): the head is alive until it is run.
        match unsafe { (*head).function() } {
            Some(function) => run(Callback::Own(head, function)),
            // SAFETY: (1), and the head of a bag is its first field.
            None => unsafe { Bag::run(head.cast(), |closure| run(Callback::Closure(closure))) },
        }
    }
}

impl Callback {
    /// Runs the callback.
    ///
    /// # Safety
    ///
    /// 1. The callback came from [`Head::each`], and its grace period has passed.
    pub(super) unsafe fn run(self, of_c: unsafe fn(*mut Head, FunctionOfC)) {
        match self {
            // SAFETY: (1): each copy that `each` creates is run once.
            Self::Closure(closure) => unsafe { closure.run() },
            // SAFETY: (1): the head was queued with this function.
            Self::Own(head, Function::Rust(own)) => unsafe { own(head) },
            // SAFETY: as above.
            Self::Own(head, Function::C(own)) => unsafe { of_c(head, own) },
        }
    }
}

/// The function of a head that was never queued.
unsafe fn nothing(_: *mut Head) {}

impl Default for Head {
    fn default() -> Self {
        Self::new()
    }
}

/// Heads in the order in which they were queued. As an iterator, it yields each head once.
#[derive(Debug)]
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

    /// Creates a chain from a list that is linked from its newest head to its oldest, and closes
    /// each head.
    ///
    /// # Safety
    ///
    /// 1. `newest` is null or starts a list of queued heads that the caller owns.
    pub(super) unsafe fn from_newest(newest: *mut Head) -> Self {
        let mut chain = Self { first: ptr::null_mut(), last: newest };
        let mut next = newest;
        while !next.is_null() {
            // SAFETY: (1).
            let older = unsafe { (*next).next() };
            // SAFETY: (1).
            unsafe { (*next).set_next(chain.first) };
            // SAFETY: (1).
            unsafe { Head::close(next) };
            chain.first = next;
            next = older;
        }
        chain
    }

    /// Restores a chain from the result of [`into_first`](Self::into_first).
    ///
    /// # Safety
    ///
    /// 1. `first` came from `into_first` and is used only once.
    pub(super) unsafe fn from_first(first: *mut Head) -> Self {
        // `last` is only used by `append`, which is not called on this chain.
        Self { first, last: first }
    }

    /// Returns the first head, which links to the others.
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
            unsafe { (*self.last).set_next(other.first) };
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
        self.first = unsafe { (*head).next() };
        Some(head)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_head_keeps_the_kind_of_its_function_in_any_list() {
        unsafe extern "C-unwind" fn of_c(_: *mut Head) {}
        let mut behind = Head::new();
        for function in [Function::C(of_c), Function::Rust(nothing)] {
            let mut head = Head::with_function(function);
            for next in [ptr::from_mut(&mut behind), ptr::null_mut()] {
                head.set_next(next);
                assert_eq!(head.next(), next);
                let found = head.function().expect("it is not a bag");
                assert_eq!(matches!(found, Function::C(_)), matches!(function, Function::C(_)));
            }
        }
        assert!(Head::of_bag().function().is_none());
    }

    #[test]
    fn chains_run_from_the_oldest_to_the_newest() {
        let mut heads: Vec<Head> = (0..5).map(|_| Head::new()).collect();
        let places: Vec<*mut Head> = heads.iter_mut().map(ptr::from_mut).collect();
        let list = |places: &[*mut Head]| {
            let mut newest = ptr::null_mut();
            for &place in places {
                // SAFETY: the pointer points into `heads`, which no other code uses.
                unsafe { (*place).set_next(newest) };
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
