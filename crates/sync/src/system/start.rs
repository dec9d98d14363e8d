//! Starts the library's threads, with the attributes of the process's first thread.
//!
//! The kernel copies the attributes of the starting thread, which may be pinned to a CPU or have a
//! real-time priority. The library's threads serve the whole process, and get other attributes:
//!
//! | attribute | new value |
//! |---|---|
//! | CPUs | those of the first thread; pools and managers change them later |
//! | policy | that of the first thread, or `SCHED_OTHER` if that is a real-time one |
//! | nice value | that of the first thread, if permitted |
//! | blocked signals | those of the first thread, see below |
//! | timer slack, memory policy, I/O priority, floating-point modes | see `newborn.rs` |
//!
//! The kernel delivers signals for the process to the first thread first. While a thread is being
//! started, all signals are blocked in it and in the starting thread. If the starting thread is the
//! first thread, the new thread blocks the signals that the first thread blocked before the start.
//!
//! If an attribute cannot be read or set, the new thread keeps the starting thread's value.
//!
//! In a child of `fork`, the C library starts the threads, because the standard library acquires a
//! lock to start one, which a thread of the parent may have held at the fork.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::{io, ptr, thread};

use crate::thread::{Body, Cpus, OWN_STACK};
use crate::{Backoff, Mutex};

type Outcome = thread::Result<()>;

/// A thread, started by the standard library or by the C library.
#[derive(Debug)]
pub enum Handle {
    Std(thread::JoinHandle<()>),
    Bare(Bare),
}

/// Starts a thread. Returns an error if thread creation fails, or if the name contains a NUL.
pub fn spawn(name: &str, cpus: Cpus, stack_size: usize, body: Body) -> io::Result<Handle> {
    // The standard library would panic on such a name.
    if name.contains('\0') {
        let what = "the name of a thread must not contain a NUL";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    crate::fault::check(crate::fault::Point::Thread, libc::EAGAIN)?;
    if cfg!(miri) {
        return thread::Builder::new().name(name.into()).spawn(body).map(Handle::Std);
    }
    // Signals that arrive during the start remain pending.
    let signals = Signals::block_all();
    let theirs = signals.0;
    let whole = move || {
        settle(cpus, theirs);
        crate::slice::enable_thread();
        OWN_STACK.set(Some(stack_size));
        body();
    };
    if crate::fork::is_child() {
        Bare::spawn(name, stack_size, Box::new(whole)).map(Handle::Bare)
    } else {
        let builder = thread::Builder::new().name(name.into()).stack_size(stack_size);
        builder.spawn(whole).map(Handle::Std)
    }
}

impl Handle {
    pub fn is_finished(&self) -> bool {
        match self {
            Self::Std(thread) => thread.is_finished(),
            Self::Bare(thread) => thread.outcome.lock().is_some(),
        }
    }

    /// Joins the thread if it has ended and its thread-locals have been destroyed.
    pub fn try_join(self) -> Result<(), Self> {
        // Miri does not support the call below, and tolerates detached threads.
        if cfg!(miri) {
            return Err(self);
        }
        let has_ended = |thread: libc::pthread_t| {
            // SAFETY: the thread has been neither joined nor detached, and no result is requested.
            unsafe { libc::pthread_tryjoin_np(thread, ptr::null_mut()) == 0 }
        };
        match self {
            Self::Std(thread) if has_ended(thread.as_pthread_t() as _) => {
                // The thread has been joined, so this only discards its ID.
                thread.into_pthread_t();
                Ok(())
            }
            Self::Bare(mut thread) if thread.thread.is_some_and(has_ended) => {
                thread.thread = None;
                Ok(())
            }
            busy => Err(busy),
        }
    }

    pub fn join(self) -> Outcome {
        match self {
            Self::Std(thread) => thread.join(),
            Self::Bare(thread) => thread.join(),
        }
    }
}

/// A thread that the C library started.
#[derive(Debug)]
pub struct Bare {
    thread: Option<libc::pthread_t>,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

// SAFETY: any thread may use the C library's thread ID, which is a pointer in musl.
unsafe impl Send for Bare {}
// SAFETY: as above; a shared reference only gives access to the outcome.
unsafe impl Sync for Bare {}

impl Bare {
    fn spawn(name: &str, stack_size: usize, body: Body) -> io::Result<Self> {
        let outcome = Arc::new(Mutex::new(None));
        let (name, place) = (CString::new(name)?, outcome.clone());
        let whole: Body = Box::new(move || {
            // SAFETY: the closure owns `name`, of which the kernel copies at most 15 bytes.
            unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
            let outcome = catch_unwind(AssertUnwindSafe(body));
            *place.lock() = Some(outcome);
        });
        let start = Box::into_raw(Box::new(whole));
        let (mut attr, mut thread) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        // SAFETY: `attr` is initialized first and destroyed last. A started thread owns `start`.
        let refused = unsafe {
            libc::pthread_attr_init(attr.as_mut_ptr());
            libc::pthread_attr_setstacksize(attr.as_mut_ptr(), stack_size);
            let refused =
                libc::pthread_create(thread.as_mut_ptr(), attr.as_ptr(), main, start.cast());
            libc::pthread_attr_destroy(attr.as_mut_ptr());
            refused
        };
        if refused != 0 {
            // SAFETY: the box was leaked above, and no thread has received it.
            drop(unsafe { Box::from_raw(start) });
            return Err(io::Error::from_raw_os_error(refused));
        }
        // SAFETY: `pthread_create` succeeded, so it has written the ID.
        let thread = Some(unsafe { thread.assume_init() });
        Ok(Self { thread, outcome })
    }

    fn join(mut self) -> Outcome {
        if let Some(thread) = self.thread.take() {
            // SAFETY: we own the handle, and the thread has been neither joined nor detached.
            unsafe { libc::pthread_join(thread, ptr::null_mut()) };
        }
        let outcome = self.outcome.lock().take();
        outcome.expect("left by the thread at its end")
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            // SAFETY: we own the handle, and the thread has been neither joined nor detached.
            unsafe { libc::pthread_detach(thread) };
        }
    }
}

extern "C" fn main(start: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: `Bare::spawn` leaked it for this thread.
    let start = *unsafe { Box::from_raw(start.cast::<Body>()) };
    start();
    ptr::null_mut()
}

/// The kernel's format of a signal set: signal 1 is bit 0.
type Mask = u64;

/// The mask of a thread that blocks all signals except SIGKILL and SIGSTOP, which cannot be
/// blocked. Programs cannot set it, because the C library excludes two more signals for itself.
const ALL: Mask = !(1 << (libc::SIGKILL - 1) | 1 << (libc::SIGSTOP - 1));

/// The signals that this thread blocked before. They are blocked again when this value is dropped.
struct Signals(Mask);

impl Signals {
    fn block_all() -> Self {
        let before = set_blocked(ALL);
        if is_first() {
            FIRST.begin(before);
        }
        Self(before)
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        set_blocked(self.0);
        if is_first() {
            FIRST.end();
        }
    }
}

/// Records whether the first thread is starting a thread, and which signals it blocked before. The
/// first thread blocks all signals during the start, so procfs does not show its usual mask.
struct First {
    /// A: the signals that the first thread blocked before the start. Written by the first thread.
    blocked: AtomicU64,
    /// A: the process whose first thread is starting a thread, or 0. A child has another number.
    process: AtomicU32,
}

static FIRST: First = First { blocked: AtomicU64::new(0), process: AtomicU32::new(0) };

impl First {
    fn begin(&self, blocked: Mask) {
        self.blocked.store(blocked, Ordering::Relaxed);
        // Release pairs with the Acquire in `before_start`. If this store comes first, the load
        // gets this mask or that of a later start. If the load comes first, the caller reads
        // procfs, and loads again if all signals are blocked there.
        self.process.store(std::process::id(), Ordering::Release);
    }

    fn end(&self) {
        self.process.store(0, Ordering::Relaxed);
    }

    /// If the first thread is starting a thread, returns the signals that it blocked before.
    fn before_start(&self) -> Option<Mask> {
        let process = self.process.load(Ordering::Acquire);
        (process == std::process::id()).then(|| self.blocked.load(Ordering::Relaxed))
    }
}

/// Returns `true` on the process's first thread.
pub(crate) fn is_first() -> bool {
    crate::thread::current().0 == std::process::id()
}

/// Blocks exactly `signals` in this thread. Returns the previous mask.
fn set_blocked(signals: Mask) -> Mask {
    let mut before: Mask = 0;
    let (new, old, size) = (&raw const signals, &raw mut before, size_of::<Mask>());
    // SAFETY: the call reads and writes masks of the size that it is given.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, new, old, size) };
    before
}

/// Gives this thread the first thread's attributes. `theirs` is the mask of the starting thread.
fn settle(cpus: Cpus, theirs: Mask) {
    let first = std::process::id();
    if cpus == Cpus::OfFirst {
        settle_cpus(first);
    }
    settle_policy(first);
    crate::system::newborn::reset(first as libc::pid_t);
    set_blocked(blocked_by_first().unwrap_or(theirs));
}

fn settle_cpus(first: u32) {
    use crate::cpu::{mask_of, set_mask};
    if let Ok(mask) = mask_of(first)
        && mask_of(0).ok() != Some(mask)
    {
        set_mask(0, &mask).ok();
    }
}

fn settle_policy(first: u32) {
    use crate::thread::policy;
    let wanted = match policy::of(first).map(|policy| policy & !policy::RESET_ON_FORK) {
        Some(ordinary @ (libc::SCHED_BATCH | libc::SCHED_IDLE)) => ordinary,
        _ => libc::SCHED_OTHER,
    };
    if policy::of(0).is_some_and(|mine| mine != wanted) {
        policy::set(0, wanted, 0);
    }
    if let Ok(theirs) = policy::nice(first)
        && policy::nice(0).ok() != Some(theirs)
    {
        policy::set_nice(0, theirs).ok();
    }
}

/// The number of times that a reader checks whether the first thread has finished starting a
/// thread, in at least 100 ms. A start takes a few microseconds if the first thread keeps its CPU.
const NR_CHECKS: u32 = 2000;

/// Returns the signals that the process's first thread blocks, unless that thread has ended.
fn blocked_by_first() -> Option<Mask> {
    settled(|| FIRST.before_start(), || blocked_in(&std::fs::read("/proc/self/status").ok()?))
}

/// Returns the result of `before_start` if there is one. Otherwise calls `read`, at most
/// `NR_CHECKS` times, until the result is not the mask of a thread that is starting another one.
fn settled(
    before_start: impl Fn() -> Option<Mask>,
    read: impl Fn() -> Option<Mask>,
) -> Option<Mask> {
    let mut backoff = Backoff::new();
    for _ in 0..NR_CHECKS {
        let before = before_start();
        if before.is_some() {
            return before;
        }
        let blocked = read()?;
        if blocked != ALL {
            return Some(blocked);
        }
        backoff.pause();
    }
    Some(ALL)
}

fn blocked_in(status: &[u8]) -> Option<Mask> {
    let status = String::from_utf8_lossy(status);
    let field = |name| status.lines().find_map(|line| line.strip_prefix(name));
    // The mask of a thread that has ended is meaningless.
    let is_there = !field("State:")?.trim_start().starts_with(['Z', 'X']);
    let blocked = Mask::from_str_radix(field("SigBlk:")?.trim(), 16).ok()?;
    is_there.then_some(blocked)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::thread::STACK_BYTES;

    #[test]
    fn a_name_with_a_nul_is_an_error() {
        let refused =
            spawn("n\0l", Cpus::OfFirst, STACK_BYTES, Box::new(|| unreachable!("refused")));
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn blocked_signals_are_read_from_procfs_of_a_live_thread() {
        let status = b"Name:\tSigBlk:\nState:\tS (sleeping)\nSigBlk:\t0000000000004001\n";
        let blocked = 1 << (libc::SIGHUP - 1) | 1 << (libc::SIGTERM - 1);
        assert_eq!(blocked_in(status), Some(blocked));
        let dead = b"State:\tZ (zombie)\nSigBlk:\t0000000000000000\n";
        assert!(blocked_in(dead).is_none() && blocked_in(b"").is_none());
    }

    #[test]
    fn a_start_by_the_first_thread_reads_no_procfs() {
        let nr_read = Cell::new(0);
        let read = |mask| {
            nr_read.set(nr_read.get() + 1);
            Some(mask)
        };
        assert_eq!((settled(|| Some(5), || read(7)), nr_read.get()), (Some(5), 0));
        assert_eq!((settled(|| None, || read(7)), nr_read.get()), (Some(7), 1));
        // The first thread begins to start a thread between the two checks.
        let begun = || (nr_read.get() > 1).then_some(5);
        assert_eq!((settled(begun, || read(ALL)), nr_read.get()), (Some(5), 2));
    }

    #[test]
    fn a_start_belongs_to_its_process() {
        let first = First { blocked: AtomicU64::new(0), process: AtomicU32::new(0) };
        assert_eq!(first.before_start(), None);
        first.begin(5);
        assert_eq!(first.before_start(), Some(5));
        first.end();
        assert_eq!(first.before_start(), None);
        // In a forked child, the process field still names its parent.
        first.process.store(std::process::id() + 1, Ordering::Relaxed);
        assert_eq!(first.before_start(), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no signal masks")]
    fn a_start_blocks_more_signals_than_programs_can() {
        let mut all = MaybeUninit::<libc::sigset_t>::uninit();
        let blocked = || blocked_in(&std::fs::read("/proc/thread-self/status").unwrap());
        // SAFETY: the first call initializes the set, and the other one reads it.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut());
        }
        let theirs = blocked().unwrap();
        assert_ne!(theirs, ALL);
        let signals = Signals::block_all();
        assert_eq!((signals.0, blocked()), (theirs, Some(ALL)));
        drop(signals);
        assert_eq!(blocked(), Some(theirs));
        set_blocked(0);
    }

    #[test]
    fn pthread_is_joined_with_its_panic_payload() {
        let spawn = |body: Body| Bare::spawn("bare", STACK_BYTES, body).unwrap();
        let name = || std::fs::read_to_string("/proc/thread-self/comm").unwrap();
        let named = spawn(Box::new(move || assert_eq!(name().trim_end(), "bare")));
        assert!(named.join().is_ok());
        let panics = spawn(Box::new(|| std::panic::panic_any(7)));
        assert_eq!(panics.join().unwrap_err().downcast_ref(), Some(&7));
        drop(spawn(Box::new(|| ())));
    }
}
