//! Tests in separate processes.

#![allow(dead_code, reason = "no test uses all of it")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, MutexGuard};

/// Time limit in seconds after which a hanging child is killed, long enough for a busy machine.
pub const LIMIT_S: u32 = 300;

/// Serializes tests that fork, because a child inherits the locks of threads that it lacks.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

const MODE: &str = "AFTERWORK_TEST_MODE";

/// Returns the command that runs only `test` of this program, in which [`mode`] returns `mode`.
pub fn this_test(test: &str, mode: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(MODE, mode);
    command
}

/// Returns the mode of this process, or `None` if it runs all tests.
pub fn mode() -> Option<String> {
    std::env::var(MODE).ok()
}

/// Exits the process at once, without destructors.
pub fn exit(status: i32) -> ! {
    // SAFETY: no code runs afterwards.
    unsafe { libc::_exit(status) }
}

pub fn wait_for(pid: libc::pid_t) -> ExitStatus {
    let mut status = 0;
    // SAFETY: `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    ExitStatus::from_raw(status)
}

/// Forks. The child calls `body` and exits. Returns the child's exit status and its stderr.
pub fn in_child(body: impl FnOnce()) -> (ExitStatus, String) {
    let mut ends = [0; 2];
    // SAFETY: the call writes two file descriptors to the array.
    assert_eq!(unsafe { libc::pipe(ends.as_mut_ptr()) }, 0);
    // SAFETY: the child uses memory of the C library and of this library, which is valid after a
    // fork.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: the arguments are numbers. The signal from `alarm` kills the process.
        unsafe {
            libc::dup2(ends[1], libc::STDERR_FILENO);
            libc::alarm(LIMIT_S);
        }
        let ended = catch_unwind(AssertUnwindSafe(body));
        if let Err(payload) = &ended
            && let Some(text) = payload.downcast_ref::<String>()
        {
            // SAFETY: the call reads an initialized string. The test harness would capture normal
            // output.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }
        exit(ended.is_err().into());
    }
    assert!(pid > 0, "{}", io::Error::last_os_error());
    // SAFETY: we own both descriptors, and no other code uses them.
    let mut stderr = unsafe {
        libc::close(ends[1]);
        File::from_raw_fd(ends[0])
    };
    let mut text = String::new();
    stderr.read_to_string(&mut text).unwrap();
    (wait_for(pid), text)
}

/// Calls `body` in a child, which must succeed. Returns the child's stderr.
#[track_caller]
pub fn succeeds_in_child(body: impl FnOnce()) -> String {
    let (status, output) = in_child(body);
    assert!(status.success(), "{status} {output}");
    output
}

/// Prevents the process from creating threads until it is dropped.
pub struct NoThreads(libc::rlim_t);

impl NoThreads {
    pub fn begin() -> Self {
        // SAFETY: the call takes no arguments.
        if unsafe { libc::geteuid() } == 0 {
            // The limit does not apply to root.
            // SAFETY: the call takes numbers. It changes the user of all threads.
            assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        }
        let before = set_thread_limit(Some(0));
        let refused = sync::thread::spawn("test", || ());
        assert!(refused.is_err(), "threads are to be had all the same");
        Self(before)
    }
}

sync::on_drop!(NoThreads, this => {
    set_thread_limit(Some(this.0));
    spawn(|| ()).join().unwrap();
});

/// Limits the number of threads to `limit`, or to the highest value. Returns the limit before.
pub fn set_thread_limit(limit: Option<libc::rlim_t>) -> libc::rlim_t {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both structures outlive the calls.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NPROC, &mut before), 0);
        let now = libc::rlimit { rlim_cur: limit.unwrap_or(before.rlim_max), ..before };
        assert_eq!(libc::setrlimit(libc::RLIMIT_NPROC, &now), 0);
    }
    before.rlim_cur
}

pub fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        std::thread::yield_now();
    }
}

/// Starts a thread without the lock of the standard library, which may be held in a child.
pub fn spawn(body: impl FnOnce() + Send + 'static) -> sync::thread::JoinHandle {
    sync::thread::spawn("test", body).unwrap()
}
