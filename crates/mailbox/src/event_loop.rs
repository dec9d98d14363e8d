//! Owners that sleep in their own event loop, which can wait for an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::mailbox::{Mailbox, PrepareSleep};
use super::owner_waker::Sleep;

impl<T> Mailbox<T> {
    /// Returns the eventfd that wakes the owner. The first call creates it.
    ///
    /// A program that closes descriptors that it did not open itself must do so before it calls
    /// this. Otherwise posts print a message to stderr and do not wake the owner.
    ///
    /// Register it once, for reading, and edge-triggered if the loop supports that. Each call to
    /// [`arm`](Self::arm) causes at most one signal on the eventfd.
    ///
    /// # Errors
    ///
    /// Returns the system's error if it cannot create an eventfd. Returns
    /// [`NotFound`](io::ErrorKind::NotFound) if the program has closed it.
    pub fn eventfd(&self) -> io::Result<BorrowedFd<'_>> {
        let eventfd = self.shared.owner.owner_waker.eventfd()?;
        if eventfd.is_lost() {
            let closed = "the program has closed the mailbox's eventfd";
            return Err(io::Error::new(io::ErrorKind::NotFound, closed));
        }
        Ok(eventfd.as_fd())
    }

    /// Prepares a sleep until the mailbox contains `count` items (at least 1) or an eager one.
    ///
    /// Returns `true` if the loop may sleep, because the eventfd will be signaled. Otherwise there
    /// is an item to receive, no more items will arrive, or a poster is in the middle of its post:
    /// receive and arm again. A loop that also waits for other events must keep a poster.
    ///
    /// When the loop wakes, for any reason, call [`disarm`](Self::disarm) first.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// Returns the system's error if there is no eventfd yet and it cannot be created.
    pub fn arm(&mut self, count: usize) -> io::Result<bool> {
        self.shared.owner.owner_waker.eventfd()?;
        Ok(self.prepare_sleep(count, Sleep::EventFd) == PrepareSleep::Sleep)
    }

    /// Ends the preparation of [`arm`](Self::arm). Returns `true` if a poster has claimed the
    /// wake-up. Level-triggered loops then call [`clear`](Self::clear).
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one locked instruction.
    pub fn disarm(&mut self) -> bool {
        !self.cancel_sleep()
    }

    /// Makes the eventfd unreadable again, for a level-triggered loop. A poster that has claimed
    /// the wake-up may signal it after this call, so that the loop wakes once more.
    ///
    /// # Blocking
    ///
    /// Never blocks. Makes two system calls.
    pub fn clear(&mut self) {
        if let Ok(eventfd) = self.shared.owner.owner_waker.eventfd() {
            eventfd.clear();
        }
    }
}
