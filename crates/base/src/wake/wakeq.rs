//! Wake-ups that are collected under a lock and fired after it is released.

use std::mem::ManuallyDrop;
use std::task::Waker;

use super::parker::unpark;
use crate::panics;

const INLINE: usize = 4;

/// Collects wake-ups under a lock, and fires them after the lock is released.
///
/// A wake-up costs microseconds, and the kernel may run the woken thread at once on the waker's
/// CPU, where it would block on the lock. The queue is modeled on the kernel's `wake_q`.
///
/// Differs from Linux: two wake-ups of one thread stay separate in the queue. The token of a parker
/// merges them.
///
/// # Guarantees
///
/// Each wake-up is fired exactly once, by [`fire`](Self::fire) or when the queue is dropped. If a
/// waker panics, the panic is caught and the remaining wake-ups are fired. The queue holds up to
/// four wake-ups without an allocation.
///
/// # Examples
///
/// ```
/// use afterwork::wake::{Parker, WakeQ};
///
/// let mut parker = Parker::new();
/// let sleepers = std::sync::Mutex::new(vec![parker.unparker()]);
///
/// let mut wakeq = WakeQ::new();
/// let mut locked = sleepers.lock().unwrap();
/// if let Some(sleeper) = locked.pop() {
///     wakeq.push(sleeper);
/// }
/// drop(locked);
/// wakeq.fire();
/// parker.park();
/// ```
#[must_use = "a wake queue that is dropped under the lock wakes under the lock"]
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct WakeQ {
    /// The first wake-ups. They are fired before the array would be dropped, so its drop glue is
    /// omitted.
    first: ManuallyDrop<[Option<Waker>; INLINE]>,
    len: usize,
    rest: Vec<Waker>,
}

impl WakeQ {
    /// Creates an empty queue.
    pub const fn new() -> Self {
        Self { first: ManuallyDrop::new([const { None }; INLINE]), len: 0, rest: Vec::new() }
    }

    /// Adds the wake-up of a task or, with an [`Unparker`](super::Unparker), of a thread.
    #[doc(alias = "wake_q_add")]
    #[inline]
    pub fn push(&mut self, waker: impl Into<Waker>) {
        if self.len < INLINE {
            self.first[self.len] = Some(waker.into());
        } else {
            self.rest.push(waker.into());
        }
        self.len += 1;
    }

    /// Returns the number of wake-ups in the queue.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the queue holds no wake-up.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fires all wake-ups, in the order of their pushes. Must be called with no lock held.
    ///
    /// # Blocking
    ///
    /// Never blocks. Makes one system call for each thread that sleeps.
    #[inline]
    pub fn fire(&mut self) {
        if self.len > 0 {
            self.fire_all();
        }
    }

    #[cold]
    fn fire_all(&mut self) {
        self.first.iter_mut().filter_map(Option::take).for_each(fire);
        self.rest.drain(..).for_each(fire);
        self.len = 0;
    }
}

/// Wakes a thread or a task. A panic in a task's waker is caught.
#[doc(alias = "wake_up_q")]
#[inline]
pub fn fire(waker: Waker) {
    if let Some(waker) = unpark(waker) {
        // FOREIGN(wake-queue): an executor's waker, on the thread that fires. A panic is caught.
        panics::contain(|| waker.wake());
    }
}

impl Drop for WakeQ {
    #[inline]
    fn drop(&mut self) {
        self.fire();
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::wake::Parker;

    #[test]
    fn every_wakeup_is_fired_once_in_order_past_the_inline_ones() {
        let mut parkers: Vec<_> = (0..3 * INLINE).map(|_| Parker::new()).collect();
        let mut wakeq = WakeQ::new();
        for parker in &parkers {
            wakeq.push(parker.unparker());
        }
        assert_eq!(wakeq.len(), 3 * INLINE);
        wakeq.fire();
        assert!(wakeq.is_empty());
        for parker in &mut parkers {
            assert!(parker.try_park(), "a token is missing");
            assert!(!parker.try_park(), "a token arrived twice");
        }
    }

    struct Broken;

    impl std::task::Wake for Broken {
        fn wake(self: std::sync::Arc<Self>) {
            std::panic::panic_any("a broken waker");
        }
    }

    #[test]
    fn wakeups_behind_a_waker_that_panics_are_fired() {
        let nr_parkers = 2 * INLINE;
        for at in 0..nr_parkers {
            let mut parkers: Vec<_> = (0..nr_parkers).map(|_| Parker::new()).collect();
            let mut wakeq = WakeQ::new();
            for (i, parker) in parkers.iter().enumerate() {
                if i == at {
                    wakeq.push(std::sync::Arc::new(Broken));
                }
                wakeq.push(parker.unparker());
            }
            wakeq.fire();
            assert!(wakeq.is_empty());
            assert!(parkers.iter_mut().all(Parker::try_park), "a token is missing");
        }
    }

    #[test]
    fn a_dropped_queue_still_wakes() {
        let mut parker = Parker::new();
        let mut wakeq = WakeQ::new();
        wakeq.push(parker.unparker());
        drop(wakeq);
        parker.park();
    }
}
