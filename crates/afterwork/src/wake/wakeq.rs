//! Wake-ups collected under a lock and fired after it.

use sync::futex::Key;

use super::Unparker;
use crate::panics;

/// How many wake-ups a queue holds without allocating.
const INLINE: usize = 4;

/// One wake-up that is owed.
#[derive(Debug)]
pub struct Wakeup(Kind);

#[derive(Debug)]
enum Kind {
    /// Gives a parked thread its token.
    Unpark(Unparker),
    /// Wakes everybody who sleeps on a word that has already been changed.
    WakeAll(Key),
    /// Wakes an async task.
    Waker(std::task::Waker),
}

impl Wakeup {
    /// Owes the owner of `unparker` its token.
    pub fn unpark(unparker: Unparker) -> Self {
        Self(Kind::Unpark(unparker))
    }

    /// Owes a wake-up to all who sleep on the word of `key`, which has been changed already.
    pub fn wake_all(key: Key) -> Self {
        Self(Kind::WakeAll(key))
    }

    /// Owes an async task its wake-up.
    pub fn waker(waker: std::task::Waker) -> Self {
        Self(Kind::Waker(waker))
    }

    /// Wakes. A panic of a task's waker ends here.
    pub fn fire(self) {
        match self.0 {
            Kind::Unpark(unparker) => unparker.unpark(),
            Kind::WakeAll(key) => key.wake(u32::MAX),
            Kind::Waker(waker) => {
                // FOREIGN(wake-queue): an executor's waker, on the thread that fires; a panic ends here.
                panics::contain(|| waker.wake());
            }
        }
    }
}

/// Collects wake-ups under a lock, to fire them after it.
///
/// A wake-up costs microseconds, sometimes lets the woken thread run at once on the waker's CPU, and the
/// first thing a woken thread does is to take the lock. So a locked section only *picks* whom to wake. The
/// kernel's `wake_q` is the model; Differs from Linux: nothing merges two wake-ups of one thread, because a
/// token already does.
///
/// # Guarantees
///
/// Each wake-up is fired exactly once: by [`fire`](Self::fire), or when the queue is dropped; also behind a waker that
/// panics, whose panic ends there. Up to four are held without allocating.
///
/// # Examples
///
/// ```
/// use afterwork::wake::{Parker, WakeQ, Wakeup};
///
/// let mut parker = Parker::new();
/// let sleepers = std::sync::Mutex::new(vec![parker.unparker()]);
///
/// let mut wakeq = WakeQ::new();
/// let mut locked = sleepers.lock().unwrap();
/// if let Some(sleeper) = locked.pop() {
///     wakeq.push(Wakeup::unpark(sleeper));
/// }
/// drop(locked);
/// wakeq.fire();
/// parker.park();
/// ```
#[must_use = "a wake queue that is dropped under the lock wakes under the lock"]
#[derive(Debug, Default)]
pub struct WakeQ {
    first: [Option<Wakeup>; INLINE],
    len: usize,
    rest: Vec<Wakeup>,
}

impl WakeQ {
    /// Makes an empty queue.
    pub const fn new() -> Self {
        Self {
            first: [const { None }; INLINE],
            len: 0,
            rest: Vec::new(),
        }
    }

    /// Adds a wake-up that is owed.
    pub fn push(&mut self, wakeup: Wakeup) {
        if self.len < INLINE {
            self.first[self.len] = Some(wakeup);
        } else {
            self.rest.push(wakeup);
        }
        self.len += 1;
    }

    /// Returns how many are owed.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if none is owed.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Fires all, in the order in which they were pushed. Call it with no lock held.
    ///
    /// # Blocking
    ///
    /// A system call for each thread that really sleeps.
    #[inline]
    pub fn fire(&mut self) {
        if self.len > 0 {
            self.fire_all();
        }
    }

    #[cold]
    fn fire_all(&mut self) {
        for wakeup in self.first.iter_mut() {
            if let Some(wakeup) = wakeup.take() {
                wakeup.fire();
            }
        }
        self.rest.drain(..).for_each(Wakeup::fire);
        self.len = 0;
    }
}

impl Drop for WakeQ {
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
            wakeq.push(Wakeup::unpark(parker.unparker()));
        }
        assert_eq!(wakeq.len(), 3 * INLINE);
        wakeq.fire();
        assert!(wakeq.is_empty());
        for parker in &mut parkers {
            assert!(parker.try_park(), "a token is missing");
            assert!(!parker.try_park(), "a token came twice");
        }
    }

    /// Panics instead of waking.
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
                    wakeq.push(Wakeup::waker(std::sync::Arc::new(Broken).into()));
                }
                wakeq.push(Wakeup::unpark(parker.unparker()));
            }
            wakeq.fire();
            assert!(wakeq.is_empty());
            assert!(
                parkers.iter_mut().all(Parker::try_park),
                "a token is missing"
            );
        }
    }

    #[test]
    fn a_dropped_queue_still_wakes() {
        let mut parker = Parker::new();
        let mut wakeq = WakeQ::new();
        wakeq.push(Wakeup::unpark(parker.unparker()));
        drop(wakeq);
        parker.park();
    }
}
