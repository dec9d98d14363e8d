//! A kernel counter that an event loop can wait for together with its sockets.
//!
//! A program that becomes a daemon may close all descriptors that it did not open itself, and reuse
//! their numbers for its own files. Each eventfd therefore has a tag, which every use of the number
//! compares first. The tag is a signal number that the kernel stores with an open file (`F_SETSIG`)
//! and that has no effect without `O_ASYNC`. Other files have the value 0.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU32, Ordering};

use super::checked;
use crate::fault;

/// The number of different tags, which are the real-time signals from 33 on.
const NR_TAGS: u32 = 32;

/// An eventfd, which is readable from the first wake until it is cleared. It does not exist in
/// models. If the program closes the descriptor, the eventfd is *lost*: it does not affect a file
/// that reuses the number.
#[derive(Debug)]
pub struct EventFd {
    fd: ManuallyDrop<OwnedFd>,
    /// The value that the kernel returned as its tag.
    tag: libc::c_int,
}

impl EventFd {
    /// Creates an eventfd that is not readable.
    ///
    /// # Errors
    ///
    /// Returns the system's error, for example if too many files are open.
    pub fn new() -> io::Result<Self> {
        static NR_MADE: AtomicU32 = AtomicU32::new(0);
        fault::check(fault::Point::Eventfd, libc::EMFILE)?;
        // SAFETY: the call accesses no memory of the process.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        checked(fd)?;
        // SAFETY: the call opened the descriptor, and no other thread uses it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let tag = 33 + NR_MADE.fetch_add(1, Ordering::Relaxed) % NR_TAGS;
        // Miri does not support tags.
        if !cfg!(miri) {
            // SAFETY: the call takes three numbers.
            unsafe { libc::fcntl(fd.as_raw_fd(), F_SETSIG, tag as libc::c_int) };
        }
        // On a system without tags, this is the same value for each file.
        let tag = tag_of(&fd);
        Ok(Self { fd: ManuallyDrop::new(fd), tag })
    }

    /// Returns `true` if the program has closed the descriptor. Makes one system call.
    pub fn is_lost(&self) -> bool {
        tag_of(&self.fd) != self.tag
    }

    /// Makes the eventfd readable, and wakes its waiters. Returns `false` if it is lost. Like
    /// [`clear`](Self::clear), makes two system calls and never blocks.
    pub fn wake(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        let one = 1_u64;
        // If the call fails, the count is at its maximum of 2^64 - 2, so the eventfd is readable,
        // as required; or another thread has just closed it.
        // SAFETY: the call reads `one`, which outlives it.
        unsafe { libc::write(self.fd.as_raw_fd(), (&raw const one).cast(), 8) };
        true
    }

    /// Makes the eventfd unreadable again. Returns `true` if it was readable. Never blocks.
    pub fn clear(&self) -> bool {
        if self.is_lost() {
            return false;
        }
        let mut count = 0_u64;
        // SAFETY: the call writes the number, which outlives it.
        unsafe { libc::read(self.fd.as_raw_fd(), (&raw mut count).cast(), 8) >= 0 }
    }
}

impl Drop for EventFd {
    fn drop(&mut self) {
        if !self.is_lost() {
            // SAFETY: the field is dropped only here, once.
            unsafe { ManuallyDrop::drop(&mut self.fd) };
        }
    }
}

/// These constants have the same values on all architectures of Linux.
const F_SETSIG: libc::c_int = 10;
const F_GETSIG: libc::c_int = 11;

/// Returns the tag of the file to which the descriptor refers, or -1.
fn tag_of(fd: &OwnedFd) -> libc::c_int {
    if cfg!(miri) {
        return 0;
    }
    // SAFETY: the call takes two numbers.
    unsafe { libc::fcntl(fd.as_raw_fd(), F_GETSIG) }
}

impl AsFd for EventFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for EventFd {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_notifications_are_read_as_one() {
        let eventfd = EventFd::new().unwrap();
        assert!(!eventfd.clear());
        assert_eq!([eventfd.wake(), eventfd.wake()], [true, true]);
        assert_eq!([eventfd.clear(), eventfd.clear()], [true, false]);
    }

    /// Replaces the eventfd with `file`, as if the program closed the one and opened the other.
    fn replace(eventfd: &EventFd, file: &impl AsRawFd) {
        // SAFETY: the call takes two numbers; from here on, the eventfd's number refers to `file`.
        assert!(unsafe { libc::dup2(file.as_raw_fd(), eventfd.as_raw_fd()) } >= 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "no tags")]
    fn a_file_with_the_number_of_a_lost_eventfd_is_not_touched() {
        use std::io::{Read, Write};
        let eventfd = EventFd::new().unwrap();
        let other = EventFd::new().unwrap();
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        replace(&eventfd, &reader);
        writer.write_all(&[7; 8]).unwrap();
        assert!(eventfd.is_lost());
        assert_eq!([eventfd.wake(), eventfd.clear()], [false, false]);
        let mut bytes = [0; 8];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, [7; 8]);
        // Another eventfd reuses the number.
        replace(&eventfd, &other);
        assert_eq!([eventfd.wake(), other.clear()], [false, false]);
        let number = eventfd.as_raw_fd();
        drop(eventfd);
        // SAFETY: the call takes a number; the file that had replaced the eventfd is closed once.
        unsafe {
            assert!(libc::fcntl(number, libc::F_GETFD) >= 0, "closed");
            libc::close(number);
        }
        assert_eq!([other.wake(), other.clear()], [true, true]);
        // SAFETY: the call takes a number; the eventfd is lost from here on.
        unsafe { libc::close(other.as_raw_fd()) };
        assert!(!other.wake());
    }
}
