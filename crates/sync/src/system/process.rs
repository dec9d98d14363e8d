//! IDs, names and owners of processes, and functions that end this process.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Returns the time at which the process `pid` started, in clock ticks since boot, or `None` if it
/// does not exist. Together with the ID, which may be reused, the time identifies a process. Reads
/// a file of procfs.
#[cfg(feature = "processes")]
pub fn start_time(pid: u32) -> Option<u64> {
    start_time_in(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns the name of the process `pid`, as shown by `ps`, if it exists. Reads a file of procfs.
#[cfg(feature = "processes")]
pub fn name(pid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// Returns the user that owns the process `pid`, if it exists. Makes one system call.
#[cfg(feature = "processes")]
pub fn owner(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Returns the effective user of this process.
pub fn user() -> u32 {
    // SAFETY: the call only returns a number.
    unsafe { libc::geteuid() }
}

/// Makes the process, and its forked children, call `run` when they return from `main` or call
/// `exit`, but not when they are killed. Other threads may still be running at that point.
///
/// # Errors
///
/// Returns `OutOfMemory` if the function cannot be registered.
pub fn at_exit(run: extern "C" fn()) -> io::Result<()> {
    // SAFETY: a function lives as long as the process, and an `extern "C"` one does not unwind.
    let refused = unsafe { libc::atexit(run) };
    if refused == 0 { Ok(()) } else { Err(io::ErrorKind::OutOfMemory.into()) }
}

/// Writes the line `afterwork: {why}` on stderr and aborts the process.
///
/// Use it in a state in which continuing and unwinding would both corrupt memory. It does not
/// allocate or lock, but blocks while stderr does. Only the first caller writes its line.
#[cold]
pub fn die(why: &str) -> ! {
    /// The process, and the thread that is ending it. A child of `fork` inherits the value.
    static ENDING: AtomicU64 = AtomicU64::new(0);
    let here = u64::from(std::process::id()) << 32 | u64::from(crate::thread::current().0);
    // Both ends are this exchange: a later thread finds the first one, and sleeps.
    let first = ENDING.swap(here, Ordering::Relaxed);
    if first != here && first >> 32 == here >> 32 {
        loop {
            // SAFETY: the call waits for a signal, and takes no arguments.
            unsafe { libc::pause() };
        }
    }
    write_line(why);
    std::process::abort()
}

/// Writes the line `afterwork: {why}` on stderr. Blocks while stderr does.
pub fn write_line(why: &str) {
    // A single call, so that lines of several threads are not mixed.
    let parts = ["afterwork: ", why, "\n"]
        .map(|part| libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() });
    // SAFETY: the call reads the three parts. There is nowhere to report a failure.
    unsafe { libc::writev(libc::STDERR_FILENO, parts.as_ptr(), parts.len() as libc::c_int) };
}

/// Returns the 22nd field of `stat`. The name is the second field.
#[cfg(feature = "processes")]
fn start_time_in(stat: &[u8]) -> Option<u64> {
    crate::usage::after_name(stat)?.nth(19)?.parse().ok()
}

#[cfg(all(test, feature = "processes"))]
mod tests {
    use std::process::id;

    use super::*;

    #[test]
    fn start_time_is_twenty_fields_after_the_last_bracket() {
        let stat = b"7 (a ) R b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21";
        assert_eq!(start_time_in(stat), Some(4711));
        assert_eq!(start_time_in(b"7 (cut) S 1 2"), None);
        assert_eq!(start_time_in(b""), None);
    }

    #[test]
    fn this_process_has_a_start_time_a_name_and_an_owner() {
        assert!(start_time(id()).is_some() && name(id()).is_some());
        assert_eq!(owner(id()), Some(user()));
        assert_eq!(start_time(u32::MAX), None);
    }
}
