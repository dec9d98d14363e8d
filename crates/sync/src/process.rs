//! This process and others: who they are, and what is to be done when this one ends.

use std::io;

/// Returns the kernel's number of this process.
pub fn id() -> u32 {
    std::process::id()
}

/// Returns when the process `pid` started, in clock ticks since the machine did; none when there is no such process.
///
/// With the number it names a process for good: a number is used again, at another time.
///
/// # Blocking
///
/// Reads a file of procfs.
pub fn start_time(pid: u32) -> Option<u64> {
    start_time_in(&std::fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// Returns the name of the process `pid`, as `ps` shows it; none when there is no such process.
///
/// # Blocking
///
/// Reads a file of procfs.
pub fn name(pid: u32) -> Option<String> {
    let name = std::fs::read(format!("/proc/{pid}/comm")).ok()?;
    Some(String::from_utf8_lossy(name.trim_ascii_end()).into_owned())
}

/// Returns the user who owns the process `pid`; none when there is no such process.
///
/// # Blocking
///
/// A system call on procfs.
pub fn owner(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    Some(std::fs::metadata(format!("/proc/{pid}")).ok()?.uid())
}

/// Returns the user in whose name this process acts.
pub fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Runs `run` when this process ends by returning from `main` or by `exit`; not when it is killed or aborts.
///
/// It runs in a forked child that ends so, too, and while other threads still run.
///
/// # Errors
///
/// When there is no memory for it.
pub fn at_exit(run: extern "C" fn()) -> io::Result<()> {
    // SAFETY: a function lives as long as the process, and one that is `extern "C"` does not unwind.
    let refused = unsafe { libc::atexit(run) };
    if refused == 0 {
        Ok(())
    } else {
        Err(io::ErrorKind::OutOfMemory.into())
    }
}

/// Ends the process by `abort`, after the line `afterwork: {why}` on stderr.
///
/// For where going on would corrupt memory and unwinding would too. Allocates nothing, takes no lock.
///
/// # Blocking
///
/// For as long as stderr does.
#[cold]
pub fn die(why: &str) -> ! {
    tell(why);
    std::process::abort()
}

/// Writes the line `afterwork: {why}` on stderr.
pub(crate) fn tell(why: &str) {
    for part in ["afterwork: ", why, "\n"] {
        // SAFETY: the bytes are `part`'s. Should the write fail, nobody is left to be told.
        unsafe { libc::write(libc::STDERR_FILENO, part.as_ptr().cast(), part.len()) };
    }
}

/// Finds the 22nd field. The second is the name, which stands in brackets and may hold any byte, also a bracket.
fn start_time_in(stat: &[u8]) -> Option<u64> {
    let end = stat.iter().rposition(|&byte| byte == b')')?;
    let after = std::str::from_utf8(&stat[end + 1..]).ok()?;
    after.split_ascii_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_stands_twenty_fields_after_the_last_bracket() {
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
