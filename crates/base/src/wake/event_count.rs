//! Lets any number of threads wait for a condition that no lock protects.
//!
//! A waiter announces itself, checks its condition again, and only then sleeps. A notifier makes
//! the condition true and then reads the number of waiters:
//!
//! ```text
//! waiter:   nr_waiting += 1;  fence;  condition?  no: sleep while epoch is unchanged
//! notifier: condition = true; fence;  nr_waiting == 0?  no: epoch += 1, wake all
//! ```
//!
//! Each side stores and then loads the word that the other side stores. With a fence on both sides,
//! at least one load sees the other side's store: either the waiter sees the condition, or the
//! notifier sees the waiter and changes the epoch. The kernel does not let a thread sleep on an
//! epoch that has changed.

use std::time::Duration;

use sync::atomic::{AtomicU32, Ordering};
use sync::futex::Futex;
use sync::{thread, time, twin};

use super::report;

/// Lets any number of threads sleep until the caller's condition may have changed.
///
/// # Guarantees
///
/// A call to [`notify_all`](Self::notify_all) after the condition became true ends every wait that
/// was prepared while the condition was false. Notifying costs a fence and a load if no thread
/// waits.
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
    /// Changes with every notification that finds a waiter.
    epoch: Futex,
    nr_waiting: AtomicU32,
}

/// A wait that has been announced. Dropping it withdraws the announcement.
#[derive(Debug)]
pub struct Prepared<'a> {
    count: &'a EventCount,
    epoch: u32,
}

impl EventCount {
    sync::const_unless_model! {
        /// Creates an event count without waiters.
        pub fn new() -> Self {
            Self { epoch: Futex::new(0), nr_waiting: AtomicU32::new(0) }
        }
    }

    /// Resets the number of waiters to 0 in a child of `fork`, in which they do not exist.
    #[doc(hidden)]
    pub fn forget(&self) {
        self.nr_waiting.store(0, Ordering::Relaxed);
    }

    /// Announces a wait. The caller must check its condition again before it calls
    /// [`Prepared::wait`].
    #[inline]
    pub fn prepare(&self) -> Prepared<'_> {
        self.nr_waiting.fetch_add(1, Ordering::Relaxed);
        let epoch = self.epoch.word().load(Ordering::Relaxed);
        // ORDER(event-count): store buffering, other end in `notify`.
        //   here:   nr_waiting += 1;  fence;  the caller reads its condition
        //   notify: condition = true; fence;  read nr_waiting
        // If our fence comes first, the notifier reads our announcement and changes the epoch after
        // we read it, so our sleep ends or does not begin. If the notifier's fence comes first, the
        // caller reads its condition as true.
        // Test: event_count_wakes_a_waiter_that_saw_no_condition
        twin::fence("event count: no fence in prepare");
        Prepared { count: self, epoch }
    }

    /// Wakes every thread that has prepared a wait.
    ///
    /// # Blocking
    ///
    /// Never blocks. Makes a system call if a thread waits. Do not call it while you hold a lock
    /// that the woken threads acquire.
    #[inline]
    #[doc(alias = "wake_up_all")]
    pub fn notify_all(&self) {
        self.notify(|| self.epoch.wake(u32::MAX));
    }

    #[inline]
    fn notify(&self, wake: impl FnOnce()) {
        // ORDER(event-count): other end in `prepare`.
        twin::fence("event count: no fence in notify");
        if self.nr_waiting.load(Ordering::Relaxed) != 0 {
            self.change_and(wake);
        }
    }

    #[cold]
    fn change_and(&self, wake: impl FnOnce()) {
        // The fences are sufficient: if `prepare` reads the new epoch, its fence comes after ours.
        self.epoch.word().fetch_add(1, Ordering::Release);
        wake();
    }

    /// Wakes at least one thread that has prepared a wait. Use it if any single waiter can handle
    /// the event. That waiter must call this function again if it leaves work for the others.
    ///
    /// # Blocking
    ///
    /// The same as [`notify_all`](Self::notify_all).
    #[inline]
    #[doc(alias = "wake_up")]
    pub fn notify_one(&self) {
        self.notify(|| self.epoch.wake(1));
    }

    /// Wakes every thread that has prepared a wait, `batch` at a time, and yields the CPU after
    /// each batch.
    ///
    /// # Blocking
    ///
    /// Never sleeps. Makes at most two system calls for each batch.
    #[doc(hidden)]
    pub fn notify_in_batches(&self, batch: u32) {
        self.notify(|| {
            let nr_waiting = self.nr_waiting.load(Ordering::Relaxed);
            for _ in 0..nr_waiting.saturating_sub(1) / batch {
                self.epoch.wake(batch);
                thread::yield_now();
            }
            // This wakes all remaining waiters, because an earlier batch may have woken new waiters
            // instead of those that were counted.
            self.epoch.wake(u32::MAX);
        });
    }

    /// Waits until `condition` returns `true`. Calls `condition` before every sleep.
    ///
    /// # Blocking
    ///
    /// Blocks until `condition` returns `true`.
    #[doc(alias = "wait_event")]
    pub fn wait_until(&self, mut condition: impl FnMut() -> bool) {
        // FOREIGN(event-count): the caller's closure, on its thread, to which a panic propagates.
        while !condition() {
            let prepared = self.prepare();
            if condition() {
                return;
            }
            prepared.wait();
        }
    }

    /// Waits as [`wait_until`](Self::wait_until) does, for at most `timeout`. Returns `true` if the
    /// condition became true. In a model it never times out.
    ///
    /// # Blocking
    ///
    /// Blocks for at most `timeout`.
    ///
    /// # Examples
    ///
    /// ```
    /// use afterwork::wake::EventCount;
    /// use std::time::Duration;
    ///
    /// let event = EventCount::new();
    /// assert!(!event.wait_until_timeout(Duration::from_millis(1), || false));
    /// assert!(event.wait_until_timeout(Duration::ZERO, || true));
    /// ```
    #[doc(alias = "wait_event_timeout")]
    pub fn wait_until_timeout(&self, timeout: Duration, condition: impl FnMut() -> bool) -> bool {
        self.wait_until_by(time::ns_after(timeout), condition)
    }

    /// Waits as [`wait_until_timeout`](Self::wait_until_timeout) does, until the time `end_ns`
    /// (`time::now_ns`).
    #[doc(hidden)]
    pub fn wait_until_by(&self, end_ns: u64, mut condition: impl FnMut() -> bool) -> bool {
        while !condition() {
            let prepared = self.prepare();
            if condition() {
                return true;
            }
            let left_ns = end_ns.saturating_sub(time::now_ns());
            if left_ns == 0 {
                return false;
            }
            prepared.wait_timeout(Duration::from_nanos(left_ns));
        }
        true
    }
}

impl Default for EventCount {
    fn default() -> Self {
        Self::new()
    }
}

impl Prepared<'_> {
    /// Sleeps until a notification that comes after the preparation. May return early.
    ///
    /// # Blocking
    ///
    /// Blocks until [`EventCount::notify_all`] or [`EventCount::notify_one`] wakes the thread.
    pub fn wait(self) {
        report::while_asleep(|| self.count.epoch.wait(self.epoch));
    }

    /// Sleeps as [`wait`](Self::wait) does, for at most `timeout`. In a model it never times out.
    ///
    /// # Blocking
    ///
    /// Blocks for at most `timeout`.
    pub fn wait_timeout(self, timeout: Duration) {
        report::while_asleep(|| self.count.epoch.wait_timeout(self.epoch, timeout));
    }
}

impl Drop for Prepared<'_> {
    #[inline]
    fn drop(&mut self) {
        if !twin::torn_down() {
            self.count.nr_waiting.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
