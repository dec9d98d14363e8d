//! Many threads wait for a condition that needs no lock.
//!
//! A waiter announces itself, re-checks its condition, and only then sleeps; whoever makes the condition true
//! looks for waiters after that:
//!
//! ```text
//! waiter:   nr_waiting += 1;  fence;  condition?  no: sleep while epoch is what I saw
//! notifier: condition = true; fence;  nr_waiting == 0?  no: epoch += 1, wake all
//! ```
//!
//! Both store and then load the other's variable. With both fences at least one load sees the other's store:
//! either the waiter sees the condition, or the notifier sees the waiter and changes the epoch, which keeps the
//! waiter from sleeping on the old one.

use std::time::Duration;

use sync::{
    atomic::{AtomicU32, Ordering},
    futex::Futex,
    thread, twin,
};

use super::report;

/// Lets any number of threads sleep until a condition of the caller's may have changed.
///
/// # Guarantees
///
/// A [`notify_all`](Self::notify_all) after the condition became true ends every wait that was prepared while
/// it was false. Notifying costs a fence and a load when nobody waits.
///
/// # Examples
///
/// ```
/// use afterwork::wake::EventCount;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// static READY: AtomicBool = AtomicBool::new(false);
/// static EVENT: EventCount = EventCount::new();
///
/// let waiter = std::thread::spawn(|| EVENT.wait_until(|| READY.load(Ordering::Acquire)));
/// READY.store(true, Ordering::Release);
/// EVENT.notify_all();
/// waiter.join().unwrap();
/// ```
#[derive(Debug)]
pub struct EventCount {
    /// Changes with every notification that had somebody to wake.
    epoch: Futex,
    nr_waiting: AtomicU32,
}

/// A wait that has been announced; dropping it takes the announcement back.
#[derive(Debug)]
pub struct Prepared<'a> {
    count: &'a EventCount,
    epoch: u32,
}

impl EventCount {
    sync::const_unless_model! {
        /// Makes an event count that nobody waits on.
        pub fn new() -> Self {
            Self { epoch: Futex::new(0), nr_waiting: AtomicU32::new(0) }
        }
    }

    /// Forgets who waits: in a child of `fork`, where they are not. The caller is not among them.
    pub(crate) fn forget(&self) {
        self.nr_waiting.store(0, Ordering::Relaxed);
    }

    /// Announces a wait. Check the condition again before calling [`Prepared::wait`].
    pub fn prepare(&self) -> Prepared<'_> {
        self.nr_waiting.fetch_add(1, Ordering::Relaxed);
        let epoch = self.epoch.word().load(Ordering::Relaxed);
        // ORDER(event-count): store buffering, other end in `notify`.
        //   here:   nr_waiting += 1;  fence;  the caller reads its condition
        //   notify: condition = true; fence;  read nr_waiting
        // Test: event_count_wakes_a_waiter_that_saw_no_condition
        twin::fence("event count: no fence in prepare");
        Prepared { count: self, epoch }
    }

    /// Wakes everybody who has prepared a wait.
    ///
    /// # Blocking
    ///
    /// Never; a system call when somebody waits. Not under a lock that the woken will want.
    #[inline]
    pub fn notify_all(&self) {
        self.notify(|| self.epoch.wake(u32::MAX));
    }

    #[inline]
    fn notify(&self, wake: impl FnOnce()) {
        // ORDER(event-count): other end in `prepare`.
        // Test: event_count_wakes_a_waiter_that_saw_no_condition
        twin::fence("event count: no fence in notify");
        if self.nr_waiting.load(Ordering::Relaxed) != 0 {
            self.change_and(wake);
        }
    }

    #[cold]
    fn change_and(&self, wake: impl FnOnce()) {
        self.epoch.word().fetch_add(1, Ordering::Release);
        wake();
    }

    /// Wakes one of those who have prepared a wait; others may wake too.
    ///
    /// For waiters of which any one will do, and who call this again when they leave work to the others.
    ///
    /// # Blocking
    ///
    /// As [`notify_all`](Self::notify_all).
    #[inline]
    pub fn notify_one(&self) {
        self.notify(|| self.epoch.wake(1));
    }

    /// Wakes everybody who has prepared a wait, `batch` at a time, and lets them run in between.
    ///
    /// # Blocking
    ///
    /// Never sleeps. A system call or two for each batch.
    pub(crate) fn notify_in_batches(&self, batch: u32) {
        self.notify(|| {
            let nr_waiting = self.nr_waiting.load(Ordering::Relaxed);
            for _ in 0..nr_waiting.saturating_sub(1) / batch {
                self.epoch.wake(batch);
                thread::yield_now();
            }
            // Not the last batch alone: newcomers may have been woken in the place of those who were meant.
            self.epoch.wake(u32::MAX);
        });
    }

    /// Waits until `condition` holds, checking it before every sleep.
    ///
    /// # Blocking
    ///
    /// Until then.
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        // FOREIGN(event-count): the caller's closure, on the caller, who gets the panic; the announcement is taken back.
        while !condition() {
            let prepared = self.prepare();
            if condition() {
                return;
            }
            prepared.wait();
        }
    }
}

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl Prepared<'_> {
    /// Sleeps until a notification that came after the preparation; may return early for no reason.
    ///
    /// # Blocking
    ///
    /// Until [`EventCount::notify_all`].
    pub fn wait(self) {
        report::while_asleep(|| self.count.epoch.wait(self.epoch));
    }

    /// Sleeps as [`wait`](Self::wait) does, for at most `timeout`; models never time out.
    ///
    /// # Blocking
    ///
    /// At most `timeout`.
    pub fn wait_timeout(self, timeout: Duration) {
        report::while_asleep(|| self.count.epoch.wait_timeout(self.epoch, timeout));
    }
}

impl Drop for Prepared<'_> {
    fn drop(&mut self) {
        if !twin::torn_down() {
            self.count.nr_waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
