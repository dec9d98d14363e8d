//! Tests in separate processes.

#![allow(dead_code, reason = "no test uses all of it")]

use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::{Mutex, MutexGuard};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Time limit in seconds after which a hanging child is killed, long enough for a busy machine.
pub const LIMIT_S: u32 = 300;

/// Serializes tests, for example because a child of `fork` inherits the locks of threads that it
/// lacks.
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

/// Forks. Returns the ID of the child, or `None` in the child, whose time is limited.
pub fn fork() -> Option<libc::pid_t> {
    // SAFETY: the child uses memory of the C library and of this library, which is valid after a
    // fork.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", io::Error::last_os_error());
    if pid == 0 {
        limit_time();
    }
    (pid > 0).then_some(pid)
}

/// Kills the process with a signal after [`LIMIT_S`].
pub fn limit_time() {
    // SAFETY: the call takes a number.
    unsafe { libc::alarm(LIMIT_S) };
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
    let (mut stderr, child_stderr) = io::pipe().unwrap();
    let Some(pid) = fork() else {
        // SAFETY: the arguments are numbers.
        unsafe { libc::dup2(child_stderr.as_raw_fd(), libc::STDERR_FILENO) };
        let ended = catch_unwind(AssertUnwindSafe(body));
        if let Err(payload) = &ended
            && let Some(text) = payload.downcast_ref::<String>()
        {
            // SAFETY: the call reads an initialized string. The test harness would capture normal
            // output.
            unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
        }
        exit(ended.is_err().into());
    };
    drop(child_stderr);
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
pub struct NoThreads(Option<u64>);

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
    set_thread_limit(this.0);
    spawn(|| ()).join().unwrap();
});

/// Limits the number of threads to `limit`, or to the highest value. Returns the limit before.
pub fn set_thread_limit(limit: Option<u64>) -> Option<u64> {
    let before = getrlimit(Resource::Nproc);
    setrlimit(Resource::Nproc, Rlimit { current: limit.or(before.maximum), ..before }).unwrap();
    before.current
}

/// Returns the text of the panic in which `body` ends.
#[track_caller]
pub fn message_of(body: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(body)).expect_err("it did not panic");
    let text = payload.downcast_ref::<&str>().map(ToString::to_string);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap()
}

/// Returns a field of a `status` file of procfs.
pub fn field_of(status: impl AsRef<Path>, name: &str) -> io::Result<String> {
    let text = std::fs::read_to_string(status)?;
    let field = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(field.expect("a field of this kernel").trim().to_owned())
}

/// Returns a number in a `status` file of procfs, without its unit.
pub fn number_in(status: impl AsRef<Path>, name: &str) -> Option<usize> {
    field_of(status, name).ok()?.split_whitespace().next()?.parse().ok()
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
