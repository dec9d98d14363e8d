//! A counter in the kernel that an event loop can wait for beside its sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, read, write};

use crate::fault;

/// An eventfd: readable from a ring until it is cleared.
///
/// Non-blocking and closed on exec. Absent from the models.
#[derive(Debug)]
pub struct EventFd(OwnedFd);

impl EventFd {
    /// Makes an eventfd that has not been rung.
    ///
    /// # Errors
    ///
    /// The system's error, for example if too many files are open.
    pub fn new() -> io::Result<Self> {
        fault::check(fault::Point::Eventfd, libc::EMFILE)?;
        Ok(Self(eventfd(
            0,
            EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC,
        )?))
    }

    /// Makes it readable, and wakes threads that wait for that.
    ///
    /// # Blocking
    ///
    /// Never blocks. Makes one system call.
    pub fn ring(&self) {
        match write(&self.0, &1_u64.to_ne_bytes()) {
            // Full: 2^64 - 2 rings since it was cleared. It is readable, as it should be.
            Ok(_) | Err(Errno::AGAIN) => {}
            Err(error) => unreachable!("an eventfd that is ours refused a ring: {error}"),
        }
    }

    /// Makes it unreadable again. Returns `true` if it had been rung.
    ///
    /// # Blocking
    ///
    /// Never blocks. Makes one system call.
    pub fn clear(&self) -> bool {
        let mut count = [0; 8];
        read(&self.0, &mut count).is_ok()
    }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_pile_up_into_one() {
        let bell = EventFd::new().unwrap();
        assert!(!bell.clear());
        bell.ring();
        bell.ring();
        assert!(bell.clear());
        assert!(!bell.clear());
    }
}
