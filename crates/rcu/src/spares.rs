//! Bags whose closures have run, for the next thread that needs one.
//!
//! Bags are made by the threads that hand closures over and end on the one that runs them. In a stream of calls either would wait for
//! the other in the allocator, which has a lock for that.
//!
//! This is a stack to which any thread pushes, and from which one at a time pops. As long as nobody else pops, what lies below the top stays
//! there, so an exchange that finds the same top takes out that one (a top that went and came back, ABA, needs a second that
//! pops). Who finds another popping makes a bag instead.

use std::{iter, ptr::NonNull};

use crossbeam_utils::CachePadded;
use mpscq::RawStack;
use sync::{
    atomic::{AtomicBool, AtomicU32, Ordering},
    twin,
};

use super::bag::Bag;

/// How many are kept, about: 128 kilobytes, and what a flood hands over while the sweeper gets up.
const MOST: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Bags that are nobody's, each linked to the one that was given before it.
#[derive(Debug)]
pub(super) struct Spares(CachePadded<Stack>);

#[derive(Debug)]
struct Stack {
    /// The one given last is on top.
    all: RawStack<Bag>,
    /// A: about how many there are; off by one for a moment.
    nr: AtomicU32,
    /// A: whether a thread pops.
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

    /// Gives a bag away; returns `false`, and leaves it to the caller, where there are enough.
    ///
    /// # Safety
    ///
    /// 1. The bag is the caller's alone, holds no closure, and is in no list.
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

    /// Takes one out, if there is one and nobody else takes one.
    pub(super) fn take(&self) -> Option<NonNull<Bag>> {
        let Stack { all, nr, is_popped } = &*self.0;
        let top = all.top();
        if top.load(Ordering::Relaxed).is_null() {
            return None;
        }
        // ORDER(one-pops): a lock that is never waited for. Acquire and Release: who pops later finds each top that an earlier one
        // has read the link of either gone or given anew.
        // Test: one_at_a_time_takes_a_spare_bag
        let locked = twin::order("rcu: a relaxed lock of pops", Ordering::Acquire);
        if is_popped.swap(true, locked) && !twin::armed("rcu: two pop a bag") {
            return None;
        }
        // ORDER(mpscq-stack): the other end of the push in `give`. The load, and an exchange that fails.
        // If the push comes first, we have the bag as its giver left it. If we come first, we do not find it.
        // Test: one_at_a_time_takes_a_spare_bag
        let seen = twin::order("rcu: a relaxed look at spares", Ordering::Acquire);
        let mut first = NonNull::new(top.load(seen));
        while let Some(bag) = first {
            // SAFETY: a bag in the stack is alive, and its link stays: we alone pop.
            let below = unsafe { bag.as_ref().link() };
            match top.compare_exchange_weak(bag.as_ptr(), below, Ordering::Relaxed, seen) {
                Ok(_) => {
                    nr.fetch_sub(1, Ordering::Relaxed);
                    break;
                }
                Err(now) => first = NonNull::new(now),
            }
        }
        // ORDER(one-pops): the other end; see above. A swap and no store: loom lets a plain store slip behind another's swap that
        // came earlier.
        // Test: one_at_a_time_takes_a_spare_bag
        let unlocked = twin::order("rcu: a relaxed unlock of pops", Ordering::Release);
        is_popped.swap(false, unlocked);
        first
    }

    /// Takes note that no other thread gives or takes, in a child of `fork`: each of their steps leaves the stack whole, but one may
    /// have been about to pop, or to count.
    pub(super) fn inherit(&self) {
        let Stack { all, nr, is_popped } = &*self.0;
        let first = NonNull::new(all.top().load(Ordering::Relaxed));
        // SAFETY: bags in the stack are alive, and nobody else is there.
        let below = |bag: &NonNull<Bag>| NonNull::new(unsafe { bag.as_ref().link() });
        let count = iter::successors(first, below).count();
        nr.store(count as u32, Ordering::Relaxed);
        is_popped.store(false, Ordering::Relaxed);
    }
}
