//! This thread's slot, which its first section claims and which is released when the thread exits.
//!
//! A thread begins with a *stand-in* slot. The stand-in has the maximum depth, so the depth check
//! of the fast path also diverts a thread's first section to the slow path. If another thread-local
//! holds a section open when the thread exits, the slot stays in use until that section ends. A
//! section that begins even later nests in it, or claims a slot.

use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr;

use base::internal::wake::report;

use super::domain::{self, Domain};
use super::fork;
use super::periods::NEST_MAX;
use super::slot::Slot;

sync::process_wide! {
    /// Returns the readers of this process and their grace periods.
    pub(super) fn global() -> Domain = Domain::new()
}

sync::process_wide! {
    /// Returns the slot of threads that have no slot of their own.
    pub(super) fn stand_in() -> Slot = Slot::stand_in()
}

sync::thread_local! {
    /// This thread's slot, or the stand-in. It has no destructor, so it is always accessible.
    static MINE: Cell<*const Slot> = Cell::new(ptr::from_ref(stand_in()));
    /// Initialized by a thread that claims a slot, so that its destructor runs.
    static AT_EXIT: AtExit = AtExit
}

struct AtExit;

sync::on_drop!(AtExit, _this => {
    report::doubt(report::ENDS, true);
    if let Some(slot) = mine() {
        MINE.try_with(|mine| mine.set(stand_in())).ok();
        slot.leave(global());
    }
});

/// Keeps a guard on its thread. The compiler prints this name if a closure that is sent to another
/// thread captures a guard.
pub(super) struct OnItsThreadUseSrcuAcrossAwait(#[expect(dead_code)] *mut ());

/// A read-side critical section of this thread, which lasts until the guard is dropped.
///
/// # Guarantees
///
/// - Data that the section reads from an RCU-protected place stays valid until the guard is
///   dropped.
/// - Guards nest and may be dropped in any order. The section lasts until the last one is dropped.
///
/// A guard stays on its thread, so a future that is `Send` cannot hold one across an `.await`. For
/// a section that lasts across an `.await`, use a guard of [`srcu`](super::srcu).
///
/// A guard that is leaked (`mem::forget`) delays every grace period until the process ends.
#[must_use = "the section ends when the guard is dropped"]
#[doc(alias("rcu_read_unlock", "rcu_read_lock_bh", "rcu_read_lock_sched"))]
pub struct Guard {
    slot: &'static Slot,
    /// Prevents this type from being `Send`, because a section belongs to its thread.
    _not_send: PhantomData<OnItsThreadUseSrcuAcrossAwait>,
}

impl Drop for Guard {
    #[inline(always)]
    fn drop(&mut self) {
        if !sync::twin::torn_down() {
            self.slot.unlock(global());
        }
    }
}

/// Begins a read-side critical section.
///
/// # Guarantees
///
/// A [`synchronize`](super::synchronize) that is called while the guard exists returns after the
/// guard is dropped. Costs a few plain loads and stores, no locked instruction and no fence.
///
/// # Blocking
///
/// Never blocks. The first section of a thread allocates. Do not call it in a signal handler, which
/// may have interrupted this function; use [`read_in_signal_handler`] there.
///
/// # Panics
///
/// Panics if sections nest 65,534 deep.
///
/// # Examples
///
/// ```
/// let outer = afterwork::rcu::read();
/// let inner = afterwork::rcu::read();
/// drop(outer); // `inner` still protects
/// drop(inner);
/// ```
#[doc(alias = "rcu_read_lock")]
#[inline(always)]
pub fn read() -> Guard {
    Guard { slot: enter(), _not_send: PhantomData }
}

/// Begins a read-side critical section in a signal handler, which may have interrupted this thread
/// at any point, even inside [`read`].
///
/// Returns `None` while the thread is exiting, or if it has had no section before, because the
/// first section allocates. To avoid that case, begin and end a section with `read` when the thread
/// starts.
///
/// # Guarantees
///
/// The same as for [`read`], and `errno` is preserved. It costs a full fence. The section must end
/// before the handler returns.
///
/// # Blocking
///
/// Never blocks. It may be called in a signal handler.
///
/// # Examples
///
/// ```
/// use afterwork::rcu;
///
/// drop(rcu::read());
/// // In the handler:
/// let guard = rcu::read_in_signal_handler().expect("this thread has read before");
/// # drop(guard);
/// ```
pub fn read_in_signal_handler() -> Option<Guard> {
    let slot = mine()?;
    slot.lock_in_handler(global()).then(|| Guard { slot, _not_send: PhantomData })
}

#[inline(always)]
pub(super) fn enter() -> &'static Slot {
    let slot = found();
    if slot.lock(global()) { slot } else { enter_slowly(slot) }
}

/// Puts this thread into an extended quiescent state before it sleeps, unless it is in a section.
/// Without this, grace periods would pass the heavy barrier until a driver has parked the thread.
pub fn park_if_idle() {
    if let Some(slot) = mine()
        && !slot.is_in_section()
        && !slot.flags().is_off()
    {
        slot.park(global());
    }
}

#[inline(always)]
pub(super) fn found() -> &'static Slot {
    // SAFETY: the stand-in and the slots of `global()` live as long as the process or the model.
    MINE.with(|mine| unsafe { &*mine.get() })
}

#[inline]
pub(super) fn mine() -> Option<&'static Slot> {
    let slot = MINE.try_with(Cell::get).ok()?;
    // SAFETY: as in `found`.
    (!ptr::eq(slot, stand_in())).then(|| unsafe { &*slot })
}

#[inline]
pub(crate) fn nesting() -> u64 {
    mine().map_or(0, Slot::nesting)
}

/// Returns the slot that this exiting thread has left with a section open.
pub(super) fn left_open() -> Option<&'static Slot> {
    let is_ending = report::doubts() & report::ENDS != 0;
    let is_open = |slot: &&Slot| slot.is_mine() && slot.is_in_section();
    is_ending.then(|| global().roster.iter().find(is_open))?
}

/// Returns this thread's slot. Panics before the first change of the function `what` if `what`
/// would wait for itself or must not sleep.
#[inline]
pub(super) fn outside_of_sections(what: &str) -> Option<&'static Slot> {
    let me = mine();
    if me.is_some_and(Slot::is_in_section) || report::doubts() != 0 {
        must_be_free_to_wait(what, me);
    }
    me
}

/// Returns `true` unless this thread is in an RCU section, a callback or a stall handler, is
/// exiting, or must not sleep.
pub(super) fn may_wait_for_callbacks() -> bool {
    let refuses = report::doubts() & (report::DRIVES | report::ENDS) != 0;
    !refuses && report::may_wait_for_users() && !mine().is_some_and(Slot::is_in_section)
}

#[cold]
fn must_be_free_to_wait(what: &str, me: Option<&'static Slot>) {
    assert!(
        !domain::drives(),
        "{what} where a grace period waits for this thread, as in a stall handler, waits for itself"
    );
    assert!(
        !me.or_else(left_open).is_some_and(Slot::is_in_section),
        "{what} inside a read-side critical section waits for itself"
    );
    report::must_be_free_to_sleep();
}

#[cold]
fn enter_slowly(slot: &'static Slot) -> &'static Slot {
    assert!(
        ptr::eq(slot, stand_in()),
        "read-side critical sections nest too deep: more than {}",
        NEST_MAX - 1
    );
    // This must precede the first section that relies on it.
    sync::asym::init();
    fork::watch();
    if AT_EXIT.try_with(|_| ()).is_err() {
        return enter_late();
    }
    let slot = global().roster.join();
    MINE.with(|mine| mine.set(slot));
    report::before_sleep(park_if_idle);
    slot.lock(global());
    slot
}

/// Does the same as [`enter`] on an exiting thread. With two slots in use, an unlock without a
/// guard could not determine which section it ends. So the section nests in one that is open, or
/// uses a slot that is released when it ends.
fn enter_late() -> &'static Slot {
    if let Some(slot) = left_open() {
        assert!(slot.lock(global()), "read-side critical sections nest too deep");
        return slot;
    }
    let slot = global().roster.join();
    slot.lock(global());
    slot.leave(global());
    slot
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::time::Duration;

    use base::internal::wake::Parker;

    use super::*;

    #[test]
    fn thread_asleep_in_the_library_is_quiescent() {
        let sleep = || Parker::with_spin_limit(0).park_timeout(Duration::from_nanos(1));
        std::thread::spawn(move || {
            let guard = read();
            sleep();
            assert!(mine().is_some_and(|slot| !slot.flags().is_off()), "in a section");
            drop(guard);
            sleep();
            assert!(mine().is_some_and(|slot| slot.flags().is_off()));
        })
        .join()
        .unwrap();
    }
}
