//! Waiting for a grace period, or asking whether one has passed.

use sync::{
    atomic::{AtomicBool, Ordering},
    unmodelled::Arc,
};

use super::{
    batch::in_callback,
    call::call,
    callback::callbacks,
    local::{global, mine, outside_of_sections},
    seq::GpCookie,
    slot::Slot,
    tunables,
};

/// Waits until every read-side critical section that is open now has ended.
///
/// # Guarantees
///
/// What the caller took out of sight before is seen by no section when this returns, and what those sections did
/// happened before. Calls share grace periods: one serves all who came before it began. Returns at once, for the price
/// of a fence, when all other threads have been out of sections for a while.
///
/// # Blocking
///
/// Until the sections have ended. Never call it in one.
///
/// # Panics
///
/// When this thread is in a section, or in a stall handler: either would wait for itself. Or in an item of a bottom-half
/// queue.
///
/// # Examples
///
/// ```
/// use std::sync::atomic::{AtomicPtr, Ordering};
/// use afterwork::rcu;
///
/// static ROUTES: AtomicPtr<Vec<u32>> = AtomicPtr::new(std::ptr::null_mut());
/// ROUTES.store(Box::into_raw(Box::new(vec![1, 2])), Ordering::Release);
///
/// let reader = std::thread::spawn(|| {
///     let guard = rcu::read();
///     // SAFETY: set above; who replaces it waits for this section before freeing it.
///     let sum: u32 = unsafe { &*ROUTES.load(Ordering::Acquire) }.iter().sum();
///     drop(guard);
///     assert!(sum == 3 || sum == 7);
/// });
/// let old = ROUTES.swap(Box::into_raw(Box::new(vec![3, 4])), Ordering::AcqRel);
/// rcu::synchronize();
/// // SAFETY: made by `into_raw`, out of sight since the swap, and no section still sees it.
/// drop(unsafe { Box::from_raw(old) });
/// reader.join().unwrap();
/// ```
pub fn synchronize() {
    synchronize_as(outside_of_sections("synchronize"));
}

/// Waits as [`synchronize`] does, for a caller that has asked whether it may; `me` is its slot.
pub(super) fn synchronize_as(me: Option<&'static Slot>) {
    // A callback that waits for another would wait for itself.
    if tunables::wake_from_gp() || in_callback() {
        global().synchronize(me);
    } else {
        synchronize_by_callback();
    }
}

/// Waits for a callback, as the kernel does without `normal_wake_from_gp`: kept to measure the difference.
#[cold]
fn synchronize_by_callback() {
    let passed = Arc::new(AtomicBool::new(false));
    call({
        let passed = passed.clone();
        move || {
            passed.store(true, Ordering::Release);
            callbacks().tell_who_waits();
        }
    });
    callbacks().wait_until("synchronize", || passed.load(Ordering::Acquire));
}

/// Waits as [`synchronize`] does, whatever the tunables say about how waiters are woken.
///
/// Differs from Linux: there it interrupts CPUs that the plain form leaves alone. Here the plain form does that, too,
/// where readers do not answer within a microsecond, and nothing is left to hurry.
///
/// # Blocking
///
/// As [`synchronize`].
///
/// # Panics
///
/// As [`synchronize`].
pub fn synchronize_expedited() {
    global().synchronize(outside_of_sections("synchronize_expedited"));
}

/// Remembers this moment, to ask later whether a grace period has passed since.
///
/// Starts nothing: the grace periods of others have to come along.
///
/// # Blocking
///
/// Never; a fence and a load. May be called in a section.
///
/// # Examples
///
/// ```
/// use afterwork::rcu;
///
/// let cookie = rcu::get_state();
/// // ... do something else ...
/// if !rcu::poll_state(cookie) {
///     rcu::cond_synchronize(cookie);
/// }
/// // What was out of sight before `get_state` may be freed.
/// ```
pub fn get_state() -> GpCookie {
    global().state()
}

/// Returns `true` if a grace period has passed since the moment of `cookie`.
///
/// # Guarantees
///
/// When true, it is as if [`synchronize`] had been called since the moment of the cookie.
///
/// Differs from Linux: it is also true while no other thread can be in a section, without any grace period having
/// run; asked again when others read, it may then be false.
///
/// # Blocking
///
/// Never; a few loads and at most a fence. May be called in a section.
pub fn poll_state(cookie: GpCookie) -> bool {
    if global().is_over(cookie) {
        return true;
    }
    let me = mine();
    !me.is_some_and(Slot::is_in_section) && global().nobody_reads(me)
}

/// Waits for a grace period if none has passed since the moment of `cookie`.
///
/// # Blocking
///
/// As [`synchronize`].
///
/// # Panics
///
/// As [`synchronize`], when it has to wait.
pub fn cond_synchronize(cookie: GpCookie) {
    if !poll_state(cookie) {
        global().wait_for(cookie, outside_of_sections("cond_synchronize"));
    }
}
