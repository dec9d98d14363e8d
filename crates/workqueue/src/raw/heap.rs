//! Which timer expires first: a pairing heap, linked through the timers themselves, without clock, lock or thread.
//!
//! Putting in takes a step, taking out some that grow with the logarithm of how many there are, over many. Nothing is
//! allocated, and no walk goes deeper than a loop.

use std::ptr;

/// The place of a timer in its heap, and in the structure that is timed.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Node {
    /// The first of those that expire later, and stand below this one.
    child: *mut Node,
    /// The next below the same one.
    next: *mut Node,
    /// Who names this one: what stands before it, or else above it; null at the top.
    prev: *mut Node,
    pub(super) at_ns: u64,
}

/// Timers, the first at the top.
#[derive(Debug)]
pub(super) struct Heap {
    top: *mut Node,
}

// SAFETY: whoever has the heap alone has the places of its timers.
unsafe impl Send for Heap {}

impl Node {
    /// One that is in no heap.
    pub(super) const NONE: Self = Self {
        child: ptr::null_mut(),
        next: ptr::null_mut(),
        prev: ptr::null_mut(),
        at_ns: 0,
    };
}

impl Heap {
    pub(super) const fn new() -> Self {
        let top = ptr::null_mut();
        Self { top }
    }

    /// Returns the first to expire; null for none.
    pub(super) fn first(&self) -> *mut Node {
        self.top
    }

    /// Puts a timer in; returns `true` if it is the first to expire.
    ///
    /// # Safety
    ///
    /// 1. `node` is in no heap, is the caller's alone, and stays where it is until it is taken out.
    pub(super) unsafe fn insert(&mut self, node: *mut Node, at_ns: u64) -> bool {
        // SAFETY: (1).
        unsafe {
            *node = Node {
                child: ptr::null_mut(),
                next: ptr::null_mut(),
                prev: ptr::null_mut(),
                at_ns,
            };
        }
        // SAFETY: both are tops of heaps whose timers are ours.
        self.top = unsafe { meld(self.top, node) };
        ptr::eq(self.top, node)
    }

    /// Takes a timer out.
    ///
    /// # Safety
    ///
    /// 1. `node` is in this heap.
    pub(super) unsafe fn remove(&mut self, node: *mut Node) {
        // SAFETY: (1), and whatever it names is in this heap as well, whose timers are ours.
        unsafe {
            let below = meld_all((*node).child);
            let (prev, next) = ((*node).prev, (*node).next);
            if prev.is_null() {
                self.top = below;
                return;
            }
            if ptr::eq((*prev).child, node) {
                (*prev).child = next;
            } else {
                (*prev).next = next;
            }
            if !next.is_null() {
                (*next).prev = prev;
            }
            self.top = meld(self.top, below);
        }
    }
}

/// Makes one of two, the later one standing below the other.
///
/// # Safety
///
/// 1. Each is null, or the top of a heap of its own that is the caller's.
unsafe fn meld(one: *mut Node, other: *mut Node) -> *mut Node {
    if one.is_null() || other.is_null() {
        return if one.is_null() { other } else { one };
    }
    // SAFETY: (1), neither is null, and whatever they name is the caller's too.
    unsafe {
        let (first, later) = if (*other).at_ns < (*one).at_ns {
            (other, one)
        } else {
            (one, other)
        };
        (*later).next = (*first).child;
        (*later).prev = first;
        if !(*first).child.is_null() {
            (*(*first).child).prev = later;
        }
        (*first).child = later;
        first
    }
}

/// Makes one of all that stand in a row, first by pairs and then from the last pair on.
///
/// # Safety
///
/// 1. `row` is null, or the first of a row that is the caller's.
unsafe fn meld_all(mut row: *mut Node) -> *mut Node {
    let mut pairs: *mut Node = ptr::null_mut();
    // SAFETY: (1); each is taken out of the row before it is melded.
    unsafe {
        while !row.is_null() {
            let one = row;
            let other = (*one).next;
            row = if other.is_null() {
                other
            } else {
                (*other).next
            };
            for alone in [one, other] {
                if !alone.is_null() {
                    (*alone).next = ptr::null_mut();
                    (*alone).prev = ptr::null_mut();
                }
            }
            let pair = meld(one, other);
            (*pair).next = pairs;
            pairs = pair;
        }
        let mut all = ptr::null_mut();
        while !pairs.is_null() {
            let pair = pairs;
            pairs = (*pair).next;
            (*pair).next = ptr::null_mut();
            all = meld(all, pair);
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_out_in_the_order_of_their_times_whatever_is_taken_out_before() {
        const NR: usize = if cfg!(miri) { 40 } else { 1000 };
        // A fixed walk through the numbers below a prime.
        let mut seed = 12_345u64;
        let mut dice = move |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let mut nodes: Vec<Node> = (0..NR).map(|_| Node::NONE).collect();
        let places: Vec<*mut Node> = nodes.iter_mut().map(ptr::from_mut).collect();
        let mut heap = Heap::new();
        let mut inside = Vec::new();
        for &place in &places {
            let at_ns = dice(100);
            let earliest = inside.iter().map(|it: &(u64, *mut Node)| it.0).min();
            // SAFETY: in no heap, and in a vector that does not move.
            let is_first = unsafe { heap.insert(place, at_ns) };
            assert_eq!(is_first, earliest.is_none_or(|earliest| at_ns < earliest));
            inside.push((at_ns, place));
            if dice(3) == 0 {
                let (_, place) = inside.swap_remove(dice(inside.len() as u64) as usize);
                // SAFETY: inserted above.
                unsafe { heap.remove(place) };
            }
        }
        let mut times: Vec<u64> = inside.iter().map(|it| it.0).collect();
        times.sort_unstable();
        for at_ns in times {
            let first = heap.first();
            // SAFETY: it is in the heap.
            assert_eq!(unsafe { (*first).at_ns }, at_ns);
            // SAFETY: as above.
            unsafe { heap.remove(first) };
        }
        assert!(heap.first().is_null());
    }
}
