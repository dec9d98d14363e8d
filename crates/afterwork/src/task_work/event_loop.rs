//! An owner that sleeps in its own event loop: epoll, io_uring or any other that can wait for an eventfd.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use super::bell::Sleep;
use super::mailbox::{Mailbox, PrepareSleep};

impl<T> Mailbox<T> {
    /// Returns the eventfd that is rung while the owner is armed; makes it the first time.
    ///
    /// Register it once, for reading, edge-triggered if the loop offers that. It is rung at most once for each
    /// [`arm`](Self::arm), and never while the owner is awake.
    ///
    /// # Errors
    ///
    /// What the system says, such as that there are too many open files.
    pub fn eventfd(&self) -> io::Result<BorrowedFd<'_>> {
        self.shared().owner.bell.eventfd().map(AsFd::as_fd)
    }

    /// Gets ready to sleep until `count` items are there, or one that was posted to wake the owner; 0 counts as 1.
    ///
    /// `true`: the loop may sleep; the eventfd will be rung. `false`: it must not, for there is something to receive
    /// (or nothing will come any more, or a poster is in mid-push: look, and arm again).
    ///
    /// When the loop wakes, for whatever reason, call [`disarm`](Self::disarm) before anything else.
    ///
    /// # Blocking
    ///
    /// Never.
    ///
    /// # Errors
    ///
    /// As [`eventfd`](Self::eventfd).
    pub fn arm(&mut self, count: usize) -> io::Result<bool> {
        self.shared().owner.bell.eventfd()?;
        Ok(self.prepare_sleep(count, Sleep::EventFd) == PrepareSleep::Sleep)
    }

    /// Ends what [`arm`](Self::arm) began; returns `true` if the bell was rung for it.
    ///
    /// # Blocking
    ///
    /// Never: a locked instruction. The eventfd is not read: an edge-triggered loop need not, another calls
    /// [`clear`](Self::clear).
    pub fn disarm(&mut self) -> bool {
        !self.get_up()
    }

    /// Makes the eventfd unreadable again, for a loop that is told as long as it is readable.
    ///
    /// A poster may have claimed the wake-up and ring only after this: then the loop wakes once more, for nothing.
    ///
    /// # Blocking
    ///
    /// Never; a system call.
    pub fn clear(&mut self) {
        if let Ok(eventfd) = self.shared().owner.bell.eventfd() {
            eventfd.clear();
        }
    }
}
