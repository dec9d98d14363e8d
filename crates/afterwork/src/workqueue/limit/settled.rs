//! Who waits for something of a queue to end: threads, and tasks that must not block theirs.
//!
//! A task leaves its waker before it looks, as a thread announces itself:
//!
//! ```text
//! task:     leave the waker, nr_tasks = 1;  look: not yet, and whoever ends it will tell   pending
//! ends it:  the change;  is anybody to be told?                                            nr_tasks > 0? take the wakers; wake
//! ```
//!
//! "Will tell" is a flag under a pool's lock, or of a gate's word, that the look sets and the change reads in one order. So
//! a change that comes after the look finds the flag, and with it all that the task did before. Twins `settled: tasks are not
//! told` and `drain: leaves its waker after the look`.

use std::{fmt, task::Waker};

use sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
    twin,
};

use crate::{panics::Foreign, wake::EventCount, workqueue::errands};

/// Told when something has ended that is waited for.
#[derive(Default)]
pub(crate) struct Settled {
    threads: EventCount,
    /// A, written under the lock of `tasks`: how many of them there are.
    nr_tasks: AtomicUsize,
    /// Tasks that wait. A leaf.
    tasks: Mutex<Tasks>,
}

#[derive(Default)]
struct Tasks {
    /// By the number of their seat.
    waiting: Vec<(u64, Foreign<Waker>)>,
    nr_seats: u64,
}

/// A task's place among those that wait. To be given back.
#[derive(Debug)]
pub(crate) struct TaskSeat(u64);

impl Settled {
    /// Wakes all who wait, tasks by [`errands::fire`]. Call it with no lock held.
    pub(crate) fn notify_all(&self) {
        self.threads.notify_all();
        if self.nr_tasks.load(Ordering::Relaxed) > 0 && !twin::armed("settled: tasks are not told")
        {
            self.wake_tasks();
        }
    }

    #[cold]
    fn wake_tasks(&self) {
        let mut tasks = self.tasks.lock();
        let woken = std::mem::take(&mut tasks.waiting);
        self.nr_tasks.store(0, Ordering::Relaxed);
        drop(tasks);
        for (_, waker) in woken {
            errands::fire(waker);
        }
    }

    /// Waits until `condition` returns `true`, which is asked before every sleep.
    ///
    /// # Blocking
    ///
    /// Until then; woken by whoever ends what is waited for.
    pub(crate) fn wait_until(&self, condition: impl FnMut() -> bool) {
        self.threads.wait_until(condition);
    }

    /// Waits as [`wait_until`](Self::wait_until) does, and no longer than to the time `end_ns`; returns `true` if the
    /// condition held. Models never time out.
    pub(crate) fn wait_until_by(&self, end_ns: u64, condition: impl FnMut() -> bool) -> bool {
        self.threads.wait_until_by(end_ns, condition)
    }

    /// Makes a place for a task.
    pub(crate) fn task_seat(&self) -> TaskSeat {
        let mut tasks = self.tasks.lock();
        tasks.nr_seats += 1;
        TaskSeat(tasks.nr_seats)
    }

    /// Has the task woken that is to look next, once. Returns what it left before, to be dropped with no lock held.
    pub(crate) fn leave_waker(
        &self,
        seat: &TaskSeat,
        waker: Foreign<Waker>,
    ) -> Option<Foreign<Waker>> {
        let mut tasks = self.tasks.lock();
        let before = tasks.take(seat);
        tasks.waiting.push((seat.0, waker));
        self.nr_tasks.store(tasks.waiting.len(), Ordering::Relaxed);
        before
    }

    /// Takes the waker back, to be dropped with no lock held.
    pub(crate) fn take_waker(&self, seat: &TaskSeat) -> Option<Foreign<Waker>> {
        let mut tasks = self.tasks.lock();
        let waker = tasks.take(seat);
        self.nr_tasks.store(tasks.waiting.len(), Ordering::Relaxed);
        waker
    }
}

impl Tasks {
    fn take(&mut self, seat: &TaskSeat) -> Option<Foreign<Waker>> {
        let at = self
            .waiting
            .iter()
            .position(|(number, _)| *number == seat.0)?;
        Some(self.waiting.swap_remove(at).1)
    }
}

impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settled")
            .field("threads", &self.threads)
            .field("nr_tasks", &self.nr_tasks.load(Ordering::Relaxed))
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
        task::Wake,
    };

    use super::*;

    #[derive(Default)]
    struct Flag(AtomicBool);

    impl Wake for Flag {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_thread_that_runs_no_code_of_users_leaves_tasks_to_others() {
        let flag = Arc::<Flag>::default();
        let is_woken = || flag.0.load(Ordering::Relaxed);
        let settled = Settled::default();
        let seat = settled.task_seat();
        let waker = Foreign::new(Waker::from(flag.clone()));
        assert!(settled.leave_waker(&seat, waker).is_none());
        assert!(errands::put_wakers_aside(true).is_empty());
        settled.notify_all();
        assert!(!is_woken());
        let aside = errands::wakers_put_aside();
        assert_eq!(
            (aside.len(), errands::put_wakers_aside(false).len()),
            (1, 0)
        );
        for waker in aside {
            waker.into_inner().wake();
        }
        assert!(is_woken());
    }
}
