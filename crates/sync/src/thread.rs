//! Threads: making, naming, pinning and telling them apart.

use std::io;

#[cfg(loom)]
use loom::thread as backend;
#[cfg(shuttle)]
use shuttle::thread as backend;
#[cfg(not(any(loom, shuttle)))]
use std::thread as backend;

#[cfg(not(loom))]
pub use backend::panicking;

/// Says whether this thread is unwinding; never in loom, which stops at the first panic.
#[cfg(loom)]
pub fn panicking() -> bool {
    false
}

/// The kernel's number for a thread; 0 in a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// A thread that can be waited for.
#[derive(Debug)]
pub struct JoinHandle(backend::JoinHandle<()>);

/// Starts a thread called `name` that runs `body`.
///
/// The kernel keeps 15 bytes of the name. The stack is std's default (2 MiB, reserved and not touched).
///
/// # Errors
///
/// What the system says when it refuses another thread; `body` is dropped then.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    #[cfg(not(loom))]
    return backend::Builder::new()
        .name(name.into())
        .spawn(body)
        .map(JoinHandle);
    #[cfg(loom)]
    {
        let _ = name;
        Ok(JoinHandle(backend::spawn(body)))
    }
}

impl JoinHandle {
    /// Says whether the thread has ended, or is just about to; never in a model, which cannot tell.
    pub fn is_finished(&self) -> bool {
        #[cfg(not(any(loom, shuttle)))]
        return self.0.is_finished();
        #[cfg(any(loom, shuttle))]
        false
    }

    /// Waits for the thread to end.
    ///
    /// # Errors
    ///
    /// The payload of the panic that ended the thread.
    pub fn join(self) -> std::thread::Result<()> {
        self.0.join()
    }
}

/// Gives the CPU to another runnable thread.
#[inline]
pub fn yield_now() {
    backend::yield_now();
}

/// Lets this thread sleep for about `span`; in a model it only yields.
pub fn sleep(span: std::time::Duration) {
    #[cfg(not(any(loom, shuttle)))]
    std::thread::sleep(span);
    #[cfg(any(loom, shuttle))]
    {
        let _ = span;
        yield_now();
    }
}

/// Returns the kernel's number for this thread; 0 in a model.
pub fn current() -> ThreadId {
    #[cfg(not(any(loom, shuttle)))]
    return ThreadId(rustix::thread::gettid().as_raw_nonzero().get() as u32);
    #[cfg(any(loom, shuttle))]
    ThreadId(0)
}

/// Sets the nice value of this thread (-20 first, 19 last); does nothing in a model.
///
/// # Errors
///
/// Permission denied for a value below the present one without the right to it.
pub fn set_nice(nice: i8) -> io::Result<()> {
    #[cfg(not(any(loom, shuttle)))]
    rustix::process::setpriority_process(Some(rustix::thread::gettid()), i32::from(nice))?;
    #[cfg(any(loom, shuttle))]
    let _ = nice;
    Ok(())
}

/// Makes this thread a real-time one (`SCHED_FIFO`, priorities 1 to 99); does nothing in a model.
///
/// It then runs before every ordinary thread of its CPUs, for as long as it wants to.
///
/// # Errors
///
/// Permission denied without the right to it; `InvalidInput` for a priority that is none.
pub fn set_fifo(priority: u8) -> io::Result<()> {
    #[cfg(not(any(loom, shuttle)))]
    {
        // SAFETY: a structure of integers, of which some C libraries have more than one field.
        let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
        param.sched_priority = priority.into();
        // SAFETY: the call reads the structure, which outlives it; 0 names this thread.
        if unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    #[cfg(any(loom, shuttle))]
    let _ = priority;
    Ok(())
}

/// Says whether this process may set a nice value of `nice` for its threads.
///
/// # Errors
///
/// What the system says when it refuses; the caller's own nice value is as before in any case.
pub fn may_set_nice(nice: i8) -> io::Result<()> {
    #[cfg(not(any(loom, shuttle)))]
    std::thread::scope(|scope| {
        // Its own thread, so that nothing is left behind.
        let tried = scope.spawn(|| set_nice(nice));
        tried.join().expect("setting a nice value does not panic")
    })?;
    #[cfg(any(loom, shuttle))]
    let _ = nice;
    Ok(())
}

/// Puts `thread` before all that have no real-time priority, if it has none itself; says whether it did.
///
/// Sets `SCHED_FIFO`, priority 1, for a thread of `SCHED_OTHER`. Refused without the right to it (`CAP_SYS_NICE`, or
/// `RLIMIT_RTPRIO`), and always in a model.
pub fn boost(thread: ThreadId) -> bool {
    #[cfg(not(any(loom, shuttle)))]
    return policy::has_none(thread) && policy::set(thread, libc::SCHED_FIFO, 1);
    #[cfg(any(loom, shuttle))]
    {
        let _ = thread;
        false
    }
}

/// Takes a [`boost`] back.
pub fn unboost(thread: ThreadId) {
    #[cfg(not(any(loom, shuttle)))]
    policy::set(thread, libc::SCHED_OTHER, 0);
    #[cfg(any(loom, shuttle))]
    let _ = thread;
}

#[cfg(not(any(loom, shuttle)))]
mod policy {
    use super::ThreadId;

    /// Says whether `thread` is scheduled as `SCHED_OTHER`.
    pub fn has_none(thread: ThreadId) -> bool {
        // SAFETY: takes a number and touches no memory of the caller's. The system call, for musl's wrapper refuses.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread.0) };
        policy == libc::c_long::from(libc::SCHED_OTHER)
    }

    /// Says whether the system agreed.
    pub fn set(thread: ThreadId, policy: libc::c_int, priority: libc::c_int) -> bool {
        // `struct sched_param` of the system call has this one field.
        let param = [priority];
        // SAFETY: `param` lives over the call, which only reads it.
        unsafe {
            libc::syscall(
                libc::SYS_sched_setscheduler,
                thread.0,
                policy,
                param.as_ptr(),
            ) == 0
        }
    }
}

/// Returns the name of a thread of this process; nothing when it is gone, and in a model.
pub fn name(thread: ThreadId) -> Option<String> {
    #[cfg(not(any(loom, shuttle)))]
    return std::fs::read_to_string(format!("/proc/self/task/{}/comm", thread.0))
        .ok()
        .map(|name| name.trim_end().to_owned());
    #[cfg(any(loom, shuttle))]
    {
        let _ = thread;
        None
    }
}

/// Returns what a thread of this process is at, in a few words: "running", or "asleep in futex_do_wait" where the kernel
/// tells the function. Nothing when the thread is gone, and in a model.
pub fn doing(thread: ThreadId) -> Option<String> {
    #[cfg(not(any(loom, shuttle)))]
    {
        let read = |file| std::fs::read_to_string(format!("/proc/self/task/{}/{file}", thread.0));
        let stat = read("stat").ok()?;
        // Behind the name, which may hold anything.
        let state = stat.rsplit_once(") ")?.1.chars().next()?;
        let wchan = read("wchan").unwrap_or_default();
        Some(in_words(state, wchan.trim_end()))
    }
    #[cfg(any(loom, shuttle))]
    {
        let _ = thread;
        None
    }
}

/// Tells a letter of `/proc/…/stat`, and the kernel's function, or "0" where it is not told.
#[cfg(not(any(loom, shuttle)))]
fn in_words(state: char, wchan: &str) -> String {
    let state = match state {
        'R' => "running",
        'S' | 'D' | 'I' => "asleep",
        'T' | 't' => "stopped",
        _ => "ending",
    };
    if state == "running" || matches!(wchan, "" | "0") {
        state.into()
    } else {
        format!("{state} in {wchan}")
    }
}

/// Declares a thread-local value that a model keeps apart for each of its threads.
///
/// The same shape as `std::thread_local!` without `const { … }`; accessors are `with` and `try_with`.
#[macro_export]
macro_rules! thread_local {
    ($(#[$meta:meta])* $vis:vis static $name:ident : $type:ty = $init:expr) => {
        #[cfg(not(any(loom, shuttle)))]
        std::thread_local! { $(#[$meta])* $vis static $name: $type = const { $init } }
        #[cfg(loom)]
        $crate::__loom::thread_local! { $(#[$meta])* $vis static $name: $type = $init }
        #[cfg(shuttle)]
        $crate::__shuttle::thread_local! { $(#[$meta])* $vis static $name: $type = $init }
    };
}
