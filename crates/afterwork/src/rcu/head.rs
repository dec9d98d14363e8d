//! A callback as its list sees it: a link and what to do.

use std::ptr;

/// Links a callback into a list, and knows how to run it. Embed it in what is to be reclaimed.
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
/// // SAFETY: the head is the node's first field, and nobody uses the node any more.
/// unsafe {
///     rcu::call_head(node.cast(), |head| drop(Box::from_raw(head.cast::<Node>())));
/// }
/// rcu::barrier();
/// ```
#[derive(Debug)]
#[repr(C)]
pub struct Head {
    next: *mut Head,
    run: unsafe fn(*mut Head),
}

// SAFETY: a head is inert until it is handed over, and then it is the list's alone.
unsafe impl Send for Head {}
// SAFETY: shared references reach nothing of it.
unsafe impl Sync for Head {}

/// A closure in a box of its own.
#[repr(C)]
struct Boxed<F> {
    head: Head,
    closure: F,
}

impl Head {
    /// Makes a head that is in no list.
    pub const fn new() -> Self {
        Self::that_runs(|_| ())
    }

    const fn that_runs(run: unsafe fn(*mut Head)) -> Self {
        Self {
            next: ptr::null_mut(),
            run,
        }
    }

    /// Moves `closure` into a box; whoever runs the head runs and frees it.
    pub(super) fn boxed<F: FnOnce() + Send + 'static>(closure: F) -> *mut Head {
        let boxed = Boxed {
            head: Self::that_runs(|head| {
                // SAFETY: `Head::run` is called once (its 1), with the head of the box that was made below.
                let boxed = unsafe { Box::from_raw(head.cast::<Boxed<F>>()) };
                (boxed.closure)();
            }),
            closure,
        };
        Box::into_raw(Box::new(boxed)).cast()
    }

    /// Says what the head is to run.
    pub(super) fn set_run(&mut self, run: unsafe fn(*mut Head)) {
        self.run = run;
    }

    pub(super) fn set_next(&mut self, next: *mut Head) {
        self.next = next;
    }

    /// Runs the callback of `head`, which may free it.
    ///
    /// # Safety
    ///
    /// 1. `head` was handed over with the function that it holds, is in no list, and is run this once.
    pub(super) unsafe fn run(head: *mut Head) {
        // SAFETY: (1): alive until it is run.
        let run = unsafe { (*head).run };
        // SAFETY: (1).
        unsafe { run(head) }
    }
}

impl Default for Head {
    fn default() -> Self {
        Self::new()
    }
}

/// Heads in the order in which they were handed over; yields each once.
#[derive(Debug)]
pub(super) struct Chain {
    first: *mut Head,
    last: *mut Head,
}

// SAFETY: the heads of a chain are the chain's alone, and what they run was `Send`.
unsafe impl Send for Chain {}

impl Chain {
    pub(super) const fn new() -> Self {
        Self {
            first: ptr::null_mut(),
            last: ptr::null_mut(),
        }
    }

    /// Makes a chain of a list that is linked from its newest head to its oldest.
    ///
    /// # Safety
    ///
    /// 1. `newest` is null or starts a list of heads that are the caller's alone.
    pub(super) unsafe fn from_newest(newest: *mut Head) -> Self {
        let mut chain = Self {
            first: ptr::null_mut(),
            last: newest,
        };
        let mut next = newest;
        while !next.is_null() {
            // SAFETY: (1).
            let older = unsafe { (*next).next };
            // SAFETY: (1).
            unsafe { (*next).next = chain.first };
            chain.first = next;
            next = older;
        }
        chain
    }

    pub(super) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Puts `other` behind this chain.
    pub(super) fn append(&mut self, other: Chain) {
        if self.is_empty() {
            *self = other;
        } else if !other.is_empty() {
            // SAFETY: the heads of a chain are its own.
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
        // SAFETY: the heads of a chain are its own until it has yielded them.
        self.first = unsafe { (*head).next };
        Some(head)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn chains_run_from_the_oldest_to_the_newest() {
        let mut heads: Vec<Head> = (0..5).map(|_| Head::new()).collect();
        let places: Vec<*mut Head> = heads.iter_mut().map(ptr::from_mut).collect();
        let list = |places: &[*mut Head]| {
            let mut newest = ptr::null_mut();
            for &place in places {
                // SAFETY: it points into `heads`, which nobody else uses.
                unsafe { (*place).set_next(newest) };
                newest = place;
            }
            // SAFETY: linked just above.
            unsafe { Chain::from_newest(newest) }
        };
        let mut chain = Chain::new();
        chain.append(list(&places[..2]));
        chain.append(list(&[]));
        chain.append(list(&places[2..]));
        assert_eq!(chain.collect::<Vec<_>>(), places);
    }
}
