//! Functions that wait for a grace period, or check whether one has passed.

use super::local::{global, mine, outside_of_sections};
use super::periods::GpCookie;
use super::slot::Slot;
#[cfg(feature = "baselines")]
use super::{batch::in_callback, tunables};

/// Waits until every read-side critical section that is open now has ended.
///
/// # Guarantees
///
/// - When this returns, no section sees the data that the caller unlinked before the call, and
///   everything that sections did with the data has happened.
/// - Callers share grace periods: one grace period serves all callers that arrived before it began.
/// - If no other thread has been in a section for a while, this costs a fence and returns at once,
///   or three more fences if a cookie was created ([`get_state`]) since the last grace period.
///
/// # Blocking
///
/// Blocks until the sections have ended. It must not be called in a section.
///
/// # Panics
///
/// Panics if this thread is in a section or in a stall handler, where it would wait for itself.
/// Also panics if called in an item of a bottom-half queue.
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
///     // SAFETY: set above; the writer waits for this section before it frees the old value.
///     let sum: u32 = unsafe { &*ROUTES.load(Ordering::Acquire) }.iter().sum();
///     drop(guard);
///     assert!(sum == 3 || sum == 7);
/// });
/// let old = ROUTES.swap(Box::into_raw(Box::new(vec![3, 4])), Ordering::AcqRel);
/// rcu::synchronize();
/// // SAFETY: made by `into_raw`, unlinked by the swap, and no section still sees it.
/// drop(unsafe { Box::from_raw(old) });
/// reader.join().unwrap();
/// ```
#[doc(alias = "synchronize_rcu")]
pub fn synchronize() {
    let me = outside_of_sections("synchronize");
    // In a callback, this would wait for itself.
    #[cfg(feature = "baselines")]
    if !tunables::wake_from_gp() && !in_callback() {
        return synchronize_by_callback();
    }
    global().synchronize(me);
}

/// Waits for a callback, as the kernel does without `normal_wake_from_gp`.
#[cfg(feature = "baselines")]
#[cold]
fn synchronize_by_callback() {
    use sync::atomic::{AtomicBool, Ordering};
    use sync::unmodelled::Arc;

    use super::callback::{call, callbacks};

    let passed = Arc::new(AtomicBool::new(false));
    call({
        let passed = passed.clone();
        move || {
            // If this store comes first, the waiter's Acquire load below ends its wait. Otherwise
            // the waiter has announced itself, and the notification wakes it.
            passed.store(true, Ordering::Release);
            callbacks().swept.notify_all();
        }
    });
    // Acquire pairs with the Release in the callback.
    callbacks().wait_until("synchronize", || passed.load(Ordering::Acquire));
}

/// Waits as [`synchronize`] does.
///
/// Differs from Linux: there only this form interrupts CPUs. Here both forms do so if readers do
/// not answer within a microsecond, so this form is not faster.
///
/// # Blocking
///
/// The same as [`synchronize`].
///
/// # Panics
///
/// Panics in the same cases as [`synchronize`].
#[doc(alias = "synchronize_rcu_expedited")]
pub fn synchronize_expedited() {
    global().synchronize(outside_of_sections("synchronize_expedited"));
}

/// Returns a cookie, with which [`poll_state`] later checks whether a grace period has passed since
/// this call. Starts no grace period: for that, use [`start_poll`](super::start_poll).
///
/// # Blocking
///
/// Never blocks. Costs a fence and two loads, and a locked instruction for the first cookie after a
/// grace period. It may be called in a section.
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
/// // What was unlinked before `get_state` may be freed.
/// ```
#[doc(alias = "get_state_synchronize_rcu")]
pub fn get_state() -> GpCookie {
    global().state_to_poll()
}

/// Returns `true` if a grace period has passed since `cookie` was created.
///
/// # Guarantees
///
/// - If this returns `true`, the guarantees are the same as if a call to [`synchronize`] had begun
///   after the cookie was created and had returned. After such a call to [`synchronize`], this
///   returns `true`, and so does every later call with that cookie.
///
/// Differs from Linux: this also returns `true` while no other thread can be in a section, even if
/// no grace period has run. A later call with the same cookie may then return `false`.
///
/// # Blocking
///
/// Never blocks. Costs a few loads and at most one fence. It may be called in a section.
#[doc(alias = "poll_state_synchronize_rcu")]
pub fn poll_state(cookie: GpCookie) -> bool {
    if global().periods.is_over(cookie) {
        return true;
    }
    let me = mine();
    !me.is_some_and(Slot::is_in_section) && global().nobody_reads(me)
}

/// Waits for a grace period if none has passed since `cookie` was created.
///
/// # Blocking
///
/// The same as [`synchronize`].
///
/// # Panics
///
/// Panics in the same cases as [`synchronize`], if it has to wait.
#[doc(alias = "cond_synchronize_rcu")]
pub fn cond_synchronize(cookie: GpCookie) {
    if !poll_state(cookie) {
        global().wait_for(cookie, outside_of_sections("cond_synchronize"));
    }
}
