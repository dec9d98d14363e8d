//! Requests that hold a lock while they wait for part of their own work. The first request acquires
//! the lock, splits its work in two, and waits for the second half, which another thread runs. If a
//! waiter runs other work, it may run a later request, which waits for the lock that the same
//! thread holds.

use std::sync::{Arc, Barrier, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use afterwork::workqueue::Workqueue;
use top::exit::Stop;

use crate::bench::workqueue::peers::{Peer, Rayon};

pub const REQUESTS: usize = 8;
/// The time after which requests that have not ended count as deadlocked. Without a deadlock, they
/// take tens of milliseconds.
pub const PATIENCE: Duration = Duration::from_secs(2);
const HALF: Duration = Duration::from_millis(20);
/// The number of threads of a pool: one for the second half, and one for the request that waits for
/// it.
const THREADS: usize = 2;

pub trait Splits: Clone + Send + 'static {
    fn submit(&self, request: impl FnOnce() + Send + 'static);

    /// Runs both halves, the second one on another thread, and waits for both.
    fn both(&self, first: impl FnOnce() + Send, second: impl FnOnce() + Send + 'static);
}

impl Splits for Workqueue {
    fn submit(&self, request: impl FnOnce() + Send + 'static) {
        assert!(self.spawn_detached(request).is_ok());
    }

    fn both(&self, first: impl FnOnce() + Send, second: impl FnOnce() + Send + 'static) {
        let second = self.spawn(second);
        first();
        second.join().expect("the second half does not panic");
    }
}

impl Splits for &'static rayon::ThreadPool {
    fn submit(&self, request: impl FnOnce() + Send + 'static) {
        self.spawn(request);
    }

    fn both(&self, first: impl FnOnce() + Send, second: impl FnOnce() + Send + 'static) {
        self.join(first, second);
    }
}

/// Starts a pool that is never dropped, because a deadlocked thread does not exit.
pub fn theirs() -> Result<&'static rayon::ThreadPool, Stop> {
    Ok(Box::leak(Box::new(Rayon::start(THREADS)?.0)))
}

pub fn ours() -> Result<Workqueue, Stop> {
    let queue = Workqueue::builder("locked").max_active(THREADS as u32).build();
    queue.map_err(Stop::because("cannot build our workqueue"))
}

/// Runs the requests, and returns the time until the last one ended. Returns `None` if they
/// deadlock.
pub fn run(pool: &impl Splits) -> Option<Duration> {
    let begun = Instant::now();
    let lock: Arc<Mutex<u64>> = Arc::default();
    // The first barrier is for both halves and the thread that sends the requests.
    let (is_split, are_sent) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(2)));
    let (end, ends) = mpsc::channel();
    {
        let (lock, end, pool_) = (Arc::clone(&lock), end.clone(), pool.clone());
        let (split, sent) = (Arc::clone(&is_split), Arc::clone(&are_sent));
        pool.submit(move || {
            let mut count = lock.lock().unwrap_or_else(PoisonError::into_inner);
            let here = Arc::clone(&split);
            let second = move || {
                split.wait();
                sent.wait();
                thread::sleep(HALF);
            };
            pool_.both(|| _ = here.wait(), second);
            *count += 1;
            drop(count);
            _ = end.send(());
        });
    }
    is_split.wait();
    for _ in 1..REQUESTS {
        let (lock, end) = (Arc::clone(&lock), end.clone());
        pool.submit(move || {
            *lock.lock().unwrap_or_else(PoisonError::into_inner) += 1;
            _ = end.send(());
        });
    }
    are_sent.wait();
    for _ in 0..REQUESTS {
        ends.recv_timeout(PATIENCE).ok()?;
    }
    Some(begun.elapsed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_ends_and_rayon_deadlocks() {
        assert!(run(&ours().unwrap()).is_some());
        assert!(run(&theirs().unwrap()).is_none());
    }
}
