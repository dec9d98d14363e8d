//! Owners that sleep in an event loop of their own: epoll, io_uring or any other that can wait for an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::bell::Sleep;
use super::mailbox::{Mailbox, PrepareSleep};

impl<T> Mailbox<T> {
    /// Returns the eventfd that wakes the owner. The first call makes it.
    ///
    /// A program that closes descriptors it does not know, as some daemons do, must do so before it
    /// calls this. Once the program has closed the eventfd, posts do not touch the file that then
    /// has the same number. They write a line to stderr and wake no owner.
    ///
    /// Register it once, for reading, edge-triggered if the loop offers that. Each call of [`arm`](Self::arm) causes at most
    /// one ring. While the owner is not armed, nothing rings.
    ///
    /// # Errors
    ///
    /// The system's error if it cannot create an eventfd. [`NotFound`](io::ErrorKind::NotFound) if
    /// the program has closed it.
    pub fn eventfd(&self) -> io::Result<BorrowedFd<'_>> {
        let eventfd = self.shared().owner.bell.eventfd()?;
        if eventfd.is_lost() {
            let closed = "the program has closed the mailbox's eventfd";
            return Err(io::Error::new(io::ErrorKind::NotFound, closed));
        }
        Ok(eventfd.as_fd())
    }

    /// Prepares a sleep until `count` items are inside, or an eager one. A `count` of 0 counts as 1.
    ///
    /// Returns `true` if the loop may sleep: the eventfd will be rung. Returns `false` if it must not sleep: there is
    /// something to receive, or nothing will come any more, or a poster is in the middle of its post. Then receive, and arm
    /// again. Where there is no poster nothing will come: a loop that waits for other things, too, keeps one, or it never sleeps.
    ///
    /// When the loop wakes, for any reason, call [`disarm`](Self::disarm) first.
    ///
    /// # Blocking
    ///
    /// Never blocks.
    ///
    /// # Errors
    ///
    /// The system's error if there is no eventfd yet and it cannot be created.
    pub fn arm(&mut self, count: usize) -> io::Result<bool> {
        self.shared().owner.bell.eventfd()?;
        Ok(self.prepare_sleep(count, Sleep::EventFd) == PrepareSleep::Sleep)
    }

    /// Ends what [`arm`](Self::arm) began. Returns `true` if a poster has claimed the wake-up.
    ///
    /// Does not read the eventfd. An edge-triggered loop needs no read; any other calls [`clear`](Self::clear).
    ///
    /// # Blocking
    ///
    /// Never blocks. Costs one locked instruction.
    pub fn disarm(&mut self) -> bool {
        !self.cancel_sleep()
    }

    /// Makes the eventfd unreadable again. For a level-triggered loop.
    ///
    /// A poster that has claimed the wake-up may ring after this. Then the loop wakes once more, with nothing to receive.
    ///
    /// # Blocking
    ///
    /// Never blocks. Makes two system calls.
    pub fn clear(&mut self) {
        if let Ok(eventfd) = self.shared().owner.bell.eventfd() {
            eventfd.clear();
        }
    }
}
