//! Lets the owner sleep until there are enough items, and be woken only once.
//!
//! # The word
//!
//! `nr` is the number of posts that the sleeping owner still waits for. While it is positive, the
//! owner is *armed*. If it is zero or below, the owner is awake, or a poster has claimed its
//! wake-up.
//!
//! ```text
//! owner:  nr = n (swap);  fence;  count the queue:  too few?  sleep
//!                                                   more than before?  nr = 0 (swap), continue
//! poster: push;           fence;  nr > 0?  count: nr -= k   or, if eager, claim: nr = 0
//!                                          (both by read-modify-write)
//! ```
//!
//! Only the poster whose read-modify-write takes `nr` from positive to zero or below wakes the
//! owner.
//!
//! # Properties, and their proofs
//!
//! **One wake-up per arming.** Only the owner makes `nr` positive. After each arming exactly one
//! read-modify-write takes the word from positive to zero or below: that of a poster, which wakes
//! the owner, or the owner's own disarming. A claim with a compare-exchange would break this: a
//! count in between would make it fail, and the eager poster would not wake the owner (twin `wait:
//! claim by compare-exchange`).
//!
//! **The owner never sleeps after it missed a post.** If the owner's fence comes first, the
//! poster's load sees the arming, and the post counts. If the poster's fence comes first, the
//! owner's count of the queue sees the push, because *empty* means that the items of all completed
//! pushes were popped (see `mpscq`). Twins omit either fence or the second count, or take a missing
//! link for *empty*, which misses completed pushes behind a push in progress.
//!
//! **The owner sleeps only if no producer is in mid-push.** Completed posts may wait uncounted
//! behind such a producer, so the owner tries again. The producer needs a few more instructions,
//! unless it was preempted, so the owner yields its CPU.
//!
//! **The count may be too high, never too low.** Every post that the owner's count missed is
//! counted by its poster, by the argument above. A poster whose load is late may also count an item
//! that the owner has already found. The owner then wakes early, and arms again for the rest.
//!
//! **An early wake-up is not lost.** Such a late poster may claim between arming and sleeping. It
//! leaves a *token* (of the parker, the eventfd, the task's waker), which ends a sleep that has not
//! begun. A wake-up that reaches only sleeping threads would be lost, and no poster would wake
//! again for this arming (twin `park: no token`).
//!
//! **An item that waits for capacity counts as an eager post** (`crates/base/src/admission.rs`):
//! setting `AWAITED` replaces the push, and the owner's count also checks it.

use sync::atomic::{AtomicI32, Ordering};
use sync::{barrier, twin};

/// The largest count of one arming, and of one poster's subtraction. To wrap the word to a positive
/// value, more than 30,000 posters would have to count late at once. An owner that waits for more
/// items arms again.
pub(super) const MAX_COUNT: usize = 1 << 16;

pub(super) struct Wait {
    /// A: see above.
    nr: AtomicI32,
}

impl Wait {
    pub(super) fn new() -> Self {
        Self { nr: AtomicI32::new(0) }
    }

    /// Requests a wake-up after `count` more items, or an eager one. The owner must count next.
    pub(super) fn arm(&self, count: usize) {
        debug_assert!(count > 0, "no poster would ever claim this");
        // ORDER(owner-waker): publish and consume, other end in `claim_armed`: the way in which the
        // owner sleeps.
        //   owner: kind of sleep = mine;   nr = n  Release
        //   claim: nr: positive → not  Acquire;    reads the kind of sleep
        // If our swap comes first, the claim takes our arming, and wakes us in the way in which we
        // sleep. If the claim comes first, it belongs to an earlier arming, and leaves a token.
        // Test: claim_wakes_the_owner_of_the_claimed_arming
        self.nr.swap(count.min(MAX_COUNT) as i32, Ordering::Release);
        // ORDER(arm): store buffering, other end in `claim`.
        //   owner:  nr = n;  fence;  count the queue
        //   poster: push;    fence;  load nr
        // If our fence comes first, the poster loads our `nr` and counts its items. If the poster's
        // fence comes first, our next count of the queue finds them.
        // Test: no_post_is_missed_by_a_sleeping_owner
        twin::fence("wait: no fence when arming");
    }

    /// Withdraws the request. Returns `true` if no poster has claimed it.
    pub(super) fn disarm(&self) -> bool {
        self.nr.swap(0, Ordering::Relaxed) > 0
    }

    /// Counts items that were just pushed. Returns `true` if the caller must wake the owner.
    #[inline(always)]
    pub(super) fn claim(&self, nr_items: usize, eager: bool) -> bool {
        let armed = self.armed();
        armed.is_some_and(|seen| self.claim_armed(seen, nr_items, eager))
    }

    /// Reads the word after a push. Returns `None` if the owner is awake.
    #[inline(always)]
    pub(super) fn armed(&self) -> Option<i32> {
        // ORDER(arm): the other end; see `arm`. The push is a read-modify-write, so on x86-64 it is
        // the fence. Its link store may become visible after this load, which is why an owner does
        // not sleep on a missing link.
        // Test: no_post_is_missed_by_a_sleeping_owner
        if !twin::armed("wait: no fence after posting") {
            barrier::after_rmw();
        }
        let nr = self.nr.load(Ordering::Relaxed);
        (nr > 0).then_some(nr)
    }

    /// Does the same as [`claim`](Self::claim), after [`armed`](Self::armed) has returned `seen`.
    #[cold]
    pub(super) fn claim_armed(&self, seen: i32, nr_items: usize, eager: bool) -> bool {
        // ORDER(owner-waker): the other end; see `arm`.
        // Test: claim_wakes_the_owner_of_the_claimed_arming
        let order = twin::order("wait: relaxed claim", Ordering::Acquire);
        if eager {
            if twin::armed("wait: claim by compare-exchange") {
                return self.nr.compare_exchange(seen, 0, order, Ordering::Relaxed).is_ok();
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
    fn no_poster_wakes_an_owner_that_is_awake() {
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
        assert!(!wait.claim(1, true), "a poster has woken it already");
    }

    #[test]
    fn a_chain_counts_its_items_and_may_overshoot() {
        let wait = Wait::new();
        wait.arm(3);
        assert!(!wait.claim(2, false));
        assert!(wait.claim(usize::MAX, false));
    }

    #[test]
    fn an_eager_post_claims_at_once() {
        let wait = Wait::new();
        wait.arm(100);
        assert!(wait.claim(1, true));
        assert!(!wait.claim(1, true));
        wait.arm(usize::MAX);
        assert!(wait.disarm());
        assert!(!wait.claim(1, true));
    }
}
