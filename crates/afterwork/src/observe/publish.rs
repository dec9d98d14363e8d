//! Showing the process's counters to other processes.

use std::{io, path::PathBuf};

use base::internal::page::publisher;

/// Shows this process to `afterwork top` from now on. Returns the path of the file that `top` reads.
///
/// `AFTERWORK=observe.publish=on` in the environment does the same, when the first registry, named mailbox or per-CPU data is
/// made, or RCU is first used.
///
/// # Guarantees
///
/// - The file is `/dev/shm/afterwork-PID`, which only this user may read. If a process with the same number lives in another
///   container that shares the directory, it is `afterwork-PID.1`, and so on.
/// - The file is removed by [`unpublish`], and when the process calls `exit` or returns from `main`. A file that a killed
///   process has left behind is removed by the next process that calls this.
/// - Costs a thread that sleeps, with 2 MiB of address space for its stack. A question of a reader costs what
///   [`snapshot`](super::snapshot) does, on that thread.
/// - No change of the file can harm the process.
/// - A second call changes nothing. A child of `fork` is not shown until it calls this itself.
///
/// # Blocking
///
/// Takes the lock of each queue's plan and of each pool for a moment. Not from a signal handler.
///
/// # Errors
///
/// If there is no `/dev/shm`, if all 16 names are in use, if the process may not write files (`ulimit -f`; no signal is
/// raised), or if the system refuses a thread.
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

/// Hides this process again. Returns `true` if it was shown.
///
/// # Blocking
///
/// Until the thread has ended: at most as long as it takes to answer one question.
pub fn unpublish() -> bool {
    publisher::unpublish()
}
