//! The threads and tasks that wait for items of a queue to end.
//!
//! A task registers its waker before it checks its condition, just as a thread announces itself
//! first:
//!
//! ```text
//! task:   register the waker, nr_tasks = 1;  check: false, notification requested     pending
//! other:  the change;  is a notification requested?           nr_tasks > 0? take the wakers; wake
//! ```
//!
//! The request is a flag under a pool's lock or in a gate's word. The check sets it and the change
//! reads it, and these accesses have one order. A thread that makes a change after the check
//! therefore finds the flag, and sees everything that the task did before it. Twins `settled: tasks
//! are not woken` and `drain: registers its waker after the check`.

use std::task::Waker;

use base::internal::numbered::Numbered;
use base::internal::panics::Foreign;
use base::internal::wake::EventCount;
use item::internal::cleanups;
use sync::atomic::{AtomicUsize, Ordering};
use sync::{Mutex, twin};

/// A completion event of a queue, with its waiters.
#[derive(Default)]
pub struct Settled {
    threads: EventCount,
    /// A: the number of `tasks`, written under their lock.
    nr_tasks: AtomicUsize,
    /// The wakers of the waiting tasks. The lock is a leaf in the lock order.
    tasks: Mutex<Numbered<Foreign<Waker>>>,
}

/// The key of a task's waker, if the task waits. Call [`Settled::take_waker`] before dropping it.
#[derive(Debug, Default)]
pub struct TaskSeat(Option<u64>);

impl Settled {
    /// Wakes all waiting threads and tasks. Tasks are woken by [`cleanups::fire_all`]. Call it with
    /// no lock held.
    pub fn notify_all(&self) {
        self.threads.notify_all();
        if self.nr_tasks.load(Ordering::Relaxed) > 0 && !twin::armed("settled: tasks are not woken")
        {
            self.wake_tasks();
        }
    }

    #[cold]
    fn wake_tasks(&self) {
        let mut tasks = self.tasks.lock();
        let woken = tasks.take_all();
        self.nr_tasks.store(0, Ordering::Relaxed);
        drop(tasks);
        cleanups::fire_all(woken.collect());
    }

    /// Blocks until `condition` returns `true`. The condition is checked before every sleep, which
    /// [`notify_all`](Self::notify_all) ends.
    pub fn wait_until(&self, condition: impl FnMut() -> bool) {
        self.threads.wait_until(condition);
    }

    /// Waits as [`wait_until`](Self::wait_until) does, at most until the time `end_ns`. Returns
    /// `true` if the condition held. Models never time out.
    pub fn wait_until_by(&self, end_ns: u64, condition: impl FnMut() -> bool) -> bool {
        self.threads.wait_until_by(end_ns, condition)
    }

    /// Registers `waker` to be woken once, so that its task checks its condition again. Returns the
    /// waker that the task registered before, to be dropped with no lock held. The cost is that of
    /// a binary search of the waiting tasks.
    pub fn leave_waker(
        &self,
        seat: &mut TaskSeat,
        waker: Foreign<Waker>,
    ) -> Option<Foreign<Waker>> {
        let mut tasks = self.tasks.lock();
        let before = seat.0.and_then(|number| tasks.remove(number));
        seat.0 = Some(tasks.add(waker));
        self.nr_tasks.store(tasks.len(), Ordering::Relaxed);
        before
    }

    /// Removes and returns the waker, to be dropped with no lock held.
    pub fn take_waker(&self, seat: &mut TaskSeat) -> Option<Foreign<Waker>> {
        let number = seat.0.take()?;
        let mut tasks = self.tasks.lock();
        let waker = tasks.remove(number);
        self.nr_tasks.store(tasks.len(), Ordering::Relaxed);
        waker
    }
}

base::internal::impl_debug!(
    Settled, it => threads: it.threads, nr_tasks: it.nr_tasks.load(Ordering::Relaxed)
);

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Registers a waker for each key, and removes all wakers in the order of `seats`. Returns the
    /// maximum length of the list of wakers.
    fn max_nr_waiters(
        seats: impl DoubleEndedIterator<Item = usize> + Clone,
        nr_seats: usize,
    ) -> usize {
        let settled = Settled::default();
        let mut all: Vec<_> = (0..nr_seats).map(|_| TaskSeat::default()).collect();
        let mut most = 0;
        for round in 0..4 {
            for seat in &mut all {
                let before = settled.leave_waker(seat, Foreign::new(Waker::noop().clone()));
                assert_eq!(before.is_some(), round > 0);
                most = most.max(settled.tasks.lock().nr_places());
            }
            assert_eq!(settled.nr_tasks.load(Ordering::Relaxed), nr_seats);
        }
        for seat in seats {
            assert!(settled.take_waker(&mut all[seat]).is_some());
            assert!(settled.take_waker(&mut all[seat]).is_none());
        }
        assert_eq!(settled.nr_tasks.load(Ordering::Relaxed), 0);
        most
    }

    #[test]
    fn registering_wakers_repeatedly_takes_linear_memory() {
        let sizes: &[usize] = if cfg!(miri) { &[1, 30] } else { &[1, 100, 1000] };
        for &nr_seats in sizes {
            assert!(max_nr_waiters(0..nr_seats, nr_seats) <= 2 * nr_seats + 2);
            assert!(max_nr_waiters((0..nr_seats).rev(), nr_seats) <= 2 * nr_seats + 2);
        }
    }

    #[test]
    fn the_seat_of_a_woken_task_takes_no_other_tasks_waker() {
        let settled = Settled::default();
        let waker = || Foreign::new(Waker::noop().clone());
        let (mut woken, mut waits) = (TaskSeat::default(), TaskSeat::default());
        settled.leave_waker(&mut woken, waker());
        settled.notify_all();
        settled.leave_waker(&mut waits, waker());
        assert!(settled.take_waker(&mut woken).is_none());
        assert!(settled.take_waker(&mut waits).is_some());
    }

    #[test]
    fn a_thread_that_runs_no_code_of_users_leaves_tasks_to_others() {
        let flag = Arc::<Flag>::default();
        let is_woken = || flag.0.load(Ordering::Relaxed);
        let settled = Settled::default();
        let mut seat = TaskSeat::default();
        let waker = Foreign::new(Waker::from(flag.clone()));
        assert!(settled.leave_waker(&mut seat, waker).is_none());
        assert!(cleanups::put_wakers_aside(true).is_empty());
        settled.notify_all();
        assert!(!is_woken());
        let aside = cleanups::wakers_put_aside();
        assert_eq!((aside.len(), cleanups::put_wakers_aside(false).len()), (1, 0));
        for waker in aside {
            waker.into_inner().wake();
        }
        assert!(is_woken());
    }
}
