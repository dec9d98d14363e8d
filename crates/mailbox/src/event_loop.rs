//! Owners that sleep in their own event loop: epoll, io_uring or any other that can wait for an
//! eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::mailbox::{Mailbox, PrepareSleep};
use super::owner_waker::Sleep;

impl<T> Mailbox<T> {
    /// Returns the eventfd that wakes the owner. The first call creates it. Never blocks.
    ///
    /// A program that closes descriptors that it did not open itself, as some daemons do, must do
    /// so before it calls this. After the program has closed the eventfd, posts print a message to
    /// stderr and do not wake the owner. They do not access a file that reuses its number.
    ///
    /// Register it once, for reading, and edge-triggered if the loop supports that. Each call to
    /// [`arm`](Self::arm) causes at most one signal on the eventfd. While the owner is not armed,
    /// there are no signals.
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
    /// Returns `true` if the loop may sleep, because the eventfd will be signaled. Returns `false`
    /// if it must not sleep, because there is an item to receive, no more items will arrive, or a
    /// poster is in the middle of its post: receive and arm again. Without a poster, no more items
    /// will arrive, so a loop that also waits for other events must keep a poster. Otherwise it
    /// never sleeps.
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
    /// wake-up. An edge-triggered loop need not read the eventfd; other loops then call
    /// [`clear`](Self::clear).
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one locked instruction.
    pub fn disarm(&mut self) -> bool {
        !self.cancel_sleep()
    }

    /// Makes the eventfd unreadable again, as a level-triggered loop needs. A poster that has
    /// claimed the wake-up may signal the eventfd after this call. The loop then wakes once more,
    /// with nothing to receive.
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
