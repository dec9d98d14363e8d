//! Arm, count, claim: how the owner sleeps until there is enough to do, and is woken once.
//!
//! # The word
//!
//! `nr`: how many more posts the sleeping owner wants. Positive: *armed*. Zero or below: nobody sleeps, or the
//! wake-up is somebody's already.
//!
//! ```text
//! owner:  nr = n (swap);      fence;  look into the queue:  empty?  sleep      found some?  nr = 0 (swap), go on
//! poster: push;               fence;  nr > 0?  count: nr -= k   or, if urgent, claim: nr = 0 (both by
//!                                              read-modify-write)
//! ```
//!
//! The poster whose read-modify-write takes `nr` from positive to zero or below owes the owner its wake-up, and
//! nobody else does.
//!
//! # What holds, and why
//!
//! **One wake-up an arming.** Only the owner makes `nr` positive. All changes are read-modify-writes of one word, so
//! they have one order, and in it exactly one change after each arming goes from positive to not: a poster's, who
//! wakes, or the owner's own disarming, when nobody does. A claim by compare-exchange against the value that was
//! loaded breaks this: a count in between makes the claim fail, and the poster that was urgent wakes nobody. That
//! is the twin `wait: claim by compare-exchange`.
//!
//! **No post is slept through.** Let a poster load an `nr` that is older than the arming, so that it does not count.
//! Then its fence comes before the owner's in the order of all such fences, for else the load would have seen the
//! arming. So the owner's look, after its fence, sees the push, or what the queue became since by the owner's own
//! taking. The queue does not call itself empty then: *empty* is a claim (see `mpscq`). The owner finds something and
//! does not sleep. Twins: either fence left out; the look left out; an emptiness that goes by the missing link and
//! misses completed pushes behind one that is under way.
//!
//! **The owner sleeps on *empty* alone.** When its look finds a producer in mid-push it has to come back: completed
//! posts may wait behind that one, uncounted. That is rare and short, a few instructions of the producer, unless
//! the producer was preempted there; so the owner gives its CPU away meanwhile.
//!
//! **The count may run ahead, never behind.** Every post that the look did not find counts: its poster's load comes
//! after the arming, by the above. A poster whose item was found, or even taken before the arming, may count too if
//! its load comes late. Then the owner wakes early, finds less than it wanted, and arms again for the rest.
//!
//! **An early wake-up is not lost.** Such a late poster may claim between arming and sleeping. What it leaves is a
//! *token* (of the parker, the eventfd, the task's waker), which ends the sleep that has not begun. A wake-up that
//! only reached threads already asleep would be lost, and nobody would ring again for this arming. Twin: `park: no
//! token`.

use sync::atomic::{AtomicI32, Ordering};
use sync::{barrier, twin};

/// How far one arming counts. Far below `i32::MAX`, so that posters that count late, one each, cannot bring the
/// word round to positive. A waiter that wants more arms again.
pub(super) const MAX_COUNT: usize = 1 << 16;

/// The word that owner and posters share.
#[derive(Debug)]
pub(super) struct Wait {
    /// A: see above.
    nr: AtomicI32,
}

impl Wait {
    pub(super) fn new() -> Self {
        Self {
            nr: AtomicI32::new(0),
        }
    }

    /// Asks for a wake-up once `count` more items are posted, or an urgent one. The owner looks into the queue next.
    pub(super) fn arm(&self, count: usize) {
        debug_assert!(count > 0, "nobody would ever claim this");
        // ORDER(bell): publish and consume, other end in `claim`: who is to be woken.
        //   owner: kind of sleep = mine;   nr = n  Release
        //   claim: nr: positive → not  Acquire;    reads the kind of sleep
        // Test: a_claim_rings_the_bell_of_the_arming_that_it_claims
        self.nr.swap(count.min(MAX_COUNT) as i32, Ordering::Release);
        // ORDER(arm): store buffering, other end in `claim`.
        //   owner:  nr = n;  fence;  look into the queue
        //   poster: push;    fence;  load nr
        // One side sees the other, so no post is slept through. A swap and a real fence: it is about to sleep, so
        // neither costs anything that could be noticed.
        // Test: no_post_is_slept_through, arming_needs_its_fence
        twin::fence("wait: no fence when arming");
    }

    /// Takes the wish back; returns `true` if it still stood, so that no wake-up is under way.
    pub(super) fn disarm(&self) -> bool {
        self.nr.swap(0, Ordering::Relaxed) > 0
    }

    /// Counts `nr_items` that were pushed just before; returns `true` if the caller owes the owner its wake-up.
    #[inline(always)]
    pub(super) fn claim(&self, nr_items: usize, urgent: bool) -> bool {
        // ORDER(arm): the other end; see `arm`. The push is a read-modify-write, which saves x86-64 the fence; its
        // link store may come later than this load, so an owner does not sleep on a missing link.
        // Test: no_post_is_slept_through, posting_needs_its_fence
        if !twin::armed("wait: no fence after posting") {
            barrier::after_rmw();
        }
        let nr = self.nr.load(Ordering::Relaxed);
        nr > 0 && self.claim_armed(nr, nr_items, urgent)
    }

    /// The owner sleeps, or is about to: once in a while only, beside a wake-up that costs microseconds.
    #[cold]
    fn claim_armed(&self, seen: i32, nr_items: usize, urgent: bool) -> bool {
        // ORDER(bell): the other end; see `arm`.
        // Test: a_claim_rings_the_bell_of_the_arming_that_it_claims, a_claim_needs_its_acquire
        let order = twin::order("wait: relaxed claim", Ordering::Acquire);
        if urgent {
            if twin::armed("wait: claim by compare-exchange") {
                return self
                    .nr
                    .compare_exchange(seen, 0, order, Ordering::Relaxed)
                    .is_ok();
            }
            return self.nr.swap(0, order) > 0;
        }
        let count = nr_items.min(MAX_COUNT) as i32;
        let before = self.nr.fetch_sub(count, order);
        before > 0 && before <= count
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn nobody_owes_a_wakeup_to_an_owner_that_is_awake() {
        let wait = Wait::new();
        assert!(!wait.claim(1, true));
        assert!(!wait.claim(5, false));
        assert!(!wait.disarm());
    }

    #[test]
    fn lazy_posts_owe_one_wakeup_when_they_are_enough() {
        let wait = Wait::new();
        wait.arm(3);
        assert!(!wait.claim(1, false));
        assert!(!wait.claim(1, false));
        assert!(wait.claim(1, false));
        assert!(!wait.claim(1, false));
        assert!(!wait.claim(1, true), "somebody has woken it already");
    }

    #[test]
    fn a_chain_counts_its_items_and_may_overshoot() {
        let wait = Wait::new();
        wait.arm(3);
        assert!(!wait.claim(2, false));
        assert!(wait.claim(usize::MAX, false));
    }

    #[test]
    fn an_urgent_post_claims_at_once() {
        let wait = Wait::new();
        wait.arm(100);
        assert!(wait.claim(1, true));
        assert!(!wait.claim(1, true));
        wait.arm(usize::MAX);
        assert!(wait.disarm());
        assert!(!wait.claim(1, true));
    }
}
