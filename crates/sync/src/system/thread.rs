//! Starts, names, schedules and joins threads.

use std::cell::Cell;
use std::io;

#[cfg(not(loom))]
pub use backend::panicking;

use crate::backend::thread as backend;

/// Returns `true` if this thread is unwinding, but not in loom, which stops at the first panic.
#[cfg(loom)]
pub fn panicking() -> bool {
    false
}

#[cfg(not(any(loom, shuttle, sim)))]
use crate::system::start::{Handle, spawn as start};
#[cfg(any(loom, shuttle))]
type Handle = backend::JoinHandle<()>;
#[cfg(sim)]
type Handle = backend::JoinHandle;

/// The kernel's number for a thread, or 0 in a model.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// `true` unless this is a model or Miri, where a thread has no number in the kernel.
pub(crate) const IS_REAL: bool = cfg!(not(any(loom, shuttle, miri, sim)));

/// The stack size of the standard library's threads.
pub(crate) const STACK_BYTES: usize = 2 << 20;

std::thread_local! {
    /// The stack size of this thread, if [`spawn`] started it on the real machine.
    pub(crate) static OWN_STACK: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The code of a thread, boxed so that the start is compiled only once for all threads.
pub(crate) type Body = Box<dyn FnOnce() + Send>;

/// The CPUs on which a thread starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cpus {
    OfFirst,
    OfStarter,
}

/// A handle that joins a thread.
#[derive(Debug)]
pub struct JoinHandle(Handle);

/// Starts a thread called `name` that runs `body`.
///
/// The kernel keeps 15 bytes of the name. The stack size is 2 MiB. The thread gets the CPUs, the
/// nice value, the I/O priority and the blocked signals of the process's first thread, and its
/// policy unless that is a real-time one. It gets the timer slack and the memory policy with which
/// the process was started, and the default floating-point modes. It keeps the caller's
/// credentials, namespaces and seccomp filters, because no thread can reset them.
///
/// # Errors
///
/// Returns the system's error if thread creation fails. In that case `body` is dropped.
pub fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle> {
    spawn_sized(name, STACK_BYTES, body)
}

/// Starts a thread like [`spawn`], with a stack of `stack_size` bytes. A model ignores the size.
pub fn spawn_sized(
    name: &str,
    stack_size: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle> {
    start(name, Cpus::OfFirst, stack_size, Box::new(body)).map(JoinHandle)
}

/// Starts a thread like [`spawn`], which from its start on runs only on the CPUs of the caller.
pub fn spawn_on_same_cpus(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle> {
    start(name, Cpus::OfStarter, STACK_BYTES, Box::new(body)).map(JoinHandle)
}

#[cfg(any(loom, shuttle, sim))]
fn start(name: &str, _: Cpus, _stack_size: usize, body: Body) -> io::Result<Handle> {
    #[cfg(sim)]
    return backend::spawn(name, body);
    #[cfg(not(sim))]
    backend::Builder::new().name(name.into()).spawn(body)
}

/// Returns the stack size of this thread, or 2 MiB in a model or if this crate did not start the
/// thread.
pub fn stack_size() -> usize {
    OWN_STACK.get().unwrap_or(STACK_BYTES)
}

/// Returns this thread's unused stack to the system, if this crate started the thread. Does nothing
/// in a model. Takes microseconds. Later function calls fault the pages in again.
pub fn give_stack_back() {
    if is_ours() {
        crate::system::stack::discard();
    }
}

/// Returns `true` if [`spawn`] started this thread on the real machine.
pub(crate) fn is_ours() -> bool {
    OWN_STACK.get().is_some()
}

impl JoinHandle {
    /// Returns `true` if the thread has ended or is about to. Always returns `false` in a model.
    pub fn is_finished(&self) -> bool {
        #[cfg(not(any(loom, shuttle)))]
        return self.0.is_finished();
        #[cfg(any(loom, shuttle))]
        false
    }

    /// Joins the thread if it has ended and its thread-locals have been destroyed.
    ///
    /// # Errors
    ///
    /// Otherwise returns the handle, as a model always does.
    pub fn try_join(self) -> Result<(), Self> {
        #[cfg(not(any(loom, shuttle, sim)))]
        return self.0.try_join().map_err(Self);
        #[cfg(any(loom, shuttle, sim))]
        Err(self)
    }

    /// Waits for the thread to end.
    ///
    /// # Errors
    ///
    /// Returns the payload of the panic that ended the thread.
    pub fn join(self) -> std::thread::Result<()> {
        self.0.join()
    }
}

/// Yields the CPU to another runnable thread.
#[inline]
pub fn yield_now() {
    backend::yield_now();
}

/// Sleeps for about `span`. In a model it only yields.
pub fn sleep(span: std::time::Duration) {
    #[cfg(not(any(loom, shuttle)))]
    backend::sleep(span);
    #[cfg(any(loom, shuttle))]
    let _ = (span, yield_now());
}

/// Returns the kernel's number for this thread, or 0 in a model.
pub fn current() -> ThreadId {
    #[cfg(sim)]
    return ThreadId(backend::current());
    #[cfg(any(loom, shuttle))]
    return ThreadId(0);
    // SAFETY: the call only returns a number.
    #[cfg(not(any(loom, shuttle, sim)))]
    ThreadId(unsafe { libc::gettid() } as u32)
}

/// In a model, the ID of a thread that has ended.
pub const ENDED: ThreadId = ThreadId(1);

/// Returns `false` if the thread does not exist in this process, and `true` if that cannot be
/// determined. In a model, returns `true` unless it is `ENDED`.
pub fn exists(thread: ThreadId) -> bool {
    if cfg!(any(loom, shuttle)) {
        return thread != ENDED;
    }
    // SAFETY: the call takes three numbers. Signal 0 is not delivered.
    let sent = || unsafe { libc::syscall(libc::SYS_tgkill, std::process::id(), thread.0, 0) };
    let is_error = |code| io::Error::last_os_error().raw_os_error() == Some(code);
    !IS_REAL || sent() == 0 || !is_error(libc::ESRCH)
}

/// Sets the nice value of this thread, from -20 (most favorable) to 19. Does nothing in a model.
///
/// # Errors
///
/// Returns `PermissionDenied` if the value is below the current one and the process lacks the
/// permission.
pub fn set_nice(nice: i8) -> io::Result<()> {
    if IS_REAL { policy::set_nice(0, nice.into()) } else { Ok(()) }
}

/// Makes this thread a real-time one (`SCHED_FIFO`, priorities 1 to 99), which preempts every
/// ordinary thread on its CPUs, without a time limit. Does nothing in a model.
///
/// # Errors
///
/// Returns `PermissionDenied` if the process lacks the permission, or `InvalidInput` if the
/// priority is out of range.
pub fn set_fifo(priority: u8) -> io::Result<()> {
    if IS_REAL && !policy::set(0, libc::SCHED_FIFO, priority.into()) {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Checks that this process may set the nice value `nice` for its threads. To check a value below
/// its current one, this thread sets the value and restores the old one.
///
/// # Errors
///
/// Returns the system's error if it rejects the value.
pub fn may_set_nice(nice: i8) -> io::Result<()> {
    if !IS_REAL {
        return Ok(());
    }
    let before = policy::nice(0)?;
    if i32::from(nice) < before {
        set_nice(nice)?;
        // Setting the old value requires no permission.
        policy::set_nice(0, before)?;
    }
    Ok(())
}

/// Gives `thread` a real-time priority, unless it already has one. Returns `true` on success.
///
/// Changes a thread of `SCHED_OTHER` to `SCHED_FIFO`, priority 1. Threads and processes that it
/// starts while boosted have `SCHED_OTHER` and a nice value of 0. Returns `false`
///
/// - if the process lacks the permission (`CAP_SYS_NICE`, or `RLIMIT_RTPRIO`);
/// - if `RLIMIT_RTTIME` is finite, because the kernel kills a process that exceeds it;
/// - in a model.
///
/// Call it inside [`while_named`], so that the thread still exists.
pub fn boost(thread: ThreadId) -> bool {
    let policy = libc::SCHED_FIFO | policy::RESET_ON_FORK;
    IS_REAL && policy::may_boost(thread.0) && policy::set(thread.0, policy, 1)
}

/// Calls `body`, which may pass another thread's number to the kernel.
///
/// The other thread sets a flag before it ends, and then calls this function with an empty `body`.
/// `body` checks the flag first, because the number of a thread that has ended may be reused.
///
/// # Blocking
///
/// Blocks while another thread is inside this function. `body` must not sleep or call it.
pub fn while_named<R>(body: impl FnOnce() -> R) -> R {
    let is_model = cfg!(any(loom, shuttle));
    let _named = (!is_model).then(hold_names);
    body()
}

crate::process_wide! { fn names() -> crate::Mutex<()> = crate::Mutex::new(()) }

pub(crate) fn hold_names() -> crate::MutexGuard<'static, ()> {
    names().lock()
}

/// Undoes a [`boost`]. Preserves `errno`, because a signal handler may end the boosted section.
pub fn unboost(thread: ThreadId) {
    if IS_REAL {
        policy::unboost(thread.0);
    }
}

pub(crate) mod policy {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};

    use crate::system::checked;

    /// The flag with which threads and processes that a thread starts do not inherit its policy.
    pub const RESET_ON_FORK: libc::c_int = libc::SCHED_RESET_ON_FORK;

    /// `true` if the system failed to clear `RESET_ON_FORK`, as it does if the permission to boost
    /// comes only from `RLIMIT_RTPRIO`. If this is `true`, a thread's flag may come from an earlier
    /// boost, so the thread may be boosted again. If it is `false`, the thread set the flag itself.
    static KEEPS_RESET: AtomicBool = AtomicBool::new(false);

    pub fn may_boost(thread: u32) -> bool {
        let is_ordinary = match of(thread) {
            Some(libc::SCHED_OTHER) => true,
            Some(policy) => policy == RESET_ON_FORK && KEEPS_RESET.load(Ordering::Relaxed),
            None => false,
        };
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the call writes the structure, which outlives it. If it fails, the limits are 0.
        unsafe { libc::getrlimit(libc::RLIMIT_RTTIME, &raw mut limit) };
        is_ordinary && [limit.rlim_cur, limit.rlim_max] == [libc::RLIM_INFINITY; 2]
    }

    pub fn unboost(thread: u32) {
        // SAFETY: the call returns the address of this thread's own error number.
        let errno = unsafe { *libc::__errno_location() };
        if !set(thread, libc::SCHED_OTHER, 0) && set(thread, RESET_ON_FORK, 0) {
            KEEPS_RESET.store(true, Ordering::Relaxed);
        }
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
    }

    /// Returns the nice value of `thread`, where 0 means this thread.
    pub fn nice(thread: u32) -> io::Result<i32> {
        // The C library's function returns -1 also for a nice value of -1.
        // SAFETY: the call changes nothing, and accesses no memory of the process.
        let from_20 = unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, thread) };
        checked(from_20 as i32).map(|()| 20 - from_20 as i32)
    }

    /// Sets the nice value of `thread`, where 0 means this thread.
    pub fn set_nice(thread: u32, nice: i32) -> io::Result<()> {
        // SAFETY: the call accesses no memory of the process.
        checked(unsafe { libc::setpriority(libc::PRIO_PROCESS as _, thread, nice) })
    }

    /// Returns the policy of `thread`, where 0 means this thread, if the thread exists.
    pub fn of(thread: u32) -> Option<libc::c_int> {
        // A direct system call, because musl's wrapper always fails.
        // SAFETY: the call takes a number.
        let policy = unsafe { libc::syscall(libc::SYS_sched_getscheduler, thread) };
        (policy >= 0).then_some(policy as libc::c_int)
    }

    pub fn set(thread: u32, policy: libc::c_int, priority: libc::c_int) -> bool {
        // The system call's `struct sched_param` has this one field.
        let param = [priority];
        // SAFETY: the call only reads `param`, which outlives it.
        unsafe { libc::syscall(libc::SYS_sched_setscheduler, thread, policy, param.as_ptr()) == 0 }
    }
}

/// Returns the name of a thread of this process, if it exists. Returns `None` in a model.
pub fn name(thread: ThreadId) -> Option<String> {
    #[cfg(sim)]
    return backend::described(thread.0).map(|it| it.0);
    #[cfg(not(sim))]
    Some(read_file(thread, "comm")?.trim_end().to_owned())
}

/// Reads a file of procfs about a thread. Returns `None` in a model.
#[cfg(not(sim))]
fn read_file(thread: ThreadId, file: &str) -> Option<String> {
    if cfg!(any(loom, shuttle)) {
        return None;
    }
    std::fs::read_to_string(format!("/proc/self/task/{}/{file}", thread.0)).ok()
}

/// The name of a thread in the kernel's format: at most 15 bytes.
#[derive(Clone, Copy, Debug)]
pub struct ShortName([u8; 16]);

impl ShortName {
    /// Returns the name of the calling thread, which is empty in a model.
    pub fn own() -> Self {
        let mut name = [0_u8; 16];
        if !cfg!(any(loom, shuttle, sim)) {
            // SAFETY: the kernel writes 16 bytes, which end with a zero.
            unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
        }
        Self(name)
    }

    /// Gives the calling thread this name.
    pub fn assume(&self) {
        if !cfg!(any(loom, shuttle, sim)) {
            // SAFETY: the kernel reads up to the terminating zero, which the array contains.
            unsafe { libc::prctl(libc::PR_SET_NAME, self.0.as_ptr()) };
        }
    }

    /// Returns this name, a hyphen, and the part of `what` that fits.
    pub fn with(mut self, what: &[u8]) -> Self {
        let end = self.0.iter().position(|&byte| byte == 0).unwrap_or(0);
        let room = &mut self.0[end..15];
        for (place, &byte) in room.iter_mut().zip(b"-".iter().chain(what)) {
            *place = byte;
        }
        self
    }
}

/// Returns the state of a thread of this process, such as "running", or "asleep in futex_do_wait"
/// if the kernel reports the function. Returns `None` like [`name`].
pub fn doing(thread: ThreadId) -> Option<String> {
    #[cfg(sim)]
    return backend::described(thread.0).map(|it| it.1.into());
    #[cfg(not(sim))]
    {
        let stat = read_file(thread, "stat")?;
        let state = match crate::usage::after_name(stat.as_bytes())?.next()? {
            "R" => "running",
            "S" | "D" | "I" => "asleep",
            "T" | "t" => "stopped",
            _ => "ending",
        };
        // The file holds "0" if the function is not known.
        Some(match read_file(thread, "wchan").unwrap_or_default().trim_end() {
            wchan if state != "running" && !matches!(wchan, "" | "0") => {
                format!("{state} in {wchan}")
            }
            _ => state.into(),
        })
    }
}

/// Declares thread-local values, which a model keeps separately for each of its threads. The syntax
/// is that of `std::thread_local!` without `const`; use `with` and `try_with`.
#[macro_export]
macro_rules! thread_local {
    ($($(#[$meta:meta])* $vis:vis static $name:ident : $type:ty = $init:expr);* $(;)?) => {$(
        #[cfg(not(any(loom, shuttle, sim)))]
        std::thread_local! { $(#[$meta])* $vis static $name: $type = const { $init } }
        #[cfg(sim)]
        $(#[$meta])* $vis static $name: $crate::sim::tls::LocalKey<$type> =
            $crate::sim::tls::LocalKey::new(|| $init);
        #[cfg(any(loom, shuttle))]
        $crate::backend::thread_local! { $(#[$meta])* $vis static $name: $type = $init }
    )*};
}
