//! Lets an owner sleep in an io_uring ring, with a single wait for both completions and posts.
//!
//! The ring polls the mailbox's eventfd with one *multishot* request, so going to sleep costs no
//! submission entry:
//!
//! ```text
//! once:      submit poll_entry(&mailbox, BELL)
//! each turn: reap completions; receive posts
//!            if mailbox.arm(n)?  { submit_and_wait(1) }  otherwise  { submit }
//!            mailbox.disarm()
//!            a completion of BELL without `more`: submit poll_entry again
//! ```
//!
//! `arm` returns `false` while there is an item to receive. Once the mailbox is closed, or the last
//! poster was dropped, it always returns `false`, and `try_recv` returns `Closed`. A loop that
//! keeps running for its other completions must then stop arming.
//!
//! The eventfd is signaled at most once per arming and never read, because a multishot poll
//! completes for each signal. There are two other ways to wake a sleeping ring, with the same
//! latency. A message from the poster's own ring costs the poster more, and needs a ring for each
//! poster. A futex wait costs an entry for each sleep.

use std::io;
use std::os::fd::AsRawFd;

use io_uring::{cqueue, opcode, squeue, types};

use super::Mailbox;

/// `POLLIN` of poll(2): readable.
const POLLIN: u32 = 0x001;

/// Creates the request that completes with `user_data` whenever the mailbox's eventfd is signaled.
/// Submit it to the owner's ring once, and again each time it has [`ended`].
///
/// # Errors
///
/// Returns the same errors as [`Mailbox::eventfd`].
pub fn poll_entry<T>(mailbox: &Mailbox<T>, user_data: u64) -> io::Result<squeue::Entry> {
    let fd = types::Fd(mailbox.eventfd()?.as_raw_fd());
    Ok(opcode::PollAdd::new(fd, POLLIN).multi(true).build().user_data(user_data))
}

/// Returns `true` if the request of this completion is over and must be submitted again. The kernel
/// ends a multishot request if the completion queue is full, or if the eventfd is closed.
pub fn ended(completion: &cqueue::Entry) -> bool {
    !cqueue::more(completion.flags())
}

#[cfg(test)]
mod tests {
    use io_uring::IoUring;

    use super::*;
    use crate::TryRecvError;

    const BELL: u64 = 7;

    #[test]
    fn arming_after_the_last_poster_reports_the_end() {
        let mut mailbox = Mailbox::<u8>::new();
        let poster = mailbox.poster();
        assert!(mailbox.arm(1).unwrap());
        drop(poster);
        assert!(mailbox.disarm(), "the end notifies");
        for _ in 0..2 {
            assert!(!mailbox.arm(1).unwrap());
            assert_eq!(mailbox.try_recv(), Err(TryRecvError::Closed));
        }
    }

    #[test]
    fn each_arming_completes_once_though_the_eventfd_is_never_read() {
        let mut mailbox = Mailbox::new();
        let poster = mailbox.poster();
        let mut ring: IoUring = IoUring::new(8).unwrap();
        let entry = poll_entry(&mailbox, BELL).unwrap();
        // SAFETY: the entry refers to an eventfd and to no memory. The ring is dropped before the
        // mailbox, which owns the eventfd.
        unsafe { ring.submission().push(&entry).unwrap() };
        ring.submit().unwrap();
        for round in 0..3 {
            assert!(mailbox.arm(2).unwrap());
            poster.post_lazy(round).unwrap();
            assert_eq!(ring.completion().count(), 0);
            poster.post_lazy(round).unwrap();
            poster.post(round).unwrap();
            ring.submit_and_wait(1).unwrap();
            let completions: Vec<_> = ring.completion().collect();
            assert_eq!(completions.len(), 1);
            assert_eq!(completions[0].user_data(), BELL);
            assert!(!ended(&completions[0]));
            assert!(mailbox.disarm());
            assert_eq!(mailbox.drain(9).count(), 3);
        }
        drop(ring);
    }
}
