//! Tests in processes of their own.

use std::{
    fs::File,
    io::{self, Read},
    os::{fd::FromRawFd, unix::process::ExitStatusExt},
    panic::{AssertUnwindSafe, catch_unwind},
    process::ExitStatus,
    sync::{Mutex, MutexGuard},
};

/// Ends a child that hangs: far beyond what one takes on a machine where much else runs.
pub const LIMIT_S: u32 = 300;

/// Threads of other tests would be gone in the child with whatever they hold: of the standard output, say.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Forks; the child calls `body` and ends. Returns how, and what it wrote to stderr.
pub fn in_child(body: impl FnOnce()) -> (ExitStatus, String) {
    let mut ends = [0; 2];
    // SAFETY: the call writes two numbers.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child relies on the C library's memory, which is sane in a child, and on the library's.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: numbers; the signal of `alarm` ends the process.
        unsafe {
            libc::dup2(ends[1], libc::STDERR_FILENO);
            libc::alarm(LIMIT_S);
        }
        let ended = catch_unwind(AssertUnwindSafe(body));
        if let Err(payload) = &ended
            && let Some(text) = payload.downcast_ref::<String>()
        {
            // SAFETY: writes what is there. The test's own output is kept from view.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(i32::from(ended.is_err())) }
    }
    assert!(pid > 0, "{}", io::Error::last_os_error());
    // SAFETY: both are ours, and used nowhere else.
    let mut stderr = unsafe {
        libc::close(ends[1]);
        File::from_raw_fd(ends[0])
    };
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    let mut status = 0;
    // SAFETY: `status` lives over the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    (ExitStatus::from_raw(status), text)
}

/// Starts a thread, also in a child: where the standard library may wait for a lock of a thread that is not there.
pub fn spawn(body: impl FnOnce() + Send + 'static) -> sync::thread::JoinHandle {
    sync::thread::spawn("test", body).unwrap()
}
