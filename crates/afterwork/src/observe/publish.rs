//! Showing the process's counters to other processes.

use std::{io, path::PathBuf};

use crate::page::publisher;

/// Shows this process to `afterwork top` from now on. Returns the path of the file that `top` reads.
///
/// `AFTERWORK=observe.publish=on` in the environment does the same, when the first registry, named mailbox or per-CPU data is
/// made, or RCU is first used.
///
/// # Guarantees
///
/// The file is `/dev/shm/afterwork-PID`, for this user alone; or `afterwork-PID.1` and so on, where a process of that
/// number lives in another container which shares the directory. It is removed by [`unpublish`] and when the process ends by
/// `exit` or from `main`; what a killed process leaves behind is known by number and start time, and removed by the next one that calls this. Costs a thread that
/// sleeps, and 2 MiB of address space for its stack; nothing else until somebody looks. A look costs what
/// [`snapshot`](super::snapshot) does, on that thread. Whatever is done to the file, the process is none the worse.
/// Calling it again changes nothing. A child of `fork` is not shown until it calls this itself.
///
/// # Blocking
///
/// Takes the lock of each queue's plan and of each pool for a moment. Not from a signal handler.
///
/// # Errors
///
/// What the system says: there is no `/dev/shm`, 16 such files are there and somebody else's, the process may not write
/// files (`ulimit -f`; no signal is raised), a thread is refused.
///
/// # Examples
///
/// ```
/// use afterwork::observe;
///
/// let path = observe::publish()?;
/// println!("afterwork top {}", std::process::id());
/// # let bytes = std::fs::read(&path)?;
/// # let page = afterwork::page::Page::read(&bytes).unwrap();
/// # assert_eq!(page.pid, std::process::id());
/// assert!(observe::unpublish());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn publish() -> io::Result<PathBuf> {
    publisher::publish()
}

/// Hides this process again; returns `true` if it was shown.
///
/// # Blocking
///
/// Until the thread has ended, for the time of one look at most.
pub fn unpublish() -> bool {
    publisher::unpublish()
}
