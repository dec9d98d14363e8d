//! The owner waker, which wakes the owner in the way that its sleep requires.

use std::task::Waker;

use base::internal::panics;
use base::internal::wake::Unparker;
use sync::atomic::{AtomicU8, Ordering};
use sync::fork::Process;
use sync::{Mutex, MutexGuard};
#[cfg(not(any(loom, shuttle)))]
use sync::{OnceLock, eventfd::EventFd, process};

/// The message for an owner that cannot be woken.
#[cfg(not(any(loom, shuttle)))]
const LOST: &str =
    "the program has closed the eventfd of a mailbox, so a post does not wake its owner";

/// The ways to sleep.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sleep<'a> {
    /// The owner sleeps in [`Parker::park`](base::wake::Parker::park).
    Thread,
    /// The owner is an async task with this waker.
    Task(&'a Waker),
    /// The owner sleeps in an event loop, which polls the eventfd.
    #[cfg(not(any(loom, shuttle)))]
    EventFd,
}

// [`Sleep`] as a byte.
const THREAD: u8 = 0;
const TASK: u8 = 1;
#[cfg(not(any(loom, shuttle)))]
const EVENTFD: u8 = 2;

/// The waker of the owner, fired by the poster that has claimed the wake-up. Each way of waking
/// leaves a token that also ends a later sleep.
pub(super) struct OwnerWaker {
    /// A: the way in which the owner sleeps. Written before it arms.
    kind: AtomicU8,
    thread: Unparker,
    /// The waker of the owner's task; removed by the poster that wakes the owner.
    task: Mutex<Option<Waker>>,
    /// I: in a child of `fork`, a thread that does not exist may hold the lock of `task`.
    process: Process,
    /// Created when the owner first requests it.
    #[cfg(not(any(loom, shuttle)))]
    eventfd: OnceLock<EventFd>,
}

impl OwnerWaker {
    pub(super) fn new(thread: Unparker) -> Self {
        Self {
            kind: AtomicU8::new(THREAD),
            thread,
            task: Mutex::new(None),
            process: Process::this(),
            #[cfg(not(any(loom, shuttle)))]
            eventfd: OnceLock::new(),
        }
    }

    /// Sets the way in which the owner is about to sleep. The owner must arm next.
    pub(super) fn set_sleep(&self, sleep: Sleep<'_>) {
        let kind = match sleep {
            Sleep::Thread => THREAD,
            Sleep::Task(waker) => {
                self.set_task(waker);
                TASK
            }
            #[cfg(not(any(loom, shuttle)))]
            Sleep::EventFd => EVENTFD,
        };
        // ORDER(owner-waker): published by the arming that follows; see `Wait::arm`.
        self.kind.store(kind, Ordering::Relaxed);
    }

    fn set_task(&self, waker: &Waker) {
        // FOREIGN(owner-waker-clone): an executor's waker, on the owner, to which a panic
        // propagates before any change.
        let ours = waker.clone();
        let Some(mut task) = self.task() else {
            // FOREIGN(owner-waker-clone): as above. The executor polls the owner again.
            return ours.wake();
        };
        let is_known = task.as_ref().is_some_and(|known| known.will_wake(&ours));
        let old = if is_known { Some(ours) } else { task.replace(ours) };
        drop(task);
        drop_contained(old);
    }

    /// Locks the task to wake. In a child of `fork`, returns `None` if another thread of the parent
    /// held the lock.
    fn task(&self) -> Option<MutexGuard<'_, Option<Waker>>> {
        if self.process.is_this() {
            return Some(self.task.lock());
        }
        self.task.try_lock()
    }

    #[cfg(not(any(loom, shuttle)))]
    pub(super) fn eventfd(&self) -> std::io::Result<&EventFd> {
        if self.eventfd.get().is_none() {
            // Only the owner calls this.
            let _ = self.eventfd.set(EventFd::new()?);
        }
        Ok(self.eventfd.get().expect("set just now"))
    }

    /// Wakes the owner, or leaves a token if it has disarmed since the caller claimed the wake-up.
    #[cold]
    pub(super) fn wake(&self) {
        // ORDER(owner-waker): acquired by the claim that came before; see `Wait::claim`.
        let kind = self.kind.load(Ordering::Relaxed);
        if kind == THREAD {
            return self.thread.unpark();
        }
        #[cfg(not(any(loom, shuttle)))]
        if kind == EVENTFD {
            let eventfd = self.eventfd.get().expect("created before the owner armed");
            if !eventfd.wake() {
                process::write_line(LOST);
            }
            return;
        }
        let waker = self.task().and_then(|mut task| task.take());
        if let Some(waker) = waker {
            // FOREIGN(owner-waker-wake): an executor's waker, on the poster, after its push. A
            // panic is caught.
            panics::contain(|| waker.wake());
        }
    }
}

// Wakers of a model do not panic.
#[cfg(not(any(loom, shuttle)))]
impl Drop for OwnerWaker {
    fn drop(&mut self) {
        let waker = self.task().and_then(|mut task| task.take());
        drop_contained(waker);
    }
}

fn drop_contained(waker: Option<Waker>) {
    if waker.is_some() {
        // FOREIGN(owner-waker-drop): an executor's waker, on the owner or on the last poster. A
        // panic is caught.
        panics::contain(|| drop(waker));
    }
}
