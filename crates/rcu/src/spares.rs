//! Bags whose closures have run, for the next thread that needs one.
//!
//! Bags are allocated by the threads that queue closures and freed by the thread that runs them. In
//! a stream of calls, the two would contend for the allocator's lock.
//!
//! This is a stack to which any thread pushes, and from which one thread at a time pops. While no
//! other thread pops, the bags below the top stay in place, so an exchange that finds the same top
//! removes exactly that bag. (The ABA problem needs a second popping thread.) A thread that finds
//! another one popping creates a bag instead.

use std::{iter, ptr::NonNull};

use crossbeam_utils::CachePadded;
use mpscq::RawStack;
use sync::{
    atomic::{AtomicBool, AtomicU32, Ordering},
    twin,
};

use super::bag::Bag;

/// Number of spare bags kept, approximately: 128 kilobytes, enough for a flood of closures while
/// the sweeper wakes.
const MOST: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Bags without an owner, each linked to the one that was pushed before it.
#[derive(Debug)]
pub(super) struct Spares(CachePadded<Stack>);

#[derive(Debug)]
struct Stack {
    /// The bag pushed last is on top.
    all: RawStack<Bag>,
    /// A: approximate number of bags; off by one for a moment.
    nr: AtomicU32,
    /// A: `true` while a thread pops.
    is_popped: AtomicBool,
}

sync::process_wide! {
    /// Returns the spare bags of this process.
    pub(super) fn spares() -> Spares = Spares::new()
}

impl Spares {
    sync::const_unless_model! {
        pub(super) fn new() -> Self {
            Self(CachePadded::new(Stack {
                all: RawStack::new(),
                nr: AtomicU32::new(0),
                is_popped: AtomicBool::new(false),
            }))
        }
    }

    /// Pushes a spare bag. Returns `false` if there are enough; the caller then keeps the bag.
    ///
    /// # Safety
    ///
    /// 1. The caller owns the bag, it holds no closure, and is in no list.
    pub(super) unsafe fn give(&self, bag: NonNull<Bag>) -> bool {
        let Stack { all, nr, .. } = &*self.0;
        if nr.load(Ordering::Relaxed) >= MOST {
            return false;
        }
        nr.fetch_add(1, Ordering::Relaxed);
        // SAFETY: (1), until the push ends.
        let link = |below| unsafe { bag.as_ref().put_link(below) };
        all.push(bag.as_ptr(), link);
        true
    }

    /// Pops a bag, if there is one and no other thread pops.
    pub(super) fn take(&self) -> Option<NonNull<Bag>> {
        let Stack { all, nr, is_popped } = &*self.0;
        let top = all.top();
        if top.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // ORDER(one-pops): a lock that is never waited for. Acquire and Release: a later pop finds
        // each top whose link an earlier pop has read either removed or pushed again.
        // Test: one_at_a_time_takes_a_spare_bag
        let locked = twin::order("rcu: a relaxed lock of pops", Ordering::Acquire);
        if is_popped.swap(true, locked) && !twin::armed("rcu: two pop a bag") {
            return None;
        }
        // ORDER(mpscq-stack): the other end of the push in `give`. The load, and an exchange that
        // fails. If the push comes first, we see the bag as the pusher wrote it. If we come first,
        // we do not find it.
        // Test: one_at_a_time_takes_a_spare_bag
        let seen = twin::order("rcu: a relaxed look at spares", Ordering::Acquire);
        let mut first = NonNull::new(top.load(seen));
        while let Some(bag) = first {
            // SAFETY: a bag in the stack is alive, and its link does not change: only we pop.
            let below = unsafe { bag.as_ref().link() };
            match top.compare_exchange_weak(bag.as_ptr(), below, Ordering::Relaxed, seen) {
                Ok(_) => {
                    nr.fetch_sub(1, Ordering::Relaxed);
                    break;
                }
                Err(now) => first = NonNull::new(now),
            }
        }
        // ORDER(one-pops): the other end; see above. A swap instead of a store: loom lets a plain
        // store slip behind another thread's swap that came earlier.
        // Test: one_at_a_time_takes_a_spare_bag
        let unlocked = twin::order("rcu: a relaxed unlock of pops", Ordering::Release);
        is_popped.swap(false, unlocked);
        first
    }

    /// Resets the count and the lock in a child of `fork`, where no other thread pushes or pops.
    /// Each step of another thread leaves the stack intact, but the thread may have been about to
    /// pop, or to count.
    pub(super) fn inherit(&self) {
        let Stack { all, nr, is_popped } = &*self.0;
        let first = NonNull::new(all.top().load(Ordering::Relaxed));
        // SAFETY: bags in the stack are alive, and the child has no other thread.
        let below = |bag: &NonNull<Bag>| NonNull::new(unsafe { bag.as_ref().link() });
        let count = iter::successors(first, below).count();
        nr.store(count as u32, Ordering::Relaxed);
        is_popped.store(false, Ordering::Relaxed);
    }
}
