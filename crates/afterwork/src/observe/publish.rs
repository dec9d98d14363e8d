//! Publishes the counters of the process to other processes.

use std::io;
use std::path::PathBuf;

use base::internal::page::publisher;

/// Makes this process visible to `afterwork top`. Returns the path of the file that `top` reads.
///
/// `AFTERWORK=observe.publish=on` in the environment has the same effect when the process creates
/// the first registry, named mailbox or per-CPU data, or first uses RCU.
///
/// # Guarantees
///
/// - The file is `/dev/shm/afterwork-PID`, which only this user may read. If a process with the
///   same PID runs in another container that shares the directory, the file is `afterwork-PID.1` or
///   higher.
/// - The file is removed by [`unpublish`], and when the process calls `exit` or returns from
///   `main`. The next process that calls `publish` removes the file of a killed process.
/// - The cost is a sleeping thread, with 2 MiB of address space for its stack. Each request from a
///   reader costs a [`snapshot`](super::snapshot) on that thread.
/// - No modification of the file can harm the process.
/// - A second call has no effect. A child of `fork` is not visible until it calls `publish` itself.
///
/// # Blocking
///
/// Briefly locks each queue's configuration and each pool. Must not be called in signal handlers.
///
/// # Errors
///
/// If there is no `/dev/shm`, if all 16 names are in use, if the process may not write files
/// (`ulimit -f`; no signal is raised), or if thread creation fails.
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

/// Hides this process again. Returns `true` if it was visible.
///
/// # Blocking
///
/// Blocks until the thread has exited, which takes at most the time of one request.
pub fn unpublish() -> bool {
    publisher::unpublish()
}
