//! Stands for `std::sync::mpsc`: a list under a lock, and a word to sleep on that changes with each step.

use std::collections::VecDeque;
use std::sync::Arc;
pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError};
use std::time::Duration;

use crate::Mutex;
use crate::atomic::{AtomicU32, Ordering::Relaxed};
use crate::sim::{clock_ns, futex};

struct Shared<T> {
    state: Mutex<State<T>>,
    steps: AtomicU32,
}

struct State<T> {
    items: VecDeque<T>,
    nr_senders: usize,
    has_receiver: bool,
}

/// The sending half.
pub struct Sender<T>(Arc<Shared<T>>);

/// The receiving half.
pub struct Receiver<T>(Arc<Shared<T>>);

/// Makes a channel.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let state = State {
        items: VecDeque::new(),
        nr_senders: 1,
        has_receiver: true,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        steps: AtomicU32::new(0),
    });
    (Sender(shared.clone()), Receiver(shared))
}

impl<T> Shared<T> {
    fn step(&self) {
        // The lock has ordered it.
        self.steps.fetch_add(1, Relaxed);
        futex::wake(self.steps.as_ptr(), u32::MAX);
    }
}

impl<T> Sender<T> {
    /// Sends a value.
    ///
    /// # Errors
    ///
    /// If there is no receiver.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        {
            let mut state = self.0.state.lock();
            if !state.has_receiver {
                return Err(SendError(value));
            }
            state.items.push_back(value);
        }
        self.0.step();
        Ok(())
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().nr_senders += 1;
        Self(self.0.clone())
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.state.lock().nr_senders -= 1;
        self.0.step();
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let items = {
            let mut state = self.0.state.lock();
            state.has_receiver = false;
            std::mem::take(&mut state.items)
        };
        drop(items);
    }
}

impl<T> Receiver<T> {
    /// Returns a value that is there.
    ///
    /// # Errors
    ///
    /// If there is none, or no sender.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut state = self.0.state.lock();
        match state.items.pop_front() {
            Some(value) => Ok(value),
            None if state.nr_senders == 0 => Err(TryRecvError::Disconnected),
            None => Err(TryRecvError::Empty),
        }
    }

    /// Waits for a value.
    ///
    /// # Errors
    ///
    /// If all senders have gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        loop {
            let steps = self.0.steps.load(Relaxed);
            match self.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Disconnected) => return Err(RecvError),
                Err(TryRecvError::Empty) => futex::wait(self.0.steps.as_ptr(), steps, None),
            }
        }
    }

    /// Waits for a value, so long at most.
    ///
    /// # Errors
    ///
    /// If all senders have gone, or in time none came.
    pub fn recv_timeout(&self, span: Duration) -> Result<T, RecvTimeoutError> {
        let now = || clock_ns(false).unwrap_or(u64::MAX);
        let end = now().saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        loop {
            let steps = self.0.steps.load(Relaxed);
            match self.try_recv() {
                Ok(value) => return Ok(value),
                Err(TryRecvError::Disconnected) => return Err(RecvTimeoutError::Disconnected),
                Err(TryRecvError::Empty) => {}
            }
            let left = end.saturating_sub(now());
            if left == 0 {
                return Err(RecvTimeoutError::Timeout);
            }
            futex::wait(
                self.0.steps.as_ptr(),
                steps,
                Some(Duration::from_nanos(left)),
            );
        }
    }

    /// Returns the values until all senders have gone.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.recv().ok())
    }

    /// Returns the values that are there.
    pub fn try_iter(&self) -> impl Iterator<Item = T> + '_ {
        std::iter::from_fn(|| self.try_recv().ok())
    }
}

/// Of a receiver.
pub struct IntoIter<T>(Receiver<T>);

impl<T> Iterator for IntoIter<T> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;
    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> std::fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Receiver")
    }
}
