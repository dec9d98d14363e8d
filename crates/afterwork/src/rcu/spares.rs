//! Bags whose closures have run, for the next thread that needs one.
//!
//! Bags are made by the threads that hand closures over and end on the one that runs them. In a stream of calls either would wait for
//! the other in the allocator, which has a lock for that.
//!
//! This is a stack to which any thread pushes, and from which one at a time pops. As long as nobody else pops, what lies below the top stays
//! there, so an exchange that finds the same top takes out that one (a top that went and came back, ABA, needs a second that
//! pops). Who finds another popping makes a bag instead.

use std::ptr::{self, NonNull};

use crossbeam_utils::CachePadded;
use sync::{
    atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering},
    twin,
};

use super::head::Head;

/// How many are kept, about: 128 kilobytes, and what a flood hands over while the sweeper gets up.
const MOST: u32 = if cfg!(any(loom, shuttle)) { 2 } else { 64 };

/// Heads of bags that are nobody's.
#[derive(Debug)]
pub(super) struct Spares(CachePadded<Stack>);

#[derive(Debug)]
struct Stack {
    /// A: the one given last, linked to those before.
    top: AtomicPtr<Head>,
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
                top: AtomicPtr::new(ptr::null_mut()),
                nr: AtomicU32::new(0),
                is_popped: AtomicBool::new(false),
            }))
        }
    }

    /// Gives a bag away; returns `false`, and leaves it to the caller, where there are enough.
    ///
    /// # Safety
    ///
    /// 1. The bag is the caller's alone, and in no list.
    pub(super) unsafe fn give(&self, head: *mut Head) -> bool {
        let Stack { top, nr, .. } = &*self.0;
        if nr.load(Ordering::Relaxed) >= MOST {
            return false;
        }
        nr.fetch_add(1, Ordering::Relaxed);
        let mut below = top.load(Ordering::Relaxed);
        loop {
            // SAFETY: (1), until the exchange below.
            unsafe { (*head).set_next(below) };
            // ORDER(spare): publish and consume, other end in `take`.
            //   here: reads of the closures, the link;  top = head Release (a read-modify-write: those below stay published)
            //   take: top = below Acquire;  write closures
            // If our exchange comes first, who takes the bag has all that we did before. If the other's comes first, it did not
            // find our bag.
            // Test: a_bag_is_used_again
            let order = twin::order("rcu: relaxed gift of a bag", Ordering::Release);
            match top.compare_exchange_weak(below, head, order, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => below = now,
            }
        }
    }

    /// Takes one out, if there is one and nobody else takes one.
    pub(super) fn take(&self) -> Option<NonNull<Head>> {
        let Stack { top, nr, is_popped } = &*self.0;
        // ORDER(one-pops): a lock that is never waited for. Acquire and Release: whoever comes later sees the top that we leave.
        // Test: one_at_a_time_takes_a_spare_bag
        if top.load(Ordering::Relaxed).is_null()
            || is_popped.swap(true, Ordering::Acquire) && !twin::armed("rcu: two pop a bag")
        {
            return None;
        }
        // ORDER(spare): the other end; see `give`. Each load and exchange of the loop acquires.
        // Test: a_bag_is_used_again
        let mut first = NonNull::new(top.load(Ordering::Acquire));
        while let Some(head) = first {
            // SAFETY: a bag in the stack is alive, and its link stays: we alone pop.
            let below = unsafe { head.as_ref() }.next();
            let popped = top.compare_exchange_weak(
                head.as_ptr(),
                below,
                Ordering::Acquire,
                Ordering::Acquire,
            );
            match popped {
                Ok(_) => {
                    nr.fetch_sub(1, Ordering::Relaxed);
                    break;
                }
                Err(now) => first = NonNull::new(now),
            }
        }
        // A swap and no store: loom lets a plain store slip behind another's swap that came earlier.
        is_popped.swap(false, Ordering::Release);
        first
    }

    /// Lets threads pop again, in a child of `fork`: one that popped may not be there. Each step leaves the stack whole.
    pub(super) fn inherit(&self) {
        self.0.is_popped.store(false, Ordering::Relaxed);
    }
}
