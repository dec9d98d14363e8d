//! A counter in the kernel that an event loop can wait for beside its sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

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
        // SAFETY: touches no memory of ours.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a descriptor that the call has opened, and nobody else has.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Makes it readable, and wakes threads that wait for that.
    ///
    /// # Blocking
    ///
    /// Never blocks. Makes one system call.
    pub fn ring(&self) {
        let one = 1_u64;
        // SAFETY: the call reads the number, which outlives it.
        let nr_written = unsafe { libc::write(self.0.as_raw_fd(), (&raw const one).cast(), 8) };
        if nr_written < 0 {
            let error = io::Error::last_os_error();
            // Full: 2^64 - 2 rings since it was cleared. It is readable, as it should be.
            if error.kind() != io::ErrorKind::WouldBlock {
                unreachable!("an eventfd that is ours refused a ring: {error}");
            }
        }
    }

    /// Makes it unreadable again. Returns `true` if it had been rung.
    ///
    /// # Blocking
    ///
    /// Never blocks. Makes one system call.
    pub fn clear(&self) -> bool {
        let mut count = 0_u64;
        // SAFETY: the call writes the number, which outlives it.
        unsafe { libc::read(self.0.as_raw_fd(), (&raw mut count).cast(), 8) >= 0 }
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
